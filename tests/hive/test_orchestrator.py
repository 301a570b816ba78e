"""One agent's whole day: learning, asking, following events, gossiping."""

from __future__ import annotations

import random

import msgspec
import pytest

from skep.hive.bus.in_process import LocalBus
from skep.hive.gateway import PromotionPolicy, Standing
from skep.hive.hive import Hive
from skep.hive.messages import (
    AgentOnline,
    AgentProgress,
    AgentReady,
    AgentShutdown,
    Envelope,
    FactPromoted,
    FeedComplete,
    Frame,
    LearnContent,
    Query,
    QueryResponse,
)
from skep.hive.orchestrator import Orchestrator
from skep.model import Memory

from .conftest import MakeHive

CAT, DOG = "The cat sleeps on the red mat.", "The dog sleeps in the long hall."


@pytest.fixture
def two(make_hive: MakeHive) -> tuple[Hive, Hive]:
    """Two hives on one bus."""
    bus = LocalBus()
    return make_hive("flat", name="one", bus=bus), make_hive("sharded", name="two", bus=bus)


def said(frame: Frame, subject: str = "hive.x.feed.all", path: tuple[str, ...] = ()) -> Envelope:
    return Envelope(subject=subject, frame=frame, path=path)


def test_what_is_stored_is_promoted_by_the_policy(make_hive: MakeHive) -> None:
    class NoCats(PromotionPolicy):
        def reject(self, memory: Memory, standing: Standing) -> list[str]:
            return ["no cats"] if "cat" in memory.text else super().reject(memory, standing)

    orchestrator = Orchestrator(make_hive("sharded", rules=NoCats()), "ana")

    assert orchestrator.store_and_promote(CAT).decision.why() == "rejected: no cats"
    assert orchestrator.store_and_promote(DOG).decision.verdict == "promoted"


def test_one_question_asks_own_memories_the_hive_and_its_peers(two: tuple[Hive, Hive]) -> None:
    one, other = two
    orchestrator = Orchestrator(one, "ana", peers={"two": other})
    orchestrator.store_and_promote("sleep")
    one.agent("bob").remember(CAT)
    other.agent("cy").remember(DOG)
    answer = orchestrator.query_unified("who sleeps", limit=5)

    assert {hit.memory.text for hit in answer} == {"sleep", CAT, DOG}
    assert answer.completeness == 1.0
    assert answer.asked == 7


def test_promotions_of_one_hive_are_followed_by_another(two: tuple[Hive, Hive]) -> None:
    one, other = two
    speaker, listener = Orchestrator(one, "ana"), Orchestrator(other, "bob")
    stored = speaker.store_and_promote(CAT).memory
    drained = listener.drain_events()

    assert drained.effects["applied"] >= 1
    assert other.agent("fay").get(stored.id).agent == "ana"
    speaker.bank.retract(stored.id, "it woke up")
    listener.drain_events()
    assert other.agent("fay").get(stored.id).status == "retracted"


def test_events_are_processed_once_and_never_echo(two: tuple[Hive, Hive]) -> None:
    one, other = two
    speaker, listener = Orchestrator(one, "ana"), Orchestrator(other, "bob")
    speaker.store_and_promote(CAT)
    listener.drain_events()
    for _ in range(3):
        speaker.drain_events()
        listener.drain_events()

    assert listener.drain_events().left == 0
    assert len(list(one.members.registers.bank.events())) == 1


def test_an_untrusted_author_of_another_hive_is_not_taken(two: tuple[Hive, Hive]) -> None:
    one, other = two
    speaker, listener = Orchestrator(one, "ana"), Orchestrator(other, "bob")
    other.trust.set("ana", 0.1)
    stored = speaker.store_and_promote(CAT).memory
    drained = listener.drain_events()

    assert drained.effects["refused"] == 1
    assert other.get(stored.id) is None


def test_empty_talk_of_another_hive_is_refused(make_hive: MakeHive) -> None:
    orchestrator = Orchestrator(make_hive("flat", name="here"), "ana")
    bank = make_hive("flat", name="there").members.registers.bank
    talk = bank.remember("ok").memory
    events = tuple(bank.history(talk.id))
    done = orchestrator.process_event(said(FactPromoted(memory=talk.id, events=events), path=("there",)))
    empty = orchestrator.process_event(said(FactPromoted(memory="x-1", events=()), path=("there",)))

    assert done.effect == "refused"
    assert empty.reason == "the event that made it is missing"


