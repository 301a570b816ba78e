"""Whatever is handed to a bank, in whatever state it is: a named error that says what to do, and nothing is written."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import SEARCH

from skep import AsyncBank, Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import ClosedError, SkepError
from skep.validation import REVISABLE


class Odd:
    """Something nobody expects."""


ODD: list[Any] = [
    None, True, 0, -1, 2**63, 2**70, -(2**70), 10**400, 1.5, float("nan"), float("inf"), "", "x", "*", "a\x00",
    "\ud800", "x" * 70_000, "2026-13-45", b"x", b"\xff", [], [1], ["\ud800"], [None], [[]], (), {}, {"a": 1},
    {"user": 3}, {1: 2}, {"text": None}, {"x"}, range(3), Odd(), object(), lambda *_: None,
]  # fmt: skip
METHODS = sorted(
    name
    for name, method in inspect.getmembers(Bank, inspect.isfunction)
    if not name.startswith("_") and name != "close"
)


def parameters(name: str) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(getattr(Bank, name)).parameters)
    return {k: p for k, p in found.items() if k != "self" and p.kind is not p.VAR_KEYWORD}


def sound(bank: Bank, name: str) -> dict[str, Any]:
    """Arguments with which a method works, or fails for no other reason than what is in the bank."""
    a, b = (m.id for m in bank.find(limit=2))
    known: dict[str, Any] = {
        "text": "hello there", "memory_id": a, "query": "ruff", "event_id": a, "src": a, "dst": b, "a": a, "b": b,
        "old": a, "new": b, "loser": a, "winner": b, "status": "active", "by": "me", "sources": ["x"],
        "memory_ids": [a], "messages": "We use pnpm here, not npm.",
        "items": ["t"], "task": "t", "outcome": "success", "key": "k", "value": 1,
        "path": "no/such/folder/file", "time": 1.0, "events": [], "ranges": {}, "decision": "KEEP_BOTH",
    }  # fmt: skip
    required = [k for k, p in parameters(name).items() if p.default is p.empty]
    return {k: known[k] for k in required}


def filled(path: str | Path = ":memory:") -> Bank:
    bank = Bank.open(path, embedder=HashingEmbedder(16))
    bank.remember_many(["use ruff for linting", "the kettle is blue"])
    return bank


def call(bank: Bank, name: str, given: dict[str, Any]) -> None:
    """Call a method; what it raises must be ours, say something, and have written nothing."""
    before = bank.engine.store.log.last_seq()
    try:
        result = getattr(bank, name)(**given)
        if isinstance(result, Iterator):
            list(result)
    except SkepError as error:
        wrote = bank.engine.store.log.last_seq() - before
        if wrote or len(str(error)) < 10:
            raise AssertionError(f"{name}({given}) wrote {wrote} events and said {error}") from error


@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Some odd paths are good ones: what is written there is not left lying about."""
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("odd"))
    yield
    os.chdir(before)


@pytest.mark.parametrize("name", METHODS)
def test_an_odd_argument_is_refused_by_name(name: str) -> None:
    names = [*parameters(name), *(REVISABLE if name == "revise" else ())]
    with filled() as bank:
        for parameter in names:
            for odd in ODD:
                if bank.status().memories < 2:
                    bank.remember_many(["use ruff for linting", "the kettle is blue"])
                call(bank, name, {**sound(bank, name), parameter: odd})


@settings(max_examples=60 * max(1, SEARCH))
@given(st.data())
def test_several_odd_arguments_at_once_are_refused_by_name(data: st.DataObject) -> None:
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )
    with filled() as bank:
        for _ in range(5):
            name = data.draw(st.sampled_from(METHODS))
            names = sorted(parameters(name))
            chosen = data.draw(st.sets(st.sampled_from(names))) if names else set()
            if bank.status().memories < 2:
                bank.remember_many(["use ruff for linting", "the kettle is blue"])
            call(bank, name, {**sound(bank, name), **{k: data.draw(anything) for k in sorted(chosen)}})


@pytest.mark.parametrize(
    "odd",
    [1, b"x", [], object(), "", "  ", "a\x00", "\ud800", chr(0xDCFF), "x" * 300],
    ids=lambda odd: "object" if type(odd) is object else repr(odd),
)
def test_a_bank_cannot_be_opened_with_an_odd_path(odd: Any) -> None:
    with pytest.raises(SkepError):
        Bank.open(odd)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
def test_a_backup_cannot_be_put_back_from_or_to_an_odd_path(
    odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SkepError):
        Bank.put_back(odd, "bank.skep")
    if odd is not None:
        with pytest.raises(SkepError):
            Bank.put_back("no/such/copy", odd)


@pytest.mark.parametrize("option", ["embedder", "settings", "now"])
def test_a_bank_cannot_be_opened_with_odd_options(option: str) -> None:
    with pytest.raises(SkepError, match=option):
        Bank.open(":memory:", **{option: 3})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", METHODS)
def test_a_closed_bank_refuses_everything_by_name(name: str, bank_path: Path) -> None:
    bank = filled(bank_path)
    given = sound(bank, name)
    bank.close()
    bank.close()
    with pytest.raises(ClosedError, match="open it again"):
        getattr(bank, name)(**given)


def test_what_was_begun_before_the_bank_was_closed_says_so_too(bank_path: Path) -> None:
    bank = filled(bank_path)
    events = bank.events()
    bank.close()
    with pytest.raises(ClosedError):
        list(events)


def test_a_view_of_the_past_is_awaited_too(bank_path: Path) -> None:
    async def look() -> int:
        async with await AsyncBank.open(bank_path, embedder=HashingEmbedder(16)) as bank:
            await bank.remember("use ruff for linting")
            async with await bank.as_of(4e9) as view:
                return (await view.status()).memories

    assert asyncio.run(look()) == 1


def test_a_closed_async_bank_refuses_by_name_and_lists_come_whole(bank_path: Path) -> None:
    async def work() -> None:
        bank = await AsyncBank.open(bank_path, embedder=HashingEmbedder(16))
        await bank.remember("use ruff")
        assert len(await bank.events()) == 1
        with pytest.raises(SkepError):
            await bank.remember(3)
        await bank.close()
        await bank.close()
        with pytest.raises(ClosedError, match="open it again"):
            await bank.recall("ruff")

    asyncio.run(work())


def test_a_reranker_that_answers_something_else_is_named() -> None:
    with filled() as bank, pytest.raises(SkepError, match="reranker must give one number"):
        bank.recall("ruff kettle", reranker=lambda _query, _texts: [1.0] * 50)


@pytest.mark.parametrize("odd", ["no", "false", 0, 1, None], ids=repr)
def test_what_only_looks_like_yes_or_no_decides_nothing(odd: Any) -> None:
    with filled() as bank:
        memory = bank.find()[0]
        with pytest.raises(SkepError, match="dry_run must be true or false"):
            bank.forget(memory.id, dry_run=odd)
        with pytest.raises(SkepError, match="include_shared must be true or false"):
            bank.recall("ruff", scope={"user": "ana"}, include_shared=odd)
        assert bank.get(memory.id) == memory
