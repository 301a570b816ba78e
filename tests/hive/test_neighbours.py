"""The neighbours of a memory in a conversation are those beside it in time, whoever wrote them."""

from __future__ import annotations

from typing import Any

import pytest

from skep.hive.gateway import HivePolicy

from .conftest import MakeHive

TALK = (
    ("ana", "Which night did the Helsinki warehouse lose its cooling?"),
    ("bob", "That happened on the third of March."),
    ("cy", "Nobody noticed before the morning shift."),
)
ELSEWHERE = ("Granite counters happened to be cheap.", "Everybody likes the new logo.")


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
@pytest.mark.parametrize("authors", [("ana", "bob", "cy"), ("ana", "ana", "ana")])
def test_an_answer_beside_the_question_is_found_whoever_gave_it(
    make_hive: MakeHive, clock: Any, kind: str, authors: tuple[str, ...]
) -> None:
    hive = make_hive(kind, policy=HivePolicy(deadline=10.0, hedge_after=5.0, quality_at=0.0))
    scope, moment = {"project": "warehouse", "session": "night"}, clock()
    clock.pass_seconds(200_000)  # what claims to be of the future counts from when it was told
    for step, (agent, (_, text)) in enumerate(zip(authors, TALK, strict=True)):
        hive.agent(agent).remember(text, scope=scope, created_at=moment + step)
    for step, text in enumerate(ELSEWHERE):
        hive.agent("dora").remember(text, scope=scope, created_at=moment + 90_000 + 9_000 * step)
    config = {"k_vectors": 0, "weights": {"words": 1.0}}

    found = hive.agent("eve").recall("Helsinki warehouse cooling", scope=scope, config=config)

    assert [hit.memory.text for hit in found][:3] == [text for _, text in TALK]
