"""What the report says, as values: who won, how things grow. Pure functions on a results file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

from benchmarks.speed.environments import BY_NAME
from benchmarks.speed.metrics import growth
from benchmarks.speed.plan import CHANGES, FINDS, SEARCHES, SEED, WRITES, changed, profile_of
from benchmarks.speed.show import figure

Report = dict[str, Any]

OPERATIONS: tuple[tuple[str, str], ...] = (
    ("keyword", "keyword, 10 texts"),
    ("question", "question with function words, 10 texts"),
    ("vector", "vector, 10 texts"),
    ("hybrid", "hybrid (RRF of 50 + 50), 10 texts"),
    ("default", "default recall, 10 texts"),
    ("filtered_1", "vector, filter 1 %"),
    ("filtered_10", "vector, filter 10 %"),
    ("keyword_ids50", "keyword, 50 ids"),
    ("vector_ids50", "vector, 50 ids"),
    ("filtered_1_ids50", "vector, filter 1 %, 50 ids"),
    ("keyword_texts50", "keyword, 50 texts"),
    ("vector_texts50", "vector, 50 texts"),
    ("index_keyword", "index alone: keyword, 50 ids"),
    ("index_vector", "index alone: vector, 50 ids"),
    ("index_hybrid", "index alone: hybrid (RRF of 50 + 50), 10 ids"),
    ("index_filtered_1", "index alone: vector, filter 1 %, 50 ids"),
    ("write", "single write, synced"),
    ("write_unsynced", "single write, unsynced"),
    ("write_checked", "single write, synced, conflicts looked for"),
    ("write_find", "write, then find it by hybrid"),
    ("write_find_unsynced", "the same, the write unsynced"),
    ("touch", "touch (count a use)"),
    ("update", "update a field, durable"),
)
"""Operations in the order of the tables, and how they are called there."""
TITLES: dict[str, str] = dict(OPERATIONS)
COMPARED = tuple(
    op
    for op, _ in OPERATIONS
    if op not in ("default", "write_checked", "write_unsynced", "write_find_unsynced")
    and not op.startswith("index_")
)
"""Those in which a winner is named: the rest is skep's own, or weaker work."""
RESOURCES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("bulk load and index, CPU", ("load.cpu_s", "settle.cpu_s"), "s"),
    ("process start to first answer, CPU", ("cold.cpu_s",), "s"),
    ("memory after load", ("settle.rss.VmRSS",), "MB"),
    ("memory of a fresh process after one answer", ("cold.rss.VmRSS",), "MB"),
    ("disk", ("settle.disk_mb",), "MB"),
)
"""What is compared besides the operations: title, the figures that are added up, unit."""
ENOUGH = 0.9
ENOUGH_WORDS = 0.8
"""Answers that agree less than this with exact search are no win; the second where words are ranked, which engines do
with small differences. Questions with function words are not judged so: every engine weighs those in its own way."""
NEAR = 1.05
"""Within this factor two engines are equal: the noise of a shared machine."""


def sizes(report: Report) -> list[int]:
    """The sizes measured, smallest first."""
    return sorted(int(size) for size in report["sizes"])


def value(report: Report, size: int, engine: str, op: str, key: str = "cpu_p50") -> float | None:
    """One figure of one operation, or None."""
    got = report["sizes"][str(size)].get(engine, {}).get("ops", {}).get(op, {}).get(key)
    return None if got is None else float(got)


def right(report: Report, size: int, engine: str, op: str) -> bool:
    """Whether the answers were near enough to exact search to be compared by speed."""
    recall = value(report, size, engine, op, "recall")
    by_words = op.removeprefix("index_") in ("keyword", "keyword_ids50", "keyword_texts50", "hybrid")
    least = ENOUGH_WORDS if by_words else ENOUGH
    return recall is None or op == "question" or recall >= least


