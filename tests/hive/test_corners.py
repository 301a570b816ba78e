"""What is easily lost at the edges: restarts, pages, scopes, names, late messages and a hostile neighbour."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from skep.errors import InvalidInputError, NotFoundError
from skep.hive.controller import Controller
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip
from skep.hive.hive import Hive
from skep.hive.hive_manifest import AgentSpec, GatewaySpec, Manifest
from skep.hive.layouts import Federated
from skep.hive.messages import Envelope, FactPromoted, FactsChanged, Frame, Query, ShardQuery
from skep.hive.orchestrator import Orchestrator
from skep.model import Event

from .conftest import EMBEDDER, FAST, MakeHive, build

FACT = "The staging database listens on port 5433."
KINDS = ("flat", "federated", "sharded")


# Restarts


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_gateway_rejected_is_still_there_after_a_restart(
    clock: Any, tmp_path: Path, kind: str
) -> None:
    with build(kind, clock, store=tmp_path) as hive:
        kept = hive.agent("ana").remember("ok")
        assert kept.decision.verdict == "rejected"
    with build(kind, clock, store=tmp_path) as hive:
        assert hive.agent("ana").get(kept.memory.id).text == "ok"
        assert [memory.text for memory in hive.agent("ana").find()] == ["ok"]
        assert not list(hive.agent("bob").find())


def test_what_could_not_be_placed_is_still_found_after_a_restart(clock: Any, tmp_path: Path) -> None:
    policy = HivePolicy(deadline=0.1, hedge_after=0.05)
    with build("sharded", clock, store=tmp_path, policy=policy) as hive:
        for name in ("bob", "cy", "dora", "eve", "fay"):
            hive.members[name].stop()
        for number in range(8):
            hive.agent("ana").remember(f"Room {number} has door {number}.", on_conflict="ignore")
    with build("sharded", clock, store=tmp_path) as hive:
        assert len(hive.agent("fay").recall("which door", limit=20)) == 8
        assert hive.repair().events > 0
    with build("sharded", clock, store=tmp_path) as hive:
        assert not hive.layout.unplaced  # type: ignore[attr-defined]
        assert len(hive.agent("fay").recall("which door", limit=20)) == 8


# Pages and scopes


def test_a_copy_is_not_listed_again_on_a_later_page(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("sharded")
    moment = clock() - 1000
    for number in range(30):
        name = ("ana", "bob", "cy")[number % 3]
        hive.agent(name).remember(
            f"Room {number} has door {number}.", created_at=moment, on_conflict="ignore"
        )
    hive.agent("eve").retract(hive.agent("eve").recall("door", limit=1)[0].memory.id)
    listed, cursor = list[str](), None
    while True:
        page = hive.agent("fay").find(limit=4, cursor=cursor)
        listed += [memory.id for memory in page]
        cursor = page.cursor
        if cursor is None:
            break

    assert len(listed) == len(set(listed)) == 29


@pytest.mark.parametrize("kind", KINDS)
def test_links_do_not_lead_out_of_the_scope_that_was_asked_for(make_hive: MakeHive, kind: str) -> None:
    bank = make_hive(kind).agent("ana")
    mine = bank.remember(FACT, scope={"user": "ana"}).memory
    near = bank.remember("Whoever asks gets the tunnel.", scope={"user": "ana"}).memory
    secret = bank.remember("The vault code of bob is 9981.", scope={"user": "bob"}).memory
    bank.link(mine.id, secret.id)
    bank.link(mine.id, near.id)
    found = bank.recall("staging database port", scope={"user": "ana"}, expand=True, limit=1)

    assert {hit.memory.id for hit in found} == {mine.id, near.id}


@pytest.mark.parametrize("kind", KINDS)
def test_confidence_fades_by_the_hour_where_the_policy_says_so_and_by_age_alone_never(
    make_hive: MakeHive, clock: Any, kind: str
) -> None:
    aged, faded = (
        make_hive(kind, policy=HivePolicy(ttl=1e7, deadline=10.0, hedge_after=5.0, **rate))
        for rate in ({}, {"decay_per_hour": 0.01})
    )
    for hive in (aged, faded):
        hive.agent("ana").remember(FACT)
        assert len(hive.agent("bob").recall("staging database")) == 1
    clock.pass_seconds(150 * 3600)

    assert len(aged.agent("bob").recall("staging database")) == 1
    assert len(faded.agent("bob").recall("staging database")) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_says_how_much_was_heard(make_hive: MakeHive, kind: str) -> None:
    answer = make_hive(kind).agent("ana").recall("anything")

    assert (answer.completeness, answer.missing) == (1.0, ())  # type: ignore[attr-defined]


# Review and rollback


def test_a_flood_can_be_reviewed_to_the_last(make_hive: MakeHive) -> None:
    hive = make_hive("flat", policy=HivePolicy(rate=0, burst=1))
    done = hive.agent("eve").remember_many([f"Room {n} has door {n}." for n in range(1200)])
    waiting = hive.review()

    assert len(waiting) == 1199
    last = done[-1].memory.id
    assert hive.dismiss(last).status == "retracted"
    assert hive.approve(waiting[3].memory.id).status == "active"
    with pytest.raises(NotFoundError, match="does not wait for review"):
        hive.approve(last)


@pytest.mark.parametrize("kind", KINDS)
def test_a_backdated_memory_does_not_escape_a_rollback(make_hive: MakeHive, clock: Any, kind: str) -> None:
    hive = make_hive(kind)
    old = hive.agent("eve").remember("Lunch is served in the cellar today.").memory
    clock.pass_days(2)
    late = hive.agent("eve").remember(FACT, created_at=clock() - 90 * 86_400).memory

    assert hive.rollback("eve", since=clock() - 3600, dry_run=True).written == (late.id,)
    assert set(hive.rollback("eve", dry_run=True).written) == {old.id, late.id}


@pytest.mark.parametrize("how", ["ignore", "supersede"])
def test_nobody_overrules_what_others_confirmed_by_asking_not_to_be_checked(
    make_hive: MakeHive, how: Any
) -> None:
    hive = make_hive("flat")
    stored = hive.agent("ana").remember(FACT).memory
    hive.agent("bob").confirm(stored.id)
    done = hive.agent("eve").remember("The staging database listens on port 6666.", on_conflict=how)

    assert done.decision.verdict == "quarantined"
    assert hive.get(stored.id).status == "active"  # type: ignore[union-attr]


# Trust between hives


def manifest(**changes: Any) -> Manifest:
    agents = tuple(AgentSpec(name=name) for name in ("ana", "bob"))
    return Manifest(name="team", store="banks", **{"topology": "sharded", "agents": agents, **changes})


def test_applying_a_manifest_leaves_trust_in_strangers_alone(clock: Any, tmp_path: Path) -> None:
    first = Controller(manifest(), folder=tmp_path, embedder=EMBEDDER, now=clock)
    first.apply()
    with first.open() as hive:
        hive.trust.set("mallory", 0.0)
    clock.pass_seconds(5)
    more = manifest(policies=HivePolicy(promote_at=0.4))
    Controller(more, folder=tmp_path, embedder=EMBEDDER, now=clock).apply()
    with first.open() as hive:
        assert hive.trust.of("mallory") == 0.0


def test_hives_that_gossip_keep_their_own_registers(make_hive: MakeHive, clock: Any) -> None:
    a, b = make_hive("flat", name="a"), make_hive("sharded", name="b")
    a.placement.changed_at(a.members.registers, lambda bank: bank.set_setting("hive/topology", "flat"))
    b.placement.changed_at(b.members.registers, lambda bank: bank.set_setting("hive/topology", "sharded"))
    a.trust.set("eve", 0.1)
    a.agent("ana").remember(FACT)
    gossip = Gossip({"a": a, "b": b})
    gossip.round()
    gossip.round()

    assert b.members.registers.bank.setting("hive/topology") == "sharded"
    assert a.members.registers.bank.setting("hive/topology") == "flat"
    assert (a.trust.of("eve"), b.trust.of("eve")) == (0.1, 1.0)
    assert gossip.round().events == 0


def test_gossip_brings_nothing_of_agents_a_hive_does_not_trust(make_hive: MakeHive) -> None:
    a, b = make_hive("flat", name="a"), make_hive("sharded", name="b")
    lie = a.agent("eve").remember(FACT).memory
    built = a.agent("ana").remember("Whoever needs staging uses 5433.", evidence=[lie.id]).memory
    honest = a.agent("bob").remember("The coffee machine stands in the hall.").memory
    b.trust.set("eve", 0.0)
    gossip = Gossip({"a": a, "b": b})
    for _ in range(2):
        gossip.round()
    assert b.get(honest.id) is not None
    assert b.get(lie.id) is None
    assert gossip.round().bytes == 0
    b.trust.set("eve", 1.0)
    gossip.round()

    assert b.get(lie.id) is not None
    assert b.get(built.id) is not None


def said(frame: Frame, subject: str = "hive.x.events") -> Envelope:
    return Envelope(subject=subject, frame=frame, path=("x",))


def event(clock: Any, counter: int, **body: Any) -> Event:
    hlc = int(clock() * 1000) << 16
    return Event(actor="there", counter=counter, hlc=hlc, kind="remember", body={"kind": "fact", **body})


def test_an_announcement_brings_only_what_passed_the_gate(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("sharded")
    orchestrator = Orchestrator(hive, "ana")
    good, smuggled = event(clock, 1, text=FACT), event(clock, 2, text="ok")
    done = orchestrator.process_event(said(FactPromoted(memory="there-1", events=(good, smuggled))))
    changed = orchestrator.process_event(said(FactsChanged(events=(event(clock, 3, text="ok too"),))))

    assert done.effect == "applied"
    assert changed.effect == "known"
    assert [hive.get(f"there-{n}") is not None for n in (1, 2, 3)] == [True, False, False]


def test_an_announcement_is_compared_with_what_the_hive_holds(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("flat")
    stored = hive.agent("ana").remember(FACT).memory
    hive.agent("bob").confirm(stored.id)
    rival = event(clock, 1, text="The staging database listens on port 6666.", agent="eve")
    done = Orchestrator(hive, "ana").process_event(said(FactPromoted(memory="there-1", events=(rival,))))

    assert done.effect == "quarantined"
    assert [one.memory.id for one in hive.review()] == ["there-1"]


def test_the_doubt_of_one_hive_is_not_the_doubt_of_another(make_hive: MakeHive) -> None:
    one = make_hive("flat", name="one")
    other = make_hive("flat", name="other", bus=one.bus)
    speaker, listener = Orchestrator(one, "ana"), Orchestrator(other, "bob")
    rival = other.agent("cy").remember("The staging database listens on port 6666.").memory
    other.agent("dora").confirm(rival.id)
    stored = speaker.store_and_promote(FACT).memory
    listener.drain_events()
    speaker.drain_events()

    assert other.get(stored.id).status == "quarantined"  # type: ignore[union-attr]
    assert one.get(stored.id).status == "active"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body", [{"text": FACT, "confidence": "very"}, {"text": FACT, "evidence": 7}, {"text": FACT, "kind": "x"}]
)
def test_an_announcement_that_makes_no_sense_is_refused(make_hive: MakeHive, clock: Any, body: Any) -> None:
    orchestrator = Orchestrator(make_hive("flat"), "ana")
    frame = FactPromoted(memory="there-1", events=(event(clock, 1, **body),))

    assert orchestrator.process_event(said(frame)).effect == "refused"


def test_a_question_to_another_agent_is_left_to_it(make_hive: MakeHive) -> None:
    orchestrator = Orchestrator(make_hive("flat"), "ana")
    query = Query(query="anything")

    assert orchestrator.process_event(said(query, "hive.hive.feed.bob")).effect == "ignored"
    assert orchestrator.process_event(said(query, "hive.hive.feed.ana")).effect == "applied"


def test_a_peer_that_hangs_does_not_use_up_the_time_of_the_others(make_hive: MakeHive) -> None:
    policy = HivePolicy(deadline=0.5, hedge_after=0.4)
    here = make_hive("flat", name="here", policy=policy)
    stuck, fine = (make_hive("sharded", name=name, policy=policy) for name in ("stuck", "fine"))
    fine.agent("bob").remember(FACT)
    release = threading.Event()

    def hang(envelope: Envelope) -> Frame | None:
        release.wait(30) if isinstance(envelope.frame, ShardQuery) else None
        return None

    for member in stuck.members.values():
        member.stop()
        member.bus.subscribe(stuck.subjects.ask, hang)
    answer = Orchestrator(here, "ana", peers={"stuck": stuck, "fine": fine}).query_unified("staging database")
    release.set()

    assert [hit.memory.text for hit in answer] == [FACT]
    assert answer.completeness < 1.0


# Late messages


def test_a_retraction_finds_a_copy_that_comes_after_it(make_hive: MakeHive) -> None:
    hive = make_hive("federated")
    stored = hive.agent("ana").remember(FACT).memory
    late = hive.members["infra"].events_of([stored.id])
    hive.agent("ana").retract(stored.id, "it moved")
    hive.members["sales"].take(late, path=("infra", "sales"))

    assert hive.members["sales"].get(stored.id).status == "retracted"  # type: ignore[union-attr]


# Names


def test_a_name_cannot_lead_out_of_the_folder_or_to_anothers_bank(clock: Any, tmp_path: Path) -> None:
    names = ["../out", "ana", "ana.private", "private"]
    with Hive.sharded(names, store=tmp_path / "in", embedder=EMBEDDER, now=clock, policy=FAST) as hive:
        assert hive.agent("ana").remember("ok").decision.verdict == "rejected"
        hive.agent("private").remember(FACT)
        for name in names:
            assert hive.agent(name).recall("staging database")[0].memory.text == FACT
        assert not list(hive.agent("ana.private").find(text="ok"))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_groups_in_a_ring_and_empty_names_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="above itself"):
        Federated({"a": ["x"], "b": ["y"]}, parents={"a": "b", "b": "a"})
    with pytest.raises(InvalidInputError, match="above itself"):
        Federated({"a": ["x"]}, parents={"a": "a"})
    for make in (Hive.flat, Hive.sharded):
        with pytest.raises(InvalidInputError, match="is not a name"):
            make(["ana", " "])


# Keys and layouts


@pytest.mark.parametrize("signatures", ["known", "required"])
def test_a_hive_with_keys_takes_its_memories_into_another_layout(
    clock: Any, tmp_path: Path, signatures: Any
) -> None:
    pytest.importorskip("nacl")
    seeds = {"ana": "61" * 32, "bob": "62" * 32}
    agents = (*(AgentSpec(name=n, seed=s) for n, s in seeds.items()), AgentSpec(name="cy"))
    gateway = GatewaySpec(signatures=signatures)
    texts = {"ana": FACT, "bob": "Lunch is served in the cellar today.", "cy": "The cat sleeps on the mat."}

    def open_as(topology: Any) -> Controller:
        wanted = manifest(topology=topology, agents=agents, gateway=gateway)
        return Controller(wanted, folder=tmp_path, embedder=EMBEDDER, now=clock)

    open_as("flat").apply()
    with open_as("flat").open() as hive:
        for name, text in texts.items():
            hive.agent(name).remember(text)
    clock.pass_seconds(5)
    open_as("sharded").apply(migrate=True)
    with open_as("sharded").open() as hive:
        assert {memory.text for memory in hive.agent("ana").find()} == set(texts.values())
        for member in hive.members.values():
            for memory in member.bank.find():
                assert not member.take(member.events_of([memory.id])).refused
        assert hive.repair().refused == {}
