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

from benchmarks.maintenance import cost, merging, report, updates
from benchmarks.speed import machine
from skep.lifecycle.judge import RulesJudge

ROOT = Path(__file__).parent.parent.parent
PARTS = ("updates", "planted", "pairs", "cost")
SEEDS = (101, 102, 103)
"""None of them was looked at while the rules were made."""


def main() -> None:
    """Measure what was asked for."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path)
    options.add_argument("--out", type=Path)
    options.add_argument("--report", type=Path, help="Write what maintenance costs into this report, too.")
    options.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    options.add_argument("--originals", type=int, default=1500, help="Statements in each made bank.")
    options.add_argument(
        "--sizes", nargs="*", type=int, default=(8_000, 80_000, 100_000), help="Banks to measure cost on."
    )
    options.add_argument("--new", type=int, default=1000, help="New memories in each round.")
    options.add_argument(
        "--rounds", type=int, default=cost.ROUNDS, help="Rounds after the first, which warms up."
    )
    args = options.parse_args()
    found: dict[str, Any] = json.loads(args.out.read_text()) if args.out and args.out.exists() else {}
    here = machine.describe() | machine.commit(ROOT)
    found["taken"] = found.get("taken", {}) | dict.fromkeys(args.parts, here)
    found |= measure(args.data, args.parts, args.originals, args.sizes, args.new, args.rounds)
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
    """The chosen parts, as far as there is data for them."""
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
