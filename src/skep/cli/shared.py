"""What the commands share: options, opening the bank, and printing."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

import click
import msgspec

from skep.bank import Bank
from skep.config import bank_file
from skep.model import Memory, Stage

F = TypeVar("F", bound=Callable[..., Any])


def bank_option(command: F) -> F:
    """`--bank`, also accepted after the command's name."""
    return click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")(command)


def json_option(command: F) -> F:
    """`--json`: one JSON document on standard output."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def common(command: F) -> F:
    """The options of every command that opens a bank."""
    return bank_option(json_option(command))


def scope_options(command: F) -> F:
    """Whom memories are for."""
    for name in ("session", "project", "user"):
        command = click.option(f"--{name}", help=f"The {name} of the scope.")(command)
    return command


def asked_scope(command: F) -> F:
    """Whose memories a command shows: the scope, as `scope`, and whether shared ones count as well."""

    @functools.wraps(command)
    def call(user: str | None, project: str | None, session: str | None, **options: Any) -> Any:
        return command(scope=scope_of(user, project, session), **options)

    shared = click.option("--include-shared", is_flag=True, help="With a scope: also what is for everybody.")
    return scope_options(shared(cast("F", call)))


def scope_of(user: str | None, project: str | None, session: str | None) -> dict[str, str] | None:
    """A scope from the three options; None when none is given."""
    scope = {k: v for k, v in {"user": user, "project": project, "session": session}.items() if v is not None}
    return scope or None


def outer_bank() -> str | None:
    """The bank named before the command, as in `skep --bank FILE add ...`."""
    ctx = click.get_current_context(silent=True)
    given: Any = ctx.obj if ctx is not None else None
    return cast("dict[str, str | None]", given)["bank"] if isinstance(given, dict) else None


def bank_exists(bank_path: str | None) -> bool:
    """Whether the bank a command would work on is there already."""
    named = outer_bank() if bank_path is None else bank_path
    return os.path.exists(bank_file(named, os.environ, os.getcwd()))


@contextlib.contextmanager
def open_bank(bank_path: str | None, *, create: bool = True, **options: Any) -> Generator[Bank]:
    """The bank a command works on."""
    with Bank.open(outer_bank() if bank_path is None else bank_path, create=create, **options) as bank:
        yield bank


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def when(seconds: float | None) -> str:
    """A time as people read it."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


JOINED = {"contradiction": "contradiction with", "duplicate": "duplicate of", "update": "update of"}
"""How a kind of conflict leads to the memory it is with."""


def stage_line(stage: Stage) -> str:
    """What one stage of a recall did, on one line."""
    return f"{stage.name}: kept {stage.kept}, cut {stage.cut}" + (f" ({stage.note})" if stage.note else "")


def memory_line(memory: Memory) -> str:
    """One memory on one line."""
    notes = [] if memory.status == "active" else [memory.status]
    notes += [memory.kind] if memory.kind != "fact" else []
    notes += ["stale"] if memory.stale else []
    notes += [f"#{tag}" for tag in memory.tags]
    text = " ".join((f"{memory.title}: " if memory.title else "").split() + memory.text.split())
    suffix = click.style(f"  [{', '.join(notes)}]", dim=True) if notes else ""
    return f"{click.style(memory.id, fg='cyan')}  {text}{suffix}"


@contextlib.contextmanager
def progress_bar(label: str) -> Generator[Callable[[int, int], None]]:
    """A progress bar on standard error; nothing when it is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    shown = 0

    def step(done: int, total: int) -> None:
        nonlocal shown
        width = 30
        filled = width if total == 0 else width * done // total
        line = f"\r{label} [{'#' * filled}{'-' * (width - filled)}] {done:,}/{total:,}"
        sys.stderr.write(line)
        sys.stderr.flush()
        shown = len(line)

    try:
        yield step
    finally:
        if shown:
            sys.stderr.write("\r" + " " * shown + "\r")
            sys.stderr.flush()
