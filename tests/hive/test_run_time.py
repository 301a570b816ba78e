"""A hive while it runs: agents come and go, contents count once, questions find who knows, events of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.errors import InvalidInputError, NotFoundError
from skep.hive.gossip import convergence
from skep.hive.hive import Hive
from skep.hive.orchestrator import Orchestrator

from .conftest import EMBEDDER, FAST, MakeHive

DOOR = "The north door opens at seven."


def joined(hive: Hive, name: str) -> Any:
    return hive.join(name, group="sales") if hive.layout.kind == "federated" else hive.join(name)


def test_an_agent_joins_learns_is_heard_and_leaves(hive: Hive) -> None:
    hive.agent("ana").remember(DOOR)
    new = joined(hive, "gus")
    gate = new.remember("The south gate opens at nine.").memory

    assert [hit.memory.text for hit in new.recall("north door", limit=1)] == [DOOR]
    assert hive.agent("ana").recall("south gate", limit=1)[0].memory.id == gate.id
    with pytest.raises(InvalidInputError):
        joined(hive, "gus")
    hive.leave("gus")
    assert hive.agent("ana").recall("south gate", limit=1)[0].memory.id == gate.id
    with pytest.raises(NotFoundError):
        hive.agent("gus")


@pytest.mark.parametrize("kind", ["flat", "federated"])
def test_who_joined_is_there_after_a_restart(kind: str, tmp_path: Path, clock: Any) -> None:
    def opened() -> Hive:
        options = {"store": tmp_path, "embedder": EMBEDDER, "policy": FAST, "now": clock}
        if kind == "flat":
            return Hive.flat(["ana", "bob"], **options)
        return Hive.federated({"sales": ["ana"], "infra": ["bob"]}, **options)

    with opened() as hive:
        joined(hive, "gus").remember(DOOR) if kind == "federated" else hive.join("gus").remember(DOOR)
        hive.leave("bob")
    with opened() as hive:
        assert hive.agent("gus").recall("north door")[0].memory.agent == "gus"
        with pytest.raises(NotFoundError):
            hive.agent("bob")


def test_a_federated_hive_asks_for_the_group_and_a_single_one_stays_single(make_hive: MakeHive) -> None:
    with pytest.raises(InvalidInputError, match="in which group"):
        make_hive("federated").join("gus")
    with Hive.single("ana", embedder=EMBEDDER) as hive, pytest.raises(InvalidInputError, match="one agent"):
        hive.join("bob")


def test_convergence_counts_what_is_said_and_not_how_often(make_hive: MakeHive) -> None:
    one, other = make_hive("flat", name="one"), make_hive("sharded", name="other")
    one.agent("ana").remember(DOOR)
    other.agent("bob").remember("the North door  opens at seven.")
    assert convergence([one, other]) == 1.0

    other.agent("bob").remember("The south gate opens at nine.")
    assert convergence([one, other]) == 0.5


def test_three_agents_that_say_the_same_are_one_memory_with_witnesses(hive: Hive) -> None:
    ids = {hive.agent(name).remember(DOOR).memory.id for name in ("ana", "cy", "eve")}

    assert len(ids) == 1
    (hit,) = hive.recall("north door", limit=10)
    assert hit.memory.confirmations == 2


def test_a_question_is_routed_to_the_agents_that_know(hive: Hive) -> None:
    for text in ("The database listens on port 5433.", "The database is backed up at night."):
        hive.agent("ana").remember(text)
    hive.agent("cy").remember("The cat sleeps on the printer.")
    who = hive.route("database port backup", depth=2)

    assert [(one.agent, len(one.memories)) for one in who] == [("ana", 2)]
    hive.trust.set("ana", 0.0)
    assert "ana" not in [one.agent for one in hive.route("database port backup")]


def test_events_of_ones_own_reach_other_hives_and_nobody_else_minds(make_hive: MakeHive) -> None:
    one = make_hive("flat", name="one")
    other = make_hive("flat", name="other", bus=one.bus)
    speaker, listener = Orchestrator(one, "ana"), Orchestrator(other, "bob")
    heard: list[tuple[Any, str]] = []
    listener.on("deployed", lambda data, sender: heard.append((data, sender)))
    speaker.tell("deployed", service="billing", version=3)
    speaker.tell("unheard of")
    drained = listener.drain_events()

    assert heard == [({"service": "billing", "version": 3}, "one")]
    assert drained.failed == 0
