"""What happens between two parts: an interrupt in bulk, a reader that builds while another forgets, and the like."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from skep import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import EmptyTextError
from skep.index.bm25 import key_of
from skep.index.catch_up import Upkeep
from skep.lifecycle.maintain import MaintainConfig

EPISODES = [
    "The nightly build failed because the disk was full on node 3",
    "The nightly build failed again because the disk was full on node 3",
    "The nightly build failed: the disk on node 3 was full once more",
    "The nightly build failed because node 3 had a full disk",
]


def opened(path: Path | str) -> Bank:
    return Bank.open(path, embedder=HashingEmbedder(16))


def test_a_reader_that_builds_the_index_brings_nothing_back_that_was_forgotten_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bank.skep"
    bank = opened(path)
    bank.remember_many([f"memory number {n} about topic {n * 7}" for n in range(60)])
    bank.recall("memory")
    bank.remember_many([f"later number {n} about topic {n * 7}" for n in range(840)])
    secret = bank.remember("the secret zanzibarword", on_conflict="ignore").memory.id
    bank.recall("memory")
    reads, goes_on = threading.Event(), threading.Event()
    write = Upkeep._write

    def waiting(self: Upkeep, patience: float, *, least: int | None = None) -> None:
        if threading.current_thread() is reader:  # its snapshot is taken, and it has no lock yet
            reads.set()
            assert goes_on.wait(30)
        write(self, patience, least=least)

    monkeypatch.setattr(Upkeep, "_write", waiting)

    def read() -> None:
        with opened(path) as other:
            other.recall("something else")

    reader = threading.Thread(target=read)
    reader.start()
    assert reads.wait(30)
    bank.forget(secret)
    goes_on.set()
    reader.join(60)
    assert not reader.is_alive()
    bank.recall("memory")
    bank.close()
    held = key_of("zanzibarword").to_bytes(8, "little")
    for file in tmp_path.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert held not in data, file
            assert b"zanzibarword" not in data, file


@pytest.mark.parametrize("consolidate", ["soft", "hard"])
def test_what_was_summed_up_and_brought_back_is_not_summed_up_again(consolidate: Any) -> None:
    reflect = MaintainConfig(steps=("embed", "reflect"), consolidate=consolidate)
    with Bank.open(":memory:") as bank:
        ids = [bank.remember(text, kind="episode", on_conflict="ignore").memory.id for text in EPISODES]
        bank.maintain(MaintainConfig(steps=("embed", "reflect")))
        assert {bank.get(i).status for i in ids} == {"superseded"}
        for i in ids:
            bank.restore(i)
        bank.maintain(reflect)
        assert {bank.get(i).status for i in ids} == {"active"}


def test_many_revisions_of_one_value_cost_no_more_than_their_links() -> None:
    with Bank.open(":memory:") as bank:
        for day in range(1, 25):
            bank.remember(f"The launch deadline was extended to May {day}", on_conflict="ignore")
        bank.maintain()
        found = bank.recall("When is the launch deadline?", limit=24)  # walking every path would take hours
        assert found[0].memory.text.endswith("May 24")


def test_an_escaped_private_mark_is_one() -> None:
    with opened(":memory:") as bank:
        with pytest.raises(EmptyTextError, match="private"):
            bank.remember("&lt;private&gt;x&lt;/private&gt;")
        kept = bank.remember("keep this").memory.id
        with pytest.raises(EmptyTextError, match="private"):
            bank.revise(kept, text="&lt;private&gt;x&lt;/private&gt;")
        assert bank.get(kept).text == "keep this"


def test_a_setting_that_only_looks_like_a_judgement_stops_no_run() -> None:
    with opened(":memory:") as bank:
        bank.set_setting("judgement/x", "foo")
        bank.set_setting("judgement/y", {"older": 3, "newer": None})
        bank.remember("Use ruff for linting", on_conflict="ignore")
        bank.maintain()
        assert bank.pending_judgements() == []
