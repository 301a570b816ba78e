"""What a hive costs: creating 100 agents, asking 100 shards, syncing 20 changes among 100k memories.

python -m benchmarks.hive.cost DATA_FOLDER --out benchmarks/hive/cost.json
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

from benchmarks.hive.data import build, environment, fill, read
from skep.bank import Bank
from skep.embedding.hashing import HashingEmbedder
from skep.hive import scatter as scatter_module
from skep.hive.replica import sync


def megabytes() -> float:
    """The most memory this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


def median(values: list[float]) -> float:
    """In milliseconds."""
    return round(sorted(values)[len(values) // 2] * 1000, 2)


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


def main() -> None:
    """Measure and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {
        "environment": environment(),
        "creation": creation(),
        "asking": asking(read(arguments.data, "locomo_obs")),
        "syncing": [syncing(size) for size in (1_000, 10_000, 100_000)],
    }
    print(json.dumps(report, indent=1))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
