"""Nobody writes in the name of an agent that has a key: not by file, gossip, bus, announcement or at the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.bank.bank import Bank
from skep.errors import InvalidInputError, SyncError
from skep.hive.gossip import Gossip
from skep.hive.hive import Hive
from skep.hive.messages import Envelope, FactPromoted, FactsChanged, ShardStore, ShardStored
from skep.hive.orchestrator import Orchestrator
from skep.model import Event
from skep.replication.change_files import apply_changes, export_changes
from skep.replication.exchange import sync, take
from skep.replication.signatures import Keyring, Signer

from .conftest import EMBEDDER, MakeHive

pytest.importorskip("nacl")

ANA, BOB, EVE = Signer(b"a" * 32), Signer(b"b" * 32), Signer(b"e" * 32)
KEYS = {"ana": ANA, "bob": BOB}
KINDS = ("flat", "federated", "sharded")
LIE = "The backup key was moved to rack two."


def stamp(clock: Any) -> int:
    return int(clock() * 1000) << 16


def forged(clock: Any, actor: str = "stranger", counter: int = 1, **body: Any) -> Event:
    content = {"text": LIE, "agent": "ana", "kind": "fact", **body}
    return Event(actor=actor, counter=counter, hlc=stamp(clock), kind="remember", body=content)


@pytest.fixture(params=KINDS)
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    """A hive where ana and bob sign."""
    return make_hive(request.param, keyring=Keyring(), signers=KEYS)


def known(hive: Hive, event: Event) -> bool:
    return hive.get(event.id) is not None


def test_every_agent_signs_its_own_memories_in_every_layout(hive: Hive, clock: Any) -> None:
    for name in ("ana", "bob"):
        stored = hive.agent(name).remember(f"Server {name} stands in the cellar.", confidence=0.95).memory
        (event,) = [e for e in hive.members.events_of([stored.id]) if e.kind == "remember"]
        other = {"ana": BOB, "bob": ANA}[name]

        assert hive.provenance(stored.id).signed
        assert hive.keyring.fault(event) is None  # type: ignore[union-attr]
        assert hive.keyring.fault(other.signed(event)) in ("forged", "not its agent")  # type: ignore[union-attr]


def test_a_confirmation_in_the_name_of_another_is_refused(hive: Hive, clock: Any) -> None:
    stored = hive.agent("cy").remember(LIE).memory
    with pytest.raises(InvalidInputError, match="cannot confirm for 'bob'"):
        hive.agent("cy").confirm(stored.id, by="bob")
    body = {"memory": stored.id, "by": "bob"}
    false = Event(actor="stranger", counter=1, hlc=stamp(clock), kind="confirm", body=body)
    taken = hive.apply([false])

    assert [refused.fault for refused in taken.refused][:1] == ["unknown actor"]
    assert hive.get(stored.id).confirmations == 0  # type: ignore[union-attr]


def test_forgeries_are_refused_wherever_they_enter(hive: Hive, clock: Any, tmp_path: Path) -> None:
    """By file, by gossip, over the bus, by announcement, and from the hive's own banks."""
    own = hive.members.registers.bank.actor
    for event in (forged(clock), forged(clock, own, 900), EVE.signed(forged(clock, own, 901))):
        assert hive.apply([event]).refused, event
        assert not known(hive, event)
    told = Orchestrator(hive, "ana").process_event(
        Envelope(
            subject="hive.x.events",
            frame=FactPromoted(memory="stranger-1", events=(forged(clock),)),
            path=("x",),
        )
    )
    assert told.effect == "refused"
    assert "unknown actor" in told.reason
    stored = hive.calls.ask(ShardStore(events=(forged(clock),)), ShardStored)
    assert {fault for one in stored.answers.values() for fault in one.refused.values()} == {"unknown actor"}
    with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as bank:
        take(bank, [forged(clock)])
        Gossip({"bank": bank, hive.name: hive}).round()
        path = tmp_path / "changes"
        export_changes(bank, path)
    assert apply_changes(hive, path)[0].refused
    assert not known(hive, forged(clock))


def test_a_bank_with_a_keyring_refuses_forgeries_by_gossip_sync_and_bus(banks: Any, clock: Any) -> None:
    ring = Keyring()
    ring.add("anas-bank", ANA.public, agents=("ana",))
    source = banks()
    take(source, [forged(clock)])
    for _ in range(2):
        target = banks()
        Gossip({"a": source, "b": target}, keyring=ring).round()
        assert not list(target.find())
    target = banks()
    done = sync(source, target, keyring=ring)
    assert [refused.fault for refused in done.sent.refused] == ["unknown actor"]
    assert not done.equal


def test_refused_events_do_not_hold_up_those_behind_them(banks: Any, clock: Any) -> None:
    source, target = banks(), banks()
    take(source, [forged(clock, counter=n) for n in range(1, 8)])
    source.remember("The coffee machine stands in the hall.")
    ring = Keyring()
    ring.add("anas-bank", ANA.public, agents=("ana",))
    done = sync(target, source, keyring=ring, batch=2)

    assert len(done.received.refused) == 7
    assert [memory.text for memory in target.find()] == ["The coffee machine stands in the hall."]


