"""`python -m benchmarks.speed.profile --size 10000 --kind hybrid`: where one operation of skep spends its time.

The store is made once per size and kept under `benchmarks/.work`; `--fresh` makes it again.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import shutil
import time
from statistics import median
from typing import Any

from benchmarks.given import number
from benchmarks.speed.engines.skep import Skep
from benchmarks.speed.plan import CHANGES, FULL, SEARCHES
from benchmarks.speed.run import WORK, workload_files
from benchmarks.speed.worker import Worker, read_queries, read_rows
from benchmarks.speed.workload import DIM

KINDS = (*SEARCHES, *CHANGES, "write", "write_checked", "write_find")
"""Operations of skep that can be looked into."""


def opened(size: int, *, fresh: bool) -> Worker:
    """A worker in this process, holding a loaded store."""
    store = WORK / "stores" / f"profile-{size}"
    folder, _ = workload_files(size, FULL, 7)
    if fresh:
        shutil.rmtree(store, ignore_errors=True)
    worker = Worker(Skep(), DIM)
    made = store.exists()
    worker.op_open(str(store), str(folder))
    if not made:
        done = worker.op_load(3600.0)
        settled = worker.op_settle()
        print(f"loaded {done['loaded']} in {done['cpu_s']:.2f} + {settled['cpu_s']:.2f} CPU s")
    return worker


def name_all(engine: Any) -> None:
    """Which memory is which row: the adapter knows that of what it has loaded itself, and the store may be kept."""
    page = engine.bank.find(limit=1000)
    while page:
        engine.own |= {memory.source: memory.id for memory in page}
        if page.cursor is None:
            break
        page = engine.bank.find(limit=1000, cursor=page.cursor)


def calls(worker: Worker, kind: str, count: int) -> list[Any]:
    """One callable per call of this kind."""
    folder = worker.folder
    if kind in ("write", "write_checked"):
        how = "synced" if kind == "write" else "checked"
        first = int(time.time()) % 2000
        rows = list(read_rows(folder, "writes", DIM, first, count))
        return [lambda r=row: worker.engine.write(r, how) for row in rows]
    if kind in CHANGES:
        rows = list(read_rows(folder, "rows", DIM, 0, count))
        name_all(worker.engine)
        if kind == "touch":
            return [lambda r=row: worker.engine.touch(r) for row in rows]
        return [lambda r=row: worker.engine.update(r, 0.7) for row in rows]
    if kind == "write_find":
        first = int(time.time()) % 2000
        return [lambda i=i: worker.op_write_find("write_find", first + i, 1, 60.0) for i in range(count)]
    asked = read_queries(folder, DIM)
    return [lambda q=query: worker._search(kind, q) for query in asked[4 : count + 4]]  # pyright: ignore[reportPrivateUsage]


def main() -> None:
    """Time without a profiler, then say what the profiler saw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.profile", description=__doc__)
    parser.add_argument("--size", type=number(50), default=10_000)
    parser.add_argument("--kind", choices=KINDS, default="hybrid", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--count", type=number(1), default=60)
    parser.add_argument("--top", type=number(1), default=35)
    parser.add_argument("--sort", choices=("tottime", "cumtime", "ncalls"), default="tottime")
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    worker = opened(options.size, fresh=options.fresh)
    ready = calls(worker, options.kind, 2 * options.count + 5)
    for call in ready[:5]:
        call()
    plain, watched = ready[5 : 5 + options.count], ready[5 + options.count :]
    times: list[float] = []
    for call in plain:
        began = time.process_time_ns()
        call()
        times.append((time.process_time_ns() - began) / 1e6)
    print(f"{options.kind} at {options.size}: CPU ms p50 {median(times):.3f}, best {min(times):.3f}")
    profile = cProfile.Profile()
    profile.enable()
    for call in watched:
        call()
    profile.disable()
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out)
    stats.strip_dirs().sort_stats(options.sort).print_stats(options.top)
    print(f"per call, over {len(watched)} calls:")
    print(out.getvalue()[:12_000])
    worker.op_close()


if __name__ == "__main__":
    main()
