"""An agent takes what a bank takes, and refuses the rest in the same words."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from tests.bank.test_wrong_types import WRONG, arguments, call, names, refusal

from skep.bank.bank import Bank
from skep.bank.memory_bank import MemoryBank
from skep.errors import InvalidInputError, WrongTypeError
from skep.hive.hive import Hive

BY_NAME: dict[str, Any] = {
    "text": "A new thing",
    "items": ["one"],
    "status": "deprecated",
    "by": "ana",
    "query": "kettle",
    "key": "x/y",
    "value": 1,
    "path": "all.jsonl",
    "events": [],
    "ranges": {},
    "event_id": "nobody-1",
    "time": 1.76e9,
    "task": "mend it",
    "outcome": "success",
    "decision": "KEEP_BOTH",
}
LEFT = ("close", "forget")
"""Methods after which there is nothing left to ask about."""


def required(name: str, one: str, other: str) -> dict[str, Any]:
    ids = dict.fromkeys(("memory_id", "old", "loser", "src", "a"), one)
    ids |= dict.fromkeys(("new", "winner", "dst", "b"), other)
    lists = {"sources": [other], "memory_ids": [one]}
    given = {
        each.name: (BY_NAME | ids | lists)[each.name]
        for each in inspect.signature(getattr(Bank, name)).parameters.values()
        if each.name != "self"
        and each.default is each.empty
        and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    return (
        given | {"text": "The staging database runs PostgreSQL 16 since May"} if name == "revise" else given
    )


@pytest.mark.parametrize(
    "wrong", ["an object", "a huge number", "half a character", "a nested list", "bytes"]
)
def test_what_an_argument_cannot_be_is_refused(
    hive: Hive, wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = hive.agent("ana")
    one, other = (agent.remember(text).memory.id for text in ("The kettle leaks", "The roof is red"))
    for name, _ in inspect.getmembers(MemoryBank, inspect.isfunction):
        if name.startswith("_") or name in LEFT:
            continue
        for argument in arguments(name):
            told = f"{name}({argument}=…), {wrong}"
            given = required(name, one, other) | {argument: WRONG[wrong]()}
            error = refusal(lambda: call(agent, name, given), told)  # noqa: B023
            assert error is None or names(error, argument) or argument in ("agent", "by", "partial"), (
                f"{told}: {error}"
            )


def test_secrets_are_taken_out_on_request_as_in_a_bank(hive: Hive) -> None:
    agent = hive.agent("ana")
    stored = agent.remember("Write to ana@example.com about the kettle", redact="all")
    many = agent.remember_many([{"text": "Ask bob@example.com about the roof", "redact": "email"}])

    assert stored.redactions == many[0].redactions == ("email",)
    assert "@" not in stored.memory.text + many[0].memory.text
    assert hive.agent("ana").stats()["redacted"] == {"email": 2}


def test_items_may_each_say_what_to_do_about_conflicts(hive: Hive) -> None:
    agent = hive.agent("ana")
    old = agent.remember("The gateway runs on port 8080").memory.id
    done = agent.remember_many(
        ["The roof is red", {"text": "The gateway runs on port 9090", "on_conflict": "supersede"}]
    )

    assert [one.action for one in done] == ["stored", "superseded"]
    assert agent.get(old).status == "superseded"


@pytest.mark.parametrize("policy", ["ignore", "warn"])
def test_one_bad_item_keeps_the_whole_batch_out(hive: Hive, policy: Any) -> None:
    agent = hive.agent("ana")
    with pytest.raises(WrongTypeError, match="item 1: expected a text or a mapping, got int"):
        agent.remember_many(["The roof is red", 3], on_conflict=policy)  # type: ignore[list-item]
    with pytest.raises(InvalidInputError, match="item 1: unknown key 'importnce'"):
        agent.remember_many(["The roof is red", {"text": "x", "importnce": 1}], on_conflict=policy)

    assert agent.status().memories == 0


def test_an_agent_takes_in_an_export(hive: Hive, plain_bank: Bank, tmp_path: Path) -> None:
    plain_bank.remember("The kettle leaks")
    plain_bank.export(tmp_path / "all.jsonl")
    agent = hive.agent("ana")

    first, again = (agent.import_(tmp_path / "all.jsonl") for _ in range(2))

    assert (first.new > 0, again.new, again.known) == (True, 0, first.new)
    assert [hit.memory.text for hit in agent.recall("kettle")] == ["The kettle leaks"]
