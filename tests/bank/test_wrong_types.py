"""Every argument of every method of a bank, given what it cannot be: an error of skep's that names it, or it is taken.

What each method is called with, and what it must refuse, stands in tables, so that a new method or argument that
nobody looked at is found here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import InvalidInputError, NotFoundError, OutOfRangeError, SkepError, SyncError
from skep.validation import REVISABLE

WRONG: dict[str, Callable[[], Any]] = {
    "an object": object,
    "a number": lambda: 3,
    "a number below zero": lambda: -1,
    "a fraction": lambda: 3.5,
    "no number": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "a huge number": lambda: 10**400,
    "a word": lambda: "nonsense",
    "nothing": lambda: "",
    "a NUL": lambda: "\x00",
    "half a character": lambda: "\ud800",
    "bytes": lambda: b"x",
    "a list of objects": lambda: [object()],
    "words": lambda: ["a", "b"],
    "an empty list": list,
    "a nested list": lambda: [[["a"]]],
    "a set": lambda: {1, "a"},
    "a mapping": lambda: {"a": object()},
    "a mapping of numbers": lambda: {1: 2},
    "a generator": lambda: (each for each in [object()]),
    "a time of day": lambda: time(3),
    "true": lambda: True,
    "None": lambda: None,
    "a function": lambda: lambda *_given: None,
}
FLAGS = ("create", "deep", "dry_run", "explain", "include_shared", "include_superseded", "inline", "partial")
TIMES = ("as_of", "created_at", "since", "time", "until", "valid_at", "valid_from", "valid_to")
TIME_OR_NOT = {"a number", "a number below zero", "a fraction", "None"}
"""What may stand for a time, or leave it out."""


@pytest.fixture(params=list(WRONG))
def wrong(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def full(clock: Clock) -> Iterator[tuple[Bank, list[str]]]:
    """A bank with some memories, and their ids."""
    with Bank.open(":memory:", embedder=HashingEmbedder(16), now=clock) as bank:
        texts = ["The kettle leaks", "The kettle leaks a lot", "The roof is red", "The door is blue"]
        ids = [stored.memory.id for stored in bank.remember_many(texts)]
        bank.link(ids[0], ids[2])
        bank.supersede(ids[0], ids[1])
        yield bank, ids


def usual(bank: Bank, ids: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Per method, arguments with which it does its work."""
    one, two = ids[2], ids[3]
    last = bank.history(limit=1)[0].id
    export = folder / "all.jsonl"
    bank.export(export)
    by_name: dict[str, Any] = {
        "memory_id": one,
        "text": "A new thing",
        "items": ["one"],
        "messages": [{"role": "user", "content": "We use pnpm here, not npm."}],
        "old": one,
        "new": two,
        "loser": one,
        "winner": two,
        "status": "deprecated",
        "by": "ana",
        "sources": [two],
        "memory_ids": [one],
        "src": one,
        "dst": two,
        "a": one,
        "b": two,
        "query": "kettle",
        "key": "x/y",
        "value": 1,
        "path": export,
        "events": [],
        "ranges": {},
        "event_id": last,
        "time": 1.76e9,
        "task": "mend it",
        "outcome": "success",
        "decision": "KEEP_BOTH",
    }
    methods = {
        name: {
            each.name: by_name[each.name]
            for each in inspect.signature(method).parameters.values()
            if each.name != "self"
            and each.default is each.empty
            and each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
        }
        for name, method in inspect.getmembers(Bank, callable)
        if not name.startswith("_") and name not in ("open", "put_back", "salvage", "close")
    }
    methods["revise"]["text"] = "Something else"
    copy = bank.backup(folder / "copy.skep")
    methods["drop_backup"]["path"] = copy
    methods["export"]["path"] = folder / "another.jsonl"
    methods["backup"]["path"] = folder / "another.skep"
    return methods


