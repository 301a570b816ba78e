"""From mem0 to skep: one command takes the memories in, then a program changes one import.

    python examples/migrate_from_mem0.py [FOLDER]

The first half makes a history to move: by mem0 itself where `mem0ai` is installed, else the table that mem0 writes.
Yours is there already: `skep import ~/.mem0`, or the folder of its local Qdrant.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from skep import Bank
from skep.adapters.mem0 import Memory  # was: from mem0 import Memory

CHANGES = (
    ("m1", None, "Ana drinks dark roast.", "ADD"),
    ("m2", None, "The standup is at 9:30.", "ADD"),
    ("m1", "Ana drinks dark roast.", "Ana drinks light roast.", "UPDATE"),
    ("m3", None, "Bo works from Graz on Fridays.", "ADD"),
)


def by_mem0(history: Path) -> None:
    """What mem0 writes down as it adds and updates."""
    from mem0.memory.storage import SQLiteManager  # pyright: ignore[reportMissingImports]

    manager = SQLiteManager(str(history))
    for number, (memory, old, new, event) in enumerate(CHANGES):
        manager.add_history(
            memory, old, new, event, created_at=f"2026-03-0{number + 1}T09:00:00Z", actor_id="ana"
        )
    manager.close()


def by_its_table(history: Path) -> None:
    """The same rows in the table that mem0 writes."""
    with contextlib.closing(sqlite3.connect(history)) as db, db:
        db.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,"
            " created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
        )
        for number, (memory, old, new, event) in enumerate(CHANGES):
            row = (
                str(number),
                memory,
                old,
                new,
                event,
                f"2026-03-0{number + 1}T09:00:00Z",
                None,
                0,
                "ana",
                "user",
            )
            db.execute("INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def main(folder: Path) -> None:
    """Make a history once, import it, go on with mem0's words."""
    history, bank_file = folder / "history.db", folder / "team.skep"
    if not history.exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            by_mem0(history)
        except ImportError:
            by_its_table(history)

    subprocess.run([sys.executable, "-m", "skep", "--bank", bank_file, "import", history], check=True)

    with Bank.open(bank_file) as bank:
        print(bank.recall("what coffee does Ana like?")[0].memory.text)
        memory = Memory(bank)
        memory.add("I moved to Linz", user_id="bo")
        print(memory.search("where does the user live?", filters={"user_id": "bo"})["results"][0]["memory"])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
