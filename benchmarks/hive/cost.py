"""What a hive costs: creating 100 agents, asking 100 shards, syncing 20 changes among 100k memories.

python -m benchmarks.hive.cost DATA_FOLDER --out benchmarks/hive/cost.json
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.given import folder_of_sets, to_write
from benchmarks.hive.data import FILES, POLICY, build, environment, fill, read
from benchmarks.speed import worker
from skep.bank.bank import Bank
from skep.embedding.embedder import default_embedder
from skep.embedding.static_table import HashingEmbedder
from skep.hive import hive_recall as scatter_module
from skep.hive.hive import Hive
from skep.replication.exchange import sync

SET = "locomo_obs"
"""What the shards hold that are asked."""


def megabytes() -> float:
    """The most memory this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def median(values: list[float]) -> float:
    """In milliseconds."""
    return round(statistics.median(values) * 1000, 2)


def creation(agents: int = 100) -> dict[str, Any]:
    """Seconds and memory to have an empty sharded hive."""
    wall, cpu = time.perf_counter(), time.process_time()
    hive = build("sharded", agents)
    made = {"wall_s": round(time.perf_counter() - wall, 3), "cpu_s": round(time.process_time() - cpu, 3)}
    hive.close()
    return {"agents": agents, **made, "rss_mb": megabytes()}


def asking(data: dict[str, Any], agents: int = 100, count: int = 200) -> dict[str, Any]:
    """Wall and processor time of whole recalls, and of the scatter and gather inside them."""
    inside: list[float] = []
    original = scatter_module.Scatter.ask

    def timed(self: Any, ask: Any, **options: Any) -> Any:
        started = time.perf_counter()
        found = original(self, ask, **options)
        if found:
            inside.append(time.perf_counter() - started)
        return found

    wall: list[float] = []
    cpu: list[float] = []
    with build("sharded", agents) as hive:
        fill(hive, data["corpus"], agents)
        bank = hive.agent("agent-000")
        for query in data["queries"][:20]:
            bank.recall(query["text"], limit=10)
        scatter_module.Scatter.ask = timed  # type: ignore[method-assign]
        for query in data["queries"][:count]:
            started, spent = time.perf_counter(), time.process_time()
            bank.recall(query["text"], limit=10)
            wall.append(time.perf_counter() - started)
            cpu.append(time.process_time() - spent)
        scatter_module.Scatter.ask = original  # type: ignore[method-assign]
    return {
        "shards": agents,
        "memories": len(data["corpus"]),
        "recall_wall_ms_p50": median(wall),
        "recall_cpu_ms_p50": median(cpu),
        "one_scatter_wall_ms_p50": median(inside),
        "scatters_per_recall": round(len(inside) / len(wall), 2),
        "rss_mb": megabytes(),
    }


def resident() -> float:
    """Megabytes that this process holds now."""
    return round(worker.resident().get("VmRSS", 0.0), 1)


def on_disk(agents: int = 100, each: int = 100, asked: int = 20) -> dict[str, Any]:
    """Memory of a process that holds a sharded hive of banks in files: opened again, asked once, and more often."""
    names = [f"agent-{n:03}" for n in range(agents)]
    options: dict[str, Any] = {"policy": POLICY, "embedder": default_embedder()}
    with tempfile.TemporaryDirectory(prefix="hive-") as folder:
        with Hive.sharded(names, store=folder, **options) as hive:
            for n, name in enumerate(names):
                hive.agent(name).remember_many(
                    f"Fact {i} of agent {n}: thing {(7 * i + n) % 977} stands in place {(i + n) % 89}."
                    for i in range(each)
                )
        command = [
            sys.executable,
            "-m",
            "benchmarks.hive.cost",
            "--reopened",
            folder,
            str(agents),
            str(asked),
        ]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"agents": agents, "memories": agents * each, **json.loads(done.stdout)}


def reopened(folder: str, agents: int, asked: int) -> dict[str, Any]:
    """What a fresh process holds after one question to such a hive, and after some more."""
    names = [f"agent-{n:03}" for n in range(agents)]
    with Hive.sharded(names, store=folder, policy=POLICY, embedder=default_embedder()) as hive:
        bank = hive.agent(names[0])
        started = time.process_time()
        assert bank.recall("what stands in place 7?").hits
        first = {"first_recall_cpu_s": round(time.process_time() - started, 2), "after_one_mb": resident()}
        spent: list[float] = []
        for n in range(asked):
            started = time.process_time()
            bank.recall(f"where does thing {n} stand?")
            spent.append(time.process_time() - started)
        return {
            **first,
            "recall_cpu_ms_p50": median(spent),
            "after_more_mb": resident(),
            "most_mb": megabytes(),
        }


def syncing(size: int, changes: int = 20) -> dict[str, Any]:
    """Bytes and processor time of exchanging a few changes between replicas of many memories."""
    embedder = HashingEmbedder(64)
    with Bank.open(":memory:", embedder=embedder) as a, Bank.open(":memory:", embedder=embedder) as b:
        a.remember_many([f"Fact number {n} is about thing {n % 977} in place {n % 89}." for n in range(size)])
        sync(a, b)
        a.remember_many([f"News number {n} is about thing {n}." for n in range(changes)])
        started = time.process_time()
        done = sync(a, b)
        spent = time.process_time() - started
    return {
        "memories": size,
        "changes": done.sent.events,
        "bytes": done.sent.bytes,
        "cpu_ms": round(spent * 1000, 2),
    }


def main(given: list[str] | None = None) -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hive.cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, nargs="?", help="The folder of the evaluation sets.")
    parser.add_argument("--out", type=to_write)
    parser.add_argument("--reopened", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.reopened:
        folder, agents, asked = arguments.reopened
        print(json.dumps(reopened(folder, int(agents), int(asked))))
        return
    if arguments.data is None:
        parser.error("the folder of the evaluation sets is missing")
    folder_of_sets(arguments.data, [SET], *FILES)
    report: dict[str, Any] = {
        "environment": environment(),
        "creation": creation(),
        "asking": asking(read(arguments.data, SET)),
        "on_disk": on_disk(),
        "syncing": [syncing(size) for size in (1_000, 10_000, 100_000)],
    }
    print(json.dumps(report, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
