"""How fast skep is on this machine, and on a user's bank.

    python -m benchmarks.machine [--bank FILE] [--long] [--scratch] [--json]

The bank is opened for reading alone and is asked about its own memories. Writing is measured in a scratch bank that
is deleted afterwards, so that nothing of the user's is touched.
"""

from __future__ import annotations

import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import click
import msgspec

from skep import __version__
from skep.bank.bank import Bank
from skep.cli.app import common, opener, print_json
from skep.config import find_bank
from skep.errors import InvalidInputError
from skep.runtime import native

QUICK = (1_000, 40)
LONG = (20_000, 200)
"""Memories in the scratch bank, and calls per operation."""
FEWEST = 5
OPENED = 5
"""Times that the user's bank is opened."""
WORDS = """
deploy invoice cache schema tenant worker queue token report cluster mailer ledger index parser
| needs rejects retries stores signs drops renames limits caches exports locks splits merges checks
| header region column secret batch replica timeout format account session release branch folder
"""
SUBJECTS, ACTS, THINGS = (part.split() for part in WORDS.split("|"))
PEOPLE = ("Ana", "Ben", "Chloe", "Dev", "Eva", "Finn", "Gita", "Hugo")
PLACES = ("Oslo", "Lisbon", "Pune", "Quito", "Leeds", "Turin")
SENTENCES = (
    "The {first} {act} the {thing} of the {second} after {number} retries",
    "{who} prefers to rebuild the {first} before every change of the {thing}",
    "Run the {first} twice when the {second} {act} nothing",
    "Since March the {thing} for {who} lives in {place}, far from the {first}",
    "We chose the new {thing} because the {first} {act} it {number} times faster",
    "{who} wants a weekly summary of every {thing} that reaches the {second}",
    "To reset the {first}, delete its {thing} and wait {number} seconds",
    "In {place} the {second} demo was moved to Friday because of the {thing}",
    "Tests of the {first} fail in {place} unless {who} provides a {thing}",
    "{number} customers of the {second} have no {thing} yet; ask {who} why",
    "Never edit the {thing} by hand: the {first} {act} it at night",
    "An empty {thing} comes back if the {first} starts later than the {second}",
)
"""A bank of sentences that differ in a word or two would be all rivals, which few banks are."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """One operation: milliseconds of wall and processor time per call."""

    name: str
    calls: int
    wall_p50: float
    wall_p95: float
    cpu_p50: float


class BenchReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured, where, and on what."""

    bank: str | None
    """The bank that was read; None when there was none and only the scratch bank was used."""
    memories: int
    embedder: str
    machine: dict[str, str]
    timings: tuple[Timing, ...]
    load_per_second: float
    """Memories per second of bulk loading, embedding included."""
    notes: tuple[str, ...] = ()


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def measure(name: str, calls: Sequence[Callable[[], Any]]) -> Timing:
    """Time each call once."""
    walls: list[float] = []
    cpus: list[float] = []
    for call in calls:
        cpu, wall = time.process_time_ns(), time.perf_counter_ns()
        call()
        walls.append((time.perf_counter_ns() - wall) / 1e6)
        cpus.append((time.process_time_ns() - cpu) / 1e6)
    return Timing(
        name=name,
        calls=len(calls),
        wall_p50=round(_percentile(walls, 0.5), 4),
        wall_p95=round(_percentile(walls, 0.95), 4),
        cpu_p50=round(_percentile(cpus, 0.5), 4),
    )


def texts(count: int, seed: int) -> Iterator[str]:
    """Made-up memories, no two alike."""
    draw = random.Random(seed)
    for number in range(count):
        first, second = draw.sample(SUBJECTS, 2)
        said = draw.choice(SENTENCES).format(
            first=first,
            second=second,
            act=draw.choice(ACTS),
            thing=draw.choice(THINGS),
            who=draw.choice(PEOPLE),
            place=draw.choice(PLACES),
            number=draw.randrange(2, 90),
        )
        yield f"{said}, case k{number:05d}"