def test_a_feed_is_learnt_and_reported_when_it_is_complete(two: tuple[Hive, Hive]) -> None:
    one, _ = two
    orchestrator = Orchestrator(one, "ana")
    for n in range(3):
        one.bus.publish(
            orchestrator.feed, LearnContent(text=f"Server number {n} hums in the cellar."), id=f"f{n}"
        )
    one.bus.publish(orchestrator.feed, LearnContent(text="Server number 0 hums in the cellar."), id="f0")
    one.bus.publish("hive.one.feed.all", FeedComplete(expected={"ana": 3, "bob": 1}))
    orchestrator.drain_events()
    orchestrator.drain_events()

    assert orchestrator.learnt == 3
    assert orchestrator.roster["ana"] == "ready, 3 learnt"


def test_an_incomplete_feed_reports_progress(make_hive: MakeHive) -> None:
    orchestrator = Orchestrator(make_hive("flat"), "ana")
    done = orchestrator.process_event(said(FeedComplete(expected={"ana": 2}), subject="hive.hive.feed.all"))

    assert done.reply == AgentProgress(agent="ana", done=0, total=2)


def test_feeds_for_others_are_left_alone(make_hive: MakeHive) -> None:
    orchestrator = Orchestrator(make_hive("flat"), "ana")
    done = orchestrator.process_event(said(LearnContent(text=CAT), subject="hive.hive.feed.bob"))

    assert done.effect == "ignored"
    assert orchestrator.learnt == 0


def test_the_roster_follows_who_comes_and_goes(make_hive: MakeHive) -> None:
    orchestrator = Orchestrator(make_hive("flat"), "ana")
    frames: list[Frame] = [
        AgentOnline(agent="bob"),
        AgentProgress(agent="cy", done=1, total=3),
        AgentReady(agent="dora", learnt=3),
        AgentShutdown(agent="eve", reason="tired"),
        QueryResponse(agent="fay"),
    ]
    effects = [orchestrator.process_event(said(frame)).effect for frame in frames]

    assert effects == ["applied"] * 4 + ["ignored"]
    assert orchestrator.roster == {
        "bob": "online",
        "cy": "1 of 3 learnt",
        "dora": "ready, 3 learnt",
        "eve": "gone: tired",
    }


def test_questions_are_answered_in_a_frame(make_hive: MakeHive) -> None:
    orchestrator = Orchestrator(make_hive("sharded"), "ana")
    stored = orchestrator.store_and_promote(CAT).memory
    done = orchestrator.process_event(said(Query(query="who sleeps")))

    assert done.reply == QueryResponse(agent="ana", hits=((stored.id, CAT),), completeness=1.0)


def test_a_gossip_round_brings_peers_together(two: tuple[Hive, Hive]) -> None:
    one, other = two
    orchestrator = Orchestrator(one, "ana", peers={"two": other}, rng=random.Random(1))
    orchestrator.store_and_promote(CAT)
    other.agent("bob").remember(DOG)
    done = orchestrator.run_gossip_round()

    assert done.convergence == 1.0
    assert len(other.agent("fay").recall("who sleeps")) == 2


def test_an_event_that_cannot_be_taken_is_delivered_again_and_then_set_aside(
    two: tuple[Hive, Hive], monkeypatch: pytest.MonkeyPatch
) -> None:
    from skep.errors import BusyError

    one, other = two
    speaker, listener = Orchestrator(one, "ana"), Orchestrator(other, "bob")
    listener.drain_events()
    speaker.store_and_promote(CAT)

    def busy(*args: object, **kwargs: object) -> None:
        raise BusyError("try again")

    monkeypatch.setattr(other.placement, "apply_via", busy)
    failures = [listener.drain_events().failed for _ in range(7)]

    assert failures == [1, 1, 1, 1, 1, 0, 0]
    assert len(listener._consumer.dead) == 1
    assert msgspec.structs.asdict(listener.drain_events())["left"] == 0
