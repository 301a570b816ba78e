"""mem0's words over a bank: what a program written for mem0 does."""

from __future__ import annotations

import importlib.util
import inspect

import pytest

from skep.adapters.mem0 import Memory
from skep.bank.bank import Bank
from skep.errors import InvalidInputError

ANA = {"user_id": "ana"}


def texts(found: dict[str, list[dict[str, object]]]) -> list[str]:
    return sorted(str(item["memory"]) for item in found["results"])


def test_a_program_of_mem0_runs(bank: Bank) -> None:
    m = Memory(bank)
    added = m.add("I prefer dark roast coffee", user_id="ana", metadata={"topic": "drinks"})["results"]
    m.add(
        [{"role": "user", "content": "My desk is in Oslo"}, {"role": "assistant", "content": "Noted!"}],
        user_id="ana",
    )
    m.add("I prefer tea", user_id="bo")

    assert [one["event"] for one in added] == ["ADD"]
    found = m.search("which coffee", filters=ANA)["results"][0]
    assert (found["memory"], found["user_id"], found["metadata"]) == (
        "I prefer dark roast coffee",
        "ana",
        {"topic": "drinks"},
    )
    assert texts(m.get_all(filters=ANA)) == ["I prefer dark roast coffee", "My desk is in Oslo"]
    assert texts(m.get_all(filters={**ANA, "topic": {"in": ["drinks", "food"]}})) == [
        "I prefer dark roast coffee"
    ]
    assert texts(m.get_all(filters={"AND": [ANA, {"topic": "*"}]})) == ["I prefer dark roast coffee"]

    m.update(added[0]["id"], "I prefer light roast coffee", metadata={"sure": True})
    now = m.get(added[0]["id"])
    assert now is not None
    assert (now["memory"], now["metadata"]) == (
        "I prefer light roast coffee",
        {"topic": "drinks", "sure": True},
    )
    assert [(row["event"], row["old_memory"], row["new_memory"]) for row in m.history(added[0]["id"])] == [
        ("ADD", None, "I prefer dark roast coffee"),
        ("UPDATE", "I prefer dark roast coffee", "I prefer light roast coffee"),
    ]
    m.delete(added[0]["id"])
    assert m.get(added[0]["id"]) is None
    m.delete_all(user_id="ana")
    assert texts(m.get_all(filters={"user_id": "bo"})) == ["I prefer tea"]
    m.reset()
    assert bank.status().memories == 0


def test_an_agent_or_a_run_is_found_whatever_the_user(bank: Bank) -> None:
    m = Memory(bank)
    m.add("the deploy takes nine minutes", user_id="ana", agent_id="ci", run_id="r1")
    assert texts(m.get_all(filters={"agent_id": "ci"})) == texts(m.get_all(filters={"run_id": "r1"}))
    assert texts(m.get_all(filters={"agent_id": "other"})) == []


def test_what_is_repeated_is_no_second_memory(bank: Bank) -> None:
    m = Memory(bank)
    m.add("I live in Rome", user_id="ana")
    assert m.add("I live in Rome", user_id="ana")["results"][0]["event"] == "NONE"
    assert len(m.get_all(filters=ANA)["results"]) == 1


def test_facts_are_found_by_a_function_of_ones_own(bank: Bank) -> None:
    m = Memory(bank, facts=lambda messages: [f"{len(messages)} messages came"])
    m.add([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], user_id="ana")
    assert texts(m.get_all(filters=ANA)) == ["2 messages came"]


def test_a_day_of_expiry_is_its_last_day(bank: Bank) -> None:
    clock = [1_750_000_000.0]
    with Bank.open(":memory:", now=lambda: clock[0]) as timed:
        m = Memory(timed, now=lambda: clock[0])
        m.add("the gate code is 4411", user_id="ana", expiration_date="2025-06-15")
        assert m.get_all(filters=ANA)["results"][0]["expiration_date"] == "2025-06-15"
        clock[0] += 86_400
        assert m.get_all(filters=ANA)["results"] == []
        assert len(m.get_all(filters=ANA, show_expired=True)["results"]) == 1


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda m: m.add("x y z"), "at least one of user_id"),
        (lambda m: m.search("x"), "at least one of user_id"),
        (lambda m: m.search("x", user_id="ana"), "inside filters"),
        (lambda m: m.search("x", filters={"user_id": " "}), "must not be empty"),
        (lambda m: m.search("x", filters={**ANA, "OR": []}), "OR is not there"),
        (lambda m: m.search("x", filters={**ANA, "a": {"icontains": "b"}}), "icontains is not there"),
        (lambda m: m.search("x", filters=ANA, rerank=True), "rerank"),
        (lambda m: m.add("x", user_id="ana", timestamp=1), "timestamp"),
        (lambda m: m.delete("no-1"), "not found"),
        (lambda m: m.delete_all(), "reset"),
    ],
)
def test_what_is_not_there_is_refused_in_words(bank: Bank, call, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=says):
        call(Memory(bank))


def test_a_config_of_mem0s_own_parts_is_refused(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="vector_store"):
        Memory.from_config({"vector_store": {"provider": "qdrant"}})


@pytest.mark.skipif(
    importlib.util.find_spec("mem0") is None, reason="mem0ai is not installed (make test-adapters)"
)
def test_the_arguments_are_those_of_mem0() -> None:
    import mem0

    for verb in ("add", "get", "get_all", "search", "update", "delete", "delete_all", "history", "reset"):
        theirs = inspect.signature(getattr(mem0.Memory, verb)).parameters
        ours = inspect.signature(getattr(Memory, verb)).parameters
        assert set(theirs) <= set(ours), verb
