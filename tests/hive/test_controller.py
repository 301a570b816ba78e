"""Desired state: plan shows, apply does, a second apply finds nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.errors import ConfigError
from skep.hive.controller import Controller
from skep.hive.hive_manifest import parse

from .conftest import EMBEDDER

pytest.importorskip("yaml")

FLAT = "{name: research, topology: flat, store: banks, agents: [{name: ana, trust: 1.5}, {name: bob}]}"
SHARDED = (
    "{name: research, topology: sharded, store: banks, agents: [{name: ana}, {name: worker, replicas: 3}]}"
)
FEDERATED = """
name: research
topology: federated
store: banks
policies: {broadcast_at: 0.8}
groups: [{name: infra, domains: [servers]}, {name: people, parent: infra}]
agents: [{name: ana, group: infra}, {name: bob, group: people, domains: [staff]}]
"""


def controller(text: str, folder: Path, clock: Any) -> Controller:
    return Controller(parse(text, {}), folder=folder, embedder=EMBEDDER, now=clock)


def lines(changes: Any) -> list[str]:
    return [change.line() for change in changes]


@pytest.mark.parametrize("text", [FLAT, SHARDED, FEDERATED])
def test_apply_does_what_plan_shows_and_then_there_is_nothing_left(
    text: str, tmp_path: Path, clock: Any
) -> None:
    made = controller(text, tmp_path, clock)
    planned = made.plan()

    assert planned
    assert made.apply() == planned
    assert made.plan() == []
    assert made.apply() == []


def test_planning_touches_nothing(tmp_path: Path, clock: Any) -> None:
    controller(FLAT, tmp_path, clock).plan()

    assert list(tmp_path.iterdir()) == []


def test_changes_are_told_one_by_one(tmp_path: Path, clock: Any) -> None:
    controller(FLAT, tmp_path, clock).apply()
    changed = FLAT.replace("1.5", "0.5").replace("{name: bob}", "{name: cy, domains: [law]}")
    planned = lines(controller(changed, tmp_path, clock).plan())

    assert planned == [
        "~ trust ana: 1.5 → 0.5",
        '+ agent cy: {"domains":["law"],"group":null,"key":null}',
        "+ trust cy: 1.0",
        '- agent bob: {"domains":[],"group":null,"key":null}',
    ]
    made = controller(changed, tmp_path, clock)
    made.apply()
    assert made.plan() == []
    with made.open() as hive:
        assert hive.trust.of("ana") == 0.5


def test_what_was_learnt_survives_and_is_there_for_those_who_come_later(tmp_path: Path, clock: Any) -> None:
    made = controller(SHARDED, tmp_path, clock)
    made.apply()
    with made.open() as hive:
        for n in range(12):
            hive.agent("worker-1").remember(f"Server number {n} hums in the cellar.", on_conflict="ignore")
    grown = controller(SHARDED.replace("replicas: 3", "replicas: 5"), tmp_path, clock)
    grown.apply()
    with grown.open() as hive:
        assert len(hive.agent("worker-4").recall("server cellar", limit=20)) == 12


def test_members_that_leave_hand_their_memories_over(tmp_path: Path, clock: Any) -> None:
    made = controller(SHARDED, tmp_path, clock)
    made.apply()
    with made.open() as hive:
        hive.agent("worker-2").remember_many([f"Server number {n} hums in the cellar." for n in range(12)])
    smaller = controller(
        "{name: research, topology: sharded, store: banks, agents: [{name: ana}]}", tmp_path, clock
    )
    smaller.apply()
    with smaller.open() as hive:
        assert len(hive.agent("ana").recall("server cellar", limit=20)) == 12
    assert (tmp_path / "banks" / "worker-2.skep").exists()


def test_another_topology_needs_to_be_asked_for(tmp_path: Path, clock: Any) -> None:
    made = controller(FLAT, tmp_path, clock)
    made.apply()
    with made.open() as hive:
        stored = hive.agent("ana").remember("The cat sleeps on the red mat.").memory
    moved = controller(FLAT.replace("flat", "sharded"), tmp_path, clock)

    with pytest.raises(ConfigError, match="--migrate"):
        moved.apply()
    moved.apply(migrate=True)
    with moved.open() as hive:
        assert [h.memory.id for h in hive.agent("bob").recall("cat on the mat")] == [stored.id]
    assert moved.plan() == []


def test_the_manifest_decides_the_rules(tmp_path: Path, clock: Any) -> None:
    made = controller(FEDERATED, tmp_path, clock)
    made.apply()
    with made.open() as hive:
        done = hive.agent("ana").remember("The cat sleeps on the red mat.", confidence=0.85)
        assert done.decision.broadcast
        assert hive.layout.fitting("who is staff") == ("people",)
        assert hive.members["people"].paths.of(done.memory.id) == ("infra", "people")
    strict = controller(FEDERATED + "\ngateway: {review: reject}", tmp_path, clock)
    strict.apply()
    with strict.open() as hive:
        hive.trust.set("bob", 0.1)
        assert hive.agent("bob").remember("The dog sleeps in the hall.").decision.verdict == "rejected"


def test_status_counts_members_and_what_differs(tmp_path: Path, clock: Any) -> None:
    made = controller(SHARDED, tmp_path, clock)
    made.apply()
    with made.open() as hive:
        hive.agent("ana").remember("The cat sleeps on the red mat.")
    status = controller(SHARDED.replace("replicas: 3", "replicas: 4"), tmp_path, clock).status()

    assert (status.name, status.topology, status.memories) == ("research", "sharded", 1)
    assert status.changes == 2
    assert set(status.agents) == {"ana", "worker-0", "worker-1", "worker-2", "worker-3"}


def test_a_store_in_memory_can_be_opened_and_leaves_nothing(tmp_path: Path, clock: Any) -> None:
    made = controller("{name: x, agents: [{name: ana}]}", tmp_path, clock)
    made.apply()
    with made.open() as hive:
        hive.agent("ana").remember("The cat sleeps on the red mat.")

    assert list(tmp_path.iterdir()) == []


def test_signatures_named_in_the_manifest_are_demanded(tmp_path: Path, clock: Any) -> None:
    pytest.importorskip("nacl")
    from skep.bank.bank import Bank
    from skep.replication.exchange import sync
    from skep.replication.signatures import Signer

    seed = "ab" * 32
    key = Signer(bytes.fromhex(seed)).public.hex()
    text = (
        "{name: x, topology: sharded, gateway: {signatures: known},"
        f" agents: [{{name: ana, key: '{key}', seed: '${{SEED}}'}}, {{name: bob}}, {{name: cy}}]}}"
    )
    made = Controller(parse(text, {"SEED": seed}), folder=tmp_path, embedder=EMBEDDER, now=clock)
    with made.open() as hive, Bank.open(":memory:", embedder=EMBEDDER, now=clock) as outside:
        stored = hive.agent("ana").remember("The cat sleeps on the red mat.")
        assert stored.copies > 0
        assert hive.provenance(stored.memory.id).signed
        forged = outside.remember("The dog sleeps in the hall.", agent="ana").memory
        sync(hive, outside)
        assert hive.get(forged.id) is None