def test_a_stranger_cannot_change_what_a_signed_bank_wrote(hive: Hive, clock: Any) -> None:
    stored = hive.agent("ana").remember("The coffee machine stands in the hall.", confidence=0.95).memory
    for number, (kind, body) in enumerate(
        {
            "revise": {"memory": stored.id, "changes": {"text": LIE}},
            "retract": {"memory": stored.id, "seen": [stored.id]},
            "forget": {"memories": [stored.id]},
        }.items(),
        1,
    ):
        event = Event(actor="stranger", counter=number, hlc=stamp(clock), kind=kind, body=body)
        assert [refused.fault for refused in hive.apply([event]).refused][:1] == ["unknown actor"], kind

    assert hive.get(stored.id).text == "The coffee machine stands in the hall."  # type: ignore[union-attr]


def test_nobody_without_the_key_writes_as_an_agent_that_has_one(make_hive: MakeHive) -> None:
    ring = Keyring()
    ring.expect("ana", ANA.public)
    hive = make_hive("flat", keyring=ring)

    with pytest.raises(InvalidInputError, match="ana has a signing key"):
        hive.agent("ana").remember(LIE)
    stored = hive.agent("bob").remember(LIE).memory
    with pytest.raises(InvalidInputError, match="ana has a signing key"):
        hive.agent("ana").retract(stored.id)


def test_an_unsigned_event_cannot_hide_a_living_memory_behind_a_forgotten_one(clock: Any) -> None:
    ring = Keyring()
    ring.add("ana", ANA.public, agents=("ana",))
    body = {"old": "ana-1", "new": "ana-2"}
    event = Event(actor="ana", counter=5, hlc=stamp(clock), kind="supersede", body=body)

    assert ring.screen([event], forgotten=lambda memory: memory == "ana-2")[0] == []
    assert ring.screen([event], forgotten=lambda memory: True)[0] == [event]


def test_registers_are_written_only_by_whom_they_belong_to(hive: Hive, clock: Any) -> None:
    raised = {"key": "trust/eve", "value": 2.0}
    hive.trust.set("eve", 0.0)
    strange = Event(actor="stranger", counter=1, hlc=stamp(clock) + 99, kind="setting", body=raised)
    hive.apply([strange])
    Orchestrator(hive, "ana").process_event(
        Envelope(subject="hive.x.events", frame=FactsChanged(events=(strange,)), path=("x",))
    )
    with pytest.raises(InvalidInputError, match="belongs to the hive"):
        hive.agent("bob").set_setting("trust/eve", 2.0)

    assert hive.trust.of("eve") == 0.0


def test_an_agent_of_a_shard_cannot_write_registers_with_its_key(make_hive: MakeHive, clock: Any) -> None:
    hive = make_hive("sharded", keyring=Keyring(), signers=KEYS)
    actor = hive.members["bob"].bank.actor
    body = {"key": "trust/bob", "value": 2.0}
    event = Event(actor=actor, counter=50, hlc=stamp(clock), kind="setting", body=body)

    assert hive.keyring.fault(BOB.signed(event)) == "not its register"  # type: ignore[union-attr]


def test_members_without_keys_are_believed_inside_their_hive_alone(hive: Hive, clock: Any) -> None:
    member = hive.member_of("cy")
    event = forged(clock, member.bank.actor, 900, agent="cy")

    assert [refused.fault for refused in hive.apply([event]).refused][:1] == ["unsigned"]
    assert not known(hive, event)
    assert not member.take([event]).refused


# Keys that change


def test_a_new_key_takes_over_and_the_old_one_is_worth_nothing_any_more() -> None:
    ring = Keyring()
    ring.add("bank", ANA.public, agents=("ana",))
    before = ANA.signed(Event(actor="bank", counter=7, hlc=1 << 20, kind="remember", body={"agent": "ana"}))
    ring.rotate("bank", BOB.public, after=7)
    after = msgspec.structs.replace(before, counter=8, signature=None)

    assert ring.fault(before) is None
    assert ring.fault(BOB.signed(after)) is None
    assert ring.fault(ANA.signed(after)) == "retired key"
    assert ring.fault(BOB.signed(msgspec.structs.replace(before, counter=3))) == "retired key"
    assert ring.fault(EVE.signed(after)) == "forged"
    with pytest.raises(SyncError, match="no key that could be replaced"):
        ring.rotate("nobody", BOB.public, after=1)


def test_agents_of_one_bank_change_their_keys_one_by_one() -> None:
    ring = Keyring()
    ring.add("bank", ANA.public, agents=("ana",))
    ring.add("bank", BOB.public, agents=("bob",))
    ring.rotate("bank", EVE.public, after=3, agents=("bob",))
    event = Event(actor="bank", counter=4, hlc=1 << 20, kind="remember", body={"agent": "bob"})

    assert ring.fault(EVE.signed(event)) is None
    assert ring.fault(BOB.signed(event)) == "retired key"
    assert ring.fault(ANA.signed(event)) == "not its agent"


def test_earlier_keys_of_an_expected_agent_count_for_what_they_signed() -> None:
    ring = Keyring()
    ring.expect("ana", BOB.public, before=[(ANA.public, 5)])
    old = Event(actor="bank", counter=5, hlc=1 << 20, kind="remember", body={"agent": "ana"})
    new = msgspec.structs.replace(old, counter=6)

    assert ring.fault(ANA.signed(old)) is None
    assert ring.fault(BOB.signed(new)) is None
    assert ring.fault(ANA.signed(new)) == "retired key"
