"""Who wrote an event can be proved, and pretending is noticed."""

from __future__ import annotations

import builtins
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import InvalidInputError, MissingExtraError, SyncError
from skep.model import Event
from skep.replication.signatures import Keyring, Refused, Signer, canonical

pytest.importorskip("nacl")

ANA, MALLORY = Signer(b"a" * 32), Signer(b"m" * 32)


def event(actor: str = "ana", counter: int = 1, kind: str = "remember", **body: Any) -> Event:
    content = body or {"text": "x", "agent": "ana"}
    return Event(actor=actor, counter=counter, hlc=1 << 20, kind=kind, body=content)


@pytest.fixture
def ring() -> Keyring:
    made = Keyring()
    made.add("ana", ANA.public, agents=("ana",))
    return made


def never(memory: str) -> bool:
    return False


def test_a_signed_event_is_believed_wherever_it_arrives(ring: Keyring) -> None:
    signed = ANA.signed(event())
    arrived = msgspec.msgpack.decode(msgspec.msgpack.encode(signed), type=Event)

    assert ring.screen([arrived], forgotten=never) == ([arrived], [])


def test_the_position_in_the_local_log_is_not_signed() -> None:
    assert canonical(event()) == canonical(msgspec.structs.replace(event(), seq=9))


@given(st.sampled_from(["actor", "counter", "hlc", "kind", "body"]))
def test_changing_any_part_breaks_the_signature(part: str) -> None:
    ring = Keyring()
    ring.add("ana", ANA.public)
    ring.add("bob", ANA.public)
    other = {"actor": "bob", "counter": 2, "hlc": 1, "kind": "revise", "body": {"text": "y"}}
    changed = msgspec.structs.replace(ANA.signed(event()), **{part: other[part]})

    assert ring.fault(changed) == "forged"


def test_a_forged_author_is_refused_and_named(ring: Keyring) -> None:
    forged = MALLORY.signed(event())
    ring.add("mallory", MALLORY.public, agents=("mallory",))
    impostor = MALLORY.signed(event("mallory", text="x", agent="ana"))
    unsigned = event(counter=3)
    taken, refused = ring.screen([forged, impostor, unsigned], forgotten=never)

    assert taken == []
    assert refused == [
        Refused(event="ana-1", fault="forged"),
        Refused(event="mallory-1", fault="not its agent"),
        Refused(event="ana-3", fault="unsigned"),
    ]


def test_strangers_are_taken_unless_signatures_are_required() -> None:
    stranger = event("stranger")

    assert Keyring().fault(stranger) is None
    assert Keyring(required=True).fault(stranger) == "unknown actor"


def test_an_erased_event_is_taken_only_with_a_signed_forget(ring: Keyring) -> None:
    erased = Event(actor="ana", counter=1, hlc=5, kind="remember", body={})
    forget = ANA.signed(event("ana", 2, "forget", memories=["ana-1"]))

    assert ring.screen([erased], forgotten=never)[0] == []
    assert ring.screen([erased, forget], forgotten=never)[0] == [forget, erased]
    assert ring.screen([erased], forgotten=lambda memory: memory == "ana-1")[0] == [erased]


def test_new_text_cannot_hide_behind_an_old_forget(ring: Keyring) -> None:
    smuggled = event("ana", 1, text="poison", agent="ana")

    assert ring.screen([smuggled], forgotten=lambda memory: True)[0] == []


def test_a_second_key_for_the_same_actor_is_refused(ring: Keyring) -> None:
    with pytest.raises(SyncError, match="another key"):
        ring.add("ana", MALLORY.public)


def test_keys_and_seeds_of_the_wrong_length_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="32 bytes"):
        Signer(b"short")
    with pytest.raises(InvalidInputError, match="32 bytes"):
        Keyring().add("a", b"short")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("nacl"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(MissingExtraError, match=r"skep\[sign\]"):
        Signer(b"a" * 32)
