"""Maintenance keeps a bank clean, loses nothing, and changes nothing the second time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.errors import ConfigError, ForgottenError, InvalidInputError, JudgeError, NotFoundError
from skep.lifecycle.judge import Case, RulesJudge, Verdicts, prompt_for, read_answer
from skep.lifecycle.maintain import STEPS, MaintainConfig
from skep.model import STATUSES

ALL = MaintainConfig(steps=STEPS)


def everything(bank: Bank) -> dict[str, object]:
    return {m.id: m for m in bank.find(status=STATUSES, limit=10_000)}


def test_copies_are_merged_and_nothing_is_deleted(bank: Bank) -> None:
    first = bank.remember(
        "The staging database runs PostgreSQL 16", confidence=0.9, on_conflict="ignore"
    ).memory
    copy = bank.remember("The staging database runs PostgreSQL 16.", on_conflict="ignore").memory
    other = bank.remember("Deploys happen on Tuesdays", on_conflict="ignore").memory
    pointing = bank.remember("See the note on staging", on_conflict="ignore").memory
    bank.link(pointing.id, copy.id, "refines")

    report = bank.maintain()

    assert report.changed >= 1
    assert (bank.get(copy.id).status, bank.get(copy.id).merged_into) == ("merged", first.id)
    assert bank.get(first.id).status == bank.get(other.id).status == "active"
    assert copy.id in bank.get(first.id).evidence
    assert [link.dst for link in bank.neighbors(pointing.id, "refines").links] == [first.id]


def test_a_dry_run_plans_the_same_and_writes_nothing(bank: Bank) -> None:
    bank.remember_many(["The build takes nine minutes", "The build takes nine minutes."])
    before = bank.status().events

    plan = bank.maintain(dry_run=True)

    assert bank.status().events == before
    done = bank.maintain()
    assert [step.actions for step in plan.steps] == [step.actions for step in done.steps]


def test_running_twice_equals_running_once(bank: Bank, clock: Clock) -> None:
    bank.remember_many(
        [
            {"text": "We met at the harbour and talked about the boat", "kind": "episode"},
            {"text": "We met at the harbour and we talked about the boat", "kind": "episode"},
            {"text": "The boat is blue"},
            {"text": "The boat is blue."},
            {"text": "The lease ends soon", "ttl": 5},
        ]
    )
    clock.pass_seconds(10)
    bank.maintain(ALL)
    once = everything(bank)
    again = bank.maintain(ALL)
    third = bank.maintain(ALL)

    assert everything(bank) == once
    assert (again.changed, again.events, third.changed) == (0, 0, 0)


def test_nothing_new_means_nothing_is_looked_at(bank: Bank) -> None:
    bank.remember_many([f"unrelated subject number {i} {'abcdefghij'[i] * 5}" for i in range(10)])
    bank.maintain()
    bank.maintain()
    report = bank.maintain()
    assert {step.step: step.looked_at for step in report.steps if step.looked_at} == {}


def test_episodes_that_agree_become_a_fact_with_its_evidence(bank: Bank) -> None:
    episodes = bank.remember_many(
        [
            {
                "text": "The customer asked for invoices in PDF format",
                "kind": "episode",
                "tags": ["acme", "a"],
            },
            {
                "text": "Again the customer asked for invoices in PDF format",
                "kind": "episode",
                "tags": ["acme"],
            },
            {"text": "The weather was fine", "kind": "episode"},
        ]
    )

    bank.maintain()

    (fact,) = bank.find(kind="fact")
    assert "invoices in PDF" in fact.text
    assert set(fact.evidence) == {episodes[0].memory.id, episodes[1].memory.id}
    assert fact.tags == ("acme",)
    assert {link.dst for link in bank.neighbors(fact.id, "derived_from").links} == set(fact.evidence)

    more = bank.remember("The customer asked for invoices in PDF format once more", kind="episode").memory
    bank.maintain()
    grown = bank.get(fact.id)
    assert more.id in grown.evidence
    assert grown.confidence > fact.confidence
    assert len(list(bank.find(kind="fact"))) == 1


def test_episodes_of_different_scopes_are_never_put_together(bank: Bank) -> None:
    for user in ("ana", "bo"):
        bank.remember("The customer asked for invoices in PDF format", kind="episode", scope={"user": user})
    bank.maintain(ALL)
    assert list(bank.find(kind="fact")) == []


def test_the_llm_is_called_once_for_all_clusters(bank: Bank) -> None:
    bank.remember_many(
        [
            {"text": text, "kind": "episode"}
            for text in (
                "The customer asked for invoices in PDF format",
                "The customer asked again for invoices in PDF format",
                "Deploying on Friday broke the login page",
                "Deploying on Friday broke the login page again",
            )
        ]
    )
    calls: list[int] = []

    def distil(groups: Sequence[Sequence[str]]) -> list[str]:
        calls.append(len(groups))
        return [f"distilled: {group[0]}" for group in groups]

    bank.maintain(distil=distil)

    assert calls == [2]
    assert all(m.text.startswith("distilled: ") for m in bank.find(kind="fact"))


def test_age_alone_sets_nothing_aside(bank: Bank, clock: Clock) -> None:
    old = bank.remember("nobody has confirmed this for ages").memory
    clock.pass_days(1000)
    assert bank.maintain().changed == 0
    assert [hit.memory for hit in bank.recall("nobody has confirmed this for ages")] == [old]
    assert bank.get(old.id).confidence == old.confidence


def test_a_policy_of_decay_names_what_it_would_set_aside_before_it_does(bank: Bank, clock: Clock) -> None:
    faded = bank.remember("nobody has confirmed this for ages").memory
    short = bank.remember("the guest code is open sesame", ttl=90 * 86_400).memory
    clock.pass_days(5)
    by_the_hour = bank.maintain(MaintainConfig(decay="hours"), dry_run=True)
    assert [why.split(":")[0] for step in by_the_hour.steps for why in step.actions] == [repr(short.text)]
    clock.pass_days(145)

    plan = bank.maintain(MaintainConfig(steps=("deprecate",), decay="days"), dry_run=True)

    (why,) = [why for step in plan.steps for why in step.actions if faded.text in why]
    assert why.endswith("its confidence of 0.80 faded to 0.18 by the policy decay=days")
    assert bank.get(faded.id).status == "active"


def test_what_has_expired_or_faded_is_set_aside_and_can_be_restored(bank: Bank, clock: Clock) -> None:
    short = bank.remember("valid for a minute", ttl=60).memory
    faded = bank.remember("nobody has confirmed this for ages").memory
    pinned = bank.remember("the user's name is on the door", pinned=True).memory
    rule = bank.remember("always run the tests first", kind="procedure").memory
    clock.pass_days(150)

    bank.maintain(MaintainConfig(decay="days"))

    assert [bank.get(m.id).status for m in (short, faded, pinned, rule)] == [
        "expired",
        "deprecated",
        "active",
        "active",
    ]
    assert bank.restore(faded.id).status == "active"


def test_old_memories_are_collected_only_when_asked(bank: Bank, clock: Clock) -> None:
    old = bank.remember("an old episode", kind="episode").memory
    clock.pass_days(40)
    bank.maintain()
    assert bank.get(old.id).status == "active"
    bank.maintain(MaintainConfig(steps=("prune",), gc_days=30))
    assert bank.get(old.id).status == "deprecated"


def test_reflection_sums_up_and_keeps_the_sources(bank: Bank) -> None:
    texts = [f"The nightly build failed because the disk was full on day {i}" for i in range(4)]
    sources = [
        bank.remember(t, kind="episode", importance=0.2 * i, on_conflict="ignore").memory
        for i, t in enumerate(texts)
    ]
    bank.maintain(MaintainConfig(steps=("reflect",)))

    (summary,) = bank.find(kind="episode")
    assert summary.level == 1
    assert summary.importance == pytest.approx(0.3)
    assert {bank.get(m.id).superseded_by for m in sources} == {summary.id}
    assert not summary.stale
    assert {link.dst for link in bank.neighbors(summary.id, "derived_from").links} == {m.id for m in sources}


def test_only_what_its_summary_still_replaces_is_forgotten_later(bank: Bank) -> None:
    episodes = [bank.remember(f"met Anna in the office, day {i}", kind="episode").memory for i in range(3)]
    summary = bank.remember("met Anna often", kind="episode", level=1, on_conflict="ignore").memory
    for each in episodes:
        bank.link(summary.id, each.id, rel="derived_from")
        bank.supersede(each.id, summary.id)
    bank.set_setting("consolidate/" + episodes[0].id, [each.id for each in episodes])
    bank.set_setting("consolidate/policy", 7)
    bank.restore(episodes[1].id)
    own = bank.remember("met Anna and Bob on day 1", kind="episode", on_conflict="ignore").memory
    bank.supersede(episodes[1].id, own.id)

    bank.maintain()

    assert bank.get(episodes[1].id).text == episodes[1].text
    with pytest.raises(ForgottenError):
        bank.get(episodes[0].id)
    assert bank.setting("consolidate/policy") == 7


def test_hard_consolidation_forgets_the_sources(bank: Bank) -> None:
    texts = [f"The nightly build failed because the disk was full on day {i}" for i in range(3)]
    sources = [bank.remember(t, kind="episode", on_conflict="ignore").memory for t in texts]
    bank.maintain(MaintainConfig(steps=("reflect",), consolidate="hard"))
    assert all(bank.engine.store.is_forgotten(m.id) for m in sources)


def test_what_is_stale_is_said_again_from_what_still_stands_or_retired(bank: Bank) -> None:
    a = bank.remember("the printer is on floor two", kind="episode").memory
    b = bank.remember("the printer is on floor two near the lift", kind="episode").memory
    made = "maintenance: extracted"
    fact = bank.remember("the printer is on floor two and it is old", source=made).memory
    lone = bank.remember("the scanner is on floor two", source=made).memory
    mine = bank.remember("my own words about floor two").memory
    bank.link(mine.id, b.id, "derived_from")
    for target in (a.id, b.id):
        bank.link(fact.id, target, "derived_from")
    bank.link(lone.id, b.id, "derived_from")
    bank.retract(b.id)
    assert bank.get(fact.id).stale
    assert bank.get(lone.id).stale

    bank.maintain(MaintainConfig(steps=("rederive",)))

    assert (bank.get(fact.id).stale, bank.get(fact.id).text) == (False, "the printer is on floor two")
    assert bank.get(lone.id).status == "deprecated"
    assert (bank.get(mine.id).text, bank.get(mine.id).stale) == ("my own words about floor two", True)


class Scripted:
    """A judge with answers prepared."""

    name = "scripted"

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.batches: list[int] = []

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        self.batches.append(len(cases))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Verdicts(decisions=tuple(answer), tokens=100, money=0.01)  # type: ignore[arg-type]


def queued(bank: Bank) -> tuple[str, str]:
    """Put one undecided pair into the queue."""
    from skep.lifecycle.judgement_queue import queue_plan

    a = bank.remember("the door code is 1234", on_conflict="ignore").memory
    b = bank.remember("the door code might have changed", on_conflict="ignore").memory
    case = Case(older=a, newer=b, kind="update", similarity=0.9, confidence=0.5)
    bank.engine.write([queue_plan(case)])
    return a.id, b.id


@pytest.mark.parametrize(
    ("decision", "older", "newer"),
    [
        ("MERGE", "active", "merged"),
        ("KEEP_BOTH", "active", "active"),
        ("SUPERSEDED", "superseded", "active"),
        ("CONTRADICTION", "active", "active"),
    ],
)
def test_the_judge_decides_what_rules_could_not(bank: Bank, decision: str, older: str, newer: str) -> None:
    a, b = queued(bank)
    report = bank.maintain(MaintainConfig(steps=("judge",)), judge=Scripted([decision]))
    assert (bank.get(a).status, bank.get(b).status) == (older, newer)
    assert (report.queued, report.spent_tokens) == (0, 100)
    if decision == "CONTRADICTION":
        assert bank.get(a).confidence == bank.get(b).confidence == 0.4


def test_a_decision_is_remembered_and_not_asked_for_again(bank: Bank) -> None:
    queued(bank)
    judge = Scripted(["KEEP_BOTH"])
    bank.maintain(judge=judge)
    bank.maintain(judge=judge)
    assert judge.batches == [1]


def test_a_judge_that_fails_twice_keeps_both_and_they_wait_on(bank: Bank) -> None:
    a, b = queued(bank)
    judge = Scripted(JudgeError("down"), JudgeError("still down"))
    report = bank.maintain(MaintainConfig(steps=("judge",)), judge=judge)
    assert (bank.get(a).status, bank.get(b).status) == ("active", "active")
    assert "still down" in report.steps[-1].note
    assert report.queued == 1


def test_an_unusable_answer_is_asked_for_once_more(bank: Bank) -> None:
    a, _ = queued(bank)
    judge = Scripted([None], ["SUPERSEDED"])
    bank.maintain(MaintainConfig(steps=("judge",)), judge=judge)
    assert judge.batches == [1, 1]
    assert bank.get(a).status == "superseded"


def test_a_batch_over_the_spend_limit_waits(bank: Bank) -> None:
    queued(bank)
    judge = Scripted(["MERGE"])
    report = bank.maintain(MaintainConfig(steps=("judge",), max_tokens=10), judge=judge)
    assert judge.batches == []
    assert report.queued == 1


def test_pending_judgements_can_be_resolved_by_hand(bank: Bank) -> None:
    a, b = queued(bank)
    (case,) = bank.pending_judgements()
    assert (case.older.id, case.newer.id) == (a, b)
    with pytest.raises(InvalidInputError, match="MERGE"):
        bank.resolve_judgement(a, b, "WHATEVER")
    bank.resolve_judgement(b, a, "superseded")
    assert bank.get(a).status == "superseded"
    with pytest.raises(NotFoundError):
        bank.resolve_judgement(a, b, "MERGE")


def test_a_callable_or_the_rules_can_judge(bank: Bank) -> None:
    a, _ = queued(bank)
    bank.maintain(MaintainConfig(steps=("judge",)), judge=lambda cases: ["SUPERSEDED" for _ in cases])
    assert bank.get(a).status == "superseded"
    case = Case(older=bank.get(a), newer=bank.get(a), kind="update", similarity=0.9, confidence=0.8)
    assert RulesJudge().decide([case]).decisions == ("SUPERSEDED",)


def test_answers_of_models_are_read_with_care() -> None:
    assert read_answer('```json\n{"decisions":[{"pair":1,"decision":"KEEP_BOTH"}]}\n```', 1) == ("KEEP_BOTH",)
    assert read_answer('{"decisions":[{"pair":9,"decision":"MERGE"},{"pair":1,"decision":"hm"}]}', 1) == (
        None,
    )
    for bad in ("", "no json", '{"decisions": 7}', '{"other": []}'):
        with pytest.raises(JudgeError):
            read_answer(bad, 1)


def test_one_prompt_holds_every_pair(bank: Bank) -> None:
    queued(bank)
    (case,) = bank.pending_judgements()
    assert prompt_for([case, case]).count("Pair ") == 2


def test_bad_settings_are_refused() -> None:
    for bad in ({"steps": ("dance",)}, {"cluster": "magic"}, {"consolidate": "maybe"}):
        with pytest.raises(ConfigError):
            MaintainConfig(**bad)  # type: ignore[arg-type]


WORDS = st.sampled_from(
    ["alpha beta", "alpha beta.", "use ruff", "never use ruff", "gamma delta", "port is 80", "port is 90"]
)


@settings(max_examples=25)
@given(st.lists(st.tuples(WORDS, st.sampled_from(["fact", "episode"])), max_size=8))
def test_maintenance_never_loses_what_was_active_and_uncontradicted(items: list[tuple[str, str]]) -> None:
    clock = Clock()
    with Bank.open(":memory:", now=clock) as bank:
        for text, kind in items:
            bank.remember(text, kind=kind, on_conflict="ignore")
            clock.pass_seconds(1)
        before = everything(bank)
        bank.maintain()
        after = everything(bank)
        assert set(before) <= set(after)
        for memory in after.values():
            assert 0.0 <= memory.confidence <= 1.0  # type: ignore[attr-defined]
            head = memory
            while head.superseded_by or head.merged_into:  # type: ignore[attr-defined]
                head = after[head.superseded_by or head.merged_into]  # type: ignore[attr-defined]
            assert head.status == "active"  # type: ignore[attr-defined]
        with Bank.open(":memory:", now=clock) as other:
            other.apply(bank.events())
            assert everything(other) == after


def test_a_question_is_no_fact(bank: Bank) -> None:
    asked = ["How do I reset the printer on floor two?", "How can I reset the printer on floor two?"]
    told = ["The printer on floor two jams. What can I do?", "The printer on floor two jams. Any idea?"]
    bank.remember_many([{"text": text, "kind": "episode"} for text in asked])
    bank.maintain(MaintainConfig(steps=("extract",)))
    assert list(bank.find(kind="fact")) == []
    bank.remember_many([{"text": text, "kind": "episode"} for text in told])
    bank.maintain(MaintainConfig(steps=("extract",)))
    assert [fact.text for fact in bank.find(kind="fact")] == ["The printer on floor two jams."]


@pytest.mark.parametrize(("step", "kind"), [("extract", "fact"), ("reflect", "episode")])
def test_what_is_distilled_is_as_old_as_what_it_stands_on(bank: Bank, step: str, kind: str) -> None:
    for day in (1, 3, 2):
        bank.remember(
            f"The nightly build failed because the disk was full, run {day}",
            kind="episode",
            created_at=1_700_000_000.0 + day,
            on_conflict="ignore",
        )
    bank.maintain(MaintainConfig(steps=(step,)))
    made = [memory for memory in bank.find(kind=kind) if (memory.source or "").startswith("maintenance:")]
    assert [memory.created_at for memory in made] == [1_700_000_003.0]
