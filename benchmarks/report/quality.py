"""What the README and the page on ranking say of quality, from the same results as the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.report.goals import QUALITY
from benchmarks.report.tables import markdown

START, END = "<!-- quality: written by `python -m benchmarks.report` -->", "<!-- end of quality -->"
LEVEL = 0.0005
"""Sets on which two rankers differ by no more are level: the same to three places."""
PEERS = (
    ("bm25", "BM25"),
    ("mem0", "mem0's scoring, as published"),
    ("chroma", "Chroma's default, the nearest by MiniLM"),
)
RANKED = ("bm25", "vectors", "mem0", "hybrid", "default", "default+minilm")
LINES: tuple[tuple[str, str, str], ...] = (
    ("locomo_obs (short facts)", "locomo_obs", "recall@10"),
    ("locomo_turns (raw turns)", "locomo_turns", "recall@10"),
    ("beam_100k", "beam_100k", "recall@10"),
    ("realmem", "realmem", "recall@10"),
    ("gitbugs (duplicate reports)", "gitbugs", "recall@10"),
    ("amplihack_hive", "amplihack_hive", "recall@10"),
    ("scifact, nDCG@10", "scifact", "ndcg@10"),
    ("factcon_32k, outdated first (less is better)", "factcon_32k", "misled"),
    ("amplihack_forget, outdated first (less is better)", "amplihack_forget", "misled"),
    ("beam_100k, distractor first (less is better)", "beam_100k", "misled"),
    ("hotpot_distractor, distractor first (less is better)", "hotpot_distractor", "misled"),
    ("precisionmem, silent where right", "precisionmem", "abstained where right"),
    ("precisionmem, precision", "precisionmem", "precision"),
    ("nomiracl_en, silent where right", "nomiracl_en", "abstained where right"),
)
"""How a line is called, its set and its figure; the goal is that of the report."""

Results = dict[str, Any]


def share(value: float | None, places: int = 3) -> str:
    """A share without its leading zero.

    >>> share(0.8039), share(1.0, 2), share(None)
    ('.804', '1.00', '–')
    """
    return "–" if value is None else f"{value:.{places}f}".removeprefix("0")


def differences(results: Results, peer: str) -> dict[str, float]:
    """By how much `default` finds more than another ranker, set by set, within their scopes."""
    found: dict[str, float] = {}
    for name, ranked in results["sets"].items():
        mine, other = (ranked.get(each, {}).get("recall@10") for each in ("default", peer))
        if mine is not None and other is not None and ranked["default"]["questions"] and "(" not in name:
            found[name] = mine - other
    return found


def beside(results: Results) -> str:
    """`default` beside each peer: on how many sets it finds more, as much, less."""
    rows: list[list[str]] = []
    for peer, title in PEERS:
        found = differences(results, peer)
        if not found:
            continue
        worse = [name for name, more in found.items() if more < -LEVEL]
        level = sum(abs(more) <= LEVEL for more in found.values())
        cells = [str(len(found)), str(len(found) - level - len(worse)), str(level)]
        cells.append(f"{len(worse)} ({', '.join(worse)})" if worse else "0")
        for name, key, better in (
            ("factcon_32k", "misled", min),
            ("precisionmem", "abstained where right", max),
        ):
            ranked = results["sets"].get(name, {})
            both = [ranked.get(each, {}).get(key) for each in (peer, "default")]
            said = [share(each, 2) for each in both]
            if None not in both and both[0] != both[1]:
                at = both.index(better(both))
                said[at] = f"**{said[at]}**"
            cells.append(" → ".join(said))
        rows.append([title, *cells])
    header = ["`default` beside", "sets", "better", "level", "worse"]
    return markdown([*header, "outdated value first, factcon_32k", "silent where right, precisionmem"], rows)


def reached(results: Results) -> str:
    """The sets that have a goal: rankers beside each other, the best in bold, whichever it is."""
    goals = {(name, key): (sign, wanted) for name, key, sign, wanted in QUALITY}
    rows: list[list[str]] = []
    for title, name, key in LINES:
        ranked = results["sets"].get(name, {})
        figures = [ranked.get(each, {}).get(key) for each in RANKED]
        sign, wanted = goals[name, key]
        mine = figures[RANKED.index("default")]
        if mine is None:
            continue
        good = mine >= wanted if sign == "≥" else mine <= wanted
        cells = [share(each) for each in figures]
        known = {cell for cell, figure in zip(cells, figures, strict=True) if figure is not None}
        best = (max if sign == "≥" else min)(known, key=float) if len(known) > 1 else None
        cells = [f"**{cell}**" if cell == best else cell for cell in cells]
        rows.append([title, *cells, f"{share(wanted, 2)}, {'reached' if good else 'missed'}"])
    header = ["set", "BM25", "vectors", "mem0's scoring", "`hybrid`", "`default`", "`default`, MiniLM"]
    return markdown([*header, "goal of `default`"], rows)


def put(text: str, made: str) -> str:
    """A page with its table renewed; as it was where it has no marks."""
    if START not in text or END not in text:
        return text
    before, rest = text.split(START, 1)
    return f"{before}{START}\n{made}\n{END}{rest.split(END, 1)[1]}"


PAGES: Sequence[tuple[str, Callable[[Results], str]]] = (
    ("README.md", beside),
    ("docs/explanation/ranking.md", reached),
)
"""Pages with a table of quality, and how it is made."""


def renew(root: Path, results: Results) -> None:
    """Write the tables into the pages."""
    for name, make in PAGES:
        path = root / name
        path.write_text(put(path.read_text(), make(results)))
