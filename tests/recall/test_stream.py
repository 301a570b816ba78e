"""Passive recall never blocks, and what it found is simply there."""

from __future__ import annotations

import asyncio

from skep.bank import Bank


def filled(bank: Bank) -> None:
    bank.remember_many(
        [
            {"text": "The user's dog is called Rex", "confidence": 0.9},
            {"text": "Rex the dog might be a cat", "confidence": 0.4},
            {"text": "We walked the dog along the canal", "kind": "episode"},
            {"text": "The quarterly report is due in March"},
        ]
    )


def test_turns_call_memories_to_mind(bank: Bank) -> None:
    filled(bank)
    stream = bank.stream(inline=True)
    assert stream.context().facts == ()

    stream.observe("Let's talk about my dog Rex")

    found = stream.context()
    assert "The user's dog is called Rex" in [hit.memory.text for hit in found.facts]
    assert [hit.memory.kind for hit in found.episodes] == ["episode"] * len(found.episodes)
    assert all(hit.memory.confidence > 0.5 for hit in found.facts)
    assert max(len(found.facts), len(found.episodes)) <= 5


def test_the_background_search_is_there_at_the_next_turn_and_uses_are_not_counted(bank: Bank) -> None:
    filled(bank)
    stream = bank.stream()
    for number in range(20):
        stream.observe(f"turn {number} about the dog")
    assert stream.wait(30)
    assert stream.context().turn == 20
    stream.close()
    bank.engine.flush_uses()
    assert all(memory.uses == 0 for memory in bank.find())


def test_only_the_scope_asked_for_is_streamed(bank: Bank) -> None:
    bank.remember("Ana's dog is called Rex", scope={"user": "ana"})
    stream = bank.stream(scope={"user": "bo"}, inline=True)
    stream.observe("my dog Rex")
    assert stream.context().facts == ()


def test_it_serves_asyncio(bank: Bank) -> None:
    filled(bank)

    async def talk() -> int:
        stream = bank.stream()
        await stream.observe_async("the dog Rex")
        found = await stream.context_async(timeout=30)
        await asyncio.to_thread(stream.close)
        return len(found.facts)

    assert asyncio.run(talk()) >= 1


def test_the_tool_searches_facts_episodes_or_both(bank: Bank) -> None:
    filled(bank)
    kinds = {
        which: {hit.memory.kind for hit in bank.search_memory("the dog Rex on the canal", which)}
        for which in ("facts", "episodes", "both")
    }
    assert kinds == {"facts": {"fact"}, "episodes": {"episode"}, "both": {"fact", "episode"}}
