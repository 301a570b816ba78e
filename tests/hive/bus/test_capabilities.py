"""What a token allows, and everything it does not: refused with the reason."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from tests.hub.nats_server import Server

from skep.errors import InvalidInputError
from skep.filters import Filter
from skep.hive.capabilities import Issuer, Pass, RefusedError, Sealed, operation_of, read_token
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.messages import (
    Ask,
    Envelope,
    FactRetracted,
    Fetched,
    Frame,
    MemberHello,
    ShardFetched,
    ShardFind,
    ShardQuery,
    ShardStore,
    StatusQuery,
)
from skep.model import Event, Memory, Scope
from skep.replication.signatures import Signer

ASK = "hive.team.ask"
TIME = 1_750_000_000.0
Make = Callable[..., Pass]


class Clock:
    now = TIME

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def issuer(clock: Clock) -> Issuer:
    return Issuer(secrets.token_bytes(32), now=clock)


@pytest.fixture
def make(issuer: Issuer, clock: Clock) -> Make:
    """A pass for some members."""

    def granted(*actors: str, revoked: Any = (), hive: str = "team", **options: Any) -> Pass:
        seed = secrets.token_bytes(32)
        token = issuer.grant(hive, actors, Signer(seed).public, **options)
        return Pass(issuer.public, seed, token, revoked=revoked, now=clock)

    return granted


def met(*passes: Pass) -> None:
    """Everybody introduces itself to everybody."""
    shown = {f"p{n}": one.introduction(f"p{n}") for n, one in enumerate(passes)}
    for n, one in enumerate(passes):
        for process, introduction in shown.items():
            if process != f"p{n}":
                one.meet(process, introduction, {})


def frame(body: Frame, sender: str = "ana", subject: str = ASK) -> Envelope:
    return Envelope(subject=subject, frame=body, sender=sender)


def query(scope: Scope | None = None) -> Frame:
    return ShardQuery(ask=Ask(where=Filter(scope=scope)))


def refused(reader: Pass, data: bytes) -> str:
    with pytest.raises(RefusedError) as caught:
        reader.open(data, ASK)
    return caught.value.reason


def stored(kind: str = "remember", **body: Any) -> Event:
    return Event(actor="a", counter=1, hlc=1, kind=kind, body=body)


def test_what_a_token_allows_is_heard_by_everybody(make: Make) -> None:
    ana, bob, cy = make("ana"), make("bob"), make("cy")
    met(ana, bob, cy)
    data = ana.seal(frame(query()))

    assert bob.open(data, ASK) == cy.open(data, ASK) == frame(query())
    assert ana.open(data, ASK) == frame(query()), "a process hears its own questions, too"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (frame(query(), sender="bob"), "speaks for ana, not for bob"),
        (frame(query(), subject="hive.others.ask"), "is for hive team"),
        (frame(FactRetracted(memory="a-1", events=(), forgotten=True)), "does not allow 'forget'"),
        (frame(ShardStore(events=(stored("forget", memories=["a-1"]),))), "does not allow 'forget'"),
        (frame(MemberHello(member="ana", actor="x", step="joins")), "does not allow 'join'"),
    ],
)
def test_anything_else_is_refused_with_the_reason(make: Make, said: Envelope, reason: str) -> None:
    ana, bob = make("ana"), make("bob")
    met(ana, bob)

    assert reason in refused(bob, ana.seal(said))


def test_every_operation_can_be_allowed_and_withheld(make: Make) -> None:
    frames: dict[str, Envelope] = {
        "recall": frame(query()),
        "answer": frame(ShardFetched(found=Fetched()), subject="_INBOX.p1.1"),
        "write": frame(ShardStore(events=(stored(text="x"),))),
        "forget": frame(ShardStore(events=(stored("forget", memories=["a-1"]),))),
        "join": frame(MemberHello(member="ana", actor="x", step="joins")),
    }
    assert {name: operation_of(one) for name, one in frames.items()} == {name: name for name in frames}
    for name, one in frames.items():
        ana, bob, other = (
            make("ana", operations=[name]),
            make("bob"),
            make("ana", operations=set(frames) - {name}),
        )
        met(ana, bob, other)
        assert bob.open(ana.seal(one), ASK) == one
        assert f"does not allow {name!r}" in refused(bob, other.seal(one))


def test_a_scope_holds_for_questions_writes_and_what_is_fetched(make: Make) -> None:
    mine, theirs = Scope(user="ana"), Scope(user="bob")
    ana, bob = make("ana", scope=mine), make("bob")
    met(ana, bob)
    assert bob.open(ana.seal(frame(query(mine))), ASK)
    for wrong in (query(theirs), query(None), ShardFind(where=Filter(), limit=1), StatusQuery()):
        assert "for another scope" in refused(bob, ana.seal(frame(wrong)))
    assert bob.open(ana.seal(frame(ShardStore(events=(stored(text="x", scope={"user": "ana"}),)))), ASK)
    assert "another scope" in refused(bob, ana.seal(frame(ShardStore(events=(stored(text="x"),)))))

    memories = tuple(
        Memory(id=f"a-{n}", kind="fact", text="x", scope=s) for n, s in enumerate((mine, theirs))
    )
    answer = ShardFetched(found=Fetched(memories=memories), events=(stored(text="x"),))
    heard = ana.open(bob.seal(frame(answer, sender="bob", subject="_INBOX.p0.1")), "")
    assert isinstance(heard.frame, ShardFetched)
    assert [memory.id for memory in heard.frame.found.memories] == ["a-0"]
    assert heard.frame.events == ()


def test_a_frame_that_was_recorded_is_not_taken_again(make: Make) -> None:
    ana, bob = make("ana"), make("bob")
    met(ana, bob)
    first, second = ana.seal(frame(query())), ana.seal(frame(query()))
    bob.open(second, ASK)
    bob.open(first, ASK)  # they may overtake each other

    assert "was replayed" in refused(bob, first)
    assert "was replayed" in refused(bob, second)


def test_a_frame_that_was_changed_sent_on_or_not_sealed_is_not_taken(make: Make) -> None:
    ana, bob, eve = make("ana"), make("bob"), make("eve")
    met(ana, bob, eve)
    data = ana.seal(frame(query()))
    sealed = msgspec.msgpack.decode(data, type=Sealed)
    changed = Sealed(sealed.process, sealed.number, sealed.tags, sealed.data.replace(b"ana", b"bob"))
    for lie in (
        changed,
        Sealed("p2", sealed.number, sealed.tags, sealed.data),
        Sealed(sealed.process, sealed.number + 1, sealed.tags, sealed.data),
        Sealed(sealed.process, sealed.number, {}, sealed.data),
        Sealed("p1", sealed.number, sealed.tags, sealed.data),  # as if it were the reader's own
    ):
        assert "is wrong" in refused(bob, msgspec.msgpack.encode(lie))
    assert "no seal" in refused(bob, b"nonsense")


def test_a_token_is_good_only_from_its_issuer_for_its_holder_and_until_it_ends(
    make: Make, issuer: Issuer, clock: Clock
) -> None:
    ana, bob = make("ana", hours=1), make("bob")
    met(ana, bob)
    bob.open(ana.seal(frame(query())), ASK)
    clock.now += 3601
    assert "expired" in refused(bob, ana.seal(frame(query())))

    seed = secrets.token_bytes(32)
    stranger = Issuer(secrets.token_bytes(32), now=clock).grant("team", ["eve"], Signer(seed).public)
    with pytest.raises(RefusedError, match="not signed by the issuer"):
        Pass(issuer.public, seed, stranger)
    token = issuer.grant("team", ["ana"], Signer(seed).public)
    with pytest.raises(RefusedError, match="another key"):
        Pass(issuer.public, secrets.token_bytes(32), token)
    raw = bytearray(base64.urlsafe_b64decode(token))
    raw[-1] ^= 1
    with pytest.raises(RefusedError, match="not signed"):
        read_token(base64.urlsafe_b64encode(raw), issuer.public)


def test_an_introduction_that_was_recorded_gives_its_thief_nothing(make: Make) -> None:
    ana, bob, eve = make("ana"), make("bob"), make("eve")
    met(ana, bob, eve)
    with pytest.raises(RefusedError, match="does not hold it"):
        bob.meet("p9", ana.introduction("p0"), {})
    assert "not shown a token" in refused(bob, msgspec.msgpack.encode(Sealed("p9", 1, {}, b"")))


def test_a_revoked_token_counts_no_more(make: Make) -> None:
    ana = make("ana")
    bob = make("bob", revoked=[ana.grant.nonce])
    met(ana, bob)

    assert "revoked" in refused(bob, ana.seal(frame(query())))


def test_what_is_spent_is_counted_over_all_members(make: Make) -> None:
    ana, bob, cy = make("ana", spend=5), make("bob"), make("cy")
    met(ana, bob, cy)
    for _ in range(3):
        bob.open(ana.seal(frame(query())), ASK)
    for _ in range(2):
        cy.meet("p1", bob.introduction("p1"), bob.told_spent())
        cy.open(ana.seal(frame(query())), ASK)

    assert "spent its 5 frames" in refused(cy, ana.seal(frame(query())))
    bob.open(ana.seal(frame(query())), ASK)  # it has not heard of it yet
    bob.meet("p2", cy.introduction("p2"), cy.told_spent())
    assert "spent its 5 frames" in refused(bob, ana.seal(frame(query())))


def test_nonsense_is_not_granted(issuer: Issuer) -> None:
    key = secrets.token_bytes(32)
    for wrong in ({"operations": ["fly"]}, {"hours": 0}, {"spend": 0}):
        with pytest.raises(InvalidInputError):
            issuer.grant("team", ["ana"], key, **wrong)
    with pytest.raises(InvalidInputError):
        issuer.grant("team", ["ana"], b"short")


@pytest.fixture
def own_server(tmp_path: Any) -> Iterator[Server]:
    made = Server(tmp_path / "nats")
    yield made
    made.close()


def test_a_hive_over_nats_answers_whoever_has_a_token_and_refuses_others(own_server: Server) -> None:
    issuer = Issuer(secrets.token_bytes(32))

    def credentials(*actors: str, **options: Any) -> Pass:
        seed = secrets.token_bytes(32)
        token = issuer.grant("team", actors, Signer(seed).public, **options)
        return Pass(issuer.public, seed, token)

    def opened(*local: str, policy: HivePolicy, capability: Pass | None) -> Hive:
        return Hive.sharded(
            ["ana", "bob", "eve"],
            name="team",
            bus=own_server.url,
            local=local,
            policy=policy,
            capability=capability,
        )

    patient = HivePolicy(replication=3, deadline=10.0, hedge_after=5.0)
    hasty = HivePolicy(replication=3, deadline=0.5, hedge_after=0.2)
    with (
        opened("bob", policy=patient, capability=credentials("bob")) as bob,
        opened("ana", policy=patient, capability=credentials("ana")) as ana,
    ):
        ana.agent("ana").remember("The gate code is 4711.", on_conflict="ignore")
        answer = ana.agent("ana").recall("gate code")
        assert answer[0].memory.text == "The gate code is 4711."
        assert (answer.answered, answer.missing) == (2, ("eve",))

        with opened("eve", policy=hasty, capability=credentials("eve", operations=["answer"])) as eve:
            told = eve.agent("eve").recall("gate code")
            assert not [hit for hit in told if "4711" in hit.memory.text]
            assert "does not allow 'recall'" in told.faults["bob"]
        with opened("eve", policy=hasty, capability=None) as stranger:
            assert not [hit for hit in stranger.agent("eve").recall("gate code") if "4711" in hit.memory.text]
        board: Any = bob.bus
        reasons = board._board.refused
        until = time.monotonic() + 20
        while not any("no seal" in reason for reason in reasons) and time.monotonic() < until:
            time.sleep(0.05)
        assert any("no seal" in reason for reason in reasons)
        assert any("does not allow 'recall'" in reason for reason in reasons)
