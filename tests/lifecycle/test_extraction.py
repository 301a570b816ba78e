"""From episodes to facts: each fact stands on the very episodes that say it, and the newest value wins."""

from __future__ import annotations

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import StaticEmbedder
from skep.lifecycle.maintain import STEPS, MaintainConfig
from skep.model import Memory


def tell(bank: Bank, clock: Clock, *texts: str, **fields: object) -> list[Memory]:
    """Store episodes a minute apart."""
    stored: list[Memory] = []
    for text in texts:
        stored.append(bank.remember(text, kind="episode", on_conflict="ignore", **fields).memory)  # type: ignore[arg-type]
        clock.pass_seconds(60)
    return stored


def facts(bank: Bank) -> dict[str, Memory]:
    return {fact.text: fact for fact in bank.find(kind="fact")}


OLD = ("The staging database runs Postgres 14", "As seen today, the staging database runs Postgres 14")
NEW = ("The staging database runs Postgres 16", "As seen today, the staging database runs Postgres 16")


def test_a_new_value_is_a_new_fact_and_replaces_the_old_one(bank: Bank, clock: Clock) -> None:
    old = tell(bank, clock, *OLD)
    bank.maintain()
    first = facts(bank)[OLD[0]]
    clock.pass_days(30)
    new = tell(bank, clock, *NEW)
    bank.maintain()

    assert set(facts(bank)) == {NEW[0]}
    assert set(facts(bank)[NEW[0]].evidence) == {each.id for each in new}
    assert facts(bank)[NEW[0]].created_at == new[-1].created_at
    again = bank.get(first.id)
    assert (again.status, again.superseded_by) == ("superseded", facts(bank)[NEW[0]].id)
    assert (set(again.evidence), again.confidence) == ({each.id for each in old}, first.confidence)


def test_all_at_once_the_newest_value_is_the_fact(bank: Bank, clock: Clock) -> None:
    tell(bank, clock, *OLD)
    new = tell(bank, clock, *NEW)
    bank.maintain(MaintainConfig(steps=("embed", "extract")))
    assert {text: set(fact.evidence) for text, fact in facts(bank).items()} == {
        NEW[0]: {each.id for each in new}
    }


def test_what_the_newest_episode_contradicts_is_no_fact(bank: Bank, clock: Clock) -> None:
    tell(bank, clock, *OLD, NEW[0])
    bank.maintain()
    assert facts(bank) == {}


def test_who_goes_back_to_an_old_value_makes_it_the_fact_again(bank: Bank, clock: Clock) -> None:
    for texts in (OLD, NEW, OLD):
        last = tell(bank, clock, *texts)
        bank.maintain()
        clock.pass_days(5)
    assert set(facts(bank)) == {OLD[0]}
    assert set(facts(bank)[OLD[0]].evidence) >= {each.id for each in last}


@pytest.mark.parametrize("cluster", ["threshold", "hdbscan"])
def test_who_says_the_opposite_is_no_evidence(bank: Bank, clock: Clock, cluster: str) -> None:
    if cluster == "hdbscan":
        pytest.importorskip("sklearn")
    tell(bank, clock, "The test suite passes on Windows", "The test suite does not pass on Windows")
    bank.maintain(MaintainConfig(steps=("embed", "extract", "evidence"), cluster=cluster))
    assert facts(bank) == {}


def test_a_value_told_once_each_makes_no_fact(bank: Bank, clock: Clock) -> None:
    tell(
        bank, clock, *(f"Thomas Kyd was born in the city of {city}." for city in ("London", "Leeds", "Bath"))
    )
    bank.maintain()
    assert facts(bank) == {}


def test_two_things_said_in_one_cluster_are_two_facts(bank: Bank, clock: Clock) -> None:
    texts = [f"The {city} office has 40 desks" for city in ("Berlin", "Munich")]
    told = {text: tell(bank, clock, text, f"Note: {text}") for text in texts}
    bank.maintain(MaintainConfig(steps=("embed", "extract")))
    assert {text: set(fact.evidence) for text, fact in facts(bank).items()} == {
        text: {each.id for each in sources} for text, sources in told.items()
    }