def questions(stored: Sequence[str], count: int, seed: int) -> list[str]:
    """Questions about stored texts: a few of their words, no question twice, however alike the texts are."""
    draw = random.Random(seed)
    found: dict[str, None] = {}
    for number in range(count):
        said = draw.choice(stored).split()
        words = [word for word in said if len(word) > 3] or said or ["anything"]
        asked = " ".join(draw.sample(words, min(4, len(words)))) + ("" if number % 2 else "?")
        found[asked if asked not in found else f"{asked} {number}"] = None
    return list(found)


def read_timings(bank: Bank, stored: Sequence[str], calls: int, seed: int) -> list[Timing]:
    """The reading side of a bank."""
    asked = questions(stored, 3 * calls + 1, seed)
    plain, by_words, by_meaning = (asked[1 + part * calls : 1 + (part + 1) * calls] for part in range(3))
    embedder = bank.engine.embeddings.embedder
    some = bank.find(limit=1).memories[0]
    first = measure("first recall", [lambda: bank.recall(asked[0])])
    timings = [
        first,
        measure("recall", [lambda q=q: bank.recall(q) for q in plain]),
        measure(
            "recall by words alone",
            [
                lambda q=q: bank.recall(q, preset="rrf", config={"k_vectors": 0, "weights": {"lexical": 1.0}})
                for q in by_words
            ],
        ),
        measure(
            "recall by meaning alone",
            [lambda q=q: bank.recall(q, preset="semantic") for q in by_meaning],
        ),
        measure("get by id", [lambda: bank.get(some.id) for _ in range(calls)]),
    ]
    if embedder.instant:
        timings.append(measure("embed a question", [lambda q=q: embedder.embed([q]) for q in plain]))
    return timings


def write_timings(bank: Bank, calls: int, seed: int) -> list[Timing]:
    """The writing side of a scratch bank; every write is durable when it returns."""
    fresh = list(texts(3 * calls, seed + 1))
    plain, checked, sought = fresh[:calls], fresh[calls : 2 * calls], fresh[2 * calls :]

    def write_and_find(text: str) -> None:
        bank.remember(f"{text} again", on_conflict="ignore")
        bank.recall(text)

    return [
        measure("remember", [lambda t=t: bank.remember(f"Now {t}") for t in checked]),
        measure(
            "remember, no search for conflicts",
            [lambda t=t: bank.remember(f"Then {t}", on_conflict="ignore") for t in plain],
        ),
        measure("remember, then recall", [lambda t=t: write_and_find(t) for t in sought]),
    ]


def import_timing(repeats: int = 3) -> Timing:
    """A fresh interpreter that imports skep: what every command pays."""
    script = "import time; a = time.process_time(); import skep.bank.bank; print(time.process_time() - a)"
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(repeats):
        wall = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        walls.append(1000 * (time.perf_counter() - wall))
        cpus.append(1000 * float(done.stdout))
    return Timing(
        name="start Python and import skep",
        calls=repeats,
        wall_p50=round(_percentile(walls, 0.5), 2),
        wall_p95=round(max(walls), 2),
        cpu_p50=round(_percentile(cpus, 0.5), 2),
    )


def machine() -> dict[str, str]:
    """Where this runs."""
    load = f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "skep": __version__,
        "sqlite": apsw.sqlite_lib_version(),
        "compiled loops": "no" if native is None else "yes",
        "load": load,
    }


def _too_small(path: Path) -> bool:
    with Bank.open(path, create=False, read_only=True, opener=opener()) as own:
        return own.status().memories < FEWEST


