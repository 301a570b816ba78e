"""`skep audit`: what is wrong with a memory's files."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec


@click.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--from", "source", help="What the file is; guessed when not given.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def audit(path: Path, source: str | None, as_json: bool) -> None:
    """Report junk, duplicates, contradictions and staleness in PATH; nothing is changed.

    PATH is a file or folder of any kind that `skep import` reads.
    """
    from skep.bank import Bank
    from skep.cli.shared import progress_bar
    from skep.integrations.audit import audit as examine
    from skep.integrations.audit import report
    from skep.integrations.importers import read

    chosen, items = read(path, source)
    with Bank.open(":memory:") as bank, progress_bar("comparing") as progress:
        found = examine(items, source=chosen.name, now=time.time(), bank=bank, progress=progress)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        click.echo(report(found))
