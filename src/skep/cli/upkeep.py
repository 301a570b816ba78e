"""Commands that look after what a bank says, and say which bank that is: verify, config, version."""

from __future__ import annotations

import os
from pathlib import Path

import click

from skep.bank.bank import Bank
from skep.cli.app import common, json_option, open_bank, outer_bank, print_json, progress_bar
from skep.config import POLICIES, POLICY, PROJECT_FOLDER, find_bank
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


@click.command()
@json_option
def version(as_json: bool) -> None:
    """Print the version."""
    from skep import __version__

    print_json({"version": __version__}) if as_json else click.echo(f"skep, version {__version__}")


@click.command()
@click.option(
    "--on-conflict",
    type=click.Choice((*POLICIES, "usual")),
    help="From now on do this where a memory contradicts or repeats what is stored, if the call does not say.",
)
@common
def config(on_conflict: str | None, bank_path: str | None, as_json: bool) -> None:
    """Show which bank is used here, why, and what is set in it.

    `skep init` makes a bank, `skep tune deploy` sets how to rank, `skep redact` what is taken out, `skep reembed` the
    model.
    """
    from skep.recall.recaller import CONFIG_KEY
    from skep.text import redaction

    given = outer_bank() if bank_path is None else bank_path
    path = find_bank(given, os.environ, Path.cwd())
    reason = (
        "--bank" if given is not None
        else "SKEP_BANK" if os.environ.get("SKEP_BANK")
        else "the project's folder" if path.parent.name == PROJECT_FOLDER
        else "the user's own"
    )  # fmt: skip
    found: dict[str, object] = {"bank": str(path), "chosen by": reason, "exists": path.is_file()}
    if on_conflict is not None:
        with open_bank(bank_path, create=False) as bank:
            bank.set_setting(POLICY, None if on_conflict == "usual" else on_conflict)
    if path.is_file():
        with open_bank(bank_path, create=False, read_only=True) as bank:
            status = bank.status()
            kinds = redaction.kinds_of(bank.setting(redaction.SETTING))
            found |= {
                "memories": status.memories,
                "embedder": status.embedder,
                "recall": bank.setting(CONFIG_KEY) or "default",
                "conflicts": bank.setting(POLICY) or "warn",
                "taken out": list(kinds) if as_json else ", ".join(kinds),
            }
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name:>10}  {value}")
