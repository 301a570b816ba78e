"""A bank as a LangGraph store: what its own tests do not ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from skep.adapters.langgraph import SkepStore
from skep.bank.bank import Bank
from skep.errors import InvalidInputError


def test_a_graph_remembers_across_threads(file_bank: Bank) -> None:
    class State(TypedDict):
        said: str
        known: list[str]

    def node(state: State, *, store: BaseStore) -> dict[str, Any]:
        known = [item.value["text"] for item in store.search(("users", "ana"), query=state["said"])]
        store.put(("users", "ana"), f"m{len(known)}", {"text": state["said"]})
        return {"known": known}

    graph: Any = StateGraph(State)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    app = graph.compile(store=SkepStore(file_bank))
    assert app.invoke({"said": "I edit in Helix", "known": []})["known"] == []
    assert app.invoke({"said": "Which editor do I use?", "known": []})["known"] == ["I edit in Helix"]


def test_an_item_is_a_memory_that_the_bank_finds_with_its_history(bank: Bank) -> None:
    store = SkepStore(bank)
    store.put(("users", "ana"), "editor", {"text": "Ana edits in Helix"})
    store.put(("users", "ana"), "editor", {"text": "Ana edits in Zed"})
    (memory,) = bank.find(key="editor")
    assert (memory.text, memory.scope.namespace) == ("Ana edits in Zed", ("langgraph", "users", "ana"))
    assert [event.kind for event in bank.history(memory.id)] == ["remember", "revise"]


def test_other_memories_of_the_bank_are_no_items(bank: Bank) -> None:
    bank.remember("a note", key="note")
    assert SkepStore(bank).search(()) == []
    assert SkepStore(bank).list_namespaces() == []


def test_what_is_over_is_gone_at_once_and_swept_for_good() -> None:
    clock = [1_750_000_000.0]
    with Bank.open(":memory:", now=lambda: clock[0]) as bank:
        store = SkepStore(bank, ttl={"refresh_on_read": True}, now=lambda: clock[0])
        store.put(("a",), "k", {"v": 1}, ttl=1)
        store.put(("a",), "other", {"v": 2}, ttl=1)
        clock[0] += 50
        assert store.get(("a",), "k") is not None  # prolongs it
        clock[0] += 50
        assert store.get(("a",), "k", refresh_ttl=False) is not None
        assert store.get(("a",), "other") is None
        assert store.sweep_ttl() == 1
        assert store.sweep_ttl() == 0


def test_a_deleted_item_leaves_no_text(file_bank: Bank, tmp_path: Path) -> None:
    store = SkepStore(file_bank)
    store.put(("a",), "k", {"text": "the marrow is secret"})
    store.delete(("a",), "k")
    assert store.get(("a",), "k") is None
    assert b"marrow" not in (tmp_path / "bank.skep").read_bytes()


def test_a_value_that_is_too_large_is_refused_in_words(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="over the limit"):
        SkepStore(bank).put(("a",), "k", {"text": "x" * 70_000})
