"""What it costs to wait for the write lock when many processes write to one bank: SQLite's pauses, and skep's queue.

`python -m benchmarks.writers` prints p50, p99 and the longest write of both in one run, in turn, and how unevenly the
lock went round. The ratios count; the milliseconds are those of a machine and its load.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from skep import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.storage.sqlite_connection import Connection


def write(path: str, name: str, count: int, *, queue: bool) -> None:
    """One of the processes: it says the seconds of each write."""
    if not queue:
        connect = Connection._connect

        def connected(self: Connection) -> object:
            db = connect(self)
            db.set_busy_timeout(60_000)
            return db

        Connection._connect = connected
        Connection._begin = lambda self, begin: self.execute(begin)
    took: list[float] = []
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        bank.remember(f"warm {name}", on_conflict="ignore")
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(count):
            begun = time.perf_counter()
            bank.remember(f"writer {name} {number}", on_conflict="ignore")
            took.append(time.perf_counter() - begun)
    print(json.dumps(took))


def together(folder: Path, processes: int, count: int, *, queue: bool) -> dict[str, float]:
    """All at once on one bank."""
    path = folder / f"{'queue' if queue else 'sqlite'}.skep"
    Bank.open(path, embedder=HashingEmbedder(64)).close()
    how = "--queue" if queue else "--sqlite"
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "benchmarks.writers",
                how,
                "--one",
                str(path),
                f"p{n}",
                "--writes",
                str(count),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    for one in started:
        one.stdout.readline()
    begun = time.perf_counter()
    for one in started:
        one.stdin.write("go\n")
        one.stdin.flush()
    took = sorted(seconds for one in started for seconds in json.loads(one.communicate()[0]))
    spent = time.perf_counter() - begun
    with Bank.open(path, embedder=HashingEmbedder(64)) as bank:
        said = [str(event.body["text"]).split() for event in bank.events() if event.kind == "remember"]
    order = [words[1] for words in said if words[0] == "writer"]
    return {
        "p50 ms": 1000 * took[len(took) // 2],
        "p99 ms": 1000 * took[int(len(took) * 0.99)],
        "longest ms": 1000 * took[-1],
        "all s": spent,
        "same writer again": sum(a == b for a, b in pairwise(order)) / len(order),
        "others' writes before one's first": max(order.index(f"p{n}") for n in range(processes)),
    }


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--processes", type=int, default=20)
    asked.add_argument("--writes", type=int, default=40)
    asked.add_argument("--rounds", type=int, default=3)
    asked.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    asked.add_argument("--queue", action="store_true", help=argparse.SUPPRESS)
    asked.add_argument("--sqlite", action="store_true", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        write(*given.one, given.writes, queue=given.queue)
        return
    for number in range(given.rounds):
        for queue in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                found = together(Path(folder), given.processes, given.writes, queue=queue)
            told = ", ".join(f"{name} {value:.3g}" for name, value in found.items())
            print(f"round {number + 1}, {'queue' if queue else 'sqlite'}: {told}", flush=True)


if __name__ == "__main__":
    main()
