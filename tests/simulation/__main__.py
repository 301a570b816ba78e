"""`make simulate`: many histories, each from its seed; a seed that breaks a promise is kept and run again ever after.

python -m tests.simulation --seeds 1000 --workers 2
python -m tests.simulation --only 263          # one history, with its story
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from .history import SOMETIMES, lived

KEPT = Path(__file__).with_name("seeds.txt")
"""Seeds that have broken a promise, oldest first; `#` begins a remark."""


def kept() -> tuple[int, ...]:
    """The seeds that have failed before."""
    lines = (line.partition("#")[0].strip() for line in KEPT.read_text(encoding="utf-8").splitlines())
    return tuple(int(line) for line in lines if line)


def tried(seed: int) -> tuple[int, Counter[str], str]:
    """One history: what it met, and how it failed, if it did."""
    try:
        return seed, lived(seed).seen, ""
    except Exception as error:  # noqa: BLE001 - a broken promise or a fault of the code: either is what we look for
        last = traceback.extract_tb(error.__traceback__)[-1]
        return seed, Counter(), f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})"


def keep(failures: Iterable[tuple[int, str]]) -> None:
    """Add seeds to the file of those that are run again."""
    known = set(kept())
    with KEPT.open("a", encoding="utf-8") as file:
        for seed, why in failures:
            if seed not in known:
                file.write(f"{seed}  # {' '.join(why.split())[:90]}\n")


def main() -> int:
    """Run histories and say what they showed; 1 if a promise was broken or too little happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--only", type=int, help="one seed; its story is printed")
    given = parser.parse_args()
    if given.only is not None:
        world = lived(given.only)
        print("\n".join(world.told))
        return 0
    begun = time.monotonic()
    met: Counter[str] = Counter()
    failures: list[tuple[int, str]] = []
    with ProcessPoolExecutor(given.workers) as pool:
        for seed, seen, why in pool.map(
            tried, range(given.first, given.first + given.seeds), chunksize=max(1, min(20, given.seeds // 8))
        ):
            met += seen
            if why:
                failures.append((seed, why))
                print(f"seed {seed}: {why}", flush=True)
    never = [what for what in SOMETIMES if not met[what]]
    print(f"{given.seeds} histories in {time.monotonic() - begun:.0f} s, {len(failures)} broken promises")
    for what in SOMETIMES:
        print(f"  {met[what]:>9,}  {what}")
    keep(failures)
    if failures:
        print(f"the seeds are kept in {KEPT.name}; see one with: python -m tests.simulation --only SEED")
    if never and given.seeds >= 200:
        print(f"too little happened: never {', never '.join(never)}")
    return 1 if failures or (never and given.seeds >= 200) else 0


if __name__ == "__main__":
    sys.exit(main())
