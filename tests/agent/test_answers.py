"""Answers: cited, followed up, or plainly not known; with a model that may lie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.llm.chat_server import Busy, ChatServer

from skep.agent import Agent, answer
from skep.agent.answers import ROOM
from skep.bank.bank import Bank
from skep.errors import LLMError
from skep.hive import Hive
from skep.llm import LLM

TOLD = [
    "Ana Lee's manager is Bo Berg",
    "Bo Berg lives in Bergen near the old harbour",
    "The nightly backup goes to nas3",
    "A restore takes 40 minutes",
    "The office is closed in July",
]


@pytest.fixture
def team(bank: Bank) -> Bank:
    bank.remember_many(TOLD)
    return bank


def says(
    known: bool, text: str = "", citations: list[int] | None = None, more: list[str] | None = None
) -> str:
    return json.dumps({"known": known, "answer": text, "citations": citations or [], "more": more or []})


def test_without_a_model_the_best_passage_is_quoted(team: Bank) -> None:
    found = answer(team, "where does the nightly backup go?")
    assert found.known
    assert found.how == "quoted"
    assert found.citations[0].text == "The nightly backup goes to nas3"
    assert "\u201cThe nightly backup goes to nas3\u201d [1]" in found.text


def test_a_long_text_is_quoted_in_part_and_nothing_twice(bank: Bank) -> None:
    text = (
        "The ledger runs on host db7. Host db7 is in the Oslo data centre. It was moved there in May.\n\n"
        "- Lunch is at half past twelve.\n- Kofi does not eat meat.\n\n"
        "| service | owner | port |\n|---|---|---|\n| gateway | Ines | 8443 |\n| search | Kofi | 9200 |\n\n"
        "The old build server was switched off in April 2023. The new build server is called forge. "
        "The museum opens at ten. Tickets for the museum cost nine euros."
    )
    agent = Agent(bank, "ana")
    told = agent.learn_from_content(text, "notes.md")
    assert "Lunch is at half past twelve." in [fact.text for fact in told.facts]  # without its bullet
    shown = agent.answer("Where is host db7?").line()
    assert shown.count("Host db7 is in the Oslo data centre.") == 1
    assert "museum" not in shown
    assert "notes.md" in shown
    table = agent.answer("What port does the gateway listen on?")
    assert any("8443" in each.text for each in (*table.citations, *table.near))
    assert "museum" not in table.line()


def test_a_question_of_two_steps_is_followed_up(team: Bank) -> None:
    found = answer(team, "Where does the manager of Ana Lee live?")
    assert found.asked[1].startswith("Bo Berg")
    assert "Bo Berg lives in Bergen near the old harbour" in [each.text for each in found.citations]


def test_what_is_not_known_is_said_plainly_with_what_lies_near(team: Bank) -> None:
    found = answer(team, "which airline flies to Peru on Sundays?")
    assert not found.known
    assert found.citations == ()
    assert found.text.startswith("Not known.")
    with Bank.open(":memory:") as empty:
        nothing = answer(empty, "which airline flies to Peru?")
    assert nothing.text == "Not known. Nothing near it is stored."


def test_a_question_that_counts_reads_more(bank: Bank) -> None:
    bank.remember_many(f"The server in rack {n} is called host{n}" for n in range(12))
    assert len(answer(bank, "How many servers are in a rack?").citations) == 12
    assert len(answer(bank, "Where is the server called host3?").citations) <= 3


def test_a_small_bank_is_shown_to_a_model_as_a_whole(team: Bank, chat: ChatServer, llm: LLM) -> None:
    chat.says = [
        lambda prompt: says(True, "It goes to nas3.", [prompt.count("\n[") and number_of(prompt, "nas3")])
    ]
    found = answer(team, "where does the nightly backup go?", llm=llm)
    assert found.known
    assert (found.text, [each.text for each in found.citations]) == ("It goes to nas3.", [TOLD[2]])
    assert found.unsupported == ()
    prompt = chat.asked[0]["messages"][1]["content"]
    assert all(json.dumps(text) in prompt for text in TOLD)
    assert found.spent.calls == 1


def number_of(prompt: str, word: str) -> int:
    line = next(line for line in prompt.splitlines() if line.startswith("[") and word in line)
    return int(line[1 : line.index("]")])


def test_what_does_not_fit_is_summed_up(bank: Bank, chat: ChatServer, llm: LLM) -> None:
    long = "It was moved twice last year and has been quiet since then. " * 15
    bank.remember_many(f"Host Alpha{n % 3} has disk {n}. {long}" for n in range(60))
    chat.says = [says(False)]
    answer(bank, "which hosts have a disk?", llm=llm)
    assert len(chat.asked[0]["messages"][1]["content"]) < 2 * ROOM


def test_a_model_may_search_once_more(bank: Bank, chat: ChatServer, llm: LLM) -> None:
    bank.remember_many(
        f"Note {n}: nothing of importance was said about topic {n * 7919 % 1000}" for n in range(60)
    )
    bank.remember("The vault code is kept by Bo Berg")
    chat.says = [
        says(False, more=["vault code keeper"]),
        lambda prompt: says(True, "Bo Berg keeps it.", [number_of(prompt, "vault")]),
    ]
    found = answer(bank, "who must I ask to get in?", llm=llm, limit=3)
    assert found.known
    assert "vault code keeper" in found.asked


@pytest.mark.parametrize(
    "lie", [says(True, "It goes to nas9."), says(True, "It goes to nas9.", [99]), says(True, "", [1])]
)
def test_an_answer_without_a_citation_is_not_known(team: Bank, chat: ChatServer, llm: LLM, lie: str) -> None:
    chat.says = [lie]
    found = answer(team, "where does the nightly backup go?", llm=llm)
    assert not found.known
    assert "nas9" not in found.text
    assert found.near


def test_numbers_and_names_that_no_cited_passage_holds_are_told(
    team: Bank, chat: ChatServer, llm: LLM
) -> None:
    chat.says = [
        lambda prompt: says(True, "A restore takes 90 minutes, says Zoe.", [number_of(prompt, "restore")])
    ]
    assert answer(team, "how long does a restore take?", llm=llm).unsupported == ("90", "Zoe")


def test_a_model_that_is_away_is_an_error_and_no_quoted_answer(
    team: Bank, chat: ChatServer, llm: LLM
) -> None:
    chat.says = [Busy(503)]
    with pytest.raises(LLMError, match="503"):
        answer(team, "where does the nightly backup go?", llm=llm)


def test_an_answer_stays_within_its_scope(bank: Bank) -> None:
    bank.remember("The door code of the flat is 4711", scope={"user": "ana"})
    bank.remember("The office opens at nine")
    bob = Agent(bank, "bob", scope={"user": "bob"})
    found = bob.answer("what is the door code of the flat?")
    assert "4711" not in found.line()
    assert "nine" in Agent(bank, "ana", scope={"user": "ana"}).answer("when does the office open?").text


def test_an_agent_in_a_hive_answers_from_what_others_learnt() -> None:
    with Hive.federated({"infra": ["ana"], "people": ["bob"]}) as hive:
        Agent(hive.agent("ana"), "ana").learn_from_content("The nightly backup goes to nas3.", "notes.md")
        found: Any = Agent(hive.agent("bob"), "bob").answer("where does the nightly backup go?")
        assert found.known
        assert "nas3" in found.text