def arguments(name: str) -> list[str]:
    taken = inspect.signature(getattr(Bank, name)).parameters.values()
    named = [each.name for each in taken if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    return [each for each in (*named, *(REVISABLE if name == "revise" else ())) if each != "self"]


def call(bank: Bank, name: str, given: dict[str, Any]) -> None:
    found = getattr(bank, name)(**given)
    if inspect.isgenerator(found):
        list(found)


def refusal(what: Callable[[], None], told: str) -> SkepError | None:
    """The error of skep's with which something is refused; any other is a failure."""
    try:
        what()
    except SkepError as error:
        return error
    except Exception as error:
        raise AssertionError(told) from error
    return None


def names(error: SkepError, argument: str) -> bool:
    """Whether a refusal says what it is about: the argument, or the thing that was not found or cannot be read."""
    return (
        argument in str(error)
        or getattr(error, "field", None) == argument
        or isinstance(error, NotFoundError)
        or str(error).startswith("nonsense, line 1")
    )


def test_what_every_method_is_called_with_here_is_what_it_takes(
    full: tuple[Bank, list[str]], tmp_path: Path
) -> None:
    for name, given in usual(*full, tmp_path).items():
        with Bank.open(":memory:", embedder=HashingEmbedder(16)) as bank:
            bank.apply(full[0].events())
            if name not in ("drop_backup", "resolve_judgement"):  # of another bank; of nothing
                call(bank, name, given)


def test_what_an_argument_cannot_be_is_refused_by_its_name_and_writes_nothing(
    full: tuple[Bank, list[str]], tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bank = full[0]
    methods = usual(*full, tmp_path)
    for name, given in methods.items():
        for argument in arguments(name):
            before, told = bank.versions(), f"{name}({argument}=…), {wrong}"
            error = refusal(lambda: call(bank, name, given | {argument: WRONG[wrong]()}), told)  # noqa: B023
            if error is not None:
                assert bank.versions() == before, told
                assert names(error, argument), f"{told}: {error}"
            elif argument in FLAGS:
                assert wrong == "true", told
            elif argument in TIMES and name != "events":
                assert wrong in TIME_OR_NOT, told


@pytest.mark.parametrize("argument", ["path", "embedder", "opener", "settings", "now", "create", "read_only"])
def test_a_bank_is_opened_with_what_it_can_be_opened_with(
    tmp_path: Path, wrong: str, argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"path": tmp_path / "bank.skep", "embedder": HashingEmbedder(16)}
    Bank.open(**given).close()
    error = refusal(lambda: Bank.open(**(given | {argument: WRONG[wrong]()})).close(), argument)

    if error is not None:
        assert names(error, argument) or argument in ("path", "embedder")
    elif argument in ("create", "read_only"):
        assert wrong == "true"


@pytest.mark.parametrize("argument", ["backup", "path", "now"])
def test_a_copy_is_put_back_from_where_it_can_be(
    tmp_path: Path, wrong: str, argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"backup": tmp_path / "copy.skep", "path": tmp_path / "bank.skep"}
    with pytest.raises(SkepError):
        Bank.put_back(**(given | {argument: WRONG[wrong]()}))


@pytest.mark.parametrize("argument", ["path", "target"])
def test_a_bank_is_salvaged_from_and_to_a_file(
    tmp_path: Path, wrong: str, argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"path": tmp_path / "bank.skep", "target": tmp_path / "events.jsonl"}
    with pytest.raises(SkepError):
        Bank.salvage(**(given | {argument: WRONG[wrong]()}))


@pytest.mark.parametrize(
    ("verb", "given", "told"),
    [
        ("link", {"src": 3, "dst": "x"}, "src must be an id"),
        ("supersede", {"old": "x", "new": None}, "there is no memory 'x'"),
        ("merge", {"loser": 1.5, "winner": "x"}, "loser must be an id"),
        ("path", {"a": None, "b": "x"}, "a must be an id"),
        ("recall", {"query": "x", "scope": {"team": "a"}}, "unknown key 'team' in scope; known are user"),
        ("history", {"limit": 0}, "limit must be at least 1, got 0"),
        ("remember", {"text": "x", "level": 1.5}, "level must be a whole number"),
        ("set_setting", {"key": "x", "value": b"y"}, "value holds a bytes"),
        ("set_setting", {"key": "x", "value": 1 << 64}, "value holds a whole number of more than 64 bits"),
        ("set_setting", {"key": "x", "value": {1: 2}}, "a key of value must be a string"),
    ],
)
def test_the_refusal_says_which_argument_and_what_to_give(
    plain_bank: Bank, verb: str, given: dict[str, Any], told: str
) -> None:
    with pytest.raises((InvalidInputError, NotFoundError), match=told):
        getattr(plain_bank, verb)(**given)
    assert plain_bank.status().events == 0


def _deep(levels: int) -> Any:
    value: Any = "<b>"
    for _ in range(levels):
        value = [value]
    return value


def _endless() -> Any:
    value: dict[str, Any] = {}
    value["a"] = value["b"] = value
    return value


@pytest.mark.parametrize("given", [_deep(70), _deep(900), _deep(5000), _endless()])
def test_what_is_nested_too_deep_to_be_read_is_refused(given: Any) -> None:
    with Bank.open(":memory:") as bank:
        event = bank.event(bank.remember("A memory").memory.id)
        for write in (
            lambda: bank.remember("x", metadata={"a": given}),
            lambda: bank.remember("x", metadata={"a": given}, redact=True),
            lambda: bank.revise(event.id, metadata={"a": given}),
            lambda: bank.set_setting("k", given),
        ):
            with pytest.raises(OutOfRangeError, match="deep in one another"):
                write()
        with Bank.open(":memory:") as peer, pytest.raises(SyncError, match="deep in one another"):
            peer.apply([msgspec.structs.replace(event, body={**event.body, "metadata": {"a": given}})])
        assert bank.status().events == 1


def test_what_is_nested_as_deep_as_allowed_is_read_wherever_it_was_written() -> None:
    with Bank.open(":memory:") as bank, Bank.open(":memory:") as peer:
        bank.remember("A nested memory", metadata={"a": _deep(63)})
        peer.apply(bank.events())
        assert peer.recall("nested memory")[0].memory.metadata == {"a": _deep(63)}
