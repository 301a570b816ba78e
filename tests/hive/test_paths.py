"""The way a copy came is kept with it: through restarts, exchanges and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.hive.gossip import Gossip
from skep.hive.hive import Hive
from skep.hive.trust import Paths
from skep.replication.change_files import apply_changes, export_changes
from skep.replication.exchange import sync, take

from .conftest import EMBEDDER, MakeHive, build

FACT = "The staging database runs PostgreSQL 16 on port 5433."


def ways(hive: Hive, memory_id: str) -> dict[str, tuple[str, ...]]:
    return {n: m.paths.of(memory_id) for n, m in hive.members.items() if m.has(memory_id)}


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_paths_survive_a_restart(clock: Any, tmp_path: Path, kind: str) -> None:
    with build(kind, clock, store=tmp_path) as hive:
        stored = hive.agent("ana").remember(FACT, confidence=0.95).memory
        before = ways(hive, stored.id)
        shown = hive.provenance(stored.id)
    with build(kind, clock, store=tmp_path) as hive:
        assert ways(hive, stored.id) == before
        assert hive.provenance(stored.id) == shown
    if kind == "federated":
        assert before["sales"] == ("infra", "root", "people", "sales")
    if kind == "sharded":
        assert all(path[-1] == name and path[0] == "ana" for name, path in before.items())


def test_a_usual_way_costs_nothing_and_an_unusual_one_a_single_setting(make_hive: MakeHive) -> None:
    hive = make_hive("federated")
    for number in range(20):
        hive.agent("ana").remember(f"Room {number} has door {number}.", confidence=0.95, on_conflict="ignore")
    written = {n: len([e for e in m.bank.events() if e.kind == "setting"]) for n, m in hive.members.items()}

    assert written == {"infra": 0, "root": 0, "people": 1, "sales": 1}


def test_what_came_by_gossip_or_announcement_says_so(make_hive: MakeHive) -> None:
    a, b = make_hive("flat", name="a"), make_hive("sharded", name="b")
    stored = a.agent("ana").remember(FACT).memory
    Gossip({"a": a, "b": b}).round()

    assert b.provenance(stored.id).path[0] == "a"
    assert b.provenance(stored.id).author == "ana"
    assert a.provenance(stored.id).path == ("hive",)


def test_paths_travel_with_a_bank_by_sync_and_by_file(clock: Any, tmp_path: Path) -> None:
    with build("federated", clock) as hive, Bank.open(":memory:", embedder=EMBEDDER, now=clock) as copy:
        stored = hive.agent("ana").remember(FACT, confidence=0.95).memory
        sales = hive.members["sales"]
        sync(sales.bank, copy)
        export_changes(sales.bank, tmp_path / "changes")
        with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as other:
            apply_changes(other, tmp_path / "changes")
            for bank in (copy, other):
                paths = Paths(bank, "sales", lambda actor: (actor,))
                assert paths.of(stored.id) == ("infra", "root", "people", "sales")


def test_the_first_way_counts_and_later_ones_change_nothing(banks: Any) -> None:
    source, bank = banks(), banks()
    ids = [source.remember(f"Room {n} has door {n}.", on_conflict="ignore").memory.id for n in range(6)]
    paths = Paths(bank, "m", lambda actor: (actor, "m"))

    def arrive(which: list[int], *path: str) -> None:
        events = [event for event in source.events() if event.id in {ids[n] for n in which}]
        surprise = paths.surprising([event.id for event in events], path)
        take(bank, events)
        if surprise is not None:
            paths.note(surprise)

    arrive([0, 1], "x", "m")
    arrive([4], "y", "m")
    arrive([2, 3, 4], "x", "m")
    arrive([5], "y", "m")
    again = Paths(bank, "m", lambda actor: (actor, "m"))

    for known in (paths, again):
        assert [known.of(i)[0] for i in ids] == ["x", "x", "x", "x", "y", "y"]


def test_an_agent_that_left_is_still_known_for_what_it_wrote(clock: Any, tmp_path: Path) -> None:
    with build("sharded", clock, store=tmp_path) as hive:
        stored = hive.agent("ana").remember(FACT).memory
        hive.leave("ana")
        assert hive.provenance(stored.id).path[0] == "ana"
    with Hive.sharded(
        ["bob", "cy", "dora", "eve", "fay"], store=tmp_path, embedder=EMBEDDER, now=clock
    ) as hive:
        assert hive.provenance(stored.id).path[0] == "ana"
        assert hive.agent("bob").recall("staging database")[0].memory.agent == "ana"
