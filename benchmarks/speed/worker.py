"""The process that holds one engine. It is told what to do in JSON lines and answers in JSON lines.

It runs in the engine's own environment, and imports little itself, so that what is measured is the engine.
"""

from __future__ import annotations

import json
import os
import sys
import time
from array import array
from importlib import import_module
from typing import TYPE_CHECKING, Any

from benchmarks.speed.engines.values import Answer, NotOfferedError, Query, Row, Where

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.speed.engines.contract import Engine

CHANNEL = 9
"""The file descriptor of the harness's pipe."""
BATCH = 1000
REHEARSED = 300
"""Rows that are written before anything is measured, in a store of their own."""
ABOUT = ("durability", "notes", "fusion", "lengths", "drops_function_words")
"""What an engine says of itself."""
BATCHES = 5
"""Times that the rows of a round are touched."""
AT_LEAST = 5
"""A time box never cuts a round below so many samples, unless the box has passed twice over."""


def resident() -> dict[str, float]:
    """Megabytes of this process: all, and those no file backs. Empty where the system does not tell."""
    found: dict[str, float] = {}
    try:
        with open("/proc/self/status") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name in ("VmRSS", "VmHWM", "RssAnon"):
                    found[name] = int(rest.split()[0]) / 1024
    except FileNotFoundError:
        pass
    return found


def disk(path: str) -> float:
    """Megabytes that the files under a folder take of the disk.

    Some engines make files of a fixed size and fill them later: what is not written yet has a length and no blocks.
    """
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            found = os.stat(os.path.join(folder, name))
            total += found.st_blocks * 512 if hasattr(found, "st_blocks") else found.st_size
    return total / 1e6


def read_rows(folder: str, name: str, dim: int, first: int, count: int | None) -> Iterator[Row]:
    """Rows `first`.. of a workload file."""
    with (
        open(os.path.join(folder, f"{name}.jsonl")) as lines,
        open(os.path.join(folder, f"{name}.f32"), "rb") as raw,
    ):
        raw.seek(first * dim * 4)
        for number, line in enumerate(lines):
            if number < first:
                continue
            if count is not None and number >= first + count:
                return
            id, text, team, project = json.loads(line)
            yield Row(id, text, array("f", raw.read(dim * 4)), team, project)


def read_queries(folder: str, dim: int) -> list[Query]:
    """Every question of a workload."""
    found: list[Query] = []
    with (
        open(os.path.join(folder, "queries.jsonl")) as lines,
        open(os.path.join(folder, "queries.f32"), "rb") as raw,
    ):
        for line in lines:
            id, text, question, team, project = json.loads(line)
            found.append(Query(id, text, question, array("f", raw.read(dim * 4)), team, project))
    return found


class Samples:
    """Wall and CPU nanoseconds of single calls, within a time box."""

    def __init__(self, box_s: float) -> None:
        self.wall: list[int] = []
        self.cpu: list[int] = []
        self.ends = time.monotonic() + box_s
        self.latest = time.monotonic() + 2 * box_s

    def full(self) -> bool:
        """Whether the box has passed."""
        now = time.monotonic()
        return now > self.latest or (now > self.ends and len(self.wall) >= AT_LEAST)

    def take(self, call: Callable[[], Any]) -> Any:
        """Time one call."""
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        result = call()
        self.wall.append(time.perf_counter_ns() - wall)
        self.cpu.append(time.process_time_ns() - cpu)
        return result

    def as_dict(self) -> dict[str, Any]:
        """For the answer line."""
        return {"wall_ns": self.wall, "cpu_ns": self.cpu}


