"""What `skep import` does with the files of other memories."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.integrations.importers import Item

MARK = b'"skep-bank"'


def is_export(path: str) -> bool:
    """Whether a file is an export of a bank, by its first line."""
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as stream:
        return MARK in stream.readline(4096)


def read_foreign(path: str, source: str | None) -> tuple[str, list[Item]]:
    """What a file was taken for, and everything in it; read to its end before a bank is touched."""
    from skep.integrations.importers import read

    chosen, items = read(Path(path).expanduser(), source)
    return chosen.name, list(items)


def import_foreign(
    bank: Bank,
    path: str,
    source: str | None,
    *,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Take in the files of another memory; what was taken in before is left as it is.

    Args:
        bank: Where to.
        path: A file or a folder.
        source: What it is; guessed when not given.
        dry_run: Only count.
        progress: Called with how many are done, and of how many.
    """
    return import_read(bank, *read_foreign(path, source), dry_run=dry_run, progress=progress)


def import_read(
    bank: Bank,
    name: str,
    items: list[Item],
    *,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """The same for what is read already."""
    from skep.integrations.transfer import import_items

    done = import_items(bank, items, dry_run=dry_run, progress=progress)
    return {"from": name, "new": done.new, "known": done.known, "links": done.links}
