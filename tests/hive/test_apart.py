"""A hive whose members run in different places: everything goes over the bus, as frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skep.errors import ForgottenError, InvalidInputError, NotFoundError
from skep.hive.bus.in_process import LocalBus
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.members import lacking_of
from skep.hive.messages import RepairRequest
from skep.replication.exchange import seen

from .conftest import AGENTS, EMBEDDER, GROUPS

POLICY = HivePolicy(stewards=("*",), deadline=5.0, hedge_after=2.0)
HERE = {"sharded": ("ana", "bob", "cy"), "federated": ("root", "infra")}
THERE = {"sharded": ("dora", "eve", "fay"), "federated": ("people", "sales")}
Apart = tuple[Hive, Hive]


def opened(kind: str, bus: LocalBus, clock: Any, local: tuple[str, ...], **options: Any) -> Hive:
    usual = {"name": "team", "policy": POLICY, "embedder": EMBEDDER, "now": clock, "bus": bus, "local": local}
    options = {**usual, **options}
    if kind == "sharded":
        return Hive.sharded(AGENTS, **options)
    return Hive.federated(GROUPS, parents={"sales": "people"}, **options)


@pytest.fixture
def bus() -> Iterator[LocalBus]:
    made = LocalBus("hive", wire=True)
    yield made
    made.close()


@pytest.fixture
def open_both(bus: LocalBus, clock: Any) -> Iterator[Callable[..., Apart]]:
    made: list[Hive] = []

    def both(kind: str, **options: Any) -> Apart:
        made.append(opened(kind, bus, clock, HERE[kind], **options))
        made.append(opened(kind, bus, clock, THERE[kind], **options))
        return made[-2], made[-1]

    yield both
    for hive in made:
        hive.close()


@pytest.fixture(params=["sharded", "federated"])
def apart(request: pytest.FixtureRequest, open_both: Callable[..., Apart]) -> Apart:
    """One hive in two halves that share nothing but the bus."""
    return open_both(request.param)


def test_what_one_half_learns_the_other_can_get_list_and_recall(apart: Apart) -> None:
    here, there = apart
    facts = {name: f"Server of {name} stands in room {n}." for n, name in enumerate(AGENTS)}
    ids = {}
    for name, fact in facts.items():
        half = here if here.layout.home(name) in here.members else there
        ids[name] = half.agent(name).remember(fact, on_conflict="ignore").memory.id
    for bank in (here.agent("ana"), there.agent("eve")):
        assert {bank.get(memory_id).text for memory_id in ids.values()} == set(facts.values())
        assert {hit.memory.text for hit in bank.recall("server room", limit=6)} == set(facts.values())
        assert sorted(memory.text for memory in bank.find()) == sorted(facts.values())
        pages, cursor = list[str](), None
        while True:
            page = bank.find(limit=2, cursor=cursor)
            pages += [memory.text for memory in page]
            cursor = page.cursor
            if cursor is None:
                break
        assert sorted(pages) == sorted(facts.values())


def test_changes_reach_the_other_half(apart: Apart) -> None:
    here, there = apart
    stored = there.agent("eve").remember("Lunch is served in the cellar today.").memory
    here.agent("ana").revise(stored.id, text="Lunch is served in the garden today.")
    assert there.agent("eve").get(stored.id).text == "Lunch is served in the garden today."
    here.agent("bob").confirm(stored.id)
    assert there.agent("fay").get(stored.id).confirmations == 1
    other = there.agent("fay").remember("The coffee machine stands in the hall.").memory
    here.agent("ana").link(stored.id, other.id)
    assert set(there.agent("dora").neighbors(other.id).memories) == {stored.id}
    here.agent("ana").forget(stored.id)
    for agent in (there.agent("eve"), here.agent("bob")):
        with pytest.raises((ForgottenError, NotFoundError)):
            agent.get(stored.id)


def test_a_rollback_covers_both_halves(apart: Apart) -> None:
    here, there = apart
    lie = there.agent("eve").remember("The backup key was moved to rack two.").memory
    built = here.agent("ana").remember("Visitors are led to rack two.", evidence=[lie.id]).memory
    honest = there.agent("dora").remember("The coffee machine stands in the hall.").memory
    there.agent("eve").confirm(honest.id)
    plan = here.rollback("eve", dry_run=True)
    assert (plan.written, plan.derived, len(plan.confirmations)) == ((lie.id,), (built.id,), 1)
    assert (plan.completeness, plan.missing) == (1.0, ())
    done = here.rollback("eve")

    assert done.applied
    for half, name in ((here, "ana"), (there, "eve")):
        assert {half.agent(name).get(i).status for i in (lie.id, built.id)} == {"retracted"}
        assert half.agent(name).get(honest.id).confirmations == 0


def test_a_rollback_says_whom_it_could_not_ask(open_both: Callable[..., Apart]) -> None:
    here, there = open_both("sharded", policy=HivePolicy(stewards=("*",), deadline=0.2, hedge_after=0.1))
    there.agent("eve").remember("The backup key was moved to rack two.")
    for member in there.members.values():
        member.stop()
    plan = here.rollback("eve", dry_run=True)

    assert set(plan.missing) == {"dora", "eve", "fay"}
    assert plan.completeness == 0.5
    assert "not heard: dora" in "\n".join(plan.lines())


def test_repair_brings_both_halves_together_and_says_who_was_away(open_both: Callable[..., Apart]) -> None:
    here, there = open_both("sharded", policy=HivePolicy(stewards=("*",), deadline=0.3, hedge_after=0.1))
    for member in there.members.values():
        member.stop()
    kept = [here.agent("ana").remember(f"Room {n} holds crate {n}.", on_conflict="ignore") for n in range(9)]
    gone = here.agent("bob").remember("Lunch is served in the cellar today.").memory
    here.agent("bob").forget(gone.id)
    alone = here.repair()
    assert (set(alone.missing), alone.completeness) == ({"dora", "eve", "fay"}, 0.5)
    for member in there.members.values():
        member.start()
    done = there.repair()

    assert (done.missing, done.completeness) == ((), 1.0)
    assert done.events > 0
    for one in kept:
        for owner in here.layout.ring.owners(one.memory.id):  # type: ignore[attr-defined]
            half = here if owner in here.members else there
            assert half.members[owner].has(one.memory.id)
    assert all(m.bank.engine.store.is_forgotten(gone.id) for m in there.members.values())
    assert here.repair().events == 0


def test_a_repair_sends_nothing_that_is_already_there(open_both: Callable[..., Apart]) -> None:
    here, there = open_both("sharded")
    for number in range(9):
        here.agent("ana").remember(f"Room {number} holds crate {number}.", on_conflict="ignore")
    here.repair()
    halves = (*here.members.values(), *there.members.values())
    known = {member.name: seen(member.bank) for member in halves}

    for member in halves:
        assert lacking_of(member, RepairRequest(seen=known)).events == ()


def test_members_elsewhere_are_named(apart: Apart) -> None:
    here, there = apart
    with pytest.raises(NotFoundError, match="runs elsewhere"):
        here.agent("eve")
    with pytest.raises(InvalidInputError, match="runs elsewhere"):
        there.trust.set("ana", 0.5)
    here.trust.set("ana", 0.5)
    assert there.trust.of("ana") == 0.5
    with pytest.raises(NotFoundError, match="has no 'nobody'"):
        Hive.sharded(AGENTS, name="team", local=["nobody"])
    with pytest.raises(InvalidInputError, match="needs a name"):
        Hive.sharded(AGENTS, local=["ana"])


def test_events_of_elsewhere_can_be_undone(apart: Apart) -> None:
    here, there = apart
    stored = there.agent("eve").remember("Lunch is served in the cellar today.").memory
    there.agent("eve").revise(stored.id, text="Lunch is served in the garden today.")
    revision = there.agent("eve").history(stored.id)[-1]
    here.agent("ana").undo(revision.id)

    assert there.agent("eve").get(stored.id).text == "Lunch is served in the cellar today."


def test_what_waits_elsewhere_is_reviewed_from_here(apart: Apart) -> None:
    here, there = apart
    here.trust.set("eve", 0.2)
    here.trust.set("ana", 0.2)
    kept = there.agent("eve").remember("The backup key lies in rack two.").memory
    bad = there.agent("eve").remember("The coffee machine stands in the hall.").memory
    mine = here.agent("ana").remember("Lunch is served in the garden today.").memory
    assert {one.memory.id for one in here.review()} == {kept.id, bad.id, mine.id}
    assert {one.memory.id for one in there.review()} == {kept.id, bad.id, mine.id}
    assert all("trust 0.20" in one.reasons for one in here.review())
    assert (here.review().missing, here.review().completeness) == ((), 1.0)
    here.approve(kept.id)
    here.dismiss(bad.id)

    assert [one.memory.id for one in there.review()] == [mine.id]
    assert there.agent("eve").get(kept.id).status == "active"
    assert there.agent("fay").get(bad.id).status == "retracted"
    assert [hit.memory.id for hit in there.agent("dora").recall("backup key rack", limit=1)] == [kept.id]
    with pytest.raises(NotFoundError, match="does not wait for review"):
        here.approve(kept.id)


def test_what_expired_elsewhere_is_collected_from_here(apart: Apart, clock: Any) -> None:
    here, there = apart
    short = there.agent("eve").remember("The lift is out of order today.", ttl=3600.0).memory
    mine = here.agent("ana").remember("Lunch is served in the garden today.", ttl=3600.0).memory
    kept = there.agent("fay").remember("The coffee machine stands in the hall.").memory
    assert here.gc() == []
    clock.pass_days(1)
    gone = here.gc()

    assert (set(gone), gone.missing) == ({short.id, mine.id}, ())
    for half in apart:
        for member in half.members.values():
            found = (member.get(short.id), member.get(mine.id))
            assert {memory.status for memory in found if memory is not None} <= {"expired"}
    assert there.agent("eve").get(kept.id).status == "active"
    assert there.gc() == []


def test_gc_and_review_say_whom_they_could_not_ask(open_both: Callable[..., Apart], clock: Any) -> None:
    here, there = open_both("sharded", policy=HivePolicy(stewards=("*",), deadline=0.2, hedge_after=0.1))
    for member in there.members.values():
        member.stop()
    for found in (here.gc(), here.review()):
        assert (found.missing, found.completeness) == (("dora", "eve", "fay"), 0.5)
