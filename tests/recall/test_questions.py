"""Ways to ask: an answer is that of the bank as it is now, and what is wrong is refused every time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.conftest import Clock

from skep import Bank, Scope
from skep.embedding.static_table import HashingEmbedder
from skep.errors import SkepError, WrongTypeError
from skep.filters import Filter
from skep.recall.recaller import CONFIG_KEY, made
from skep.retrieval.recall_config import preset


@pytest.fixture
def bank(bank_path: Path, clock: Clock) -> Iterator[Bank]:
    with Bank.open(bank_path, embedder=HashingEmbedder(64), now=clock) as bank:
        for number in range(8):
            bank.remember(
                f"the gate number {number} opens at {number + 6}",
                kind="fact" if number % 2 else "episode",
                tags=("even",) if number % 2 == 0 else ("odd",),
                scope={"user": f"u{number % 3}"},
                on_conflict="ignore",
            )
        yield bank


RIGHT: list[dict[str, Any]] = [
    {},
    {"limit": 1},
    {"limit": 3, "kind": "fact"},
    {"limit": 3, "kind": ["fact", "episode"], "tags": ("odd",)},
    {"tags": [["odd", "even"]], "scope": {"user": "u1"}},
    {"scope": Scope(user="u1"), "include_shared": True},
    {"min_confidence": 1, "min_importance": 0.0},
    {"preset": "hybrid", "config": {"k_words": 20}, "since": 0, "until": "2200-01-01"},
    {"include_superseded": True, "expand": {"depth": 1}},
]


@pytest.mark.parametrize("how", RIGHT)
def test_asked_twice_in_the_same_way_the_answer_is_that_of_a_bank_asked_once(
    bank: Bank, how: dict[str, Any]
) -> None:
    bank.recall("number of the gate", **how)
    again = bank.recall("when does the gate open", **how)
    bank._recall._answers.clear()  # pyright: ignore[reportPrivateUsage]
    once = bank.recall("when does the gate open", **how)
    assert [hit.memory.id for hit in again] == [hit.memory.id for hit in once]
    assert [hit.score for hit in again] == [hit.score for hit in once]


WRONG: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"limit": 1}, {"limit": True}),
    ({"limit": 2}, {"limit": 2.5}),
    ({"min_confidence": None}, {"min_confidence": float("nan")}),
    ({"min_confidence": 1}, {"min_confidence": True}),
    ({"kind": "fact"}, {"kind": b"fact"}),
    ({"kind": ("fact",)}, {"kind": {"fact": 1}}),
    ({"include_shared": True}, {"include_shared": 1}),
    ({"include_superseded": False}, {"include_superseded": 0}),
    ({"scope": {"user": "u1"}}, {"scope": ("u1", None, None)}),
    ({"scope": Scope(user="u1")}, {"scope": ("u1", None, None)}),
    ({"config": {"k_words": 5}}, {"config": {"k_words": "5"}}),
    ({"config": {"k_words": 5}}, {"config": [("k_words", 5)]}),
    ({"preset": "hybrid"}, {"preset": b"hybrid"}),
]


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_what_is_wrong_is_refused_though_something_like_it_was_right(
    bank: Bank, right: dict[str, Any], wrong: dict[str, Any]
) -> None:
    bank.recall("gate", **right)
    for _ in range(2):
        with pytest.raises(SkepError):
            bank.recall("gate", **wrong)


def test_a_list_that_its_owner_changes_is_asked_as_it_is_now(bank: Bank) -> None:
    tags = ["odd"]
    config: dict[str, Any] = {"max_results": 8}
    assert {hit.memory.tags for hit in bank.recall("gate", limit=8, tags=tags, config=config)} == {("odd",)}
    tags[0], config["max_results"] = "even", 2
    found = bank.recall("gate", limit=8, tags=tags, config=config)
    assert [hit.memory.tags for hit in found] == [("even",)] * 2


def test_what_can_be_read_only_once_is_asked_with_all_the_same(bank: Bank) -> None:
    for _ in range(2):
        found = bank.recall("gate", limit=8, tags=(tag for tag in ("odd",)))
        assert len(found.hits) == 4


def test_what_is_deployed_counts_from_then_on(bank: Bank) -> None:
    assert len(bank.recall("gate").hits) == 5
    bank.set_setting(CONFIG_KEY, {"limit": 2, "kinds": ["fact"]})
    assert [hit.memory.kind for hit in bank.recall("gate")] == ["fact"] * 2
    bank.set_setting(CONFIG_KEY, {"limit": 3})
    assert len(bank.recall("gate").hits) == 3


def test_another_process_that_writes_is_seen_by_the_next_question(bank: Bank, bank_path: Path) -> None:
    assert not [hit for hit in bank.recall("zeppelin") if "zeppelin" in hit.memory.text]
    with Bank.open(bank_path, embedder=HashingEmbedder(64)) as other:
        new = other.remember("a zeppelin landed at the gate", on_conflict="ignore").memory.id
    assert bank.rank("zeppelin").ids[0] == new
    assert bank.recall("zeppelin").hits[0].memory.id == new


def test_an_index_that_was_dropped_is_built_again_by_the_next_question(bank: Bank) -> None:
    before = bank.rank("gate", limit=8).ids
    bank.engine.index.drop()
    bank._recall._answers.clear()  # pyright: ignore[reportPrivateUsage]
    assert bank.rank("gate", limit=8).ids == before


def test_a_question_is_of_the_time_at_which_it_is_asked() -> None:
    config = preset("hybrid")
    now, then = made(Filter(now=5.0, valid_at=5.0), 3, config), made(Filter(now=5.0, valid_at=2.0), 3, config)
    assert (now.at(9.0).now, now.at(9.0).valid_at) == (9.0, 9.0)
    assert (then.at(9.0).now, then.at(9.0).valid_at) == (9.0, 2.0)
    assert made(Filter(now=8.0, valid_at=8.0), 3, config).key == now.key != then.key
    assert made(Filter(now=8.0), 3, config).key != now.key


class Derived(str):
    """A text that is of a type of its own."""


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: str(each) for key, each in value.items()}  # pyright: ignore
    return [str(each) for each in value] if isinstance(value, list) else str(value)  # pyright: ignore


@pytest.mark.parametrize(
    "how",
    [
        {"domain": Derived("ab")},
        {"kind": Derived("fact")},
        {"tags": [Derived("x")]},
        {"agent": Derived("me")},
        {"scope": {"user": Derived("u")}},
    ],
)
def test_texts_of_a_type_of_their_own_are_taken_for_what_they_say(bank: Bank, how: dict[str, Any]) -> None:
    bank.remember("the cat", domain="ab", tags=["x"], agent="me", scope={"user": "u"})
    plain = {key: _plain(value) for key, value in how.items()}

    for _ in range(2):
        assert bank.recall("cat", **how)[0].memory.text == "the cat"
        assert len(bank.rank("cat", **how).ids) == len(bank.recall("cat", **plain))


def test_what_is_refused_is_refused_though_something_spelt_alike_was_taken(bank: Bank) -> None:
    bank.remember("the cat")
    number = np.float64(0.1)
    assert bank.recall("cat", min_confidence=number)[0].memory.text == "the cat"
    for _ in range(2):
        with pytest.raises(WrongTypeError):
            bank.recall("cat", min_confidence=bytearray(number.tobytes()))  # type: ignore[arg-type]


def test_weights_of_a_config_count_as_they_are_when_it_is_handed_over(clock: Clock) -> None:
    with Bank.open(":memory:", now=clock) as bank:
        bank.remember_many(["the cat sleeps", "a dog barks at the cat", "cats and dogs and cats"])
        shared = preset("hybrid")
        config = msgspec.structs.replace(shared, weights=dict(shared.weights))
        before = bank.recall("cat dog", config=config)  # type: ignore[arg-type]
        config.weights["lexical"] = 0.0
        after = bank.recall("cat dog", config=config)  # type: ignore[arg-type]
        fresh = bank.recall("cat dog", preset="hybrid", config={"weights": dict(config.weights)})
    assert [hit.score for hit in after] == [hit.score for hit in fresh] != [hit.score for hit in before]
