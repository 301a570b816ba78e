"""`python -m benchmarks.speed --quick` or `--full`: measure, and write the results file."""

from __future__ import annotations

import argparse
import dataclasses
import json
import signal
from pathlib import Path
from typing import NoReturn

from benchmarks.given import number, place, seconds, to_write
from benchmarks.speed.environments import BY_NAME, HERE, SPECS, Spec
from benchmarks.speed.plan import FULL, MILLION, OPTIONS, QUICK, SEED, Plan
from benchmarks.speed.run import run
from benchmarks.speed.show import table


def list_of(text: str) -> tuple[int, ...]:
    """Row counts, smallest first. Below fifty there is nothing to rank."""
    return tuple(sorted({number(50)(part) for part in text.split(",")}))


def engines(text: str) -> list[Spec]:
    """Engines by name, skep among them: it is what the others are compared with."""
    names = text.split(",")
    unknown = [name for name in names if name not in BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(f"no engine {unknown[0]!r}; there are {', '.join(BY_NAME)}")
    return [spec for spec in SPECS if spec.name in names or spec.name == "skep"]


def chosen(options: argparse.Namespace) -> Plan:
    """The profile asked for, with what was given in place of its own.

    Fewer engines or other sizes make it a `part`, so that its results do not take the place of a whole run.
    """
    plan = MILLION if options.million else FULL if options.full else QUICK
    changes: dict[str, object] = {}
    for name in ("sizes", *OPTIONS):
        if getattr(options, name) is not None:
            changes[name] = getattr(options, name)
    if options.engines or options.sizes:
        changes["profile"] = "part"
    return dataclasses.replace(plan, **changes) if changes else plan  # type: ignore[arg-type]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    which = made.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="1k and 10k, few repeats (the default)")
    which.add_argument("--full", action="store_true", help="1k, 10k and 100k")
    which.add_argument("--million", action="store_true", help="up to 1M")
    made.add_argument(
        "--engines",
        type=engines,
        help="comma-separated; skep is always there. All by default: " + ",".join(BY_NAME),
    )
    made.add_argument("--sizes", type=list_of, help="comma-separated row counts")
    made.add_argument("--rounds", type=number(1))
    made.add_argument("--questions", type=number(1), help="per kind and round")
    made.add_argument("--changes", type=number(1), help="writes and updates per round")
    made.add_argument("--kills", type=number(0), help="0 leaves the kills out")
    made.add_argument("--loads", type=number(1), help="times that quick loads are done")
    made.add_argument("--load-box-s", type=seconds, help="seconds an engine may take to load one size")
    made.add_argument("--seed", type=number(0), default=SEED)
    made.add_argument(
        "--out", type=to_write, help="results file; benchmarks/results/speed-PROFILE.json by default"
    )
    return made


def _stop(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Parse, run, print, write."""
    options = parser().parse_args()
    plan = chosen(options)
    out: Path = options.out or place(HERE / "results" / f"speed-{plan.profile}.json")
    for number_ in (signal.SIGTERM, signal.SIGHUP):  # the engines' processes must not be left behind, halted
        signal.signal(number_, _stop)
    try:
        report = run(plan, options.engines or list(SPECS), seed=options.seed)
    except KeyboardInterrupt:
        raise SystemExit("stopped; no results were written") from None
    out.write_text(json.dumps(report, indent=1) + "\n")
    print(table(report))
    print(f"written to {out}; `python -m benchmarks.report --results {out}` makes a report of it")


if __name__ == "__main__":
    main()