def broke_down(report: Report, size: int, engine: str, op: str) -> bool:
    """Whether an operation was not measured because the engine had failed in it or in one before."""
    entry = report["sizes"][str(size)].get(engine, {})
    order = (*SEARCHES, *CHANGES, *WRITES, *FINDS)
    at = str(entry.get("reason", "")).partition(":")[0]
    there = entry.get("ops", {}).get(op, {})
    return not there and at in order and op in order and order.index(op) >= order.index(at)


def command(report: Report, size: int | None = None) -> str:
    """What takes the same measurement again, or that of one size."""
    profile = profile_of(report["plan"])
    words = ["python -m benchmarks.speed", f"--{profile.profile}"]
    engines = [name for name in report["engines"] if name in BY_NAME]
    if set(engines) != set(BY_NAME):
        words += ["--engines", ",".join(engines)]
    known = [size] if size is not None else sizes(report)
    if tuple(known) != profile.sizes:
        words += ["--sizes", ",".join(map(str, known))]
    words += [word for pair in changed(report["plan"]).items() for word in pair]
    if report["workload"]["seed"] != SEED:
        words += ["--seed", str(report["workload"]["seed"])]
    return " ".join(words)


@dataclass(frozen=True)
class Verdict:
    """Who was fastest at one operation, and how skep stood to the best other engine."""

    size: int
    op: str
    best: str
    ratio: float
    """skep's time, or need, over that of the best other engine: above 1 the other one wins."""
    rival: str

    @property
    def lost(self) -> bool:
        """Whether another engine was faster by more than the noise."""
        return self.ratio > NEAR


def verdicts(report: Report, key: str = "cpu_p50") -> list[Verdict]:
    """One per size and operation that skep and at least one other engine did well enough, by one figure."""
    found: list[Verdict] = []
    for size in sizes(report):
        for op in COMPARED:
            times = {
                name: time
                for name in report["engines"]
                if (time := value(report, size, name, op, key)) is not None and right(report, size, name, op)
            }
            found += _verdict(size, op, times)
    return found


def beside(report: Report, rival: str) -> Report:
    """The same results with one other engine alone."""
    return report | {"engines": {name: report["engines"][name] for name in ("skep", rival)}}


def typical(found: Sequence[Verdict]) -> float:
    """How many times the need of skep the others need, as the geometric mean over some verdicts."""
    return exp(-sum(log(verdict.ratio) for verdict in found) / len(found))


def resources(report: Report) -> list[Verdict]:
    """One per size and resource: loading, starting, memory, disk. `op` is the title of the resource."""
    found: list[Verdict] = []
    for size in sizes(report):
        entries = report["sizes"][str(size)]
        for title, paths, _ in RESOURCES:
            needs = {
                name: need
                for name in report["engines"]
                if (need := figure(entries.get(name, {}), paths)) is not None
            }
            found += _verdict(size, title, needs)
    return found


def _verdict(size: int, op: str, needs: dict[str, float]) -> list[Verdict]:
    """Who needs least, if there is anybody to compare skep with."""
    own = needs.pop("skep", None)
    if own is None or not needs:
        return []
    rival = min(needs, key=lambda name: needs[name])
    best = "skep" if own <= needs[rival] else rival
    return [Verdict(size, op, best, own / needs[rival], rival)]


def loads(report: Report, size: int) -> tuple[float, float] | None:
    """The median and the highest load average during the rounds of one size."""
    seen = [
        load
        for entry in report["sizes"][str(size)].values()
        for op in entry.get("ops", {}).values()
        for load in op.get("load", ())
    ]
    return (round(median(seen), 2), max(seen)) if seen else None


def exponents(report: Report) -> dict[str, dict[str, float]]:
    """Per operation and engine, the exponent of its growth with size."""
    out: dict[str, dict[str, float]] = {}
    for op, _ in OPERATIONS:
        for name in report["engines"]:
            points = {
                size: time for size in sizes(report) if (time := value(report, size, name, op)) is not None
            }
            slope = growth(points)
            if slope is not None:
                out.setdefault(op, {})[name] = slope
    return out
