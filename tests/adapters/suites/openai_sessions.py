"""The SDK's SQLite session with skep's session in its place."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session as module

from skep.adapters.openai_agents import BankSession
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

OPEN: dict[str, Bank] = {}


class SQLiteSession(BankSession):
    """A session in the bank beside a path; several sessions of one path share it."""

    def __init__(self, session_id: str, db_path: Any = ":memory:", *_tables: Any, **options: Any) -> None:
        where = str(db_path)
        bank = OPEN.get(where) if where != ":memory:" else None
        if bank is None or bank.closed:
            path = ":memory:" if where == ":memory:" else f"{where}.skep"
            bank = OPEN[where] = Bank.open(path, embedder=HashingEmbedder(32))
        settings = options.pop("session_settings", None)
        super().__init__(session_id, bank, session_settings=settings)
        self.db_path = Path(where)

    def close(self) -> None:
        """Tests close one session while another of the same file goes on."""


@atexit.register
def _close() -> None:
    for bank in OPEN.values():
        bank.close()


agents.SQLiteSession = agents.memory.SQLiteSession = module.SQLiteSession = SQLiteSession
