"""Measure maintenance and write the figures as JSON.

    python -m benchmarks.maintenance --data FOLDER --out results.json --report REPORT.md

FOLDER holds the evaluation sets (conv/NAME); without it, only what can be measured on made texts is. One thread for
the linear algebra, unless OPENBLAS_NUM_THREADS says otherwise: a second one spins while it waits, and that counts.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy is loaded

from benchmarks.given import folder_of_sets, number, results, to_write
from benchmarks.maintenance import cost, merging, report, updates
from benchmarks.speed import machine
from skep.lifecycle.judge import RulesJudge

ROOT = Path(__file__).parent.parent.parent
PARTS = ("updates", "planted", "pairs", "cost")
NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "updates": (
        ("factcon_32k", "beam_100k"),
        ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels.tsv.gz", "META.json"),
    ),
    "pairs": (("pairmix3",), ("pairs.jsonl.gz",)),
    "cost": (cost.CORPORA, ("corpus.jsonl.gz",)),
}
"""The sets that a part reads, and which of their files. Cost is also measured on made texts, the others are not."""
SEEDS = (101, 102, 103)
"""None of them was looked at while the rules were made."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.maintenance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--data", type=Path)
    options.add_argument("--out", type=to_write)
    options.add_argument("--report", type=Path, help="Write what maintenance costs into this report, too.")
    options.add_argument("--parts", nargs="+", choices=PARTS, help="All that there is data for by default.")
    options.add_argument("--originals", type=number(1), default=1500, help="Statements in each made bank.")
    options.add_argument(
        "--sizes",
        nargs="+",
        type=number(0),
        default=(8_000, 80_000, 100_000),
        help="Banks to measure cost on.",
    )
    options.add_argument("--new", type=number(1), default=1000, help="New memories in each round.")
    options.add_argument(
        "--rounds", type=number(1), default=cost.ROUNDS, help="Rounds after the first, which warms up."
    )
    return options


def chosen(data: Path | None, wanted: list[str] | None) -> list[str]:
    """The parts to measure: those asked for, or those that there is data for. SystemExit where that is missing."""
    parts = list(wanted or (part for part in PARTS if data is not None or part not in ("updates", "pairs")))
    for part in parts:
        if data is not None and part in NEEDED:
            names, files = NEEDED[part]
            folder_of_sets(data, names, *files)
        elif part in ("updates", "pairs"):
            raise SystemExit(f"{part} needs --data, the folder of the evaluation sets")
    return parts


def main(arguments: list[str] | None = None) -> None:
    """Measure what was asked for."""
    args = parser().parse_args(arguments)
    parts = chosen(args.data, args.parts)
    found: dict[str, Any] = (
        results(args.out, "maintenance", "taken") if args.out and args.out.exists() else {}
    )
    here = machine.describe() | machine.commit(ROOT, "benchmarks/maintenance")
    measured = measure(args.data, parts, args.originals, args.sizes, args.new, args.rounds)
    found["taken"] = found.get("taken", {}) | dict.fromkeys(measured, here)
    found |= measured
    text = json.dumps(found, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    if args.report and "cost" in found:
        args.report.write_text(
            report.filled(args.report.read_text(encoding="utf-8"), found["cost"]), encoding="utf-8"
        )
    print(text)


def measure(
    data: Path | None, parts: list[str], originals: int, sizes: list[int], new: int, rounds: int
) -> dict[str, Any]:
    """The chosen parts."""
    found: dict[str, Any] = {}
    if "updates" in parts and data is not None:
        found["updates"] = {
            "factcon_32k": updates.measure(data, "factcon_32k"),
            "factcon_32k, rules judge": updates.measure(data, "factcon_32k", judge=RulesJudge()),
            "beam_100k": updates.measure(data, "beam_100k"),
            "beam_100k as facts": updates.measure(data, "beam_100k", kind="fact"),
        }
    if "planted" in parts:
        found["planted"] = [
            merging.planted_copies(originals, seed, edits=edits) for edits in (1, 2) for seed in SEEDS
        ]
    if "pairs" in parts and data is not None:
        found["pairs"] = merging.labelled_pairs(data)
    if "cost" in parts:
        found["cost"] = [cost.measure(data, size, new, rounds) for size in sizes]
    return found


if __name__ == "__main__":
    main()
