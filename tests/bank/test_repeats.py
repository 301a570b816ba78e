"""The same statement from anybody is one memory, confirmed."""

from __future__ import annotations

import pytest

from skep.bank.bank import Bank
from skep.model import OnConflict


@pytest.mark.parametrize("policy", ["warn", "supersede"])
def test_a_repeat_confirms_and_keeps_what_only_it_says(bank: Bank, policy: OnConflict) -> None:
    first = bank.remember("The printer is on floor two", tags=["office"], agent="ana", source="wiki").memory

    again = bank.remember(
        "the printer is on floor two.",
        tags=["hardware"],
        agent="bo",
        source="chat",
        importance=0.9,
        evidence=["e-1"],
        metadata={"seen": 1},
        on_conflict=policy,
    )

    assert (again.action, again.memory.id) == ("confirmed", first.id)
    assert bank.find().memories == (again.memory,)
    assert set(again.memory.tags) == {"office", "hardware"}
    assert (again.memory.source, again.memory.metadata) == ("wiki", {"seen": 1, "sources": ["chat"]})
    assert (again.memory.importance, again.memory.evidence, again.memory.confirmations) == (0.9, ("e-1",), 1)
    assert again.memory.confidence > first.confidence


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("The printer is on floor three", {}),
        ("The printer is not on floor two", {}),
        ("The printer is on floor two", {"scope": {"user": "ana"}}),
        ("The printer is on floor two", {"ttl": 60}),
        ("The printer is on floor two", {"kind": "episode"}),
    ],
)
def test_what_says_something_else_or_of_another_time_is_stored(
    bank: Bank, text: str, options: dict[str, object]
) -> None:
    bank.remember("The printer is on floor two")

    assert bank.remember(text, **options).action == "stored"  # type: ignore[arg-type]
    assert len(bank.find().memories) == 2


def test_what_happened_twice_are_two_episodes(bank: Bank) -> None:
    for _ in range(2):
        assert bank.remember("Deployed the shop", kind="episode").action == "stored"
