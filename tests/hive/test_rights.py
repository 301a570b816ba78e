"""Nobody changes what others wrote, but by right or by agreement; and whoever says something counts once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.errors import AccessError, InvalidInputError
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip
from skep.hive.hive import Hive
from skep.hive.messages import Envelope, FactsChanged, MemberHello, ShardStore
from skep.hive.orchestrator import Orchestrator
from skep.model import Event, Memory
from skep.replication.exchange import sync
from skep.replication.signatures import Keyring, Signer

from .conftest import AGENTS, EMBEDDER, GROUPS, MakeHive

STRICT = HivePolicy(deadline=10.0, hedge_after=5.0)
DOOR = "The north door opens at seven."
LIE = "The north door opens at midnight for everybody."


@pytest.fixture(params=["flat", "federated", "sharded"])
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    return make_hive(request.param, policy=STRICT)


def stamp(clock: Any) -> int:
    return int(clock() * 1000) << 16


def standing(hive: Hive, memory: Memory) -> tuple[Any, ...]:
    now = hive.get(memory.id)
    assert now is not None
    return now.text, now.status, now.agent, now.confidence, now.disputes


VERBS: dict[str, Callable[[Any, str, str], Any]] = {
    "revise": lambda eve, theirs, own: eve.revise(theirs, text=LIE),
    "retract": lambda eve, theirs, own: eve.retract(theirs),
    "mark": lambda eve, theirs, own: eve.mark(theirs, "deprecated"),
    "supersede": lambda eve, theirs, own: eve.supersede(theirs, own),
    "merge": lambda eve, theirs, own: eve.merge(theirs, own),
    "merge into it": lambda eve, theirs, own: eve.merge(own, theirs),
    "forget": lambda eve, theirs, own: eve.forget(theirs),
    "undo": lambda eve, theirs, own: eve.undo(theirs),
    "link": lambda eve, theirs, own: eve.link(theirs, own, "contradicts"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_changes_what_another_wrote(hive: Hive, verb: str) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    own = hive.agent("eve").remember("The south gate opens at nine.").memory
    before = standing(hive, theirs)

    with pytest.raises(AccessError, match="eve may not"):
        VERBS[verb](hive.agent("eve"), theirs.id, own.id)
    assert standing(hive, theirs) == before


@pytest.mark.parametrize("verb", [v for v in VERBS if v not in ("merge", "merge into it")])
def test_an_owner_does_as_it_likes_with_what_it_wrote(hive: Hive, verb: str) -> None:
    theirs = hive.agent("eve").remember(DOOR).memory
    own = hive.agent("eve").remember("The south gate opens at nine.").memory

    VERBS[verb](hive.agent("eve"), theirs.id, own.id)


def test_an_agent_without_trust_neither_doubts_nor_confirms_nor_reports(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    hive.trust.set("eve", 0.0)
    before = standing(hive, theirs)
    eve = hive.agent("eve")
    for act in (
        lambda: eve.dispute(theirs.id, "eve"),
        lambda: eve.learn("open the door", "failure", used=[theirs.id]),
        lambda: eve.support(theirs.id, ["somewhere"]),
        lambda: eve.propose("retract", theirs.id),
    ):
        with pytest.raises(AccessError, match="trusted"):
            act()
    eve.confirm(theirs.id)

    assert standing(hive, theirs) == before
    assert hive.get(theirs.id).confirmations == 0  # type: ignore[union-attr]


def test_twenty_failures_of_one_agent_count_as_one(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR, confidence=0.8).memory
    for number in range(20):
        hive.agent("eve").learn(f"open the door {number}", "failure", used=[theirs.id])
    once = hive.get(theirs.id)
    assert once is not None
    assert (once.failures, round(once.confidence, 4)) == (1, 0.76)

    hive.agent("bob").learn("open the door", "failure", used=[theirs.id])
    assert hive.get(theirs.id).failures == 2  # type: ignore[union-attr]
    for _ in range(3):
        hive.agent("ana").learn("open the door", "failure", used=[theirs.id])
    assert hive.get(theirs.id).failures == 5  # type: ignore[union-attr]


def test_one_agent_disputes_once_whatever_it_names(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR, confidence=0.8).memory
    others = [hive.agent("eve").remember(f"Gate {n} opens at {n + 5} o'clock.").memory.id for n in range(3)]
    for by in ("eve", *others):
        hive.agent("eve").dispute(theirs.id, by)

    known = hive.get(theirs.id)
    assert known is not None
    assert (known.disputes, known.confidence) == (1, 0.4)
    with pytest.raises(Exception, match="no memory"):
        hive.agent("eve").dispute(theirs.id, "bob")


def test_what_is_said_weighs_as_much_as_its_speaker_is_trusted(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR, confidence=0.8).memory
    hive.trust.set("eve", 0.5)
    hive.agent("eve").dispute(theirs.id, "eve")

    assert hive.get(theirs.id).confidence == pytest.approx(0.8 * 0.5**0.5)  # type: ignore[union-attr]


def test_authors_cannot_be_changed_nor_borrowed(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    with pytest.raises(InvalidInputError, match="who wrote a memory cannot be changed"):
        hive.agent("ana").revise(theirs.id, agent="bob")
    with pytest.raises(InvalidInputError, match="cannot write for"):
        hive.agent("eve").remember(LIE, agent="ana")

    assert hive.get(theirs.id).agent == "ana"  # type: ignore[union-attr]


# By right


def test_a_steward_and_a_grant_open_what_they_name(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    other = hive.agent("cy").remember("The canteen closes at three.").memory
    hive.rights.grant("bob", "retract", of="ana")

    hive.agent("bob").retract(theirs.id)
    with pytest.raises(AccessError):
        hive.agent("bob").retract(other.id)
    with pytest.raises(AccessError):
        hive.agent("bob").revise(theirs.id, text=LIE)
    hive.rights.grant("bob")
    hive.agent("bob").revise(other.id, text="The canteen closes at four.")
    hive.rights.revoke("bob")
    with pytest.raises(AccessError):
        hive.agent("bob").retract(other.id)


def test_rights_are_the_same_for_every_member_and_nobodys_to_write(hive: Hive) -> None:
    hive.rights.grant("bob", "mark")

    assert {tuple(m.bank.setting("rights/bob")) for m in hive.members.values()} == {("mark",)}
    with pytest.raises(InvalidInputError, match="belongs to the hive"):
        hive.agent("eve").set_setting("rights/eve", ["*"])
    with pytest.raises(InvalidInputError, match="no right"):
        hive.rights.grant("bob", "fly")


# By agreement


def test_a_proposal_changes_nothing_until_somebody_agrees(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    asked = hive.agent("eve").propose("revise", theirs.id, text="The north door opens at eight.")
    (waiting,) = hive.review()

    assert (waiting.proposal, waiting.memory.text) == (asked.id, DOOR)
    assert "eve asks to revise it" in waiting.reasons
    with pytest.raises(AccessError, match="may not decide"):
        hive.agent("bob").approve(asked.id)
    hive.agent("ana").approve(asked.id)
    assert hive.get(theirs.id).text == "The north door opens at eight."  # type: ignore[union-attr]
    assert hive.review() == []


def test_a_dismissed_proposal_is_gone(hive: Hive) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    asked = hive.agent("eve").propose("retract", theirs.id)
    hive.dismiss(asked.id)

    assert hive.review() == []
    assert hive.get(theirs.id).status == "active"  # type: ignore[union-attr]


def test_an_update_replaces_another_agents_memory_by_agreement_alone(hive: Hive) -> None:
    hive.trust.set("ana", 2.0)
    hive.trust.set("eve", 0.35)
    old = hive.agent("ana").remember("The gateway runs on port 8080", confidence=0.9).memory
    done = hive.agent("eve").remember("The gateway runs on port 9090", on_conflict="supersede")

    assert (done.action, len(done.proposed)) == ("stored", 1)
    assert hive.get(old.id).status == "active"  # type: ignore[union-attr]
    hive.approve(done.proposed[0])
    assert hive.get(old.id).superseded_by == done.memory.id  # type: ignore[union-attr]


# No way around the gate


def test_its_author_cannot_let_a_memory_out_of_review(hive: Hive) -> None:
    hive.trust.set("eve", 0.1)
    held = hive.agent("eve").remember(LIE).memory
    marks = [e.id for e in hive.agent("eve").history(held.id) if e.kind == "mark"]
    eve = hive.agent("eve")
    for act in (
        lambda: eve.mark(held.id, "active"),
        lambda: eve.restore(held.id),
        lambda: eve.undo(marks[0]),
        lambda: eve.revise(held.id, text=DOOR),
    ):
        with pytest.raises(AccessError, match="review"):
            act()

    assert hive.get(held.id).status == "quarantined"  # type: ignore[union-attr]


def test_what_others_confirmed_keeps_its_words_and_what_they_dispute_its_doubt(hive: Hive) -> None:
    mine = hive.agent("ana").remember(DOOR).memory
    hive.agent("bob").confirm(mine.id)
    hive.agent("cy").dispute(mine.id, "cy")

    with pytest.raises(AccessError, match="others confirmed"):
        hive.agent("ana").revise(mine.id, text=LIE)
    with pytest.raises(AccessError, match="others dispute"):
        hive.agent("ana").revise(mine.id, confidence=1.0)
    hive.agent("ana").revise(mine.id, tags=["doors"])


@pytest.fixture(params=["sync", "gossip", "import", "announcement"])
def bring(request: pytest.FixtureRequest, tmp_path: Any) -> Callable[[Hive, Bank], None]:
    """The ways by which events of others enter."""

    def enter(hive: Hive, bank: Bank) -> None:
        if request.param == "sync":
            sync(hive, bank)
        elif request.param == "gossip":
            Gossip({"there": bank, hive.name: hive}).round()
        elif request.param == "import":
            bank.export(tmp_path / "all.jsonl")
            hive.agent("fay").import_(tmp_path / "all.jsonl")
        else:
            frame = FactsChanged(events=tuple(bank.events()))
            told = Envelope(subject="hive.there.events", frame=frame, path=("there",))
            Orchestrator(hive, "ana").process_event(told)

    return enter


def test_no_way_in_leads_around_the_owner_rule(
    hive: Hive, bring: Callable[[Hive, Bank], None], clock: Any
) -> None:
    theirs = hive.agent("ana").remember(DOOR, confidence=0.8).memory
    before = standing(hive, theirs)
    with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as bank:
        bank.apply(hive.events_in({theirs.id.rpartition("-")[0]: ((1, 1 << 40),)}), partial=True)
        clock.now += 5
        own = bank.remember("The south gate opens at nine.").memory
        bank.revise(theirs.id, text=LIE)
        bank.dispute(theirs.id, "somebody")
        for number in range(5):
            bank.learn(f"door {number}", "failure", used=[theirs.id])
            bank.confirm(theirs.id, by=f"witness {number}")
        bank.supersede(theirs.id, own.id)
        bank.retract(theirs.id)
        bring(hive, bank)

    assert standing(hive, theirs) == before
    assert hive.get(theirs.id).confirmations == 0  # type: ignore[union-attr]


def test_no_way_in_leads_around_the_gate(hive: Hive, bring: Callable[[Hive, Bank], None], clock: Any) -> None:
    kept = hive.agent("ana").remember("Use ruff for linting the code", confidence=0.9).memory
    hive.agent("bob").confirm(kept.id)
    hive.trust.set("eve", 0.1)
    with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as bank:
        rival = bank.remember("Never use ruff for linting the code", agent="mallory").memory
        poison = bank.remember(LIE, agent="eve").memory
        bring(hive, bank)

    found = hive.get(rival.id)
    assert found is None or found.status == "quarantined"
    assert hive.get(poison.id) is None
    assert [hit.memory.id for hit in hive.recall("ruff linting")] == [kept.id]


def test_a_stranger_on_the_bus_places_no_events_and_sends_no_member_away(hive: Hive, clock: Any) -> None:
    theirs = hive.agent("ana").remember(DOOR).memory
    before, members = standing(hive, theirs), hive.layout.members
    at = stamp(clock) + (1 << 20)
    body = {"memory": theirs.id, "changes": {"text": LIE}}
    lie = Event(actor="lair", counter=1, hlc=at, kind="revise", body=body)
    for frame in (
        ShardStore(events=(lie,)),
        FactsChanged(events=(lie,)),
        MemberHello(member=members[0], actor="lair", step="leaves"),
    ):
        with hive.bus.as_member("mallory").inbox() as inbox:
            answers = inbox.take(inbox.ask(hive.subjects.ask, frame), wait=10.0)
        assert answers
        assert all("no member" in answer.frame.error for answer in answers)  # type: ignore[union-attr]

    assert standing(hive, theirs) == before
    assert hive.layout.members == members


def test_who_brought_a_memory_may_take_it_back(hive: Hive, clock: Any) -> None:
    with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as bank:
        stored = bank.remember("The canteen closes at three.").memory
        sync(hive, bank)
        assert hive.get(stored.id) is not None
        bank.retract(stored.id)
        sync(hive, bank)

    assert hive.get(stored.id).status == "retracted"  # type: ignore[union-attr]


def test_a_signed_owner_changes_its_memory_from_anywhere(make_hive: MakeHive, clock: Any) -> None:
    pytest.importorskip("nacl")
    ana, eve = Signer(b"a" * 32), Signer(b"e" * 32)
    ring = Keyring()
    hive = make_hive("flat", policy=STRICT, keyring=ring, signers={"ana": ana, "eve": eve})
    stored = hive.agent("ana").remember(DOOR).memory
    ring.add("laptop", ana.public, agents=("ana",))
    ring.add("lair", eve.public, agents=("eve",))
    body = {"memory": stored.id, "changes": {"text": "The north door opens at six.", "agent": "eve"}}
    at = stamp(clock) + (1 << 20)
    lie = Event(actor="lair", counter=1, hlc=at, kind="revise", body={"by": "eve", **body})
    borrowed = Event(actor="lair", counter=2, hlc=at, kind="revise", body={"by": "ana", **body})
    good = Event(actor="laptop", counter=1, hlc=at, kind="revise", body={"by": "ana", **body})

    taken = hive.apply([eve.signed(lie), eve.signed(borrowed)])
    assert {one.fault for one in taken.refused} == {"not its to change", "not its agent"}
    assert hive.get(stored.id).text == DOOR  # type: ignore[union-attr]
    assert not hive.apply([ana.signed(good)]).refused
    now = hive.get(stored.id)
    assert now is not None
    assert (now.text, now.agent) == ("The north door opens at six.", "ana")


# Independent witnesses


def test_five_thousand_copies_of_one_error_count_once(clock: Any) -> None:
    with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as bank:
        error = bank.remember(LIE).memory
        copies = bank.remember_many([{"text": LIE, "evidence": [error.id]} for _ in range(4999)])
        claim = bank.remember("Everybody may come in at night.", confidence=0.5).memory
        bank.support(claim.id, [error.id, *(one.memory.id for one in copies)])

        assert bank.get(claim.id).confidence == pytest.approx(0.525)
        bank.support(claim.id, [bank.remember("I came in at night.").memory.id])
        assert bank.get(claim.id).confidence == pytest.approx(0.525 + 0.05 * 0.475)


def test_who_has_it_from_the_same_source_is_no_witness(hive: Hive) -> None:
    error = hive.agent("eve").remember(LIE).memory
    for name in ("ana", "bob", "cy"):
        hive.agent(name).remember(LIE, evidence=[error.id])
    assert hive.get(error.id).confirmations == 0  # type: ignore[union-attr]

    hive.agent("dora").remember(LIE)
    assert hive.get(error.id).confirmations == 1  # type: ignore[union-attr]


def test_one_agents_many_sources_are_one_witness(hive: Hive) -> None:
    claim = hive.agent("ana").remember(DOOR, confidence=0.5).memory
    own = [hive.agent("eve").remember(f"I saw it open on day {n} at seven.").memory.id for n in range(5)]
    hive.agent("eve").support(claim.id, own)
    assert hive.get(claim.id).confidence == pytest.approx(0.525)  # type: ignore[union-attr]

    other = hive.agent("bob").remember("It was open when I came at ten past seven.").memory.id
    hive.agent("bob").support(claim.id, [other])
    assert hive.get(claim.id).confidence == pytest.approx(0.525 + 0.05 * 0.475)  # type: ignore[union-attr]


def test_provenance_shows_witnesses_and_dissent(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DOOR).memory
    hive.agent("bob").confirm(stored.id)
    hive.agent("eve").dispute(stored.id, "eve")
    told = hive.provenance(stored.id)

    assert (told.witnesses, told.dissent) == (("ana", "bob"), ("eve",))


# Any sequence of attacks

ATTACKS = st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 2)), max_size=12)


@settings(max_examples=25, deadline=None)
@given(attacks=ATTACKS, kind=st.sampled_from(["flat", "federated", "sharded"]))
def test_nothing_an_agent_does_in_any_order_moves_what_others_wrote(
    attacks: list[tuple[str, int]], kind: str
) -> None:
    names = GROUPS if kind == "federated" else AGENTS
    with getattr(Hive, kind)(names, policy=STRICT, embedder=EMBEDDER) as hive:
        theirs = [
            hive.agent("ana").remember(f"Gate {n} opens at {n + 6} o'clock sharp.").memory for n in range(3)
        ]
        own = hive.agent("eve").remember("The south gate opens at nine.").memory
        before = [standing(hive, memory) for memory in theirs]
        for verb, which in attacks:
            with pytest.raises(AccessError):
                VERBS[verb](hive.agent("eve"), theirs[which].id, own.id)

        assert [standing(hive, memory) for memory in theirs] == before
