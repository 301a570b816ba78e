"""The results as one Markdown page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = (
    ("recall@5", "R@5"),
    ("recall@10", "R@10"),
    ("recall@20", "R@20"),
    ("ndcg@10", "nDCG@10"),
    ("mrr", "MRR"),
    ("nudcg@10", "nUDCG@10"),
    ("misled", "distractor first"),
    ("abstained where right", "abstains where right"),
    ("abstained rightly", "of its silences, right"),
    ("tokens@10", "tokens"),
    ("ms", "CPU ms"),
)


def markdown(results: Mapping[str, Any], *, order: Sequence[str] = ()) -> str:
    """One overview of recall@10 and one table per set."""
    sets = results["sets"]
    rankers = list(order) or list(next(iter(sets.values())))
    lines = [
        "# Quality",
        "",
        f"Run on {results['when']} at commit {results['commit']}; {results['how']}.",
        "",
        "## Recall@10, every ranker on every set",
        "",
        "| set | questions | " + " | ".join(rankers) + " |",
        "|---" * (len(rankers) + 2) + "|",
    ]
    for name, found in sets.items():
        if not next(iter(found.values()))["questions"]:
            continue
        cells = [_bold(found, ranker, rankers) for ranker in rankers]
        lines.append(f"| {name} | {next(iter(found.values()))['questions']} | " + " | ".join(cells) + " |")
    for name, found in sets.items():
        lines += ["", f"## {name}", "", *_table(found), *_kinds(found)]
    return "\n".join(lines) + "\n"


def _bold(found: Mapping[str, Any], ranker: str, rankers: Sequence[str]) -> str:
    best = max(found[each].get("recall@10", 0.0) for each in rankers)
    value = found[ranker].get("recall@10", 0.0)
    return f"**{value:.3f}**" if value == best else f"{value:.3f}"


def _table(found: Mapping[str, Any]) -> list[str]:
    used = [
        (key, title) for key, title in COLUMNS if any(each.get(key) is not None for each in found.values())
    ]
    lines = ["| ranker | " + " | ".join(title for _, title in used) + " |", "|---" * (len(used) + 1) + "|"]
    for ranker, each in found.items():
        cells = [_cell(each.get(key)) for key, _ in used]
        lines.append(f"| {ranker} | " + " | ".join(cells) + " |")
    return lines


def _kinds(found: Mapping[str, Any]) -> list[str]:
    kinds: Mapping[str, Any] = next(iter(found.values()))["kinds"]
    if len(kinds) < 2:
        return []
    lines = ["", "Recall@10 by kind of question:", "", "| ranker | " + " | ".join(kinds) + " |"]
    lines.append("|---" * (len(kinds) + 1) + "|")
    for ranker, each in found.items():
        lines.append(
            f"| {ranker} | " + " | ".join(_cell(each["kinds"][k]["recall@10"]) for k in kinds) + " |"
        )
    return lines


def _cell(value: float | int | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
