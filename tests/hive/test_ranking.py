"""`rank` of a hive and of its agents gives the ids and scores of their `recall`, in its order."""

from __future__ import annotations

from typing import Any

import pytest

from skep.hive.hive import Hive

from .conftest import AGENTS

QUESTIONS = ("cache port", "which key rotates", "zzz")


def orders(asked: Any, **how: Any) -> list[Any]:
    return [(each.ids, each.scores, each.reason) for each in (asked.rank(q, **how) for q in QUESTIONS)]


def answers(asked: Any, **how: Any) -> list[Any]:
    return [
        (tuple(hit.memory.id for hit in each), tuple(hit.score for hit in each), each.reason)
        for each in (asked.recall(q, **how) for q in QUESTIONS)
    ]


@pytest.mark.parametrize("preset", [None, "rrf", "semantic", "hive"])
def test_the_order_is_that_of_recall(hive: Hive, preset: str | None) -> None:
    for number, name in enumerate(AGENTS):
        hive.agent(name).remember(f"The cache number {number} has port {6000 + number}")
        hive.agent(name).remember(f"The deploy key number {number} rotates on Monday")
    ana = hive.agent("ana")

    assert ana.rank("cache port", preset=preset)
    assert orders(ana, preset=preset) == answers(ana, preset=preset)
    assert orders(hive, preset=preset, limit=3) == answers(hive, preset=preset, limit=3)


def test_the_order_counts_no_use(hive: Hive) -> None:
    ana = hive.agent("ana")
    made = ana.remember("The cache has port 6379").memory
    assert ana.rank("cache port").ids == (made.id,)
    for member in hive.members.values():
        member.bank.engine.flush_uses()
    assert ana.get(made.id).uses == 0
