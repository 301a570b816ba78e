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
from skep.config import Settings, bank_file
from skep.embedding import Opener
from skep.embedding.environment import from_environment
from skep.model import Memory, Stage

F = TypeVar("F", bound=Callable[..., Any])
BRIEF = Settings(embed_when_read=False, close_seconds=1.0)
"""For commands: nothing is begun that could not be finished."""


_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Span(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  # it takes one in newer versions only
    """A length of time in seconds: a number of them, or one with a unit, such as 30m, 24h or 7d."""

    name = "span"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds."""
        if isinstance(value, int | float):
            return float(value)
        number, unit = (value[:-1], value[-1]) if value[-1:].isalpha() else (value, "")
        try:
            return float(number) * _UNITS[unit]
        except (ValueError, KeyError):
            self.fail(f"{value!r} is no length of time; write it like 90, 30m, 24h or 7d", param, ctx)


SPAN = Span()


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


def opener() -> Opener:
    """How the embedders of banks are opened here: with the keys and addresses of the environment."""
    return from_environment(os.environ)


@contextlib.contextmanager
def open_bank(bank_path: str | None, *, create: bool = True, **options: Any) -> Generator[Bank]:
    """The bank a command works on. A command is over too soon to embed what waits, unless it writes.

    One is made only where there is nothing: an empty file was a bank, or is about to become one.
    """
    options.setdefault("settings", BRIEF)
    path = outer_bank() if bank_path is None else bank_path
    with Bank.open(path, create=create and not bank_exists(bank_path), opener=opener(), **options) as bank:
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
