"""The command line: the table of commands, and the options, opening and printing that they share.

Each group of commands has a file of its own, imported only when a command of it runs. A command parses, makes one call
of the library and prints. Called by `skep.__main__`; environment variables are read here and in `clients` alone.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any, TextIO, TypeVar, cast

import click
import msgspec

from skep.bank.bank import Bank
from skep.config import HIVE, Settings, bank_file, bank_url
from skep.embedding.embedder import Opener
from skep.embedding.remote import from_environment
from skep.model import ANCHORS_GONE, Memory, Stage

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    # heading: name: (module:attribute, what it does)
    "Start": {
        "init": ("bank_file:init", "Create a bank for this project or for the user."),
        "demo": ("demo:demo", "Fill a bank, recall, show a conflict and an explanation."),
        "install": ("clients:install", "Add skep to an agent's configuration."),
        "uninstall": ("clients:uninstall", "Take skep out of an agent's configuration."),
        "mcp": ("clients:mcp", "Serve the bank to an agent over MCP."),
        "serve": ("server:serve", "Serve banks over HTTP, with a page in the browser."),
        "token": ("server:token_group", "Who may use the server."),
        "hook": ("clients:hook", "Run as a hook of a coding agent."),
        "config": ("upkeep:config", "Show which bank is used, why, and what is set in it."),
        "completion": ("bank_file:completion", "Print the shell completion script."),
        "version": ("upkeep:version", "Print the version."),
    },
    "Memories": {
        "add": ("memories:add", "Remember a text, or one per line of standard input."),
        "search": ("memories:search", "Print the memories that answer a question."),
        "get": ("memories:get", "Print one memory."),
        "list": ("memories:list_", "List memories, newest first."),
        "revise": ("memories:revise", "Change a memory; its history is kept."),
        "retract": ("memories:retract", "Take a memory back; restore brings it back."),
        "restore": ("memories:restore", "Make a memory current again."),
        "supersede": ("memories:supersede", "Say that one memory replaces another."),
        "forget": ("memories:forget", "Erase memories for good."),
        "link": ("memories:link", "Link two memories."),
        "unlink": ("memories:unlink", "Remove links between two memories."),
        "neighbors": ("memories:neighbors", "Show what a memory is linked to."),
        "path": ("memories:path", "Show the fewest links between two memories."),
    },
    "History": {
        "history": ("memories:history", "Show what happened to a memory, or last in the bank."),
        "blame": ("memories:blame", "Show who last set each field of a memory."),
        "undo": ("memories:undo", "Undo one event."),
        "bisect": ("proof:bisect", "Find the event after which a command goes wrong."),
    },
    "Upkeep": {
        "conflicts": ("memories:conflicts", "Find duplicates, contradictions and updates."),
        "maintain": ("maintain:maintain", "Keep the bank clean: merge, resolve, expire."),
        "verify": (
            "upkeep:verify",
            "Check that the files, symbols and versions that memories name are there.",
        ),
        "test": ("proof:run_tests", "Ask questions that must be answered so, or stay silent."),
        "review": ("proof:review", "Decide on what waits until a person says yes."),
        "judge": ("maintain:judge", "Show the pairs that wait for a judge, or decide one."),
        "learn": ("maintain:learn", "Record how a task went and what was used."),
        "recommend": ("maintain:recommend", "Suggest what worked before for a task."),
        "strategies": ("maintain:strategies", "What made tasks go well."),
        "stats": ("maintain:stats", "Show what outcomes say about memories."),
        "report": ("agent:report", "Tell on one page what memory was worth."),
        "redact": ("maintain:redact", "Show, try or set what is taken out before storing."),
        "tune": ("tune:group", "Search configuration as code: measure, compare, deploy."),
    },
    "The file": {
        "status": ("bank_file:status", "Show counts, sizes and the embedder."),
        "doctor": ("bank_file:doctor", "Look the bank over and say how to mend it."),
        "backup": ("bank_file:backup", "Copy the bank while it is in use."),
        "export": ("bank_file:export", "Write everything to a file of JSON lines."),
        "import": ("bank_file:import_", "Take in an export, or another memory's files."),
        "audit": ("clients:audit", "Report junk, duplicates and contradictions in a memory's files."),
        "reembed": ("bank_file:reembed", "Embed what waits, or switch to another model."),
    },
    "Sharing": {
        "sync": ("bank_file:sync_group", "Exchange events with another replica."),
        "hive": ("hive:group", "Many banks that share."),
        "agent": ("agent:group", "Agents that learn, answer and work through a queue."),
    },
}
COMMANDS = {name: entry for commands in GROUPS.values() for name, entry in commands.items()}


ALIASES = {
    "remember": "add", "recall": "search", "query": "search", "find": "list", "ls": "list", "show": "get",
    "update": "revise", "delete": "forget", "remove": "forget", "rm": "forget",
}  # fmt: skip
"""What people type, after Python's verbs or other tools, and the command that runs."""
MEANT = {"merge": "maintain", "as-of": "search --as-of", "as_of": "search --as-of"}
"""What people type that means more than one command, or one with an option: it is only named."""