def test_the_occasion_does_not_keep_events_apart(bank: Bank, clock: Clock) -> None:
    told = tell(bank, clock, *(f"The backup to nas3 failed, attempt {n}" for n in range(3)))
    bank.maintain(MaintainConfig(steps=("embed", "extract")))
    assert {text: set(fact.evidence) for text, fact in facts(bank).items()} == {
        "The backup to nas3 failed": {each.id for each in told}
    }


def test_what_a_model_says_is_not_evidenced_by_who_contradicts_it(bank: Bank, clock: Clock) -> None:
    tell(bank, clock, *OLD)
    new = tell(bank, clock, *NEW)
    asked: list[list[str]] = []

    def distil(groups: object) -> list[str]:
        asked.extend(groups)  # type: ignore[arg-type]
        return ["The staging database runs Postgres 16"]

    bank.maintain(MaintainConfig(steps=("embed", "extract")), distil=distil)
    assert asked == [[*OLD, *NEW]]  # in the order they were told
    assert set(facts(bank)[NEW[0]].evidence) == {each.id for each in new}
    more = tell(bank, clock, "Seen again: the staging database runs Postgres 16", OLD[0])
    bank.maintain(MaintainConfig(steps=("embed", "extract")), distil=lambda groups: [None for _ in groups])
    assert set(facts(bank)[NEW[0]].evidence) == {each.id for each in (*new, more[0])}


@pytest.mark.parametrize("cluster", ["threshold", "hdbscan"])
def test_later_episodes_join_what_was_distilled_before(bank: Bank, clock: Clock, cluster: str) -> None:
    if cluster == "hdbscan":
        pytest.importorskip("sklearn")
    config = MaintainConfig(steps=("embed", "extract"), cluster=cluster)
    say = "The customer asked for invoices in PDF format"
    others = [f"Lunch on day {n} was {dish}" for n, dish in enumerate(("soup", "rice", "fish", "bread"))]
    first = tell(bank, clock, say, say + " again", say + " once more", *others)
    bank.maintain(config)
    assert set(facts(bank)[say].evidence) == {each.id for each in first[:3]}
    (more,) = tell(bank, clock, "Note: the customer asked for invoices in PDF format")
    report = bank.maintain(config)
    assert report.steps[-1].actions == (f"1 more episode says {say!r}",)
    assert more.id in facts(bank)[say].evidence


def test_a_dry_run_asks_no_model(bank: Bank, clock: Clock) -> None:
    say = "The customer asked for invoices in PDF format"
    tell(bank, clock, say, say + " again", say + " once more")
    asked: list[object] = []
    config = MaintainConfig(steps=("embed", "extract", "reflect"))
    report = bank.maintain(config, dry_run=True, distil=lambda groups: asked.append(groups) or [])  # type: ignore[func-returns-value]
    assert asked == []
    assert [step.actions for step in report.steps] == [
        (),
        (f"3 episodes to be distilled, such as {say!r}",),
        (f"3 episodes to be summed up, such as {say!r}",),
    ]


def test_a_model_that_fails_stops_its_steps_alone_and_is_asked_again(bank: Bank, clock: Clock) -> None:
    say = "The customer asked for invoices in PDF format"
    tell(bank, clock, say, say + " again", say + " once more")
    over = bank.remember("The lease ends", ttl=5).memory
    clock.pass_seconds(10)

    def fails(groups: object) -> list[str]:
        raise OSError("no route to the model")

    config = MaintainConfig(steps=STEPS)
    notes = {step.step: step.note for step in bank.maintain(config, distil=fails).steps}
    told = "distil failed (OSError: no route to the model); the next run asks again"
    assert (notes["extract"], notes["reflect"]) == (told, told)
    assert bank.get(over.id).status == "expired"

    bank.maintain(config, distil=lambda groups: ["The customer wants PDF invoices" for _ in groups])
    assert {memory.text for memory in bank.find()} == {"The customer wants PDF invoices"}
    assert bank.maintain(config).changed == 0


class Slow(StaticEmbedder):
    """An embedder whose vectors come later."""

    @property
    def instant(self) -> bool:
        return False


