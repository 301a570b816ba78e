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
    ("abstention accuracy", "silent or not, rightly"),
    ("abstained where right", "abstains where right"),
    ("abstained rightly", "of its silences, right"),
    ("tokens@10", "tokens"),
    ("ms", "CPU ms"),
)


ORDER = (
    "bm25", "vectors", "mem0", "chroma", "semantic", "hybrid", "rrf", "hive", "patterns", "stream", "default",
    "default+table",
)  # fmt: skip
SUMMARY = (
    ("recall@10", "Recall@10", max),
    ("misled", "A distractor comes before every answer (less is better)", min),
    ("abstained where right", "Silent where nothing answers", max),
    ("tokens@10", "Tokens of the first ten hits", min),
)
ABOUT = """
`vectors`, `mem0` and the presets use the bundled transformer, so that what differs is the ranking; `default+table` is
`default` on a bank opened with `embedder="static"`. `mem0` is its published scoring (semantic + sigmoid of BM25 over
the nearest vectors) without its entity boost, which needs its own entity store. `chroma` is Chroma's default: the
nearest by the cosine of all-MiniLM-L6-v2, the model it downloads at first use (here our int8 copy of it, cosine .993
to the original). No preset is silent for lack of score: only `bm25` is, where no word matches. Questions of sets with
scopes search their scope; "(federated)" asks them without: everything in one bank, nothing filtered. `nomiracl_en` has
no question with an answer. Weights and rules of `default` were chosen while looking at these sets, the others were not:
expect less of it elsewhere.
"""


def markdown(results: Mapping[str, Any], *, order: Sequence[str] = ORDER) -> str:
    """One overview of recall@10 and one table per set."""
    lines = ["# Quality", "", *_about(results), "", *_overview(results, order, SUMMARY[0], level="##")]
    for name, found in results["sets"].items():
        lines += ["", f"## {name}", "", *_table(_sorted(found, order)), *_kinds(_sorted(found, order))]
    return "\n".join(lines) + "\n"


def summary(results: Mapping[str, Any], *, order: Sequence[str] = ORDER) -> str:
    """The overviews alone, as a chapter of the benchmark report."""
    lines = ["## Quality", "", *_about(results), ABOUT, *_left_out(results, order)]
    for figure in SUMMARY:
        lines += ["", *_overview(results, order, figure, level="###")]
    lines += ["", "All figures, by set and by kind of question: `benchmarks/quality/results/quality.md`."]
    return "\n".join(lines) + "\n"


def _about(results: Mapping[str, Any]) -> list[str]:
    commits = sorted(
        {each["commit"] for found in results["sets"].values() for each in found.values() if "commit" in each}
    )
    at = ", ".join(commits) or results["commit"]
    if "+" in at:
        at += " (+: with uncommitted changes)"
    return [
        f"Run on {results['when']} at commit {at}; {results['how']}. No LLM and no network; `chroma`"
        " needs a model file, the others nothing beyond skep."
    ]


def _left_out(results: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    """Which rankers were not run on which sets."""
    known: dict[str, Mapping[str, Any]] = results["sets"]
    there = {ranker for found in known.values() for ranker in found}
    missing: dict[tuple[str, ...], list[str]] = {}
    for ranker in (each for each in order if each in there):
        lacking = tuple(name for name, found in known.items() if ranker not in found)
        if lacking:
            missing.setdefault(lacking, []).append(f"`{ranker}`")
    said = [f"{', '.join(rankers)} on {', '.join(names)}" for names, rankers in missing.items()]
    return [f"Not run: {'; '.join(said)}."] if said else []


def _overview(results: Mapping[str, Any], order: Sequence[str], figure: Any, *, level: str) -> list[str]:
    """Every ranker on every set, by one figure; the best is bold."""
    key, title, better = figure
    there = {name: _sorted(found, order) for name, found in results["sets"].items()}
    there = {name: found for name, found in there.items() if any(_says(each, key) for each in found.values())}
    rankers = list(dict.fromkeys(ranker for found in there.values() for ranker in found))
    rankers.sort(key=order.index)
    lines = [
        f"{level} {title}, every ranker on every set",
        "",
        "| set | questions | " + " | ".join(rankers) + " |",
    ]
    lines.append("|---" * (len(rankers) + 2) + "|")
    for name, found in there.items():
        first = next(iter(found.values()))
        count = {"abstained where right": first.get("unanswerable"), "misled": "–"}.get(
            key, first["questions"]
        )
        values = {ranker: each[key] for ranker, each in found.items() if each.get(key) is not None}
        best = better(values.values()) if len(set(values.values())) > 1 else None
        cells = [_bold(values.get(ranker), best) for ranker in rankers]
        lines.append(f"| {name} | {count} | " + " | ".join(cells) + " |")
    return lines


def _says(each: Mapping[str, Any], key: str) -> bool:
    """Whether a figure was taken. A zero is one: a set on which no ranker is ever silent is not left out."""
    return each.get(key) is not None and (each["questions"] > 0 or key.startswith("abstained"))


def _sorted(found: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    return {ranker: found[ranker] for ranker in order if ranker in found}


def _bold(value: float | None, best: float | None) -> str:
    return f"**{_cell(value)}**" if value is not None and value == best else _cell(value)


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