class Worker:
    """The operations the harness may ask for; each is one method."""

    def __init__(self, engine: Engine, dim: int) -> None:
        self.engine = engine
        self.dim = dim
        self.path = ""
        self.folder = ""
        self.questions: list[Query] = []

    def op_open(self, path: str, folder: str) -> dict[str, Any]:
        """Open the store and read the questions."""
        self.path, self.folder = path, folder
        os.makedirs(path, exist_ok=True)
        self.engine.open(path, self.dim)
        self.questions = read_queries(folder, self.dim)
        about = {name: getattr(self.engine, name) for name in ABOUT}
        return {**about, "rss": resident()}

    def op_rehearse(self, path: str, folder: str) -> dict[str, Any]:
        """Write, settle and ask once in another store, so that what a process pays once is not counted as loading.

        Some engines load most of their modules when they are imported and some when they are used; a cold start counts
        both alike.
        """
        engine = type(self.engine)()
        os.makedirs(path)
        engine.open(path, self.dim)
        engine.load(list(read_rows(folder, "writes", self.dim, 0, REHEARSED)))
        engine.settle()
        engine.hybrid(read_queries(folder, self.dim)[-1], 10)
        engine.close()
        return {}

    def op_load(self, box_s: float) -> dict[str, Any]:
        """Load every row, in batches; stop at the time box. Reading the workload is not counted."""
        loaded, wall, cpu = 0, 0.0, 0.0
        rows = read_rows(self.folder, "rows", self.dim, 0, None)
        while batch := [row for _, row in zip(range(BATCH), rows, strict=False)]:
            cpu0, wall0 = time.process_time(), time.perf_counter()
            self.engine.load(batch)
            wall += time.perf_counter() - wall0
            cpu += time.process_time() - cpu0
            loaded += len(batch)
            if wall > box_s:
                break
        complete = next(rows, None) is None and loaded > 0
        return {"loaded": loaded, "complete": complete, "wall_s": wall, "cpu_s": cpu, "rss": resident()}

    def op_settle(self) -> dict[str, Any]:
        """Finish the indexes and answer once, so that nothing is left for the first question to pay."""
        cpu0, wall0 = time.process_time(), time.perf_counter()
        self.engine.settle()
        self.engine.hybrid(self.questions[-1], 10)
        return {
            "wall_s": time.perf_counter() - wall0,
            "cpu_s": time.process_time() - cpu0,
            "rss": resident(),
            "disk_mb": disk(self.path),
        }

    def _search(self, kind: str, query: Query) -> Answer:
        engine = self.engine
        where: Where = None
        if kind.startswith("filtered_"):
            where = ("team", query.team) if kind == "filtered_10" else ("project", query.project)
        many, ids_only = 50 if kind.endswith("50") else 10, kind.endswith("ids50")
        if kind in ("keyword", "keyword_ids50", "keyword_texts50"):
            return engine.keyword(query, query.text, many, ids_only)
        if kind == "question":
            return engine.keyword(query, query.question, 10, False)
        if kind == "hybrid":
            return engine.hybrid(query, 10)
        if kind == "default":
            return engine.default(query, 10)
        if kind.startswith("index_"):
            return engine.index(kind.removeprefix("index_"), query)
        if kind in ("vector", "vector_ids50", "vector_texts50") or where is not None:
            return engine.vector(query, many, where, ids_only)
        raise ValueError(f"there is no search {kind!r}")

    def _rows(self, answer: Answer) -> list[str]:
        """The rows of an answer; found when the clock has stopped."""
        return [self.engine.row_id(id) for id, _ in answer]

    def op_search(self, kind: str, first: int, count: int, box_s: float) -> dict[str, Any]:
        """Ask `count` questions of one kind."""
        samples = Samples(box_s)
        answers: list[list[str]] = []
        for query in self.questions[first : first + count]:
            answers.append(self._rows(samples.take(lambda q=query: self._search(kind, q))))
            if samples.full():
                break
        return {**samples.as_dict(), "answers": answers}

    def op_change(self, kind: str, first: int, count: int, box_s: float) -> dict[str, Any]:
        """Touch or update rows."""
        rows = list(read_rows(self.folder, "rows", self.dim, first, count))
        samples = Samples(box_s)
        if kind == "touch":
            for _ in range(BATCHES):
                self._touch(rows, samples)
                if samples.full():
                    break
            return samples.as_dict()
        for row in rows:
            samples.take(lambda r=row: self.engine.update(r, 0.7))
            if samples.full():
                break
        return samples.as_dict()

    def _touch(self, rows: Sequence[Row], samples: Samples) -> None:
        """A batch of touches, each with its share of writing down what was only held in memory.

        The first batch also bears what the searches before have left to write, and whatever a process pays that was
        halted for minutes. The median is that of another one, as it is where every touch is written by itself.
        """
        before = len(samples.cpu)
        for row in rows:
            samples.take(lambda r=row: self.engine.touch(r))
            if samples.full():
                break
        flush = Samples(0.0)
        flush.take(self.engine.flush)
        for mine, last in ((samples.wall, flush.wall[0]), (samples.cpu, flush.cpu[0])):
            mine[before:] = [each + last // (len(mine) - before) for each in mine[before:]]

    def op_write(self, kind: str, first: int, count: int, box_s: float) -> dict[str, Any]:
        """Single writes."""
        samples = Samples(box_s)
        how = "synced" if kind == "write" else kind.removeprefix("write_")
        for row in list(read_rows(self.folder, "writes", self.dim, first, count)):
            samples.take(lambda r=row: self.engine.write(r, how))
            if samples.full():
                break
        return samples.as_dict()

    def op_write_find(self, kind: str, first: int, count: int, box_s: float) -> dict[str, Any]:
        """Write a row and look for it at once; both are timed together."""
        samples, found = Samples(box_s), 0
        how = "synced" if kind == "write_find" else "unsynced"
        for row in list(read_rows(self.folder, "writes", self.dim, first, count)):
            words = " ".join(row.text.split()[-3:])
            query = Query(row.id, words, words, row.vector, row.team, row.project)

            def both(row: Row = row, query: Query = query) -> Answer:
                self.engine.write(row, how)
                return self.engine.hybrid(query, 10)

            found += row.id in self._rows(samples.take(both))
            if samples.full():
                break
        return {**samples.as_dict(), "found": found}

    def op_stream(self, first: int) -> dict[str, Any]:
        """Write until killed; every acknowledged row is reported by its own line."""
        written = 0
        for row in read_rows(self.folder, "writes", self.dim, first, None):
            self.engine.write(row)
            say({"acknowledged": row.id})
            written += 1
        return {"written": written}

    def op_verify(self, first: int, count: int) -> dict[str, Any]:
        """How many of the rows are missing: altogether, by their own word, and by their own vector."""
        missing = {"stored": 0, "keyword": 0, "vector": 0}
        offered = True
        for row in list(read_rows(self.folder, "writes", self.dim, first, count)):
            word = row.text.split()[-1]
            query = Query(row.id, word, word, row.vector, row.team, row.project)
            missing["stored"] += not self.engine.has(row.id)
            missing["vector"] += row.id not in self._rows(self.engine.vector(query, 10, None, False))
            try:
                missing["keyword"] += row.id not in self._rows(self.engine.keyword(query, word, 10, False))
            except NotOfferedError:
                offered = False
        return {"missing": missing, "keyword_offered": offered}

    def op_state(self) -> dict[str, Any]:
        """Memory and disk now."""
        return {"rss": resident(), "disk_mb": disk(self.path), "cpu_s": time.process_time()}

    def op_close(self) -> dict[str, Any]:
        """Close the engine."""
        self.engine.close()
        return {}


def say(message: dict[str, Any]) -> None:
    """One line to the harness."""
    os.write(CHANNEL, json.dumps(message).encode() + b"\n")


def load_engine(name: str) -> Engine:
    """The adapter of that name."""
    return import_module(f"benchmarks.speed.engines.{name}").ENGINE()


def serve(name: str, dim: int) -> None:
    """Answer the harness until it hangs up."""
    worker = Worker(load_engine(name), dim)
    for line in sys.stdin:
        order = json.loads(line)
        try:
            result = getattr(worker, f"op_{order.pop('op')}")(**order)
            say({"ok": True, "result": result})
        except NotOfferedError as error:
            say({"ok": False, "unsupported": True, "error": str(error)})
        except Exception as error:  # noqa: BLE001 - the process boundary: the harness reports it
            say({"ok": False, "error": f"{type(error).__name__}: {error}"[:500]})


if __name__ == "__main__":
    # Whatever a library prints must not mix with the answers.
    os.dup2(1, CHANNEL)
    os.dup2(2, 1)
    serve(sys.argv[1], int(sys.argv[2]))
