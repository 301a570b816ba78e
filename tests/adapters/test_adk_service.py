"""A bank as a memory service of Google's ADK."""

from __future__ import annotations

import asyncio

from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, FunctionCall, Part

from skep.adapters.adk import BankMemoryService
from skep.bank.bank import Bank


def event(number: int, text: str, author: str = "user") -> Event:
    content = Content(role="user", parts=[Part(text=text)])
    return Event(id=f"e{number}", author=author, content=content, timestamp=1_750_000_000.0 + number)


def session(*events: Event, user: str = "ana", name: str = "s1") -> Session:
    return Session(id=name, app_name="shop", user_id=user, events=list(events))


def found(service: BankMemoryService, query: str, user: str = "ana") -> list[str]:
    answer = asyncio.run(service.search_memory(app_name="shop", user_id=user, query=query))
    return [part.text or "" for memory in answer.memories for part in memory.content.parts or []]


def test_what_was_said_is_found_in_a_later_session_of_the_same_user(bank: Bank) -> None:
    service = BankMemoryService(bank)
    asyncio.run(
        service.add_session_to_memory(session(event(1, "My dog is called Rex"), event(2, "Noted", "agent")))
    )
    assert found(service, "what is the dog called")[0] == "My dog is called Rex"
    assert found(service, "what is the dog called", user="bo") == []


def test_a_session_that_is_added_again_adds_what_is_new_alone(bank: Bank) -> None:
    service = BankMemoryService(bank)
    first, second = event(1, "My dog is called Rex"), event(2, "He is three years old")
    for events in ((first,), (first, second), (first, second)):
        asyncio.run(service.add_session_to_memory(session(*events)))
    assert sorted(m.text for m in bank.find()) == ["He is three years old", "My dog is called Rex"]
    assert len(list(bank.events())) == 2


def test_events_without_words_are_left_out(bank: Bank) -> None:
    call = Event(
        id="e1", author="agent", content=Content(parts=[Part(function_call=FunctionCall(name="f", args={}))])
    )
    asyncio.run(BankMemoryService(bank).add_session_to_memory(session(call, Event(id="e2", author="agent"))))
    assert bank.status().memories == 0


def test_facts_about_a_user_are_remembered_and_say_who_said_so(bank: Bank) -> None:
    service = BankMemoryService(bank)
    entry = MemoryEntry(content=Content(parts=[Part(text="Ana prefers window seats")]), author="crm")
    asyncio.run(service.add_memory(app_name="shop", user_id="ana", memories=[entry, entry]))
    answer = asyncio.run(service.search_memory(app_name="shop", user_id="ana", query="seat of Ana"))
    assert [memory.author for memory in answer.memories] == ["crm"]


def test_an_empty_question_finds_nothing(bank: Bank) -> None:
    assert found(BankMemoryService(bank), " ") == []
