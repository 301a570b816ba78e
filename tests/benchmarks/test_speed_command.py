"""What `python -m benchmarks.speed` understands, and that a whole run holds together."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.speed import environments
from benchmarks.speed import run as harness
from benchmarks.speed import worker as worker_module
from benchmarks.speed.__main__ import chosen, parser
from benchmarks.speed.engines.floor import Floor
from benchmarks.speed.engines.skep import Skep
from benchmarks.speed.engines.values import Query, Row
from benchmarks.speed.environments import Spec
from benchmarks.speed.plan import FULL, Plan
from benchmarks.speed.process import EngineError, import_time
from benchmarks.speed.worker import BATCHES, Worker, disk
from benchmarks.speed.workload import DIM, Workload, save

HERE = [
    Spec("skep", "skep", (), "skep.bank.bank", own=False),
    Spec("floor", "the floor", (), "apsw", own=False),
]


def given(*words: str) -> Plan:
    return chosen(parser().parse_args(words))


@pytest.mark.parametrize(
    "words",
    [
        ("--engines", "nonsense"),
        ("--sizes", "many"),
        ("--sizes", "10"),
        ("--rounds", "0"),
        ("--questions", "-3"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(words: tuple[str, str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(words)


def test_a_part_of_a_run_does_not_pass_for_a_whole_one() -> None:
    assert given("--full").profile == "full"
    assert given("--full", "--rounds", "2").profile == "full"
    assert given("--full", "--sizes", "1000").profile == "part"
    assert given("--full", "--engines", "floor").profile == "part"


def test_skep_is_always_among_the_engines() -> None:
    assert [spec.name for spec in parser().parse_args(["--engines", "floor"]).engines] == ["skep", "floor"]


def test_a_failure_inside_an_engine_is_not_taken_for_something_it_does_not_offer(tmp_path: Path) -> None:
    save(Workload(60, seed=3), tmp_path / "load", queries=2, writes=1)

    class Broken(Floor):
        def keyword(self, query: Query, text: str, k: int, ids_only: bool) -> list[tuple[str, str]]:
            return {}["no such key"]

    worker = Worker(Broken(), DIM)
    worker.op_open(str(tmp_path / "store"), str(tmp_path / "load"))
    with pytest.raises(KeyError):
        worker.op_search("keyword", 0, 1, 9.0)
    worker.op_close()


def test_a_touch_is_charged_its_share_of_writing_what_was_held_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(Workload(60, seed=3), tmp_path / "load", queries=2, writes=1)
    spent = [0]
    monkeypatch.setattr(worker_module.time, "process_time_ns", lambda: spent[0])

    class Held(Floor):
        def touch(self, row: Row) -> None:
            spent[0] += 7

        def flush(self) -> None:
            spent[0] += 1000

    worker = Worker(Held(), DIM)
    worker.op_open(str(tmp_path / "store"), str(tmp_path / "load"))
    held = worker.op_change("touch", 0, 10, 9.0)
    worker.op_close()

    assert held["cpu_ns"] == [107] * 10 * BATCHES
    assert spent == [BATCHES * (10 * 7 + 1000)]  # nothing is left out


def test_an_engine_rehearses_in_a_store_of_its_own_before_anything_is_measured(tmp_path: Path) -> None:
    save(Workload(60, seed=3), tmp_path / "load", queries=2, writes=5)
    loaded: list[tuple[Floor, int]] = []
    closed: list[Floor] = []

    class Seen(Floor):
        def load(self, rows: Sequence[Row]) -> None:
            loaded.append((self, len(rows)))
            super().load(rows)

        def close(self) -> None:
            closed.append(self)
            super().close()

    worker = Worker(Seen(), DIM)
    worker.op_rehearse(str(tmp_path / "rehearsal"), str(tmp_path / "load"))
    assert [count for _, count in loaded] == [5]
    assert closed == [engine for engine, _ in loaded] != [worker.engine]

    worker.op_open(str(tmp_path / "store"), str(tmp_path / "load"))
    assert not worker.engine.has("w0000000")
    worker.op_close()


def test_more_rounds_than_rows_leave_nothing_to_touch(tmp_path: Path) -> None:
    save(Workload(60, seed=3), tmp_path / "load", queries=2, writes=1)
    worker = Worker(Floor(), DIM)
    worker.op_open(str(tmp_path / "store"), str(tmp_path / "load"))

    assert worker.op_change("touch", 0, 0, 9.0) == {"wall_ns": [], "cpu_ns": []}
    worker.op_close()


def test_a_file_takes_what_is_written_of_it_and_not_what_it_may_grow_to(tmp_path: Path) -> None:
    with (tmp_path / "made ready").open("wb") as file:
        file.truncate(64_000_000)
    assert disk(str(tmp_path)) < 1.0

    (tmp_path / "written").write_bytes(bytes(range(256)) * 8192)
    assert 2.0 < disk(str(tmp_path)) < 3.0


def test_counted_uses_of_skep_are_written_when_it_is_asked_to(tmp_path: Path) -> None:
    row = next(Workload(1, seed=3).rows())
    engine = Skep()
    engine.open(str(tmp_path), DIM)
    engine.load([row])
    engine.touch(row)
    engine.flush()
    assert engine.bank.status().events == 2
    engine.close()


def test_a_whole_run_of_two_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "WORK", tmp_path)
    plan = Plan("part", (60, 200), 2, 4, 3, 1, 0, 60.0, 5.0, loads=2)

    report = json.loads(json.dumps(harness.run(plan, HERE, seed=5, say=lambda _: None)))

    for size in ("60", "200"):
        for name in ("skep", "floor"):
            entry = report["sizes"][size][name]
            assert entry["status"] == "ok", entry
            assert entry["load"]["repeats"] == 2
            assert entry["cold"]["status"] == "ok"
            assert entry["ops"]["vector"]["recall"] >= 0.9
            assert entry["ops"]["keyword"]["recall"] >= 0.9
            assert entry["ops"]["write_find"]["found"] == 1.0
        assert report["sizes"][size]["skep"]["ops"]["write_unsynced"]["status"] == "not offered"
        assert report["sizes"][size]["skep"]["ops"]["hybrid"]["exact"] == "pooled"
    assert set(report["environment"]) >= {"commit", "dirty", "cores", "load_before", "load_after", "python"}


def test_a_run_that_is_stopped_leaves_no_process_and_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness, "WORK", tmp_path)
    started: list[int] = []

    def stop(self: harness.SizeRun) -> None:
        started.extend(process.pid for process in self.processes.values())
        assert len(list((tmp_path / "stores").iterdir())) == len(started) == 2
        raise KeyboardInterrupt

    monkeypatch.setattr(harness.SizeRun, "measure", stop)
    with pytest.raises(KeyboardInterrupt):
        harness.run(Plan("part", (60,), 1, 1, 1, 1, 0, 60.0, 5.0), HERE, say=lambda _: None)

    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list((tmp_path / "stores").iterdir()) == []


def test_two_runs_do_not_measure_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "WORK", tmp_path)
    plan = Plan("part", (60,), 1, 1, 1, 1, 0, 60.0, 5.0)

    def again(*_: object) -> None:
        harness.run(plan, HERE, say=lambda _: None)

    monkeypatch.setattr(harness, "imports", again)
    with pytest.raises(SystemExit, match="another run is at work here"):
        harness.run(plan, HERE, say=lambda _: None)


def test_an_engine_whose_environment_is_broken_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path)
    with pytest.raises(environments.UnavailableError, match="its environment is broken"):
        environments.versions(environments.BY_NAME["floor"])

    slow = Spec("slow", "slow", (), "time; time.sleep(9)", own=False)
    with pytest.raises(EngineError, match="not imported within"):
        import_time(slow, timeout_s=0.5)


def test_the_full_profile_has_the_sizes_of_the_report() -> None:
    assert FULL.sizes == (1_000, 10_000, 100_000)
