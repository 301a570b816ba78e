"""From Chroma to skep: one command takes a collection in, with its metadata.

    python examples/migrate_from_chroma.py [FOLDER]

The first half makes a collection to move: by chromadb where it is installed, else the tables that chromadb 1.5 writes.
Yours is there already: `skep import FOLDER`, with the folder that you gave to `chromadb.PersistentClient`.
"""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

from skep import Bank

NOTES = {
    "n1": ("Ana drinks light roast.", {"user": "ana"}),
    "n2": ("The standup is at 9:30.", {"team": "shop", "floor": 3}),
    "n3": ("Invoices go out on the last Friday of the month.", {"team": "office"}),
}
TABLES = """
CREATE TABLE collections (id TEXT PRIMARY KEY, name TEXT, dimension INTEGER, database_id TEXT);
CREATE TABLE segments (id TEXT PRIMARY KEY, type TEXT, scope TEXT, collection TEXT);
CREATE TABLE embeddings (id INTEGER PRIMARY KEY, segment_id TEXT, embedding_id TEXT, seq_id BLOB,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE embedding_metadata (id INTEGER, key TEXT, string_value TEXT, int_value INTEGER, float_value REAL,
    bool_value INTEGER, PRIMARY KEY (id, key));
INSERT INTO collections VALUES ('c', 'notes', 3, 'd');
INSERT INTO segments VALUES ('s', 'urn:chroma:segment/metadata/sqlite', 'METADATA', 'c');
"""


def by_chromadb(folder: Path) -> None:
    """A collection as a program makes it; the vectors are given, so that no model is fetched."""
    import chromadb  # pyright: ignore[reportMissingImports]

    collection = chromadb.PersistentClient(str(folder)).create_collection("notes")
    collection.add(
        ids=list(NOTES),
        documents=[text for text, _ in NOTES.values()],
        metadatas=[about for _, about in NOTES.values()],
        embeddings=[[1.0, 0.0, float(number)] for number in range(len(NOTES))],
    )


def by_its_tables(folder: Path) -> None:
    """The same records in the tables that chromadb writes."""
    with contextlib.closing(sqlite3.connect(folder / "chroma.sqlite3")) as db, db:
        db.executescript(TABLES)
        for number, (name, (text, about)) in enumerate(NOTES.items(), 1):
            db.execute(
                "INSERT INTO embeddings (id, segment_id, embedding_id) VALUES (?, 's', ?)", (number, name)
            )
            for key, value in {"chroma:document": text, **about}.items():
                column = "string_value" if isinstance(value, str) else "int_value"
                db.execute(
                    f"INSERT INTO embedding_metadata (id, key, {column}) VALUES (?, ?, ?)",
                    (number, key, value),
                )


def main(folder: Path) -> None:
    """Make a collection once, import it, ask."""
    chroma, bank_file = folder / "chroma", folder / "team.skep"
    if not chroma.exists():
        chroma.mkdir(parents=True)
        try:
            by_chromadb(chroma)
        except ImportError:
            by_its_tables(chroma)

    subprocess.run([sys.executable, "-m", "skep", "--bank", bank_file, "import", chroma], check=True)

    with Bank.open(bank_file) as bank:
        hit = bank.recall("what coffee does Ana like?", domain="notes")[0]
        print(hit.memory.text, hit.memory.metadata)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
