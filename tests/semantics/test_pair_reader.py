"""The reader of pairs: what it tells apart, and where its readings are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skep import Bank
from skep.semantics.pair_judge import KINDS, OUTPUTS
from skep.semantics.pair_reader import BankReader, read_pairs

LEEDS = "I live in Leeds, nearest airport is Leeds Bradford."
SHEFFIELD = "Boxes unpacked at last: I'm a Sheffield person now. Manchester is the airport to search from."


def kinds(pairs: list[tuple[str, str]]) -> list[str]:
    return [KINDS[at] for at in read_pairs(pairs)[:, : len(KINDS)].argmax(axis=1)]


def test_a_change_is_seen_that_no_verb_tells() -> None:
    assert kinds([(LEEDS, SHEFFIELD)]) == ["updates"]


def test_look_alikes_both_hold() -> None:
    pairs = [
        ("Staging runs on port 8080", "Production runs on port 9090"),
        ("Mara's birthday is on 3 May", "Jonas's birthday is on 9 June"),
        ("Use httpx for calls to services", "Do not use requests"),
    ]
    assert "updates" not in kinds(pairs)


def test_the_order_and_number_of_pairs_read_together_make_no_difference() -> None:
    pairs = [(LEEDS, SHEFFIELD), ("Kaja drinks oat milk", "The gate opens at nine"), (SHEFFIELD, LEEDS)]
    alone = np.concatenate([read_pairs([pair]) for pair in pairs])
    np.testing.assert_allclose(read_pairs(pairs), alone, atol=1e-3)
    assert read_pairs(pairs).shape == (3, OUTPUTS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bank.skep"


def test_an_update_stands_before_what_it_replaces_and_the_bank_keeps_what_was_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(path, embedder="minilm") as bank:
        bank.remember(LEEDS)
        bank.remember("Kaja takes oat milk in her coffee.")
        bank.remember(SHEFFIELD)
    monkeypatch.setattr("skep.semantics.pair_reader.read_pairs", None)  # whoever reads again fails
    with Bank.open(path, embedder="minilm") as bank:
        reader = bank.engine.reader
        assert isinstance(reader, BankReader)
        assert not np.isnan(reader.known([(LEEDS, SHEFFIELD)])).any()
        assert np.isnan(reader.known([(SHEFFIELD, LEEDS)])).all()
        found = bank.recall("Which airport is nearest to home?").hits
    assert [hit.memory.text for hit in found[:2]] == [SHEFFIELD, LEEDS]


def test_a_write_reads_what_its_search_for_conflicts_found_and_searches_no_second_time(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(path, embedder="minilm") as bank:
        bank.remember(LEEDS)
        monkeypatch.setattr(BankReader, "read_near", None)  # whoever searches again fails
        bank.remember(SHEFFIELD)
        assert bank.engine.reader is not None
        assert not np.isnan(bank.engine.reader.known([(LEEDS, SHEFFIELD)])).any()


def test_what_somebody_writes_between_the_search_and_the_write_is_read_as_well(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(path, embedder="minilm") as bank, Bank.open(path, embedder="minilm") as other:
        bank.remember("The gate opens at nine.")
        write = bank.engine.write

        def after_another(*plans: Any, **how: Any) -> Any:
            other.remember(LEEDS)
            return write(*plans, **how)

        monkeypatch.setattr(bank.engine, "write", after_another)
        bank.remember(SHEFFIELD)
        assert bank.engine.reader is not None
        assert not np.isnan(bank.engine.reader.known([(LEEDS, SHEFFIELD)])).any()


def test_a_large_import_is_read_behind_the_caller(path: Path) -> None:
    with Bank.open(path, embedder="minilm") as bank:
        bank.remember_many([LEEDS, SHEFFIELD, *(f"Shelf {n} holds box {n * 7}" for n in range(40))])
        bank.engine.embeddings.drain()
        assert bank.engine.reader is not None
        assert not np.isnan(bank.engine.reader.known([(LEEDS, SHEFFIELD)])).any()


def test_nothing_is_read_in_a_bank_with_the_word_table(path: Path) -> None:
    with Bank.open(path, embedder="static") as bank:
        bank.remember(LEEDS)
        bank.remember(SHEFFIELD)
        assert bank.engine.reader is None


def test_a_bank_that_cannot_be_written_to_answers_with_what_was_read(path: Path) -> None:
    with Bank.open(path, embedder="minilm") as bank:
        bank.remember(LEEDS)
        bank.remember(SHEFFIELD)
    with Bank.open(path, read_only=True) as bank:
        found = bank.recall("Which airport is nearest to home?").hits
    assert found[0].memory.text == SHEFFIELD
