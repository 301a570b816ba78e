"""Scopes never leak: every read path sees exactly the scope that was asked for."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from skep.bank import Bank
from skep.embedding.hashing import HashingEmbedder
from skep.model import SHARED, Scope

PART = st.sampled_from([None, "a", "b"])
SCOPES = st.builds(Scope, user=PART, project=PART, session=PART)
ASKED_PART = st.sampled_from([None, "a", "b", "*"])
ASKED = st.builds(Scope, user=ASKED_PART, project=ASKED_PART, session=ASKED_PART)


@settings(max_examples=60)
@given(st.lists(SCOPES, min_size=1, max_size=8), ASKED, st.booleans(), SCOPES)
def test_a_read_with_a_scope_sees_exactly_that_scope(
    scopes: list[Scope], asked: Scope, include_shared: bool, writer: Scope
) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(32)) as bank:
        stored = {
            bank.remember(f"the common note {i}", scope=scope, on_conflict="ignore").memory.id: scope
            for i, scope in enumerate(scopes)
        }
        allowed = {
            i for i, scope in stored.items() if asked.admits(scope) or (include_shared and scope == SHARED)
        }

        found = {m.id for m in bank.find(scope=asked, include_shared=include_shared)}
        by_words = {m.id for m in bank.find("common note", scope=asked, include_shared=include_shared)}
        recalled = {
            hit.memory.id
            for preset in ("default", "semantic", "hybrid", "rrf")
            for hit in bank.recall(
                "common note",
                limit=20,
                scope=asked,
                include_shared=include_shared,
                preset=preset,
                expand=True,
            )
        }

        assert allowed == found == by_words
        assert recalled <= allowed
        for conflict in bank.remember("the common note 0", scope=writer).conflicts:
            assert conflict.existing.scope in (writer, SHARED)
