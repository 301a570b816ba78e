"""The goals the design set, beside what was measured. Pure functions on results files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.report.figures import Report, right, sizes, value
from benchmarks.speed.show import figure, number

SOURCE = (
    "Source: the targets of the design, set before the engine was written from measurements of the peers and of a "
    "prototype of the index. The prototype answered from its index alone: ids, no memory read. So every goal of a "
    "single search is judged more than once, and every verdict counts. *Index alone* is the work that the goal was "
    "measured on; no user calls it so. *Ids through `Bank`* is what `Bank.rank` takes: the order that `recall` would "
    "give, as ids and scores, which is what other engines are asked for there. *Whole memories through `Bank`* is what "
    "`Bank.recall` takes: memories read, decoded, flagged and explained. "
    "The best other engine is always given with its whole call as a user makes it (fifty ids, fifty ids with texts, or "
    "ten): compare it with the lines through `Bank`. The goals stand as they were set, missed ones too."
)
INDEX, IDS, BANK, REST = (
    *("searches, index alone", "searches, ids through `Bank`"),
    *("searches, whole memories through `Bank`", "all else"),
)
"""Which work a goal is judged by."""
CALLED_AS = {
    "index_keyword": "keyword_ids50",
    "index_vector": "vector_ids50",
    "index_hybrid": "hybrid",
    "index_filtered_1": "filtered_1_ids50",
}
"""The whole call that other engines make for what the index is asked alone."""


@dataclass(frozen=True)
class Goal:
    """At most `most` of one figure at one size."""

    title: str
    size: int
    most: float
    unit: str
    op: str | None = None
    """An operation, by its CPU time."""
    paths: tuple[str, ...] = ()
    """Or figures of the size that are added up."""
    scale: float = 1.0
    least_recall: float | None = None

    @property
    def group(self) -> str:
        """Which work it is judged by."""
        if self.op in CALLED_AS:
            return INDEX
        return IDS if "ids through `Bank`" in self.title else BANK if "`Bank`" in self.title else REST


@dataclass(frozen=True)
class Standing:
    """A goal and what came of it; None where it was not measured."""

    title: str
    goal: str
    now: str
    reached: bool | None
    best_other: str = "–"
    group: str = REST


MILLION = 1_000_000
GOALS: tuple[Goal, ...] = (
    Goal("keyword, 50 ids, index alone", 100_000, 0.25, "ms", op="index_keyword"),
    Goal("keyword, 50 ids through `Bank`", 100_000, 0.25, "ms", op="keyword_ids50"),
    Goal("keyword, 50 whole memories through `Bank`", 100_000, 0.25, "ms", op="keyword_texts50"),
    Goal("vector, 50 ids, index alone", 100_000, 0.8, "ms", op="index_vector", least_recall=0.995),
    Goal("vector, 50 ids through `Bank`", 100_000, 0.8, "ms", op="vector_ids50", least_recall=0.995),
    Goal(
        "vector, 50 whole memories through `Bank`",
        100_000,
        0.8,
        "ms",
        op="vector_texts50",
        least_recall=0.995,
    ),
    Goal("hybrid, index alone", 100_000, 1.0, "ms", op="index_hybrid"),
    Goal("hybrid, 10 memories through `Bank`", 100_000, 1.0, "ms", op="hybrid"),
    Goal("vector, filter 1 %, 50 ids, index alone", 100_000, 0.25, "ms", op="index_filtered_1"),
    Goal("vector, filter 1 %, 50 ids through `Bank`", 100_000, 0.25, "ms", op="filtered_1_ids50"),
    Goal("vector, filter 1 %, 10 memories through `Bank`", 100_000, 0.25, "ms", op="filtered_1"),
    Goal("single write, synced", 100_000, 0.20, "ms", op="write"),
    Goal("write, then find it by hybrid", 100_000, 2.0, "ms", op="write_find"),
    Goal("touch", 100_000, 0.02, "ms", op="touch"),
    Goal("bulk load and index", 100_000, 6.0, "s", paths=("load.cpu_s", "settle.cpu_s")),
    Goal("process start to first answer", 100_000, 130.0, "ms", paths=("cold.cpu_s",), scale=1000.0),
    Goal("memory after load", 100_000, 80.0, "MB", paths=("settle.rss.VmRSS",)),
    Goal("hybrid, index alone", 10_000, 0.6, "ms", op="index_hybrid"),
    Goal("hybrid, 10 memories through `Bank`", 10_000, 0.6, "ms", op="hybrid"),
    Goal("hybrid, index alone", 1_000_000, 5.0, "ms", op="index_hybrid"),
    Goal("hybrid, 10 memories through `Bank`", 1_000_000, 5.0, "ms", op="hybrid"),
)
GROWTH = 8.0
"""Hybrid at a million may take less than so many times what it takes at 100,000."""
IMPORT_MS = 60.0
KILLS = 200


def _figure(report: Report, goal: Goal, engine: str) -> float | None:
    if str(goal.size) not in report["sizes"]:
        return None
    if goal.op is not None:
        op = goal.op if engine == "skep" else CALLED_AS.get(goal.op, goal.op)
        return value(report, goal.size, engine, op)
    found = figure(report["sizes"][str(goal.size)].get(engine, {}), goal.paths)
    return None if found is None else found * goal.scale


def _best_other(report: Report, goal: Goal) -> str:
    found = {
        name: got
        for name in report["engines"]
        if name != "skep"
        and (got := _figure(report, goal, name)) is not None
        and (goal.op is None or right(report, goal.size, name, CALLED_AS.get(goal.op, goal.op)))
    }
    if not found:
        return "–"
    best = min(found, key=lambda name: found[name])
    return f"{number(found[best])} {goal.unit}, {report['engines'][best]['title']}"


def _standing(report: Report, goal: Goal) -> Standing:
    title = f"{goal.title}, {goal.size:,} memories"
    wanted = f"≤ {goal.most:g} {goal.unit}"
    got = _figure(report, goal, "skep")
    if got is None:
        return Standing(title, wanted, "not measured", None, group=goal.group)
    now, reached = f"{number(got)} {goal.unit}", got <= goal.most
    recall = value(report, goal.size, "skep", goal.op, "recall") if goal.op else None
    if goal.least_recall is not None and recall is not None:
        now, reached = f"{now} (r {recall:.3f})", reached and recall >= goal.least_recall
    return Standing(title, wanted, now, reached, _best_other(report, goal), goal.group)


def _growth(report: Report) -> Standing:
    title, wanted = "growth of hybrid from 100,000 to 1,000,000", f"< ×{GROWTH:g}"
    if not {100_000, 1_000_000} <= set(sizes(report)):
        return Standing(title, wanted, "not measured", None)
    small, large = (value(report, size, "skep", "hybrid") for size in (100_000, 1_000_000))
    if not small or large is None:
        return Standing(title, wanted, "not measured", None)
    return Standing(title, wanted, f"×{large / small:.2g}", large / small < GROWTH)


def speed_goals(
    report: Report, large: Report | None = None, killed: dict[str, Any] | None = None
) -> list[Standing]:
    """Every goal of speed and safety.

    Args:
        report: The run.
        large: A run at a million, for the goals there, where this one did not go so far.
        killed: What `benchmarks.speed.kill` found, where it killed more often than this run.
    """
    of_million = large if large is not None and MILLION not in sizes(report) else report
    found = [_standing(of_million if goal.size == MILLION else report, goal) for goal in GOALS]
    found.append(_growth(of_million))
    taken = report.get("imports", {}).get("skep", {}).get("cpu_s")
    wanted = f"< {IMPORT_MS:g} ms"
    title = "import skep, beyond numpy"
    found.append(
        Standing(title, wanted, "not measured", None)
        if taken is None
        else Standing(title, wanted, f"{1000 * taken:.0f} ms", 1000 * taken < IMPORT_MS)
    )
    kill: dict[str, Any] | None = report.get("kills", {}).get("skep")
    often: dict[str, Any] | None = killed.get("skep") if killed else None
    if often and (kill is None or often["kills"] > kill["kills"]):
        kill = often
    if kill:
        lost = sum(kill["missing"].values())
        now = f"{lost} lost of {kill['acknowledged']:,} in {kill['kills']} kills"
        enough = None if not lost and kill["kills"] < KILLS else not lost and kill["status"] == "ok"
        found.append(Standing("acknowledged writes lost to SIGKILL", f"0 in {KILLS} kills", now, enough))
    return found


QUALITY: tuple[tuple[str, str, str, float], ...] = (
    ("locomo_obs", "recall@10", "≥", 0.80),
    ("locomo_turns", "recall@10", "≥", 0.75),
    ("beam_100k", "recall@10", "≥", 0.74),
    ("realmem", "recall@10", "≥", 0.32),
    ("gitbugs", "recall@10", "≥", 0.80),
    ("amplihack_hive", "recall@10", "≥", 0.85),
    ("scifact", "ndcg@10", "≥", 0.72),
    ("factcon_32k", "misled", "≤", 0.10),
    ("amplihack_forget", "misled", "≤", 0.10),
    ("beam_100k", "misled", "≤", 0.35),
    ("hotpot_distractor", "misled", "≤", 0.10),
    ("nomiracl_en", "abstained where right", "≥", 0.70),
    ("precisionmem", "abstained where right", "≥", 0.70),
    ("precisionmem", "precision", "≥", 0.60),
)
"""Set, figure of `default`, and the goal. `misled`: a distractor (an outdated value) stands before every answer."""
CALLED = {"misled": "distractor first", "abstained where right": "silent where right", "ndcg@10": "nDCG@10"}


def quality_goals(
    results: dict[str, Any], others: Sequence[str] = ("bm25", "mem0", "chroma")
) -> list[Standing]:
    """Every goal of quality, for the preset `default`; beside the best ranker of others."""
    found: list[Standing] = []
    for name, key, sign, wanted in QUALITY:
        ranked: dict[str, dict[str, Any]] = results["sets"].get(name, {})
        got = ranked.get("default", {}).get(key)
        peers = {o: ranked[o][key] for o in others if ranked.get(o, {}).get(key) is not None}
        best = (max if sign == "≥" else min)(peers, key=lambda o: peers[o]) if peers else None
        now = "not measured" if got is None else f"{got:.3f}"
        reached = None if got is None else (got >= wanted if sign == "≥" else got <= wanted)
        beside = "–" if best is None else f"{peers[best]:.3f}, {best}"
        found.append(
            Standing(f"{name}, {CALLED.get(key, key)}", f"{sign} {wanted:.2f}", now, reached, beside)
        )
    elsewhere = "measured in docs/explanation/conflicts.md"
    found.append(Standing("pairmix3, macro-F1 of the rules", "≥ 0.72", elsewhere, None))
    return found


def rows(standings: Sequence[Standing]) -> list[list[str]]:
    """For a table."""
    said = {True: "yes", False: "**no**", None: "–"}
    return [[s.title, s.goal, s.now, said[s.reached], s.best_other] for s in standings]


def tally(standings: Sequence[Standing]) -> str:
    """How many were reached, by the work they are judged by."""
    groups = dict.fromkeys(standing.group for standing in standings)
    said = (f"{group}: {count([s for s in standings if s.group == group]).rstrip('.')}" for group in groups)
    return "; ".join(said) + "."


def count(standings: Sequence[Standing]) -> str:
    """How many were reached."""
    yes, no, open_ = (sum(s.reached is which for s in standings) for which in (True, False, None))
    return f"{yes} reached, {no} missed" + (f", {open_} not decided by this run" if open_ else "") + "."
