"""What the commands of the benchmarks refuse, in words and before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.given import folder_of_sets, number, results, seconds
from benchmarks.hive import cost as hive_cost
from benchmarks.hive import parity
from benchmarks.maintenance import __main__ as maintenance
from benchmarks.quality.__main__ import main as quality
from benchmarks.report.goals import speed_goals
from benchmarks.speed import kill, machine
from benchmarks.speed.__main__ import parser
from benchmarks.speed.engines.floor import Floor
from benchmarks.speed.profile import KINDS, calls
from benchmarks.speed.worker import Worker
from benchmarks.speed.workload import DIM, Workload, save
from tests.benchmarks import tiny


def test_numbers_and_times_are_above_their_least() -> None:
    assert (number(0)("0"), number(50)("1000"), seconds("2.5")) == (0, 1000, 2.5)
    for read, text in (
        (number(1), "0"),
        (number(1), "²"),
        (number(1), "1e5"),
        (seconds, "nan"),
        (seconds, "0"),
    ):
        with pytest.raises(Exception, match="is no"):
            read(text)


def test_a_results_file_that_is_cut_in_half_or_of_something_else_is_refused_in_words(tmp_path: Path) -> None:
    whole, half = tmp_path / "whole.json", tmp_path / "half.json"
    whole.write_text(json.dumps(tiny.results()))
    half.write_text(whole.read_text()[:200])

    assert results(whole, "speed", "profile")["profile"] == "quick"
    for path, said in (
        (half, "a part of it"),
        (tmp_path, "Is a directory"),
        (tmp_path / "none", "No such file"),
    ):
        with pytest.raises(SystemExit, match=said):
            results(path, "speed")
    with pytest.raises(SystemExit, match="no results of speed: it has no 'plot'"):
        results(whole, "speed", "plot")


def test_what_cannot_be_written_is_said_before_the_run_and_not_after_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert parser().parse_args(["--out", str(tmp_path / "new" / "a.json")]).out.parent.is_dir()
    for out in (tmp_path, tmp_path / "file" / "a.json"):
        with pytest.raises(SystemExit):
            parser().parse_args(["--out", str(out)])


@pytest.mark.parametrize("command", [parity.main, hive_cost.main])
def test_sets_that_are_not_there_are_named(command: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no .*META\.json"):
        command([str(tmp_path)])
    with pytest.raises(SystemExit, match=r"there is no .*a\.gz"):
        folder_of_sets(tmp_path, ["one"], "a.gz")


def test_quality_refuses_what_it_cannot_read_or_rank(tmp_path: Path) -> None:
    broken = tmp_path / "conv" / "broken"
    broken.mkdir(parents=True)
    for name in ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels.tsv.gz"):
        (broken / name).write_text("no archive")
    out = ["--out", str(tmp_path / "out")]

    for words, said in (
        (["--data", str(tmp_path), "--sets", "broken"], "the set 'broken' under .* cannot be read"),
        (["--bank", "--presets", "bm25"], "a bank has no preset 'bm25'"),
        (["--model", str(tmp_path / "none")], "no model at"),
        (["--merge"], "cannot read .*quality.json"),
    ):
        with pytest.raises(SystemExit, match=said):
            quality([*words, *out])


def test_a_part_of_maintenance_without_data_is_refused_and_never_dated_anew(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    old = {"commit": "old"}
    out.write_text(json.dumps({"updates": {"of": "old"}, "taken": {"updates": old, "planted": old}}))

    assert maintenance.chosen(None, None) == ["planted", "cost"]
    with pytest.raises(SystemExit, match="updates needs --data"):
        maintenance.main(["--parts", "updates", "--out", str(out)])
    with pytest.raises(SystemExit, match=r"there is no .*factcon_32k"):
        maintenance.main(["--data", str(tmp_path), "--parts", "updates"])
    maintenance.main(["--parts", "planted", "--originals", "12", "--out", str(out)])

    found = json.loads(out.read_text())
    assert found["taken"]["updates"] == old
    assert found["taken"]["planted"]["commit"] != "old"


def test_kills_of_another_engine_or_too_few_do_not_take_the_place_of_the_committed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_lost(spec: Any, count: int, *_: Any, **__: Any) -> dict[str, Any]:
        return {"kills": count, "acknowledged": 1, "missing": {"stored": 0}, "status": "ok"}

    for name, work in (("kills", none_lost), ("prepare", lambda _: None), ("versions", lambda _: {})):
        monkeypatch.setattr(kill, name, work)
    monkeypatch.setattr(kill, "HERE", tmp_path)
    monkeypatch.setattr(kill, "SHORT_ROWS", 1)

    kill.main(["--kills", "3"])
    kill.main(["--engine", "floor"])
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["kills-part.json"]
    kill.main([])
    assert {path.name for path in (tmp_path / "results").iterdir()} == {"kills-part.json", "kills.json"}
    with pytest.raises(SystemExit):
        kill.main(["--kills", "0"])

    of_floor = json.loads((tmp_path / "results" / "kills-part.json").read_text())
    assert speed_goals(tiny.results(), killed=of_floor)[-1].reached is None


def test_every_kind_that_can_be_profiled_does_what_it_says(tmp_path: Path) -> None:
    save(Workload(60, seed=3), tmp_path / "load", queries=12, writes=2100)
    done: list[str] = []

    class Watched(Floor):
        def __getattribute__(self, name: str) -> Any:
            if name in ("keyword", "vector", "hybrid", "touch", "update", "write", "default", "index"):
                done.append(name)
                return lambda *_: []
            return super().__getattribute__(name)

    worker = Worker(Watched(), DIM)
    worker.op_open(str(tmp_path / "store"), str(tmp_path / "load"))
    worker.engine.bank = type("Empty", (), {"find": lambda *_, **__: []})()  # type: ignore[attr-defined]
    for kind in KINDS:
        done.clear()
        calls(worker, kind, 1)[0]()
        first = kind.removeprefix("filtered_1").split("_")[0] or "vector"
        assert done[0] == {"question": "keyword", "0": "vector"}.get(first, first), kind
    with pytest.raises(ValueError, match="there is no search 'nonsense'"):
        calls(worker, "nonsense", 1)[0]()
    worker.op_close()


def test_a_commit_is_dirty_by_what_is_measured_and_by_what_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def git(words: list[str], **_: Any) -> Any:
        asked.append(words)
        return type("Done", (), {"stdout": ""})()

    monkeypatch.setattr(machine.subprocess, "run", git)
    machine.commit(Path(), "benchmarks/hive")

    assert asked[-1][-3:] == ["src", "core", "benchmarks/hive"]