def run(bank_path: str | Path | None = None, quick: bool = True, *, seed: int = 7) -> BenchReport:
    """Measure on this machine: reading on the given bank, if there is one, and writing in a scratch bank.

    Args:
        bank_path: A bank of the user's, opened for reading alone. Without one, the scratch bank is read too.
        quick: Seconds instead of a minute or two.
        seed: For the made-up memories and the choice of questions.
    """
    size, calls = QUICK if quick else LONG
    notes: list[str] = []
    start = import_timing()
    with (
        tempfile.TemporaryDirectory(prefix="skep-bench-") as folder,
        Bank.open(
            Path(folder) / "bank.skep",
            embedder=_embedder_of(bank_path, notes),
            opener=opener(),
        ) as scratch,
    ):
        made = list(texts(size, seed))
        began = time.perf_counter()
        scratch.remember_many(made)
        rate = size / (time.perf_counter() - began)
        embedder = scratch.engine.embeddings.embedder.fingerprint
        memories = scratch.status().memories
        reading = [] if bank_path is not None else read_timings(scratch, made, calls, seed)
        writing = write_timings(scratch, calls, seed)
    if bank_path is not None:
        opened = measure("open the bank", OPENED * [lambda: _open_and_close(bank_path)])
        with Bank.open(bank_path, create=False, read_only=True, opener=opener()) as own:
            memories, embedder = own.status().memories, own.engine.embeddings.embedder.fingerprint
            if memories < FEWEST:
                raise InvalidInputError(
                    f"{bank_path} has fewer than {FEWEST} memories, too few to measure;"
                    " `--scratch` does without it"
                )
            stored = [memory.text for memory in own.find(limit=min(memories, 5_000))]
            reading = [opened, *read_timings(own, stored, calls, seed)]
        notes.append(
            f"Reading was measured on the bank, writing in a scratch bank of {size:,} made-up memories."
        )
    else:
        notes.append(f"Measured in a scratch bank of {size:,} made-up memories, which is deleted again.")
    return BenchReport(
        bank=None if bank_path is None else str(bank_path),
        memories=memories,
        embedder=embedder,
        machine=machine(),
        timings=(start, *reading, *writing),
        load_per_second=round(rate, 1),
        notes=tuple(notes),
    )


def _open_and_close(path: str | Path) -> None:
    Bank.open(path, create=False, read_only=True, opener=opener()).close()


def _embedder_of(bank_path: str | Path | None, notes: list[str]) -> str | None:
    """The spec of the bank's embedder, so that the scratch bank uses the same one, unless that asks a service."""
    if bank_path is None:
        return None
    with Bank.open(bank_path, create=False, read_only=True, opener=opener()) as own:
        if own.engine.embeddings.embedder.instant:
            return own.engine.embeddings.spec
        notes.append(
            f"The embedder of the bank, {own.engine.embeddings.spec}, is slow or asks a service: questions waited for "
            "it, and were answered by words where it did not answer. The scratch bank has the bundled one, so that "
            "no made-up memory was sent anywhere."
        )
        return None


def show(report: BenchReport) -> str:
    """The report as a table."""
    where = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    lines = [
        f"{report.memories:,} memories, embedder {report.embedder}",
        where,
        "",
        f"{'':36}{'calls':>7}{'wall p50':>12}{'wall p95':>12}{'cpu p50':>12}",
    ]
    for timing in report.timings:
        figures = (timing.wall_p50, timing.wall_p95, timing.cpu_p50)
        lines.append(
            f"{timing.name:36}{timing.calls:>7}" + "".join(f"{figure:>9.3f} ms" for figure in figures)
        )
    lines.append(f"{'bulk load':36}{'':7}{report.load_per_second:>9,.0f} memories per second")
    return "\n".join([*lines, "", *report.notes])


@click.command()
@click.option(
    "--quick/--long", default=True, help="Seconds (the default), or a minute or two with more memories."
)
@click.option("--scratch", is_flag=True, help="Leave your own bank alone, even for reading.")
@common
def bench(quick: bool, scratch: bool, bank_path: str | None, as_json: bool) -> None:
    """Measure skep on this machine.

    Your bank, if there is one, is asked about its own memories and is not changed. Writing happens in a scratch bank.
    """
    path = find_bank(bank_path, os.environ, Path.cwd())
    own = path if not scratch and (bank_path or path.exists()) else None
    if own is not None and not bank_path and _too_small(own):
        click.echo(f"{own} has fewer than {FEWEST} memories; measuring in a scratch bank alone", err=True)
        own = None
    report = run(own, quick)
    if as_json:
        print_json(report)
    else:
        click.echo(show(report))


if __name__ == "__main__":
    bench()