EXIT_CODES = (
    ("0", "Done."),
    ("1", "Refused or failed; standard error says what to do. Also: there are findings or differences."),
    ("2", "The command line is wrong."),
    ("3", "`search` or `list` found nothing; standard error says why."),
    ("75", "Another maintenance run is at work; try again later."),
    ("130", "Stopped."),
)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of a name, imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        return getattr(importlib.import_module(f"skep.cli.{module}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; an unknown name is answered with the nearest one."""
        name = ALIASES.get(args[0], args[0])
        args = [name, *args[1:]]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = MEANT.get(name) or next(
                iter(difflib.get_close_matches(name, (*COMMANDS, *ALIASES), 1)), None
            )
            hint = f"; did you mean `skep {near}`?" if near else "; `skep --help` lists them"
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The names with what they do, in groups, without importing any; then the exit codes."""
        for heading, commands in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, about) for name, (_, about) in commands.items()], col_max=12)
        with formatter.section("Exit codes"):
            formatter.write_dl(EXIT_CODES, col_max=12)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--bank", type=click.Path(), help="The bank file; default: SKEP_BANK, .skep/ upward, or the user's own."
)
@click.version_option(package_name="skep")
@click.pass_context
def app(ctx: click.Context, bank: str | None) -> None:
    """A memory for AI agents, in one file."""
    ctx.obj = {"bank": bank}


_STEERS = re.compile("\x1b(?!\\[(?:[0-2]|[39][0-7]|39)?[mK])|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
"""Characters by which a text steers a terminal, but for the colours that commands use."""


class _Terminal:
    """A terminal that memories of others cannot steer: what would is shown as a mark."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        return self._stream.write(_STEERS.sub("\ufffd", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main() -> None:
    """The entry point: one error in plain words and an exit code, never a stack trace."""
    from skep.errors import SkepError

    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is not None and stream.isatty():
            setattr(sys, name, _Terminal(stream))
    try:
        code = app(prog_name="skep", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except SkepError as error:
        click.echo(f"skep: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        click.echo(f"skep: {error.strerror or error}{where}; check the path and its permissions", err=True)
        sys.exit(1)
    except UnicodeError as error:
        click.echo(f"skep: {_unwritable(error)}", err=True)
        sys.exit(1)
    if isinstance(code, int) and code:  # a command that ended with `Exit`: click hands its code back
        sys.exit(code)


def _unwritable(error: UnicodeError) -> str:
    if isinstance(error, UnicodeEncodeError) and error.encoding.replace("-", "").lower() != "utf8":
        return (
            f"this terminal's encoding, {error.encoding}, has no {error.object[error.start]!r};"
            " set PYTHONIOENCODING=utf-8"
        )
    return "an argument is not valid UTF-8; check what was typed or pasted"


NOTHING_FOUND = 3
"""The exit code of a question without an answer, for scripts."""
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
    """`--user`, `--project` and `--session`: the scope of memories."""
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
    """True if the bank of a command is there already."""
    named = outer_bank() if bank_path is None else bank_path
    if bank_url(named, os.environ) is not None:
        return False  # opening it is what tells
    return os.path.exists(bank_file(named, os.environ, os.getcwd()))


def opener() -> Opener:
    """The opener of embedders, with the keys and addresses of the environment."""
    return from_environment(os.environ)


@contextlib.contextmanager
def open_bank(
    bank_path: str | None, *, create: bool = True, fills: bool = False, **options: Any
) -> Generator[Bank]:
    """The bank a command works on. A command is over too soon to embed what waits, unless it writes.

    One is made only where there is nothing: an empty file was a bank, or is about to become one. A bank that was named
    on the command line is made only by a command that `fills` a new one: the name may be misspelt.
    """
    options.setdefault("settings", BRIEF)
    path = outer_bank() if bank_path is None else bank_path
    url = bank_url(path, os.environ)
    if url is not None and url.startswith(HIVE):
        from skep.hive.controller import open_agent

        with contextlib.closing(open_agent(url, os.environ)) as agent:
            yield cast("Bank", agent)
        return
    named = path not in (None, ":memory:") and url is None
    if named and not fills and not bank_exists(path):
        from skep.errors import BankNotFoundError

        raise BankNotFoundError(
            f"there is no bank at {path}; check the path, or make one: skep --bank {path} init"
        )
    with Bank.open(path, create=create and not bank_exists(bank_path), opener=opener(), **options) as bank:
        yield bank
        replica = getattr(bank, "replica", None)
    if replica is not None and replica.why:
        click.echo(f"kept on this machine until the hub answers: {replica.why}", err=True)


def print_json(value: Any) -> None:
    """One JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def when(seconds: float | None) -> str:
    """A time as people read it: that of their clock. JSON has seconds since the epoch."""
    return (
        ""
        if seconds is None
        else datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    )


JOINED = {"contradiction": "contradiction with", "duplicate": "duplicate of", "update": "update of"}
"""How a kind of conflict leads to the memory it is with."""


def stage_line(stage: Stage) -> str:
    """One stage of a recall on one line."""
    return f"{stage.name}: kept {stage.kept}, cut {stage.cut}" + (f" ({stage.note})" if stage.note else "")


def memory_line(memory: Memory) -> str:
    """One memory on one line."""
    notes = [] if memory.status == "active" else [memory.status]
    notes += [memory.kind] if memory.kind != "fact" else []
    notes += ["stale"] if memory.stale else []
    notes += map(str, memory.metadata.get(ANCHORS_GONE) or ())
    notes += [f"#{tag}" for tag in memory.tags]
    text = " ".join((f"{memory.title}: " if memory.title else "").split() + memory.text.split())
    suffix = click.style(f"  [{', '.join(notes)}]", dim=True) if notes else ""
    return f"{click.style(memory.id, fg='cyan')}  {text}{suffix}"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(48.2), duration(200), duration(9000)
    ('48 s', '3 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def progress_bar(label: str, unit: str = "") -> Generator[Callable[[int, int], None]]:
    """A progress bar on standard error with the time left; nothing when it is not a terminal.

    It counts in `unit`, such as "pairs"; without one it shows per cent.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    shown, started = 0, time.monotonic()

    def step(done: int, total: int) -> None:
        nonlocal shown
        width = 30
        filled = width if total == 0 else width * done // total
        told = f"{done:,} of {total:,} {unit}" if unit else f"{100 * done // max(1, total)} %"
        spent = time.monotonic() - started
        if 0 < done < total and spent >= 2:
            told += f", about {duration(spent * (total - done) / done)} left"
        line = f"{label} [{'#' * filled}{'-' * (width - filled)}] {told}"
        sys.stderr.write("\r" + line.ljust(shown))
        sys.stderr.flush()
        shown = max(shown, len(line))

    try:
        yield step
    finally:
        if shown:
            sys.stderr.write("\r" + " " * shown + "\r")
            sys.stderr.flush()