def test_what_is_extracted_is_seen_by_the_steps_after_it_also_with_a_slow_embedder(clock: Clock) -> None:
    with Bank.open(":memory:", embedder=Slow(), now=clock) as bank:
        for texts in (OLD, NEW):
            tell(bank, clock, *texts)
            bank.maintain()
            clock.pass_days(1)
        assert set(facts(bank)) == {NEW[0]}
        bank.maintain()
        assert bank.maintain().changed == 0


def test_small_talk_requests_and_what_holds_today_only_become_no_facts(bank: Bank, clock: Clock) -> None:
    turns = (
        "Ana: Thanks, Bob!", "Bob: Sounds good!", "user: run the tests", "I am tired", "It is raining today",
        "He works at Google", "I'll start tracking my progress", "[shares a photo: a sunset over the sea]",
    )  # fmt: skip
    tell(bank, clock, *turns, *turns)
    tell(bank, clock, "Hi! This repo uses pnpm. Let me know!", "Sure, done. This repo uses pnpm. Thanks!")
    bank.maintain(MaintainConfig(steps=("embed", "extract")))
    assert set(facts(bank)) == {"This repo uses pnpm."}


def test_a_convention_that_a_user_states_once_is_a_fact(bank: Bank, clock: Clock) -> None:
    (stated, *_) = tell(
        bank,
        clock,
        "User: we use pnpm here, not npm. Can you install lodash?\nAssistant: Installed it with pnpm.",
        "User: where are the keys?\nAssistant: We always use Vault for keys.",
        "User: please run the tests\nAssistant: All of them pass.",
    )
    bank.maintain()
    assert {text: fact.evidence for text, fact in facts(bank).items()} == {
        "We use pnpm here, not npm.": (stated.id,)
    }

    tell(bank, clock, "User: we use pnpm here, not npm! Fix the lockfile please.\nAssistant: Fixed.")
    bank.maintain()
    assert list(facts(bank)) == ["We use pnpm here, not npm."]


def test_who_speaks_of_themselves_is_named_in_the_fact(bank: Bank, clock: Clock) -> None:
    tell(bank, clock, "user: I live in Oslo with my cat.", "user: Right. I live in Oslo with my cat.")
    bank.maintain()
    assert list(facts(bank)) == ["The user lives in Oslo with the user's cat."]


def test_what_two_people_say_of_themselves_is_not_one_fact(bank: Bank, clock: Clock) -> None:
    said = "I moved to Berlin in May and work from home."
    told = tell(bank, clock, *(f"{who}: Right. {said}" for who in ("Ana", "Bob", "Ana", "Bob")))
    bank.maintain(MaintainConfig(steps=("embed", "extract")))
    assert {text: set(fact.evidence) for text, fact in facts(bank).items()} == {
        f"{who} moved to Berlin in May and works from home.": {told[n].id, told[n + 2].id}
        for n, who in enumerate(("Ana", "Bob"))
    }


def test_episodes_that_were_revised_are_no_evidence_of_what_they_said_before(
    bank: Bank, clock: Clock
) -> None:
    both = tell(bank, clock, *OLD)
    bank.maintain()
    (old,) = facts(bank).values()
    for episode, text in zip(both, NEW, strict=True):
        bank.revise(episode.id, text=text)
    plan = bank.maintain(dry_run=True)
    assert f"2 episodes of {OLD[0]!r} say something else now" in plan.steps[1].actions
    bank.maintain()
    assert {text: set(fact.evidence) for text, fact in facts(bank).items()} == {NEW[0]: {e.id for e in both}}
    assert (bank.get(old.id).status, bank.get(old.id).evidence) == ("deprecated", ())
    assert bank.maintain().events == 0


def test_a_fact_keeps_the_episodes_that_still_say_it(bank: Bank, clock: Clock) -> None:
    told = tell(bank, clock, *OLD, f"Seen again: {OLD[0]}")
    bank.maintain()
    bank.revise(told[0].id, text=NEW[0])
    bank.maintain()
    assert set(facts(bank)[OLD[0]].evidence) == {told[1].id, told[2].id}
