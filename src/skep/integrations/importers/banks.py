"""Another skep bank, or an export of one: what is current in it. To merge histories there is `skep sync`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skep.errors import InvalidInputError, SkepError
from skep.integrations.importers.base import Item, head, item
from skep.storage.foreign import is_sqlite
from skep.storage.schema import APPLICATION_ID

if TYPE_CHECKING:
    from skep.bank import Bank
    from skep.model import Memory

ORIGIN: Final = "skep"
EXPORT: Final = '"skep-bank"'
ID_AT: Final = 68
"""Where in its file SQLite keeps the number that says whose it is."""


def is_bank(path: Path) -> bool:
    """A file that says it is ours: a bank, or the first line of an export."""
    if not path.is_file():
        return False
    if not is_sqlite(path):
        return EXPORT in head(path, 4096).partition("\n")[0]
    with path.open("rb") as file:
        file.seek(ID_AT)
        return file.read(4) == APPLICATION_ID.to_bytes(4, "big")


def read_bank(path: Path) -> Iterator[Item]:
    """Every current memory.

    Raises:
        InvalidInputError: It is neither a bank nor an export, or is damaged.
    """
    from skep.bank import Bank

    try:
        if is_sqlite(path):
            with Bank.open(path, create=False, read_only=True) as bank:
                yield from _current(bank)
            return
        with Bank.open(":memory:") as bank:
            bank.import_(path)
            yield from _current(bank)
    except SkepError as error:
        raise InvalidInputError(f"{path} cannot be read as a bank: {error}") from error


def _current(bank: Bank) -> Iterator[Item]:
    cursor: str | None = None
    while True:
        page = bank.find(limit=1000, cursor=cursor)
        yield from (made for memory in page if (made := _item(memory)) is not None)
        cursor = page.cursor
        if cursor is None:
            return


def _item(memory: Memory) -> Item | None:
    scope: dict[str, Any] = {
        part: value for part in ("user", "project", "session") if (value := getattr(memory.scope, part))
    }
    return item(
        memory.text,
        origin=ORIGIN,
        key=memory.id,
        tags=memory.tags,
        kind=memory.kind,
        title=memory.title,
        domain=memory.domain,
        agent=memory.agent,
        scope=scope or None,
        confidence=memory.confidence,
        importance=memory.importance,
        created_at=memory.created_at,
        valid_from=memory.valid_from,
        valid_to=memory.valid_to,
        metadata=dict(memory.metadata) or None,
    )
