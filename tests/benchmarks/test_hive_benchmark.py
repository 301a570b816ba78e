"""The measurements of the hive run on a set of a few documents, and say where they were made."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.hive import cost, parity
from benchmarks.hive.data import environment, read

FACTS = [f"The {thing} of {place} opens at {hour}." for hour, (thing, place) in enumerate(
    (thing, place) for thing in ("harbour", "library", "market") for place in ("Oslo", "Turku", "Visby")
)]  # fmt: skip


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "conv" / "small"
    folder.mkdir(parents=True)
    corpus = [{"id": f"d{n}", "text": text, "meta": {}} for n, text in enumerate(FACTS)]
    queries = [
        {"id": f"q{n}", "text": text.replace("opens at", "when"), "meta": {}} for n, text in enumerate(FACTS)
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        with gzip.open(folder / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    with gzip.open(folder / "qrels.tsv.gz", "wt") as file:
        file.writelines(f"q{n}\td{n}\t1\n" for n in range(len(FACTS)))
    (folder / "META.json").write_text(json.dumps({"scoped": False}))
    return tmp_path


def test_every_topology_is_compared_with_one_bank(data: Path) -> None:
    found = read(data, "small")
    found["asked"] = parity.answerable(found, 4)

    rows = parity.compare(found, (2,))

    assert [row["topology"] for row in rows] == ["single", *2 * ["flat", "federated", "sharded"]]
    assert all(row["recall_at_10"] == 1.0 and row["queries"] == 4 for row in rows)
    assert all(row["points_one_author"] == 0.0 for row in rows)


def test_asking_and_syncing_are_measured(data: Path) -> None:
    asked = cost.asking(read(data, "small"), agents=3, count=3)
    synced = cost.syncing(50, changes=3)

    assert (asked["shards"], asked["memories"]) == (3, len(FACTS))
    assert asked["one_scatter_wall_ms_p50"] > 0
    assert synced["changes"] == 3
    assert 0 < synced["bytes"] < 5000


def test_results_carry_machine_and_commit() -> None:
    assert {"commit", "dirty", "cores", "load_before", "python"} <= set(environment())


def test_a_hive_in_files_is_measured_in_a_process_of_its_own() -> None:
    found = cost.on_disk(agents=3, each=10, asked=2)

    assert (found["agents"], found["memories"]) == (3, 30)
    assert 0 < found["after_one_mb"] <= found["most_mb"]
    assert found["recall_cpu_ms_p50"] > 0
