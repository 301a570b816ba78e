"""Layouts are graded alike, and what memory is worth is counted."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from tests.llm.chat_server import ChatServer

from skep.agent.benefit_suite import KINDS, benchmark, script
from skep.agent.evaluation import Question, Turn, compared, evaluate, read_questions, read_turns, rubric
from skep.agent.usefulness_report import usefulness
from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError, NotFoundError
from skep.llm import LLM

NAMES = ("Ida", "Bo", "Kim", "Liv", "Max")
TURNS = [Turn(text=f"The lamp in room {n} was made by {NAMES[n % 5]} Berg.") for n in range(20)]
ASKED = [Question(text=f"Who made the lamp in room {n}?", keywords=(NAMES[n % 5],)) for n in range(0, 20, 2)]
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("topology", ["single", "flat", "federated", "sharded"])
def test_every_layout_knows_what_its_agents_were_told(topology: Any) -> None:
    grade = evaluate(topology, 6, TURNS, ASKED)
    assert grade.agents == (1 if topology == "single" else 6)
    assert grade.memories == len(TURNS)
    assert grade.score >= 90
    assert grade.read == 100
    assert len(grade.scores) == len(ASKED)


def test_agents_that_learn_facts_answer_from_them() -> None:
    grade = evaluate("federated", 3, TURNS[:6], ASKED[:3], learns=True)
    assert grade.memories > 6
    assert grade.score == 100


def test_what_a_model_costs_is_told_per_question(chat: ChatServer, llm: LLM) -> None:
    chat.says = [json.dumps({"known": True, "answer": "Ida Berg", "citations": [1]})]
    grade = evaluate("flat", 2, TURNS, ASKED[:4], llm=llm)
    assert grade.spent.calls == 4
    assert "18" in grade.line()


def test_two_layouts_are_compared_question_by_question() -> None:
    one, other = evaluate("flat", 2, TURNS, ASKED), evaluate("federated", 2, TURNS, ASKED)
    difference, margin = compared(one, other)
    assert abs(difference) <= 100
    assert margin >= 0
    assert rubric("Thor the husky", ["thor", "cat"]) == 0.5


def test_files_are_read_zipped_or_not_and_bad_ones_are_told(tmp_path: Path) -> None:
    turns, asked = tmp_path / "turns.jsonl.gz", tmp_path / "questions.jsonl"
    with gzip.open(turns, "wt") as file:
        file.write('{"text": "a", "meta": {"scope": "x", "agent": "bo"}}\n\n{"text": "b"}\n')
    asked.write_text('{"text": "q", "keywords": ["a"]}\n{"text": "no rubric"}\n')
    assert read_turns(turns) == [Turn(text="a", scope="x", agent="bo"), Turn(text="b")]
    assert [each.text for each in read_questions(asked)] == ["q"]
    for bad, told in (
        ("{", "line 1: no JSON"),
        ("7", "line 1: an object"),
        ('{"text": "q"}', "nothing can be graded"),
    ):
        asked.write_text(bad)
        with pytest.raises(InvalidInputError, match=told):
            read_questions(asked)
    with pytest.raises(NotFoundError):
        read_turns(tmp_path / "none.jsonl")


def test_the_command_prints_a_table(tmp_path: Path) -> None:
    turns, asked = tmp_path / "t.jsonl", tmp_path / "q.jsonl"
    turns.write_text("\n".join(json.dumps({"text": turn.text}) for turn in TURNS))
    asked.write_text("\n".join(json.dumps({"text": q.text, "keywords": list(q.keywords)}) for q in ASKED))
    command = [
        "hive",
        "eval",
        str(turns),
        str(asked),
        "--agents",
        "4",
        "--topology",
        "flat",
        "--topology",
        "federated",
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "federated against flat, 4 agents:" in result.output


def test_memory_avoids_errors_of_every_kind() -> None:
    for benefit in benchmark([1, 2]):
        assert benefit.low > 0, benefit.line()
        assert benefit.avoided >= 0.5
        assert benefit.errors_without > benefit.errors_with


def test_a_script_is_the_same_for_the_same_seed_and_has_every_kind() -> None:
    assert script(3) == script(3) != script(4)
    assert {job.kind for job in script(3)} == set(KINDS)


def test_the_report_tells_what_memory_was_worth(bank: Bank) -> None:
    assert "No outcomes yet" in usefulness(bank).page()
    tip = bank.remember("The endpoint needs an index on user_id").memory
    bank.learn("task", True, used=[tip.id])
    assert "nothing was withheld" in usefulness(bank).page()
    rng = Random(1)
    for number in range(150):
        recalled = bank.recall("endpoint index user_id", kind="fact", withhold=0.4, rng=rng)
        helped = tip.id in {hit.memory.id for hit in recalled}
        bank.learn(f"query {number}", helped or rng.random() < 0.3, recalled=recalled)
    found = usefulness(bank)
    assert found.effect is not None
    assert found.effect > 0.4
    assert found.low > 0
    assert "These help:" in found.page()
    assert tip.id in found.page()


def test_the_report_from_the_shell(tmp_path: Path) -> None:
    path = tmp_path / "b.skep"
    with Bank.open(path) as bank:
        tip = bank.remember("Use the cache").memory
        bank.learn("task", True, used=[tip.id])
    result = CliRunner().invoke(app, ["--bank", str(path), "report"])
    assert "1 of 1 tasks succeeded" in result.output


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("coding_agent.py", ["reached in 3 steps", "reached in 1 step"]),
        ("support_agent.py", ["Graz", "hand over to a person", "five working days"]),
        ("research_agent.py", ["18 percent", "Bergen", "Not known"]),
    ],
)
def test_the_examples_run_twice_on_one_folder(name: str, told: list[str], tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / name), str(tmp_path)]
    said, environ = "", {key: value for key, value in os.environ.items() if not key.startswith("SKEP_")}
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        assert done.returncode == 0, done.stderr
        said += done.stdout
    assert [part for part in told if part not in said] == []
