"""Whose a memory is and who wrote it count in a hive as they do in one bank."""

from __future__ import annotations

from typing import Any

import pytest

from skep.hive.gateway import HivePolicy

from .conftest import MakeHive

TOLD = (
    ("ana", "pottery", "The kiln budget was set by the council"),
    ("bob", "pottery", "The kiln of the council is fired on Mondays"),
    ("cy", "bridge", "The budget was set in spring"),
    ("dora", "pottery", "The budget was set at length, in the second of many long meetings"),
)
QUESTION = "Who set the budget of the council's kiln?"
WORDS: dict[str, Any] = {"k_vectors": 0, "weights": {"lexical": 1.0}, "coverage": 0.1}


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_a_like_worded_memory_of_another_project_gives_way(make_hive: MakeHive, kind: str) -> None:
    hive = make_hive(kind, policy=HivePolicy(deadline=10.0, hedge_after=5.0, quality_at=0.0))
    for agent, project, text in TOLD:
        hive.agent(agent).remember(text, scope={"project": project}, on_conflict="ignore")

    def found(**config: float) -> list[str]:
        asked = WORDS | config
        answer = hive.agent("eve").recall(QUESTION, scope={"project": "*"}, preset="hybrid", config=asked)
        return [hit.memory.text for hit in answer]

    first, second, elsewhere, last = (text for _, _, text in TOLD)
    assert found() == [first, second, elsewhere, last]
    assert found(home=1.0) == [first, second, last, elsewhere]


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_what_the_named_agent_wrote_is_lifted(make_hive: MakeHive, kind: str) -> None:
    hive = make_hive(kind, policy=HivePolicy(deadline=10.0, hedge_after=5.0, quality_at=0.0))
    hive.agent("ana").remember("The retention of backups is ten days", on_conflict="ignore")
    text = "The retention of the nightly backups of the shop is thirty days"
    hive.agent("bob").remember(text, on_conflict="ignore")
    question = "What retention of backups did Bob report?"

    plain = hive.agent("eve").recall(question, preset="hybrid", config=WORDS)
    lifted = hive.agent("eve").recall(question, preset="hybrid", config=WORDS | {"author": 0.5})

    assert [hit.memory.agent for hit in plain] == ["ana", "bob"]
    assert [hit.memory.agent for hit in lifted] == ["bob", "ana"]
    assert lifted[0].signals["author"] == 1.0
