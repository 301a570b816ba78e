"""The metrics of the quality benchmark, and the small set that ships with it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from benchmarks.quality import metrics, sets
from benchmarks.quality.__main__ import main

LABELS = {"a": 1, "b": 1, "c": 1, "d": -1}


def test_a_distractor_costs_what_a_relevant_document_earns() -> None:
    assert round(metrics.udcg(["a", "d", "b", "x", "c"], LABELS, 5), 3) == 1.256
    assert round(metrics.nudcg(["a", "d", "b", "x", "c"], LABELS, 5), 3) == 0.589


def test_without_the_distractor_the_rest_moves_up() -> None:
    assert round(metrics.nudcg(["a", "b", "x", "c"], LABELS, 5), 3) == 0.967


def test_only_the_best_chunk_of_a_document_counts() -> None:
    assert metrics.udcg(["a", "a", "a", "b"], LABELS, 5) == metrics.udcg(["a", "b"], LABELS, 5)


def test_recall_rank_and_misleading_are_as_their_names_say() -> None:
    ranked = ["x", "d", "b", "a"]

    assert metrics.recall(ranked, LABELS, 3) == 1 / 3
    assert metrics.reciprocal_rank(ranked, LABELS) == 1 / 3
    assert metrics.misled(ranked, LABELS)
    assert not metrics.misled(["b", "d"], LABELS)
    assert metrics.precision(ranked, LABELS) == 0.5


def test_the_metrics_agree_with_ir_measures() -> None:
    ir = pytest.importorskip("ir_measures")
    rng = random.Random(7)
    labels = {f"d{i}": rng.choice([0, 0, 0, 1]) for i in range(40)} | {"d0": 1}
    ranked = rng.sample(list(labels), 30)
    run = [ir.ScoredDoc("q", document, float(-place)) for place, document in enumerate(ranked)]
    qrels = [ir.Qrel("q", document, grade) for document, grade in labels.items()]

    found = ir.calc_aggregate([ir.nDCG @ 10, ir.R @ 10, ir.RR], qrels, run)

    assert found[ir.nDCG @ 10] == pytest.approx(metrics.ndcg(ranked, labels, 10))
    assert found[ir.R @ 10] == pytest.approx(metrics.recall(ranked, labels, 10))
    assert found[ir.RR] == pytest.approx(metrics.reciprocal_rank(ranked, labels))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1:56 pm on 8 May, 2023", 1683554160.0),
        ("2025-12-20 (Saturday)", 1766188800.0),
        ("March-15-2024", 1710460800.0),
        ("2025-01-15T09:00:00Z", 1736931600.0),
        ("soon", None),
    ],
)
def test_dates_of_the_sets_are_read(text: str, seconds: float | None) -> None:
    assert sets.moment(text) == seconds


def test_the_own_set_is_whole() -> None:
    own = sets.load_own()
    ids = {memory.id for memory in own.memories}

    assert (len(own.memories), len(own.questions)) == (60, 40)
    assert all(set(question.labels) <= ids for question in own.questions)
    assert any(not question.labels for question in own.questions)


def test_on_the_own_set_the_default_finds_everything_and_is_never_silent(tmp_path: Path) -> None:
    main(["--sets", "own", "--presets", "bm25", "default", "default+table", "--out", str(tmp_path)])

    found = json.loads((tmp_path / "quality.json").read_text())["sets"]["own"]

    for ranker in ("default", "default+table"):
        assert (found[ranker]["recall@10"], found[ranker]["abstained where right"]) == (1.0, 0.0)
        assert found[ranker]["mrr"] > found["bm25"]["mrr"]
        assert found[ranker]["misled"] < found["bm25"]["misled"]
    assert "| own | 34 |" in (tmp_path / "quality.md").read_text()
