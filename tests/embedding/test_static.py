"""The bundled table: offline, instant, the same everywhere."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.embedder import Embedder, default_embedder
from skep.embedding.static_table import DATA as FOLDER
from skep.embedding.static_table import StaticEmbedder
from skep.errors import EmbedderUnavailableError

DATA = Path(FOLDER)


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def cosine(embedder: Embedder, a: str, b: str) -> float:
    left, right = embedder.embed([a, b])
    return float(left @ right)


def test_it_is_the_default_and_an_embedder() -> None:
    embedder = default_embedder()

    assert isinstance(embedder, StaticEmbedder)
    assert isinstance(embedder, Embedder)
    assert (embedder.dim, embedder.instant) == (256, True)


def test_the_fingerprint_belongs_to_the_bytes_of_the_table(embedder: StaticEmbedder) -> None:
    digest = hashlib.sha256((DATA / "static.bin").read_bytes()).hexdigest()

    assert json.loads((DATA / "static.json").read_text())["sha256"] == digest
    assert f"static-256-{digest[:12]}" == embedder.fingerprint


def test_rows_are_float32_of_unit_length(embedder: StaticEmbedder) -> None:
    rows = embedder.embed(["The deploy failed on Tuesday.", "x", "東京タワー"])

    assert (np.float32, (3, 256)) == (rows.dtype, rows.shape)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("text", ["", "   ", "\u200b", "👍"])
def test_a_text_with_nothing_to_embed_gives_a_zero_row(embedder: StaticEmbedder, text: str) -> None:
    assert not embedder.embed([text]).any()


def test_no_texts_give_no_rows(embedder: StaticEmbedder) -> None:
    assert embedder.embed([]).shape == (0, 256)


@given(st.lists(st.text(max_size=40), max_size=4))
def test_a_text_has_the_same_row_alone_and_in_company(texts: list[str]) -> None:
    embedder = StaticEmbedder()
    together = embedder.embed(texts)

    for row, text in zip(together, texts, strict=True):
        np.testing.assert_array_equal(row, embedder.embed([text])[0])


def test_a_very_long_text_equals_the_sum_of_its_parts(embedder: StaticEmbedder) -> None:
    """Long texts are summed in chunks; repeating a text does not turn it."""
    text = "the quarterly budget of the bakery grew "

    assert cosine(embedder, text, text * 3000) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("query", "near", "far"),
    [
        ("Where does she live?", "Her home is in Oslo.", "The invoice was paid late."),
        ("our database choice", "We use PostgreSQL for storage.", "Anna likes strawberry cake."),
        ("what does he eat", "He had pasta for dinner.", "The train to Berlin was cancelled."),
    ],
)
def test_meaning_without_shared_words_is_closer_than_none(
    embedder: StaticEmbedder, query: str, near: str, far: str
) -> None:
    assert cosine(embedder, query, near) > cosine(embedder, query, far)


@pytest.mark.parametrize(
    ("a", "b", "low", "high"),
    [
        ("The deploy failed on Tuesday.", "The deploy failed on Tuesday.", 0.999, 1.0),
        ("The deploy failed on Tuesday.", "the deploy failed on Tuesday", 0.93, 1.0),
        ("The meeting was moved to Friday.", "The meeting has been moved to Friday.", 0.85, 1.0),
        ("I grew up in a small fishing village.", "Set the compiler flag to O3.", -0.5, 0.4),
    ],
)
def test_calibrated_cosines_mean_the_same_as_with_any_embedder(
    embedder: StaticEmbedder, a: str, b: str, low: float, high: float
) -> None:
    assert low <= embedder.calibrate(cosine(embedder, a, b)) <= high


def test_a_missing_or_truncated_table_is_a_named_error(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailableError, match="build_static_table"):
        StaticEmbedder(tmp_path)

    shutil.copytree(DATA, tmp_path / "copy")
    (tmp_path / "copy" / "static.bin").write_bytes(b"short")
    with pytest.raises(EmbedderUnavailableError, match="instead of"):
        StaticEmbedder(tmp_path / "copy").embed(["x"])


def test_a_damaged_vocabulary_is_a_named_error(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "copy")
    for kept in (10, 1000, 454_000):
        (tmp_path / "copy" / "vocab.bin").write_bytes((DATA / "vocab.bin").read_bytes()[:kept])
        with pytest.raises(EmbedderUnavailableError, match="no vocabulary, or a damaged one"):
            StaticEmbedder(tmp_path / "copy").embed(["x"])


def test_a_table_made_with_a_compressed_vocabulary_still_opens(
    embedder: StaticEmbedder, tmp_path: Path
) -> None:
    shutil.copytree(DATA, tmp_path / "copy")
    (tmp_path / "copy" / "vocab.bin").unlink()
    lines = "\n".join(embedder.wordpiece.vocabulary).encode()
    (tmp_path / "copy" / "vocab.z").write_bytes(zlib.compress(lines, 9))

    older = StaticEmbedder(tmp_path / "copy")

    assert older.wordpiece.vocabulary == embedder.wordpiece.vocabulary
    assert np.array_equal(older.embed(["an unheard-of word"]), embedder.embed(["an unheard-of word"]))


def test_importing_and_opening_does_not_import_numpy() -> None:
    program = (
        "import sys; from skep.embedding import default_embedder; e = default_embedder();"
        "e.fingerprint, e.dim, e.calibrate(0.5), e.wordpiece.ids('words only'); print('numpy' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "False"
