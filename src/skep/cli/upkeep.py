"""Commands that look after what a bank says: verify."""

from __future__ import annotations

from pathlib import Path

import click

from skep.bank.bank import Bank
from skep.cli.app import common, open_bank, print_json, progress_bar
from skep.config import PROJECT_FOLDER
from skep.integrations.anchor_check import LIMIT, report
from skep.integrations.anchor_check import verify as check


def project_root(bank: Bank) -> Path | None:
    """The folder of the project whose bank this is; None for a bank that is no project's."""
    folder = None if bank.file is None else bank.file.parent
    return folder.parent if folder is not None and folder.name == PROJECT_FOLDER else None


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of the project; default: that of the bank, or this one.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=LIMIT, show_default=True, help="Memories of one pass."
)
@click.option("--online", is_flag=True, help="Also ask for URLs.")
@click.option("--dry-run", is_flag=True, help="Write nothing down.")
@common
def verify(
    root: Path | None, limit: int, online: bool, dry_run: bool, bank_path: str | None, as_json: bool
) -> None:
    """Check that what memories name is still there: files, symbols, flags, commits, versions of packages.

    What is gone or changed since a memory was written is noted on it, and what was derived from it turns stale; when
    it is back, the note is taken back. The exit code is 1 if something is gone.
    """
    with open_bank(bank_path, create=False) as bank, progress_bar("checking") as progress:
        place = root or project_root(bank) or Path.cwd()
        found = check(bank, place, limit=limit, online=online, dry_run=dry_run, progress=progress)
    print_json(found) if as_json else click.echo(report(found))
    if found.findings:
        raise click.exceptions.Exit(1)
