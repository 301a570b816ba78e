"""What is left after SIGKILL in the middle of writing, and how often each engine asks the disk to be sure.

`python -m benchmarks.speed.kill` kills skep alone, as often as the goal says (minutes), and writes
`results/kills.json`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.given import number, place, to_write
from benchmarks.speed import machine
from benchmarks.speed.environments import BY_NAME, HERE, ROOT, Spec, UnavailableError, prepare, versions
from benchmarks.speed.process import EngineError, Process
from benchmarks.speed.workload import DIM, Workload, save

SYNCED_WRITES = 20
MANY = 200
"""Kills that the goal asks for."""
SHORT_S, SHORT_ROWS = 0.12, 900
"""The longest wait before each of many kills, and more rows than are written meanwhile."""


def _acknowledged(line: dict[str, Any]) -> int:
    """1 for an acknowledgement; an error if the writer says anything else."""
    if "acknowledged" not in line:
        raise EngineError(str(line.get("error", "it stopped writing before it was killed")))
    return 1


def one_kill(
    spec: Spec, store: Path, *, folder: Path, log: Path, first: int, patience_s: float
) -> dict[str, Any]:
    """Write for `patience_s` after the first acknowledgement, kill, reopen, look for every row."""
    writer = Process(spec, DIM, log)
    acknowledged = 0
    try:
        writer.ask("open", timeout_s=120, path=str(store), folder=str(folder))
        if first == 0:
            writer.ask("load", timeout_s=120, box_s=60.0)
            writer.ask("settle", timeout_s=120)
        writer.send("stream", first=first)
        acknowledged = _acknowledged(writer.line(60))
        ends = time.monotonic() + patience_s
        while time.monotonic() < ends:
            acknowledged += _acknowledged(writer.line(60))
    finally:
        unread = writer.kill()
    acknowledged += sum(_acknowledged(line) for line in unread)
    reader = Process(spec, DIM, log)
    try:
        reader.ask("open", timeout_s=120, path=str(store), folder=str(folder))
        found = reader.ask("verify", timeout_s=90, first=first, count=acknowledged)
    finally:
        reader.kill()
    return {"acknowledged": acknowledged, **found}


def kills(spec: Spec, count: int, folder: Path, work: Path, *, longest_s: float = 0.8) -> dict[str, Any]:
    """Several kills of the same store, each at another moment."""
    store = work / "stores" / f"{spec.name}-kill"
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    moments = random.Random(1)
    total: dict[str, Any] = {
        "kills": 0,
        "acknowledged": 0,
        "missing": {"stored": 0, "keyword": 0, "vector": 0},
    }
    try:
        for _ in range(count):
            log = work / "logs" / f"{spec.name}-kill.log"
            got = one_kill(
                spec,
                store,
                folder=folder,
                log=log,
                first=total["acknowledged"] + total["kills"],
                patience_s=moments.uniform(0.05, longest_s),
            )
            total["kills"] += 1
            total["acknowledged"] += got["acknowledged"]
            total["keyword_offered"] = got["keyword_offered"]
            for place, lost in got["missing"].items():
                total["missing"][place] += lost
        total["status"] = "ok"
    except EngineError as error:
        total.update(status="failed", reason=str(error))
    finally:
        shutil.rmtree(store, ignore_errors=True)
    return total


def synced(spec: Spec, folder: Path, work: Path) -> float | None:
    """Calls of fsync and its kin per single write, counted by strace; None where there is no strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    store, trace = work / "stores" / f"{spec.name}-sync", work / "logs" / f"{spec.name}.strace"
    shutil.rmtree(store, ignore_errors=True)
    store.mkdir(parents=True)
    calls = "fsync,fdatasync,msync,sync_file_range,syncfs"
    prefix = (strace, "-f", "-qq", "-e", f"trace={calls}", "-o", str(trace))
    process = Process(spec, DIM, work / "logs" / f"{spec.name}-sync.log", prefix)
    try:
        process.ask("open", timeout_s=180, path=str(store), folder=str(folder))
        process.ask("write", timeout_s=180, kind="write", first=0, count=5, box_s=60)
        before = _lines(trace)
        process.ask("write", timeout_s=180, kind="write", first=5, count=SYNCED_WRITES, box_s=60)
        return (_lines(trace) - before) / SYNCED_WRITES
    except EngineError:
        return None
    finally:
        process.kill()
        shutil.rmtree(store, ignore_errors=True)


def _lines(path: Path) -> int:
    names = ("fsync(", "fdatasync(", "msync(", "sync_file_range(", "syncfs(")
    return sum(any(name in line for name in names) for line in path.read_text(errors="replace").splitlines())


def run_all(
    specs: list[Spec], count: int, folder: Path, work: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Kills and synced writes of every engine."""
    out: dict[str, Any] = {}
    for spec in specs:
        out[spec.name] = {**kills(spec, count, folder, work), "syncs_per_write": synced(spec, folder, work)}
        say(f"  {spec.name:10} kills: {out[spec.name]}")
    return out


def main(arguments: list[str] | None = None) -> None:
    """Kill one engine many times, and write down what was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.kill", description=main.__doc__)
    parser.add_argument("--engine", choices=list(BY_NAME), default="skep")
    parser.add_argument("--kills", type=number(1), default=MANY)
    parser.add_argument(
        "--out",
        type=to_write,
        help="results/kills.json by default; results/kills-part.json for another engine or fewer kills",
    )
    options = parser.parse_args(arguments)
    spec = BY_NAME[options.engine]
    whole = spec.name == "skep" and options.kills >= MANY
    out: Path = options.out or place(HERE / "results" / ("kills.json" if whole else "kills-part.json"))
    try:
        prepare(spec)
    except UnavailableError as error:
        raise SystemExit(f"{spec.name} is not available: {error}") from error
    work = HERE / ".work"
    folder = work / f"kills-{options.kills}"
    started = time.time()
    try:
        save(Workload(1000), folder, queries=1, writes=SHORT_ROWS * options.kills)
        found: dict[str, Any] = {
            "kind": "kills",
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
            "environment": {**machine.describe(), **machine.commit(ROOT), "versions": versions(spec)},
            spec.name: kills(spec, options.kills, folder, work, longest_s=SHORT_S),
        }
    except KeyboardInterrupt:
        raise SystemExit("stopped; no results were written") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found["took_s"] = round(time.time() - started)
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found[spec.name]))


if __name__ == "__main__":
    main()
