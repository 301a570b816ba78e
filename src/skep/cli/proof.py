"""Commands that prove what a bank says, and let a person decide: test, bisect, review."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from skep.cli.app import common, memory_line, open_bank, opener, print_json, when


@click.command("test")
@click.argument("path", type=click.Path(path_type=Path), default="memories.yaml")
@common
def run_tests(path: Path, bank_path: str | None, as_json: bool) -> None:
    """Ask the questions of PATH (memories.yaml): these must be answered so, these must stay silent.

    The exit code is 1 if a question fails, for CI.
    """
    from skep.tuning.memory_tests import ask_all, read_suite

    suite = read_suite(path)
    with open_bank(bank_path, create=False, read_only=True) as bank:
        done = ask_all(bank, suite)
    failed = [one for one in done if not one.passed]
    if as_json:
        print_json({"passed": len(done) - len(failed), "failed": len(failed), "questions": done})
    else:
        for one in failed:
            click.echo(f"{click.style('FAILED', fg='red')} {one.ask}: {one.why}")
            for line in one.found:
                click.echo(click.style(f"       {line}", dim=True))
        click.echo(f"{len(done) - len(failed)} of {len(done)} passed")
    if failed:
        raise click.exceptions.Exit(1)


@click.command()
@click.option(
    "--bad",
    "command",
    required=True,
    help="A command that fails where it goes wrong; SKEP_BANK names the bank.",
)
@click.option("--undo", is_flag=True, help="Undo the event that is found.")
@common
def bisect(command: str, undo: bool, bank_path: str | None, as_json: bool) -> None:
    """Find the event after which a command goes wrong, show what it touched, and undo it if asked.

    The command exits with 0 if all is well, with 125 if it cannot tell, with anything else if it went wrong. It runs on
    copies that hold the first events only; this bank is not touched without --undo.
    """
    from skep.tuning.event_bisect import bisect as search

    def judge(path: Path) -> int:
        environ = {**os.environ, "SKEP_BANK": str(path)}
        done = subprocess.run(command, shell=True, check=False, env=environ, capture_output=True)
        return done.returncode

    with open_bank(bank_path, create=False) as bank:
        found = search(bank, judge, opener=opener(), told=lambda line: click.echo(line, err=True))
        if undo:
            bank.undo(found.event, f"found by skep bisect --bad {command}")
    if as_json:
        print_json({**{name: getattr(found, name) for name in found.__struct_fields__}, "undone": undo})
        return
    if len(found.suspects) > 1:
        click.echo(f"one of {', '.join(found.suspects)}; the last of them is shown")
    click.echo(f"{found.event}  {when(found.at)}  {found.kind}, after {found.runs} runs")
    for memory in found.memories:
        click.echo(f"  about    {memory_line(memory)}")
    for memory in found.derived:
        click.echo(f"  derived  {memory_line(memory)}")
    click.echo("undone" if undo else f"`skep undo {found.event}` takes it back")


@click.command()
@click.option("--accept", multiple=True, metavar="ID", help="Say yes to this one; may be repeated.")
@click.option("--reject", multiple=True, metavar="ID", help="Say no: it is retracted; may be repeated.")
@click.option(
    "--ask",
    type=click.Choice(["hooks", "off"]),
    help="From now on what hooks keep waits for a person, or no longer.",
)
@common
def review(
    accept: tuple[str, ...], reject: tuple[str, ...], ask: str | None, bank_path: str | None, as_json: bool
) -> None:
    """Show what waits until a person says yes, and decide on it one by one.

    What waits is in no recall. A decision is asked for in a terminal, so that an agent does not approve what it wrote.
    """
    from skep.integrations.capture import REVIEW

    with open_bank(bank_path, create=False) as bank:
        if ask is not None:
            bank.set_setting(REVIEW, ask if ask != "off" else None)
            click.echo(
                "nothing new waits any more" if ask == "off" else f"what {ask} keep waits for a person now"
            )
            return
        waiting = list(bank.find(status="quarantined", limit=1000))
        if as_json and not (accept or reject):
            print_json({"waiting": waiting})
            return
        chosen = {**dict.fromkeys(accept, True), **dict.fromkeys(reject, False)}
        if not waiting and not chosen:
            click.echo("nothing waits", err=True)
            return
        if not sys.stdin.isatty():
            for memory in waiting:
                click.echo(memory_line(memory))
            if chosen:
                raise click.UsageError("a person has to decide; run `skep review` in a terminal")
            click.echo(f"{len(waiting)} wait; `skep review` in a terminal decides", err=True)
            return
        known = {memory.id: memory for memory in waiting}
        wanted = [known[one] if one in known else bank.get(one) for one in chosen] or waiting
        for memory in wanted:
            click.echo(memory_line(memory))
            if memory.id in chosen:
                yes = chosen[memory.id] if click.confirm("Sure?") else None
            else:
                yes = {"y": True, "n": False}.get(click.prompt("yes, no or later", default="l")[:1].lower())
            if yes is True:
                bank.mark(memory.id, "active", "reviewed by a person")
            elif yes is False:
                bank.retract(memory.id, "refused by a person")
