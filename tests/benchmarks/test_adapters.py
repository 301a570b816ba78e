"""Adapters agree with exact search on the same 200 rows, and survive what the harness does to them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from benchmarks.speed.engines import qdrant
from benchmarks.speed.environments import Spec, process_environment
from benchmarks.speed.kill import kills, one_kill
from benchmarks.speed.metrics import mean_recall
from benchmarks.speed.process import EngineError, Process, UnsupportedError
from benchmarks.speed.truth import exact, kind_for
from benchmarks.speed.workload import DIM, Workload, save

WORKLOAD = Workload(200, seed=3)
QUERIES = WORKLOAD.queries(12)
TRUTH = exact(WORKLOAD, QUERIES)
ENGINES = ("floor", "skep")
"""Those that need nothing beyond skep's own dependencies."""


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    opened = import_module(f"benchmarks.speed.engines.{request.param}").ENGINE()
    opened.open(str(tmp_path), DIM)
    opened.load(list(WORKLOAD.rows()))
    opened.settle()
    yield opened
    opened.close()


def ids(engine: Any, answer: Any) -> list[str]:
    return [engine.row_id(id) for id, _ in answer]


def test_vector_search_agrees_with_the_exact_answer(engine: Any) -> None:
    found = [ids(engine, engine.vector(query, 50, None, True)) for query in QUERIES]

    assert mean_recall(found, TRUTH.vector, 10) == 1.0
    assert mean_recall(found, TRUTH.vector, 50) >= 0.99


def test_filtered_search_agrees_with_the_exact_answer(engine: Any) -> None:
    wide = [ids(engine, engine.vector(query, 10, ("team", query.team), False)) for query in QUERIES]
    narrow = [ids(engine, engine.vector(query, 10, ("project", query.project), False)) for query in QUERIES]
    named = [ids(engine, engine.vector(query, 50, ("project", query.project), True)) for query in QUERIES]

    assert mean_recall(wide, TRUTH.filtered_10, 10) == 1.0
    assert mean_recall(narrow, TRUTH.filtered_1, 10) == 1.0
    assert mean_recall(named, TRUTH.filtered_1, 50) == 1.0


def test_keyword_search_agrees_with_bm25(engine: Any) -> None:
    found = [ids(engine, engine.keyword(query, query.text, 50, True)) for query in QUERIES]

    assert mean_recall(found, TRUTH.keyword, 10) >= 0.9


def test_questions_with_function_words_agree_with_the_bm25_that_counts_as_the_engine(engine: Any) -> None:
    found = [ids(engine, engine.keyword(query, query.question, 10, True)) for query in QUERIES]
    about = {name: getattr(engine, name) for name in ("fusion", "lengths", "drops_function_words")}

    assert mean_recall(found, vars(TRUTH)[kind_for("question", about)], 10) >= 0.95


def test_hybrid_search_agrees_with_fused_exact_search(engine: Any) -> None:
    found = [ids(engine, engine.hybrid(query, 10)) for query in QUERIES]

    truth = TRUTH.pooled if engine.fusion == "pooled" else TRUTH.hybrid
    assert mean_recall(found, truth, 10) >= 0.9


def test_ids_alone_are_those_of_whole_answers(engine: Any) -> None:
    for query in QUERIES:
        assert ids(engine, engine.keyword(query, query.text, 50, True)) == ids(
            engine, engine.keyword(query, query.text, 50, False)
        )
        assert ids(engine, engine.vector(query, 50, None, True)) == ids(
            engine, engine.vector(query, 50, None, False)
        )


def test_answers_carry_the_text(engine: Any) -> None:
    texts = {row.id: row.text for row in WORKLOAD.rows()}

    assert all(texts[engine.row_id(id)] == text for id, text in engine.hybrid(QUERIES[0], 10))


