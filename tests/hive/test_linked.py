"""Links that say that memories do not go together count in a hive as in one bank, wherever those memories are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from skep.hive.hive_recall import Scatter
from skep.hive.messages import Fetched

from .conftest import MakeHive

KINDS = pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
TEXTS = (
    "The printer for visitors is on floor two",
    "Visitors have a printer nobody may use",
    "The printer of the visitors is made by Oki",
)


def told(make_hive: MakeHive, kind: str) -> tuple[Any, list[str]]:
    hive = make_hive(kind)
    return hive, [
        hive.agent(name).remember(text, on_conflict="ignore", confidence=0.95).memory.id
        for name, text in zip(("ana", "bob", "cy"), TEXTS, strict=True)
    ]


@KINDS
def test_hits_that_a_link_calls_contradicting_are_marked(make_hive: MakeHive, kind: str) -> None:
    hive, (first, second, third) = told(make_hive, kind)
    fay = hive.agent("fay")
    plain = {hit.memory.id: hit.conflicts_with for hit in fay.recall("printer for visitors")}
    assert plain == {first: (), second: (), third: ()}

    hive.agent("cy").link(first, second, "contradicts")
    marked = {
        hit.memory.id: (hit.conflicts_with, "conflict" in hit.flags)
        for hit in fay.recall("printer for visitors")
    }
    assert marked == {first: ((second,), True), second: ((first,), True), third: ((), False)}

    hive.agent("bob").unlink(first, second, "contradicts")
    assert not any(hit.conflicts_with for hit in fay.recall("printer for visitors"))


@KINDS
def test_an_update_that_a_link_tells_takes_the_place_of_the_older(make_hive: MakeHive, kind: str) -> None:
    hive, (older, newer, _) = told(make_hive, kind)
    fay, question = hive.agent("fay"), "Where is the printer for visitors on floor two?"
    before = [hit.memory.id for hit in fay.recall(question)]
    assert before.index(older) < before.index(newer)

    hive.agent("cy").link(newer, older, "updates")
    hits = fay.recall(question)
    found = [hit.memory.id for hit in hits]
    assert found.index(newer) < found.index(older)
    assert {hit.memory.id: hit.updated_by for hit in hits}[older] == newer

    hive.agent("bob").unlink(newer, older, "updates")
    assert [hit.memory.id for hit in fay.recall(question)] == before


@pytest.mark.parametrize("kind", ["flat", "federated"])
def test_what_is_derived_from_one_of_them_is_stale_in_every_copy(make_hive: MakeHive, kind: str) -> None:
    hive, (first, second, third) = told(make_hive, kind)
    hive.agent("ana").link(third, first, "derived_from")
    hive.agent("cy").link(second, first, "contradicts")
    found = [memory for member in hive.members.values() if (memory := member.get(third)) is not None]
    assert found
    assert all(memory.stale for memory in found)
    hive.agent("cy").unlink(second, first, "contradicts")
    assert not any(
        member.get(third).stale for member in hive.members.values() if member.get(third) is not None
    )


@pytest.mark.parametrize("kind", ["federated", "sharded"])
def test_only_a_hive_with_such_links_is_asked_for_them_and_once(
    make_hive: MakeHive, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    fetch = Scatter.fetch

    def counted(self: Scatter, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        asked.append(links)
        return fetch(self, ids, links=links)

    monkeypatch.setattr(Scatter, "fetch", counted)
    hive, (first, second, _) = told(make_hive, kind)
    hive.agent("fay").recall("printer for visitors")
    assert asked.count(True) == 0
    hive.agent("ana").link(first, second, "related")
    hive.agent("fay").recall("printer for visitors")
    assert asked.count(True) == 0
    hive.agent("ana").link(first, second, "contradicts")
    hive.agent("fay").recall("printer for visitors")
    assert asked.count(True) == 1
