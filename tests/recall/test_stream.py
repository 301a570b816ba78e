"""Passive recall never blocks, and what it found is simply there."""

from __future__ import annotations

import asyncio
import threading

import pytest

from skep.bank.bank import Bank
from skep.errors import ClosedError, WrongTypeError
from skep.filters import Filter
from skep.recall.memory_stream import Stream


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


def test_a_running_search_that_a_newer_turn_overtakes_is_dropped(bank: Bank) -> None:
    filled(bank)
    running, go_on = threading.Event(), threading.Event()
    asked: list[int] = []

    def where() -> Filter:
        asked.append(stream.context().turn)
        if len(asked) == 1:
            running.set()
            assert go_on.wait(30)
        return Filter()

    stream = Stream(bank._recall, where)  # pyright: ignore[reportPrivateUsage]
    stream.observe("the quarterly report in March")
    assert running.wait(30)
    stream.observe("my dog Rex")
    go_on.set()
    assert stream.wait(30)
    stream.close()

    assert asked == [0, 0, 0]  # one half of the stale search, both of the newer one, nothing shown in between
    assert (stream.cancelled, stream.context().turn) == (1, 2)
    assert "The user's dog is called Rex" in [hit.memory.text for hit in stream.context().facts]


def test_a_turn_searches_nothing_itself(bank: Bank) -> None:
    filled(bank)
    stream = bank.stream()
    stream.observe("the dog Rex")
    assert stream.wait(30)
    here = threading.get_ident()
    searched: list[int] = []
    bank.engine.store.connection.trace = lambda _sql, _bindings: searched.append(threading.get_ident())
    for turn in ("what about the canal", "and the report"):
        stream.observe(turn)
        stream.context()
    assert stream.wait(30)
    stream.close()
    assert searched
    assert here not in searched


def test_what_is_forgotten_after_the_search_is_not_shown(bank: Bank) -> None:
    filled(bank)
    stream = bank.stream(inline=True)
    stream.observe("Let's talk about my dog Rex")
    rex = next(hit.memory.id for hit in stream.context().facts if "Rex" in hit.memory.text)

    bank.forget(rex)

    assert rex not in [hit.memory.id for hit in stream.context().facts]
    assert stream.context().turn == 1
    assert stream.context().episodes


def test_a_memory_at_the_bar_is_not_above_it(bank: Bank) -> None:
    bank.remember_many(
        [
            {"text": "The spare key is under the blue pot", "confidence": 0.5},
            {"text": "The spare key is under the red pot", "confidence": 0.3},
        ]
    )
    stream = bank.stream(inline=True)
    stream.observe("where is the spare key")
    assert stream.context().facts == ()
    assert [hit.memory.confidence for hit in bank.search_memory("where is the spare key")] == [0.5]


@pytest.mark.parametrize("inline", [True, False])
def test_a_closed_stream_says_so_and_still_tells_what_it_found(bank: Bank, inline: bool) -> None:
    bank.remember("Ana's deploy key expires on 1 June", confidence=0.9)
    stream = bank.stream(inline=inline)
    stream.observe("what about Ana's deploy key?")
    assert stream.wait(timeout=60)
    stream.close()

    with pytest.raises(ClosedError, match="stream is closed"):
        stream.observe("and now?")
    assert len(stream.context().facts) == 1


@pytest.mark.parametrize("turn", ["user: hi", "thanks!", "how do I bake sourdough bread?"])
def test_a_turn_that_calls_nothing_to_mind_shows_nothing(bank: Bank, turn: str) -> None:
    filled(bank)
    with bank.stream(inline=True) as stream:
        stream.observe(turn)
        assert (stream.context().facts, stream.context().episodes) == ((), ())
        assert stream.context().turn == 1


def test_a_turn_may_be_a_message_and_its_role_is_not_what_it_is_about(bank: Bank) -> None:
    bank.remember_many(["The user prefers dark mode", "The staging database runs Postgres 16"])
    with bank.stream(inline=True) as stream:
        stream.observe(
            {"role": "user", "content": [{"type": "text", "text": "which postgres is on staging"}]}
        )
        assert [hit.memory.text for hit in stream.context().facts] == [
            "The staging database runs Postgres 16"
        ]
        with pytest.raises(WrongTypeError, match="strings or mappings with role and content"):
            stream.observe(7)  # type: ignore[arg-type]
    with pytest.raises(ClosedError):
        stream.observe("anything")