def test_a_written_row_is_found_at_once_and_updates_keep_it(engine: Any) -> None:
    row = next(WORKLOAD.writes(1))
    engine.write(row)
    engine.touch(row)
    engine.update(row, 0.7)
    query = QUERIES[0]
    query.vector = row.vector
    query.text = row.text.split()[-1]

    assert ids(engine, engine.hybrid(query, 10))[0] == row.id
    assert engine.has(row.id)
    assert not engine.has("w9999999")


def test_a_kind_of_write_that_is_not_known_is_refused(engine: Any) -> None:
    with pytest.raises(LookupError, match="knows no"):
        engine.write(next(WORKLOAD.writes(1)), "telepathic")


FLOOR_HERE = Spec("floor", "floor", (), "apsw", own=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save(Workload(200, seed=3), tmp_path / "load", queries=6, writes=3000)
    return tmp_path / "load"


def test_a_worker_answers_in_json_lines_and_names_what_it_cannot_do(tmp_path: Path, folder: Path) -> None:
    worker = Process(FLOOR_HERE, DIM, tmp_path / "log")
    try:
        worker.ask("open", timeout_s=30, path=str(tmp_path / "store"), folder=str(folder))
        assert worker.ask("load", timeout_s=30, box_s=20.0)["loaded"] == 200
        worker.ask("settle", timeout_s=30)
        asked = worker.ask("search", timeout_s=30, kind="hybrid", first=0, count=3, box_s=20.0)
        assert [len(answer) for answer in asked["answers"]] == [10, 10, 10]
        assert len(asked["cpu_ns"]) == len(asked["wall_ns"]) == 3
        with pytest.raises(UnsupportedError):
            worker.ask("search", timeout_s=30, kind="default", first=0, count=1, box_s=20.0)
        with pytest.raises(EngineError, match="AttributeError"):
            worker.ask("nonsense", timeout_s=30)
    finally:
        worker.finish()


def test_a_time_box_stops_a_load_and_says_how_far_it_came(tmp_path: Path) -> None:
    save(Workload(2500, seed=3), tmp_path / "load", queries=1, writes=1)
    worker = Process(FLOOR_HERE, DIM, tmp_path / "log")
    try:
        worker.ask("open", timeout_s=30, path=str(tmp_path / "store"), folder=str(tmp_path / "load"))
        done = worker.ask("load", timeout_s=30, box_s=0.0)
    finally:
        worker.finish()

    assert (done["loaded"], done["complete"]) == (1000, False)


def test_a_process_that_dies_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    worker = Process(Spec("no_such_engine", "none", (), "none", own=False), DIM, tmp_path / "log")
    with pytest.raises(EngineError, match="no_such_engine"):
        worker.ask("open", timeout_s=30, path="x", folder="y")
    worker.kill()


def test_a_killed_store_can_be_written_and_killed_again(tmp_path: Path, folder: Path) -> None:
    found = kills(FLOOR_HERE, 3, folder, tmp_path / "work", longest_s=0.1)

    assert (found["status"], found["kills"]) == ("ok", 3), found
    assert found["missing"] == {"stored": 0, "keyword": 0, "vector": 0}


@pytest.mark.parametrize("name", ["floor", "skep"])
def test_nothing_acknowledged_is_missing_after_a_kill(tmp_path: Path, folder: Path, name: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    here = Spec(name, name, (), "apsw", own=False)

    found = one_kill(here, store, folder=folder, log=tmp_path / "log", first=0, patience_s=0.1)

    assert found["acknowledged"] > 0
    assert found["missing"] == {"stored": 0, "keyword": 0, "vector": 0}


def test_one_caller_has_one_thread_in_every_engine_that_lets_it_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = MagicMock()
    monkeypatch.setattr(qdrant, "import_module", lambda _: edge)
    qdrant.Qdrant().open(str(tmp_path), 4)

    assert edge.EdgeConfig.call_args.kwargs["max_search_threads"] == 1
    given = process_environment()
    assert {given[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")} == {"1"}
