"""The command line: one file per group of commands, imported only when a command of it runs."""

from __future__ import annotations

import importlib
import sys

import click

from skep.loading import undisturbed

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module:attribute, what it does)
    "init": ("files:init", "Create a bank for this project or for the user."),
    "add": ("memories:add", "Remember a text, or one per line of standard input."),
    "search": ("memories:search", "Print the memories that answer a question."),
    "get": ("memories:get", "Print one memory."),
    "list": ("memories:list_", "List memories, newest first."),
    "revise": ("memories:revise", "Change a memory; its history is kept."),
    "retract": ("memories:retract", "Take a memory back; restore brings it back."),
    "restore": ("memories:restore", "Make a memory current again."),
    "supersede": ("memories:supersede", "Say that one memory replaces another."),
    "forget": ("memories:forget", "Erase memories for good."),
    "link": ("links:link", "Link two memories."),
    "unlink": ("links:unlink", "Remove links between two memories."),
    "neighbors": ("links:neighbors", "Show what a memory is linked to."),
    "path": ("links:path", "Show the fewest links between two memories."),
    "conflicts": ("memories:conflicts", "Find duplicates, contradictions and updates."),
    "history": ("log:history", "Show what happened to a memory, or last in the bank."),
    "blame": ("log:blame", "Show who last set each field of a memory."),
    "undo": ("log:undo", "Undo one event."),
    "export": ("files:export", "Write everything to a file of JSON lines."),
    "import": ("files:import_", "Take in an export, or another memory's files."),
    "backup": ("files:backup", "Copy the bank while it is in use."),
    "status": ("files:status", "Show counts, sizes and the embedder."),
    "doctor": ("files:doctor", "Look the bank over and say how to mend it."),
    "reembed": ("files:reembed", "Embed what waits, or switch to another model."),
    "demo": ("demo:demo", "Fill a bank, recall, show a conflict and an explanation."),
    "maintain": ("maintain:maintain", "Keep the bank clean: merge, resolve, expire."),
    "judge": ("judge:judge", "Show the pairs that wait for a judge, or decide one."),
    "learn": ("outcomes:learn", "Record how a task went and what was used."),
    "recommend": ("outcomes:recommend", "Suggest what worked before for a task."),
    "stats": ("outcomes:stats", "Show what outcomes say about memories."),
    "tune": ("tune:group", "Search configuration as code: measure, compare, deploy."),
    "hive": ("hive:group", "Many banks that share."),
    "sync": ("sync:group", "Exchange events with another replica."),
    "mcp": ("mcp:mcp", "Serve the bank to an agent over MCP."),
    "hook": ("hook:hook", "Run as a hook of a coding agent."),
    "install": ("install:install", "Add skep to an agent's configuration."),
    "uninstall": ("install:uninstall", "Take skep out of an agent's configuration."),
    "redact": ("redact:redact", "Show, try or set what is taken out before storing."),
    "audit": ("audit:audit", "Report junk, duplicates and contradictions in a memory's files."),
    "bench": ("bench:bench", "Measure on this machine."),
    "completion": ("files:completion", "Print the shell completion script."),
}


MEANT = {"remember": "add", "recall": "search", "find": "list", "merge": "maintain", "remove": "forget"} | {
    "delete": "forget", "rm": "forget", "query": "search", "ls": "list", "show": "get", "update": "revise",
    "as-of": "search --as-of", "as_of": "search --as-of", "serve": "mcp",
}  # fmt: skip
"""What people type, after Python's verbs or other tools, and the command that does it."""


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
        with undisturbed():
            return getattr(importlib.import_module(f"skep.cli.{module}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; an unknown name is answered with the nearest one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            import difflib

            near = MEANT.get(name) or next(iter(difflib.get_close_matches(name, COMMANDS, 1)), None)
            hint = f"; did you mean `skep {near}`?" if near else "; `skep --help` lists them"
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names with what they do, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--bank", type=click.Path(), help="The bank file; default: SKEP_BANK, .skep/ upward, or the user's own."
)
@click.version_option(package_name="skep")
@click.pass_context
def app(ctx: click.Context, bank: str | None) -> None:
    """A memory for AI agents, in one file."""
    ctx.obj = {"bank": bank}


def main() -> None:
    """The entry point: one error in plain words and an exit code, never a stack trace."""
    from skep.errors import SkepError

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
