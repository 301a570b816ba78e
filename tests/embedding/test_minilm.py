"""The bundled transformer: meaning without shared words, vectors that do not depend on company, and drafts of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from skep.embedding.embedder import Embedder, default_embedder, default_spec, open_embedder
from skep.embedding.minilm import DATA, LIMIT, MiniLMEmbedder, bundled_minilm
from skep.errors import EmbedderUnavailableError

NOTES = (
    "Anna is allergic to peanuts.",
    "The deploy runs on Tuesday nights.",
    "Sessions are kept in Redis.",
    "The office cat sleeps on the printer.",
)
QUESTIONS = (
    "Which food makes her ill?",
    "When do we release the software?",
    "In what database does the login state live?",
    "Which spot does the kitten like to nap on?",
)


@pytest.fixture(scope="module")
def model() -> MiniLMEmbedder:
    return MiniLMEmbedder()


def test_each_question_is_nearest_to_its_answer_though_they_share_no_word(model: MiniLMEmbedder) -> None:
    near = model.embed(QUESTIONS) @ model.embed(NOTES).T

    assert near.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_it_is_an_embedder_and_the_default(model: MiniLMEmbedder) -> None:
    assert isinstance(model, Embedder)
    assert default_spec({}) == "minilm"
    assert default_embedder({}).fingerprint == open_embedder("minilm").fingerprint == model.fingerprint
    assert default_embedder({"SKEP_EMBEDDER": "hash:32"}).dim == 32


def test_rows_have_length_one_and_a_text_without_a_word_has_none(model: MiniLMEmbedder) -> None:
    rows = model.embed(["a cat", "", " \n"])

    assert np.linalg.norm(rows, axis=1) == pytest.approx([1.0, 0.0, 0.0], abs=1e-5)
    assert rows.shape == (3, model.dim)


def test_a_vector_does_not_depend_on_the_texts_beside_it() -> None:
    texts = [*NOTES, "word " * 200, *QUESTIONS]

    together = MiniLMEmbedder().embed(texts)

    for at, text in enumerate(texts):
        assert together[at] == pytest.approx(MiniLMEmbedder().embed([text])[0], abs=1e-4)


def test_a_text_that_was_read_before_keeps_its_vector(model: MiniLMEmbedder) -> None:
    first = model.embed(["the same text", "the same text"])
    first[0] = 0.0  # a caller may write into what it was given

    again = model.embed(["the same text"])

    assert again[0] == pytest.approx(first[1], abs=1e-6)


def test_a_text_longer_than_the_model_reads_is_no_error(model: MiniLMEmbedder) -> None:
    rows = model.embed(["cat " * (4 * LIMIT)])

    assert np.linalg.norm(rows[0]) == pytest.approx(1.0, abs=1e-5)


def test_drafts_lie_in_the_space_of_the_model_and_find_more_than_chance(model: MiniLMEmbedder) -> None:
    drafts = model.draft([*NOTES, ""])
    exact = model.embed(NOTES)

    assert (drafts[:4] * exact).sum(axis=1).min() > 0.5
    assert (exact @ drafts[:4].T).argmax(axis=1).tolist() == [0, 1, 2, 3]
    assert not drafts[4].any()


def test_only_a_small_write_is_embedded_while_its_caller_waits(model: MiniLMEmbedder) -> None:
    assert model.at_once(["a short note"] * 10)
    assert model.at_once(["x" * 60_000])
    assert not model.at_once(["a short note"] * 100)
    assert not model.at_once(["x" * 900] * 10)


def test_threads_get_the_vectors_of_their_own_texts() -> None:
    shared, alone = MiniLMEmbedder(), MiniLMEmbedder()
    found: dict[str, np.ndarray] = {}

    def work(text: str) -> None:
        found[text] = shared.embed([text])[0]

    threads = [threading.Thread(target=work, args=(text,)) for text in (*NOTES, *QUESTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for text, row in found.items():
        assert row == pytest.approx(alone.embed([text])[0], abs=1e-4)


def test_the_banks_of_a_process_share_one() -> None:
    assert open_embedder("minilm") is bundled_minilm()


def test_a_missing_or_damaged_file_says_how_to_get_another(tmp_path: Path) -> None:
    with pytest.raises(EmbedderUnavailableError, match="reinstall skep"):
        MiniLMEmbedder(tmp_path)

    shutil.copy(Path(DATA) / "minilm.json", tmp_path)
    cut = MiniLMEmbedder(tmp_path)
    with pytest.raises(EmbedderUnavailableError, match="embedder='static'"):
        cut.embed(["a cat"])

    (tmp_path / "minilm.bin").write_bytes(b"short")
    with pytest.raises(EmbedderUnavailableError, match="5 bytes instead of"):
        cut.embed(["a cat"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_can_embed_though_a_thread_was_embedding_when_it_was_forked() -> None:
    script = """
import os, threading
from skep.embedding.minilm import bundled_minilm
model = bundled_minilm()
model.embed(["warm"])
stop = threading.Event()
def work():
    count = 0
    while not stop.is_set():
        model.embed([f"text {(count := count + 1)} {word}" for word in range(20)])
thread = threading.Thread(target=work)
thread.start()
for number in range(5):
    child = os.fork()
    if not child:
        os._exit(int(model.embed([f"child {number}"]).shape != (1, 384)))
    assert os.waitpid(child, 0)[1] == 0
stop.set()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
