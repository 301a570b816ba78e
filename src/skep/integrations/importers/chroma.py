"""Importer of a local Chroma: the documents of every collection with their metadata. Vectors are made anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from skep.errors import InvalidInputError
from skep.integrations.importers.item import Item, item, moment
from skep.storage.sqlite_file import ForeignFile, is_sqlite

CHROMA: Final = "chroma"
DOCUMENT: Final = "chroma:document"
VALUES: Final = ("string_value", "int_value", "float_value", "bool_value")


def _file(path: Path) -> Path | None:
    """`chroma.sqlite3` itself, or the one in a folder that `PersistentClient` was given."""
    file = path / "chroma.sqlite3" if path.is_dir() else path
    return file if is_sqlite(file) else None


def is_chroma(path: Path) -> bool:
    """A database with collections and their documents."""
    file = _file(path)
    if file is None:
        return False
    with ForeignFile(file) as foreign:
        return {"collections", "segments", "embeddings", "embedding_metadata"} <= set(foreign.tables)


def read_chroma(path: Path) -> Iterator[Item]:
    """A memory per document; its collection is the domain. A record that holds a vector alone is passed over."""
    file = _file(path)
    if file is None:
        raise InvalidInputError(f"{path} holds no chroma.sqlite3; name the folder of the PersistentClient")
    with ForeignFile(file) as foreign:
        names = {row["id"]: str(row["name"]) for row in foreign.rows("collections", ("id", "name"))}
        segments = foreign.rows("segments", ("id", "collection"))
        collections = {row["id"]: names.get(row["collection"], "") for row in segments}
        documents: dict[Any, str] = {}
        metadata: dict[Any, dict[str, Any]] = {}
        for row in foreign.rows("embedding_metadata", ("id", "key", *VALUES)):
            value = next((row[name] for name in VALUES if row[name] is not None), None)
            if row["key"] == DOCUMENT:
                documents[row["id"]] = str(value)
            elif value is not None and not str(row["key"]).startswith("chroma:"):
                known = metadata.setdefault(row["id"], {})
                known[str(row["key"])] = bool(value) if row["bool_value"] is not None else value
        for row in foreign.rows("embeddings", ("id", "segment_id", "embedding_id", "created_at")):
            collection = collections.get(row["segment_id"], "")
            made = item(
                documents.get(row["id"], ""),
                origin=CHROMA,
                key=f"{collection}/{row['embedding_id']}",
                created_at=moment(row["created_at"]),
                domain=collection or None,
                metadata=metadata.get(row["id"]),
            )
            if made is not None:
                yield made
