"""Source document 003: facts, confidence, consolidation, two ways of recall; each promise as its users would try it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.conftest import Clock

from skep import Bank, build_context
from skep.confidence import supported
from skep.lifecycle.judge import Case
from skep.lifecycle.maintain import MaintainConfig

EVIDENCE = MaintainConfig(steps=("embed", "evidence"))

TOLD = [
    ('The choir sings Bach every Christmas',
     'Stood in the cold for tickets; at Christmas the choir had Bach on the programme as every year'),
    ("Jonna's boat is moored at pier three",
     'Met Jonna at pier three, she was scrubbing the deck of her boat'),
    ('The clinic sends appointment reminders by text message',
     'Got a text message from the clinic: a reminder of my appointment on Friday'),
    ('The user rides a cargo bike to work',
     'user: the cargo bike broke down on the way to work, so I was late'),
    ('Bread is delivered at five in the morning',
     'The van with the bread stood in front of the door at five this morning'),
    ('The printer on the second floor jams on thick paper',
     'Put thick paper into the second floor printer and it jammed straight away'),
    ('Tariq mends clocks',
     'Tariq took the kitchen clock with him, he is mending it at home'),
    ('The allotment fee is due in March',
     'Reminded everybody that the allotment fee has to be paid in March'),
    ('The user is learning Finnish',
     'user: my Finnish teacher says that I make progress'),
    ('The radio show starts at eight',
     'Tuned in at eight just as the radio show began'),
    ('Guests park behind the chapel',
     'We told the guests to leave their cars behind the chapel'),
    ('The hall is heated with wood pellets',
     'Another two tons of wood pellets for the heating of the hall arrived'),
    ('Sven does not drink alcohol',
     'Sven toasted with juice, he drinks no alcohol'),
]  # fmt: skip
"""Facts, and episodes that tell of them in other words. Written when the rules were done, and not used for them."""
BESIDE = [
    "The brass band plays Bach every Christmas",
    "Jonna's brother has a boat at pier nine",
    "The dentist sends appointment reminders by text message",
    "user: my sister rides a cargo bike to work",
    "Milk is delivered at five in the morning",
    "The printer on the first floor jams on thick paper",
    "Tariq bought two clocks at the flea market",
    "The allotment fee was due in May before the vote",
    "user: my wife is learning Finnish",
    "The radio show ends at eight",
    "Guests may not park behind the chapel any more",
    "They wanted to heat the hall with wood pellets and gave up",
    "Sven drinks a beer after every match",
]
"""Episodes near those facts that do not tell of them: another subject, a denial, a wish, a plan that was dropped."""


def test_episodes_in_other_words_support_a_fact_and_look_alikes_do_not(bank: Bank) -> None:
    facts = {text: bank.remember(text, confidence=0.6, on_conflict="ignore").memory.id for text, _ in TOLD}
    told = {e: bank.remember(e, kind="episode", on_conflict="ignore").memory.id for _, e in TOLD}
    for text in BESIDE:
        bank.remember(text, kind="episode", on_conflict="ignore")
    bank.maintain(EVIDENCE)
    found = {text: set(bank.get(memory_id).evidence) for text, memory_id in facts.items()}
    assert sum(told[episode] in found[text] for text, episode in TOLD) >= 12
    assert len({episode for each in found.values() for episode in each} - set(told.values())) <= 2


def test_each_episode_raises_confidence_by_a_share_of_the_doubt(bank: Bank) -> None:
    fact = bank.remember("The print shop closes at six", confidence=0.6).memory.id
    for text in (
        "Stood before the print shop at ten past six, closed",
        "The print shop had closed at six again",
    ):
        bank.remember(text, kind="episode", on_conflict="ignore")
    bank.maintain(EVIDENCE)
    assert bank.get(fact).confidence == pytest.approx(supported(supported(0.6)))
    assert bank.maintain(EVIDENCE).events == 0


STATED = {
    "user: I'm a retired tram driver and I restore radios": "tram driver",
    "user: my son Jorin is allergic to penicillin": "The user's son Jorin is allergic to penicillin",
    "Oleg: I drive an old Saab": "Oleg drives an old Saab",
    "user: our warehouse is in Gdynia, right behind the container port": "Our warehouse is in Gdynia",
    "user: I always write commit messages in the imperative": "The user always writes commit messages",
    "User: We pay suppliers on the last working day of the month": "We pay suppliers on the last working day",
}
PASSING = [
    "user: I have two tabs open and both hang", "user: I read the docs and still don't get it",
    "user: our test is red again", "user: my friend told me about this tool", "user: I have a question",
    "user: we run it again now", "user: I'm a little lost", "assistant: I'm an assistant and I use tools",
    "user: I like the second version better", "user: I live with that, fine", "user: my team is waiting for this",
    "user: I have to go", "user: our build is green", "user: can I use the old key?", "user: I'm stuck on this error",
    "user: if I had a dog I would call it Rex", "assistant: we use tabs in this file, as you can see",
    "Ana: I love traveling too", "Oleg: I really enjoy that one", "Ana: it is one of the things I love",
    "Oleg: I like how you put it",
]  # fmt: skip


def test_what_users_state_becomes_facts_in_the_third_person_and_small_talk_does_not(bank: Bank) -> None:
    for text in (*STATED, *PASSING):
        bank.remember(text, kind="episode", on_conflict="ignore")
    bank.maintain()
    facts = [memory.text for memory in bank.find(kind="fact")]
    assert [said for said in STATED.values() if not any(said in fact for fact in facts)] == []
    assert len(facts) == len(STATED)
    assert not any(fact.casefold().startswith(("user:", "i ")) for fact in facts)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (("User is a backend developer", 0.9), ("User works in frontend", 0.7)),
        (("User likes coffee", 0.8), ("User drinks coffee daily", 0.6)),
    ],
)
def test_the_clusters_of_the_document_reach_the_judge(
    meaning: Bank, older: tuple[str, float], newer: tuple[str, float]
) -> None:
    for text, confidence in (older, newer):
        meaning.remember(text, confidence=confidence, on_conflict="ignore")
    asked: list[Case] = []

    def judge(cases: Sequence[Case]) -> list[str]:
        asked.extend(cases)
        return ["KEEP_BOTH"] * len(cases)

    assert meaning.maintain(judge=judge).queued == 0
    assert [{case.older.text, case.newer.text} for case in asked] == [{older[0], newer[0]}]


def test_without_a_judge_a_pair_waits_and_costs_nothing(bank: Bank) -> None:
    pair = [bank.remember(text).memory.id for text in ("Use ruff for linting", "Never use ruff for linting")]
    report = bank.maintain()
    assert report.queued == 1
    assert [bank.get(memory_id).confidence for memory_id in pair] == [0.8, 0.8]
    with bank.stream(inline=True) as stream:
        stream.observe("what do we use for linting, ruff?")
        assert {hit.memory.id for hit in stream.context().facts} & set(pair)


def test_a_clear_contradiction_halves_both_where_that_is_asked(bank: Bank) -> None:
    pair = [bank.remember(text).memory.id for text in ("Use ruff for linting", "Never use ruff for linting")]
    bank.maintain(MaintainConfig(halve=True))
    assert [bank.get(memory_id).confidence for memory_id in pair] == [0.4, 0.4]


def test_decay_of_ten_percent_in_ten_days_is_a_policy(bank: Bank, clock: Clock) -> None:
    fact = bank.remember("The office has a fax machine", confidence=0.8).memory.id
    clock.pass_days(80)
    assert 0.8 * math.exp(-0.8) > 0.3
    bank.maintain(MaintainConfig(decay="days"))
    assert bank.get(fact).status == "active"
    clock.pass_days(20)
    bank.maintain(MaintainConfig(decay="days"))
    assert bank.get(fact).status == "deprecated"
    assert not bank.recall("fax machine")


def test_search_memory_gives_the_most_confident_of_a_cluster(bank: Bank) -> None:
    for confidence, text in ((0.5, "Ana prefers tea to coffee"), (0.9, "Ana prefers tea to coffee, always")):
        bank.remember(text, confidence=confidence, on_conflict="ignore")
    bank.remember("Ana works on the billing project")
    found = bank.search_memory("does Ana prefer tea or coffee")
    assert [hit.memory.confidence for hit in found if "tea" in hit.memory.text] == [0.9]


def test_doubtful_facts_are_searched_for_but_not_streamed(bank: Bank) -> None:
    doubtful = bank.remember("The harbour crane is yellow", confidence=0.4).memory.id
    deprecated = bank.remember("The harbour gate is blue", confidence=0.2).memory.id
    found = {hit.memory.id for hit in bank.search_memory("what colour are the harbour crane and gate")}
    assert (doubtful in found, deprecated in found) == (True, False)
    with bank.stream(inline=True) as stream:
        stream.observe("what colour is the harbour crane")
        assert stream.context().facts == ()


@pytest.mark.parametrize("kind", ["facts", "episodes", "both"])
def test_search_memory_looks_for_what_it_is_told_to(bank: Bank, kind: str) -> None:
    bank.remember("The crane lifts forty tons")
    bank.remember("We oiled the crane on Monday", kind="episode")
    found = {hit.memory.kind for hit in bank.search_memory("crane", kind)}
    assert found == {"facts": {"fact"}, "episodes": {"episode"}, "both": {"fact", "episode"}}[kind]


def test_a_tool_result_over_its_tier_is_cut_between_memories() -> None:
    lines = [f"[m{n}] The limit of service {n} is {n * 7} requests\n  seen in March" for n in range(60)]
    context = build_context(["user: hi"], ["\n".join(lines)], system="Be brief.")
    (kept,) = context.tool_results
    (left,) = context.left_out
    assert "\n".join((kept, left.text)) == "\n".join(lines)
    assert left.text.startswith("[m")
    assert 300 < context.tokens <= 420


RULES = "rule " * 500


def test_recent_messages_come_first_and_system_text_fills_the_rest() -> None:
    context = build_context(
        ["user: " + "word " * 60], ["result " * 20], facts=["a fact"], system="rule " * 500, budget=200
    )
    assert (len(context.messages), len(context.tool_results), context.facts) == (1, 1, ("a fact",))
    assert 0 < len(context.system) < len(RULES)
    assert context.tokens <= 200


def test_merging_keeps_evidence_and_a_pointer(bank: Bank) -> None:
    seen = bank.remember("The build took nine minutes again", kind="episode").memory.id
    kept = bank.remember("The build takes nine minutes", confidence=0.9).memory.id
    copy = bank.remember(
        "the build takes nine minutes.", confidence=0.7, evidence=[seen], on_conflict="ignore"
    ).memory.id
    bank.maintain()
    assert (bank.get(copy).status, bank.get(copy).merged_into) == ("merged", kept)
    assert seen in bank.get(kept).evidence


def test_run_consolidation_is_one_command_with_a_report(skep: Callable[..., Any]) -> None:
    for text in ("user: my sister Nele runs the bakery in Aurich", "The crane was oiled on Monday"):
        skep("add", text, "--kind", "episode")
    for text in ("Use ruff for linting", "Never use ruff for linting"):
        skep("add", text)
    report = skep("maintain", "--decay", "days", "--halve", "--judge-rules")
    steps = {step["step"]: step for step in report["steps"]}
    assert any("sister Nele runs the bakery in Aurich" in action for action in steps["extract"]["actions"])
    assert list(steps) == ["embed", "extract", "evidence", "merge", "conflicts", "judge", "expire", "deprecate",
                           "rederive", "prune", "reembed"]  # fmt: skip
    assert steps["conflicts"]["actions"]
    assert report["queued"] == 0
    assert skep("maintain", "--decay", "days", "--halve", "--judge-rules")["events"] == 0
