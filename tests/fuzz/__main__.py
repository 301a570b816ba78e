"""`python -m tests.fuzz N [--seed S] [--door NAME]`: N inputs, in turn at every door; tells the seed of what fails."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.doors import Broken, Doors

RENEWED = 2_000
"""After so many inputs the bank is looked through and a new one is made."""


def main() -> int:
    """Run; the exit code is 1 where a promise was broken."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("count", type=int, nargs="?", default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--door", action="append")
    given = asked.parse_args()
    broken, started, done = 0, time.monotonic(), 0
    while done < given.count:
        with tempfile.TemporaryDirectory() as folder:
            doors = Doors(Path(folder))
            names = given.door or list(doors.doors)
            for number in range(done, min(given.count, done + RENEWED)):
                try:
                    doors.run(names[number % len(names)], given.seed + number)
                except Broken as error:
                    broken += 1
                    print(error, file=sys.stderr, flush=True)
            try:
                doors.close()
            except Broken as error:
                broken += 1
                print(f"seeds from {given.seed + done}: {error}", file=sys.stderr, flush=True)
        done = min(given.count, done + RENEWED)
        if done % 50_000 == 0:
            print(f"{done:,} inputs so far, {broken} broken promises", flush=True)
    print(f"{done:,} inputs, {broken} broken promises, {time.monotonic() - started:.0f} s")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
