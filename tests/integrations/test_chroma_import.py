"""Chroma's folder: documents and metadata come over; vectors are made anew. Shapes checked against chromadb 1.5.9."""

from __future__ import annotations

import runpy
import sqlite3
from pathlib import Path

import pytest

from skep.errors import InvalidInputError
from skep.integrations.importers.chroma import is_chroma, read_chroma
from skep.integrations.importers.registry import detect

EXAMPLE = runpy.run_path(
    str(Path(__file__).parents[2] / "examples" / "migrate_from_chroma.py"), run_name="example"
)


@pytest.fixture
def chroma(tmp_path: Path) -> Path:
    EXAMPLE["by_its_tables"](tmp_path)
    return tmp_path


def test_documents_keep_their_metadata_and_their_collection(chroma: Path) -> None:
    first, second, _ = list(read_chroma(chroma))
    assert first.text == "Ana drinks light roast."
    assert (first.fields["domain"], first.fields["source"]) == ("notes", "chroma:notes/n1")
    assert second.fields["metadata"] == {"team": "shop", "floor": 3}
    assert detect(chroma).name == "chroma"
    assert [item.key for item in read_chroma(chroma / "chroma.sqlite3")] == [
        "notes/n1",
        "notes/n2",
        "notes/n3",
    ]


def test_truth_values_stay_truth_values_and_a_vector_alone_is_passed_over(chroma: Path) -> None:
    with sqlite3.connect(chroma / "chroma.sqlite3") as db:
        db.execute("INSERT INTO embedding_metadata (id, key, bool_value) VALUES (1, 'sure', 0)")
        db.execute("INSERT INTO embeddings (id, segment_id, embedding_id) VALUES (9, 's', 'vector alone')")
    db.close()
    items = list(read_chroma(chroma))
    assert items[0].fields["metadata"] == {"user": "ana", "sure": False}
    assert len(items) == 3


def test_a_folder_without_a_database_is_refused_in_words(tmp_path: Path) -> None:
    assert not is_chroma(tmp_path)
    with pytest.raises(InvalidInputError, match=r"no chroma\.sqlite3"):
        list(read_chroma(tmp_path))
