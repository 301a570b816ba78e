"""`python -m benchmarks.speed --quick` or `--full`: measure, and write the results file."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from benchmarks.speed.environments import BY_NAME, HERE, SPECS
from benchmarks.speed.plan import FULL, MILLION, QUICK, Plan
from benchmarks.speed.run import run
from benchmarks.speed.show import table


def chosen(options: argparse.Namespace) -> Plan:
    """The profile asked for, with its sizes and rounds replaced where given."""
    plan = MILLION if options.million else FULL if options.full else QUICK
    changes: dict[str, object] = {}
    if options.sizes:
        changes["sizes"] = tuple(int(size) for size in options.sizes.split(","))
    for name in ("rounds", "kills", "questions", "changes", "load_box_s"):
        if getattr(options, name) is not None:
            changes[name] = getattr(options, name)
    return dataclasses.replace(plan, **changes) if changes else plan  # type: ignore[arg-type]


def main() -> None:
    """Parse, run, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="1k and 10k, few repeats (the default)")
    which.add_argument("--full", action="store_true", help="1k, 10k and 100k")
    which.add_argument("--million", action="store_true", help="up to 1M")
    parser.add_argument("--engines", help="comma-separated; all by default: " + ",".join(BY_NAME))
    parser.add_argument("--sizes", help="comma-separated row counts")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--questions", type=int, help="per kind and round")
    parser.add_argument("--changes", type=int, help="writes and updates per round")
    parser.add_argument("--kills", type=int)
    parser.add_argument("--load-box-s", type=float, help="seconds an engine may take to load one size")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--out", type=Path, help="results file; benchmarks/results/speed-PROFILE.json by default"
    )
    options = parser.parse_args()
    plan = chosen(options)
    names = options.engines.split(",") if options.engines else [spec.name for spec in SPECS]
    report = run(plan, [BY_NAME[name] for name in names], seed=options.seed)
    out = options.out or HERE / "results" / f"speed-{plan.profile}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    print(f"written to {out}")


if __name__ == "__main__":
    main()
