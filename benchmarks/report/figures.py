"""What the report says, as values: who won, how things grow. Pure functions on a results file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.speed.metrics import growth

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
    ("write", "single write, synced"),
    ("write_unsynced", "single write, unsynced"),
    ("write_checked", "single write, synced, conflicts looked for"),
    ("write_find", "write, then find it by hybrid"),
    ("touch", "touch (count a use)"),
    ("update", "update a field, durable"),
)
"""Operations in the order of the tables, and how they are called there."""
TITLES: dict[str, str] = dict(OPERATIONS)
COMPARED = tuple(op for op, _ in OPERATIONS if op not in ("default", "write_checked", "write_unsynced"))
"""Those in which a winner is named: the rest is skep's own, or weaker work."""
ENOUGH = {"keyword": 0.8, "keyword_ids50": 0.8, "hybrid": 0.8}
"""Answers that agree less than this (0.9 where nothing is said) with exact search are no win. Engines count stop
words and text lengths in their own ways, so that a sound BM25 may differ from the one here in one hit of ten."""
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
    return recall is None or recall >= ENOUGH.get(op, 0.9)


@dataclass(frozen=True)
class Verdict:
    """Who was fastest at one operation, and how skep stood to the best other engine."""

    size: int
    op: str
    best: str
    ratio: float
    """skep's CPU time over that of the best other engine: above 1 the other one wins."""
    rival: str

    @property
    def lost(self) -> bool:
        """Whether another engine was faster by more than the noise."""
        return self.ratio > NEAR


def verdicts(report: Report) -> list[Verdict]:
    """One per size and operation that skep and at least one other engine did well enough."""
    found: list[Verdict] = []
    for size in sizes(report):
        for op in COMPARED:
            times = {
                name: time
                for name in report["engines"]
                if (time := value(report, size, name, op)) is not None and right(report, size, name, op)
            }
            own = times.pop("skep", None)
            if own is None or not times:
                continue
            rival = min(times, key=lambda name: times[name])
            best = "skep" if own <= times[rival] else rival
            found.append(Verdict(size, op, best, own / times[rival], rival))
    return found


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
