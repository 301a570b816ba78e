"""An embedding service that is down stops no hive: what is written is found by its words, and the answer says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.conftest import Clock
from tests.embedding.slow import NotInstant
from tests.hive.conftest import MakeHive

from skep.engine.embeddings import OUTAGE_SECONDS
from skep.errors import EmbedderUnavailableError


class Service(NotInstant):
    """An embedder that can be switched off."""

    down = False

    def embed(self, texts: Sequence[str]) -> Any:
        if self.down:
            raise EmbedderUnavailableError("nobody answers")
        return super().embed(texts)


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_a_hive_whose_service_is_down_answers_by_words_and_says_so(
    make_hive: MakeHive, clock: Clock, kind: str
) -> None:
    service = Service(64)
    hive = make_hive(kind, embedder=service)
    ana, bob = hive.agent("ana"), hive.agent("bob")
    ana.remember("The staging database runs Postgres 16", on_conflict="ignore")
    service.down = True
    bob.remember("The harbour opens at six", on_conflict="ignore")

    found = bob.recall("what does the staging database run")
    assert [hit.memory.text for hit in found.hits] == ["The staging database runs Postgres 16"]
    assert "words alone: nobody answers" in found.reason
    assert [hit.memory.text for hit in ana.recall("when does the harbour open").hits] == [
        "The harbour opens at six"
    ]

    service.down = False
    clock.pass_seconds(OUTAGE_SECONDS + 1)
    assert "words alone" not in bob.recall("which staging database").reason


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_conflicts_and_writes_do_without_it(make_hive: MakeHive, kind: str) -> None:
    service = Service(64)
    hive = make_hive(kind, embedder=service)
    ana = hive.agent("ana")
    service.down = True
    ana.remember("The harbour opens at six")
    ana.remember("The harbour opens at seven")
    ana.find_conflicts()
    assert len(list(ana.find())) == 2
