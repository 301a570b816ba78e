"""The workload is the same for the same seed, and looks like what agents remember."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from benchmarks.speed.truth import exact, kind_for
from benchmarks.speed.worker import read_queries, read_rows
from benchmarks.speed.workload import DIM, FUNCTION_WORDS, Workload, make_words, save


def vectors(rows: list) -> np.ndarray:
    return np.array([np.frombuffer(row.vector, np.float32) for row in rows])


def test_the_same_seed_gives_the_same_rows_and_questions() -> None:
    first, second = Workload(300, 5), Workload(300, 5)

    assert [(r.id, r.text, r.team, bytes(r.vector)) for r in first.rows()] == [
        (r.id, r.text, r.team, bytes(r.vector)) for r in second.rows()
    ]
    assert [(q.text, bytes(q.vector)) for q in first.queries(9)] == [
        (q.text, bytes(q.vector)) for q in second.queries(9)
    ]


def test_another_seed_gives_other_rows() -> None:
    assert next(Workload(1, 5).rows()).text != next(Workload(1, 6).rows()).text


def test_a_larger_workload_starts_with_the_smaller_one() -> None:
    small = [(r.text, bytes(r.vector), r.project) for r in Workload(50).rows()]
    large = [(r.text, bytes(r.vector), r.project) for r in Workload(200).rows()]

    assert small == large[:50]


def test_vectors_have_length_one_and_cluster_by_topic() -> None:
    workload = Workload(2000)
    found = vectors(list(workload.rows()))
    topics = next(workload.blocks()).topics
    cosines = found @ found.T
    same = topics[:, None] == topics[None, :]
    np.fill_diagonal(same, val=False)

    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert cosines[same].mean() > cosines[~same].mean() + 0.2


def test_words_fall_off_like_zipf() -> None:
    counts = Counter(word for row in Workload(2000).rows() for word in row.text.split())
    content = sorted((n for word, n in counts.items() if word not in FUNCTION_WORDS), reverse=True)

    assert counts["the"] > 10 * content[50]
    assert sum(n == 1 for n in content) > len(content) / 4


def test_filters_keep_a_tenth_and_a_hundredth() -> None:
    rows = list(Workload(5000).rows())

    assert 0.08 < sum(row.team == "t3" for row in rows) / 5000 < 0.12
    assert 0.005 < sum(row.project == "p42" for row in rows) / 5000 < 0.015


def test_made_up_words_are_distinct_and_not_changed_by_stemming() -> None:
    words = make_words(5000, np.random.default_rng(1))

    assert len(set(words)) == 5000
    assert not [w for w in words if w.endswith(("s", "ed", "ing", "ly", "er", "e", "y", "al", "ion"))]


def test_later_writes_carry_a_word_of_their_own() -> None:
    marks = [row.text.split()[-1] for row in Workload(100).writes(200)]

    assert len(set(marks)) == 200


def test_the_exact_vector_answer_is_a_full_sort() -> None:
    workload = Workload(500)
    queries = workload.queries(4)
    truth = exact(workload, queries)
    matrix = vectors(list(workload.rows()))

    for query, found in zip(queries, truth.vector, strict=True):
        order = np.argsort(-(matrix @ np.frombuffer(query.vector, np.float32)), kind="stable")[:50]
        assert [f"r{i:07d}" for i in order] == found


def test_filtered_answers_meet_the_filter() -> None:
    workload = Workload(3000)
    queries = workload.queries(5)
    rows = {row.id: row for row in workload.rows()}
    truth = exact(workload, queries)

    for query, found in zip(queries, truth.filtered_1, strict=True):
        assert {rows[id].project for id in found} <= {query.project}
        assert found


def test_the_exact_keyword_answer_holds_only_rows_with_a_word_of_the_question() -> None:
    workload = Workload(400)
    queries = workload.queries(6)
    rows = {row.id: set(row.text.split()) for row in workload.rows()}

    for query, found in zip(queries, exact(workload, queries).keyword, strict=True):
        assert found
        assert all(rows[id] & set(query.text.split()) for id in found)


def test_what_is_saved_is_what_workers_read(tmp_path: Path) -> None:
    workload = Workload(60)
    save(workload, tmp_path, queries=3, writes=5)

    read = list(read_rows(str(tmp_path), "rows", DIM, 0, None))
    assert [(r.id, r.text, r.vector) for r in workload.rows()] == [(r.id, r.text, r.vector) for r in read]
    assert [r.id for r in workload.writes(5)][2:4] == [
        r.id for r in read_rows(str(tmp_path), "writes", DIM, 2, 2)
    ]
    assert [q.question for q in workload.queries(3)] == [q.question for q in read_queries(str(tmp_path), DIM)]


def bm25(rows: list, words: list[str], kind: str) -> list[str]:
    """The best fifty by a BM25 written out again, from the texts that engines are given."""
    said = [Counter(row.text.split()) for row in rows]
    sizes = [
        sum(n for w, n in each.items() if not (kind == "keyword_content" and w in FUNCTION_WORDS))
        for each in said
    ]
    mean = sum(sizes) / len(sizes)
    scores: dict[str, float] = {}
    for word in words:
        inside = [i for i, each in enumerate(said) if word in each]
        odds = (len(rows) - len(inside) + 0.5) / (len(inside) + 0.5)
        idf = max(math.log(odds), 1e-6) if kind == "question" else math.log(1 + odds)
        for i in inside:
            count = said[i][word]
            part = idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * sizes[i] / mean))
            scores[rows[i].id] = scores.get(rows[i].id, 0.0) + part
    return sorted(scores, key=lambda id: (-round(scores[id], 5), id))[:50]


@pytest.mark.parametrize("kind", ["keyword", "keyword_content", "question"])
def test_the_exact_keyword_answers_are_those_of_a_plain_bm25(kind: str) -> None:
    workload = Workload(700)
    rows = list(workload.rows())
    queries = workload.queries(8)

    for query, found in zip(queries, vars(exact(workload, queries))[kind], strict=True):
        words = sorted(set((query.question if kind == "question" else query.text).split()))
        plain = bm25(rows, words, kind)
        assert len(set(found[:10]) & set(plain[:10])) >= min(10, len(plain)) - 1  # one tie at the edge
        assert found[0] == plain[0]


def test_every_engine_is_compared_with_an_exact_search_that_counts_as_it_does() -> None:
    plain = {"fusion": "listed", "lengths": "all", "drops_function_words": False}

    assert kind_for("keyword", plain) == "keyword"
    assert kind_for("question", plain) == "question"
    assert kind_for("hybrid", plain | {"fusion": "pooled"}) == "pooled"
    assert kind_for("hybrid", plain | {"lengths": "content"}) == "hybrid_content"
    assert (
        kind_for("question", plain | {"lengths": "content", "drops_function_words": True})
        == "keyword_content"
    )
    assert kind_for("filtered_1", plain) == "filtered_1"
