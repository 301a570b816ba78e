"""The derived index alone: what building, opening, searching and catching up cost, and how much it finds.

    python -m benchmarks.micro.segments --size 100000

Texts and vectors are those of the speed benchmark. Times are CPU milliseconds in one process; recall is against
brute force over the exact vectors. The search runs in a process of its own, which sees only the finished index.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from benchmarks.speed.workload import DIM, Workload
from skep.filters import Filter, IndexRow
from skep.index.index import SegmentIndex
from skep.model import ANY, Scope
from skep.text.terms import query_terms

QUERIES = 300
WANTED = 50


class Rows:
    """The rows of a workload as an `IndexSource`, with room for later writes."""

    def __init__(self, size: int, load: bool = True) -> None:
        self.workload = Workload(size)
        self.size = size
        self.later: list[IndexRow] = []
        self._rows = list(self._made()) if load else []

    def _made(self) -> Iterator[IndexRow]:
        for number, row in enumerate(self.workload.rows(), 1):
            yield index_row(number, row.text, row.vector.tobytes(), row.project)

    def head(self) -> int:
        return self.size + len(self.later)

    def changed_since(self, seq: int) -> Iterator[IndexRow]:
        yield from self._rows[seq:]
        yield from self.later[max(0, seq - self.size) :]

    def fingerprint(self) -> str:
        return "workload"

    def dim(self) -> int:
        return DIM

    def identity(self) -> str:
        return f"workload-{self.size}"


def index_row(number: int, text: str, vector: bytes, project: str) -> IndexRow:
    return IndexRow(
        number, number, text, vector, "fact", "active", None, None, None, project, None, (), float(number),
        None, None, None, 0.8, float(number), 0.5,
    )  # fmt: skip


def timed(call: Callable[[int], Any], count: int) -> dict[str, float]:
    """The median and the ninth decile of some calls, after a few to warm up."""
    for i in range(5):
        call(i)
    spent: list[float] = []
    for i in range(count):
        start = time.process_time_ns()
        call(i)
        spent.append((time.process_time_ns() - start) / 1e6)
    spent.sort()
    return {"p50": round(spent[count // 2], 3), "p90": round(spent[count * 9 // 10], 3)}


def resident() -> float:
    """Megabytes of memory of this process, file pages included."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def truth(workload: Workload, queries: NDArray[np.float32]) -> NDArray[np.int64]:
    """The nearest rows of each query, by brute force, block after block."""
    best = np.full((len(queries), WANTED), -np.inf, dtype=np.float32)
    rows = np.zeros((len(queries), WANTED), dtype=np.int64)
    first = 1
    for block in workload.blocks():
        scores = np.concatenate([best, queries @ block.vectors.T], axis=1)
        numbers = np.arange(first, first + len(block.topics))
        known = np.concatenate([rows, np.broadcast_to(numbers, (len(queries), len(numbers)))], axis=1)
        top = np.argpartition(-scores, WANTED, axis=1)[:, :WANTED]
        best, rows = np.take_along_axis(scores, top, 1), np.take_along_axis(known, top, 1)
        first += len(numbers)
    return rows


def build(folder: Path, size: int) -> dict[str, Any]:
    rows = Rows(size)
    start = time.process_time()
    index = SegmentIndex(folder, rows)
    index.refresh()
    spent = time.process_time() - start
    stats = index.stats()
    return {
        "build_cpu_s": round(spent, 2),
        "segments": stats.segments,
        "bytes_mb": round(stats.bytes / 1e6, 1),
    }


def search(folder: Path, size: int) -> dict[str, Any]:
    rows = Rows(size, load=False)
    asked = rows.workload.queries(QUERIES)
    vectors = np.stack([np.frombuffer(query.vector.tobytes(), dtype=np.float32) for query in asked])
    terms = [query_terms(query.text) for query in asked]
    everything = Filter()
    found: dict[str, Any] = {"imported_mb": resident()}

    start = time.process_time_ns()
    index = SegmentIndex(folder, rows)
    index.refresh()
    index.search(terms[0], vectors[0], everything, k_words=WANTED, k_vectors=WANTED)
    found["open_and_first"] = round((time.process_time_ns() - start) / 1e6, 2)

    def hybrid(i: int) -> Any:
        i %= QUERIES
        return index.search(terms[i], vectors[i], everything, k_words=WANTED, k_vectors=WANTED)

    scopes = [Filter(scope=Scope(user=ANY, project=query.project, session=ANY)) for query in asked]
    found["keyword"] = timed(
        lambda i: index.search(terms[i % QUERIES], None, everything, k_words=WANTED, k_vectors=0), QUERIES
    )
    found["vector"] = timed(lambda i: index.similar(vectors[i % QUERIES], everything, WANTED), QUERIES)
    found["hybrid"] = timed(hybrid, QUERIES)
    found["filtered"] = timed(lambda i: index.similar(vectors[i % QUERIES], scopes[i % 10], WANTED), QUERIES)
    found["filter_not_seen_before"] = timed(
        lambda i: index.similar(vectors[i % QUERIES], Filter(since=float(i)), WANTED), 50
    )
    found["memory_mb"] = resident()
    return found | writing(index, rows, hybrid) | recall(index, rows.workload, vectors)


def writing(index: SegmentIndex, rows: Rows, hybrid: Callable[[int], Any]) -> dict[str, Any]:
    """Catching up with one row, alone and before a search."""
    new = list(rows.workload.writes(2 * QUERIES + 20))

    def write(_: int) -> None:
        row = new[len(rows.later)]
        rows.later.append(index_row(rows.head() + 1, row.text, row.vector.tobytes(), row.project))
        index.refresh()

    def write_and_ask(i: int) -> None:
        write(i)
        hybrid(i)

    return {"catch_up": timed(write, QUERIES), "write_then_hybrid": timed(write_and_ask, QUERIES)}


def recall(index: SegmentIndex, workload: Workload, vectors: NDArray[np.float32]) -> dict[str, float]:
    everything = Filter(until=float(workload.size + 1))
    right = truth(workload, vectors)
    shares = [
        len(set(index.similar(vector, everything, WANTED).rows.tolist()) & set(rows.tolist())) / WANTED
        for vector, rows in zip(vectors, right, strict=True)
    ]
    return {"recall": round(float(np.mean(shares)), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="keep the index here, and use it if it is there")
    parser.add_argument("--only", choices=["build", "search"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps({"build": build, "search": search}[given.only](given.folder, given.size)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        steps = ["search"] if (folder / "manifest.json").exists() else ["build", "search"]
        for step in steps:
            command = [sys.executable, "-m", "benchmarks.micro.segments", "--only", step]
            command += ["--size", str(given.size), "--folder", str(folder)]
            answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name, value in json.loads(answer).items():
                print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
