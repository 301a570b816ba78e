"""The part of the report that says what maintenance costs, written from the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.maintenance.cost import GOAL

BEGIN, END = "<!-- cost: written by the benchmark -->", "<!-- end of cost -->"
Measured = Mapping[str, Any]


def filled(report: str, found: Sequence[Measured]) -> str:
    """A report with what stands between two marks written anew."""
    before, _, rest = report.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the report has no place for figures; put {BEGIN} and {END} where they belong")
    return f"{before}{BEGIN}\n{costs(found)}\n{END}{after}"


def costs(found: Sequence[Measured]) -> str:
    """A table of sizes, and in words whether the goal is reached in the largest."""
    largest = found[-1]
    rows = [
        ["", *(f"{each['memories']:,} memories" for each in found), "goal"],
        ["---"] * (len(found) + 2),
        ["nothing new", *(f"{each['nothing_new_s']:.3f} s" for each in found), "< 1 s at 100,000"],
        ["nothing new, after the rounds", *(f"{each['nothing_new_after_s']:.3f} s" for each in found), ""],
        [f"{largest['new']:,} new: embed and index", *(_spread(each, "embed_and_index_s", " s") for each in found), ""],
        [f"{largest['new']:,} new: maintain", *(_spread(each, "maintain_s", " s") for each in found), ""],
        ["ratio", *(_spread(each, "ratio") for each in found), f"≤ {GOAL:g}"],
        ["rounds within the goal", *(f"{each['rounds_within_3x']} of {len(each['rounds'])}" for each in found), ""],
    ]  # fmt: skip
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{table}\n\n{_verdict(largest)}"


def _spread(each: Measured, name: str, unit: str = "") -> str:
    here = each[name]
    digits = 2 if name == "ratio" else 3
    return (
        f"**{here['median']:.{digits}f}** ({here['lowest']:.{digits}f} to {here['highest']:.{digits}f}){unit}"
    )


def _verdict(each: Measured) -> str:
    ratios = ", ".join(f"{one['ratio']:.2f}" for one in each["rounds"])
    median, within, rounds = each["ratio"]["median"], each["rounds_within_3x"], len(each["rounds"])
    compiled = each["processor"]["compiled"]
    how = (
        f"with the compiled package, neighbours by {each['processor']['neighbours']}"
        if compiled
        else "without the compiled package"
    )
    reached = "reached" if median <= GOAL else "not reached"
    return (
        f"Medians (lowest to highest) of {rounds} rounds, {how}; the machine's load average was {each['load']:.1f}"
        f" before the last size was measured. With {each['memories']:,} memories the goal is"
        f" **{reached} by the median** ({median:.2f}), and in {within} of {rounds} rounds: {ratios};"
        f" the warm-up, which does not count, {each['warm_up']['ratio']:.2f}."
    )
