"""What a judge costs is counted and kept within its limits, and no judge can stop a run."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from tests.lifecycle.endpoint import Server, behind, program
from tests.lifecycle.test_lease import doubtful

from skep.bank.bank import Bank
from skep.lifecycle.judge import Case, LLMJudge, Verdicts, fitting, prompt_for, read_answer
from skep.lifecycle.maintain import DEFAULT_STEPS, MaintainConfig
from skep.lifecycle.maintenance_run import MaintainReport
from skep.model import Memory

KEEP = '{"decisions": [{"pair": 1, "decision": "KEEP_BOTH"}]}'
ONLY = MaintainConfig(steps=("judge",))


def noted(report: MaintainReport) -> str:
    (note,) = [step.note for step in report.steps if step.step == "judge"]
    return note


def test_an_answer_that_cannot_be_read_costs_what_was_billed(bank: Bank, endpoint: Server) -> None:
    doubtful(bank, 1)
    endpoint.says("I cannot do that", usage={"total_tokens": 777})
    judge = LLMJudge(behind(endpoint.url, price_per_million=1000.0))
    report = bank.maintain(MaintainConfig(steps=("judge",), max_tokens=800), judge=judge)
    assert len(endpoint.asked) == 1
    assert (report.spent_tokens, report.spent_money) == (777, pytest.approx(0.777))
    assert "1 pair was not decided: the judge gave no JSON" in noted(report)
    assert report.queued == 1


@pytest.mark.parametrize(
    "usage", [None, {}, [], 5, {"total_tokens": "many"}, {"total_tokens": -3}, {"total_tokens": None}]
)
def test_what_an_endpoint_does_not_say_is_estimated(bank: Bank, endpoint: Server, usage: object) -> None:
    doubtful(bank, 1)
    endpoint.says(KEEP, usage=usage)
    report = bank.maintain(ONLY, judge=LLMJudge(behind(endpoint.url)))
    assert report.queued == 0
    assert 100 < report.spent_tokens < 400


@pytest.mark.parametrize(
    "answer", [b"", b"\xff\xfe{}", b"[]", b"7", b"{}", b"[" * 100_000, b'{"choices": [{"message": 3}]}']
)
def test_an_endpoint_that_answers_nonsense_is_noted_and_the_other_steps_go_on(
    bank: Bank, endpoint: Server, answer: bytes
) -> None:
    doubtful(bank, 1)
    endpoint.answers = [answer]
    report = bank.maintain(judge=LLMJudge(behind(endpoint.url)))
    assert "both memories are kept" in noted(report)
    assert report.spent_tokens > 100
    assert [step.step for step in report.steps] == list(DEFAULT_STEPS)
    assert report.queued == 1


def test_an_answer_of_an_unknown_shape_costs_what_was_billed(bank: Bank, endpoint: Server) -> None:
    doubtful(bank, 1)
    endpoint.answers = [b'{"error": "overloaded", "usage": {"prompt_tokens": 700, "completion_tokens": 77}}']
    report = bank.maintain(ONLY, judge=LLMJudge(behind(endpoint.url)))
    assert report.spent_tokens == 2 * 777


def test_a_judge_that_is_slow_has_read_the_question(bank: Bank) -> None:
    doubtful(bank, 1)
    with_no_answer = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    try:
        url = f"http://127.0.0.1:{with_no_answer.server_port}/"
        report = bank.maintain(ONLY, judge=LLMJudge(behind(url, timeout=0.05)))
        assert "did not answer in time" in noted(report)
        assert report.spent_tokens > 100
    finally:
        with_no_answer.server_close()


def test_a_command_may_print_anything(bank: Bank, tmp_path: Path) -> None:
    doubtful(bank, 1)
    script = tmp_path / "judge.sh"
    script.write_text("#!/bin/sh\ncat > /dev/null\nprintf '\\377\\376{}'\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    report = bank.maintain(judge=LLMJudge(program([str(script)])))
    assert "both memories" in noted(report)
    assert report.spent_tokens > 100
    assert [step.step for step in report.steps] == list(DEFAULT_STEPS)


class Odd:
    """A judge of somebody else's making."""

    name = "odd"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize(
    "answer",
    [
        ValueError("no"),
        None,
        ["MERGE"],
        Verdicts(decisions=None),  # type: ignore[arg-type]
        Verdicts(decisions=("PERHAPS",)),  # type: ignore[arg-type]
        Verdicts(decisions=(None,), tokens="many", money=float("nan")),  # type: ignore[arg-type]
    ],
)
def test_a_judge_of_any_making_cannot_stop_a_run(bank: Bank, answer: object) -> None:
    doubtful(bank, 1)
    report = bank.maintain(judge=Odd(answer))
    assert "1 pair was not decided" in noted(report)
    assert (report.queued, report.spent_tokens, report.spent_money) == (1, 0, 0)


def test_a_retry_that_succeeds_leaves_no_complaint(bank: Bank, endpoint: Server) -> None:
    doubtful(bank, 1)
    endpoint.says("I cannot do that", KEEP, usage={"total_tokens": 50})
    report = bank.maintain(ONLY, judge=LLMJudge(behind(endpoint.url)))
    assert (len(endpoint.asked), report.queued, report.spent_tokens) == (2, 0, 100)
    assert noted(report) == ""


def chinese(count: int) -> list[Case]:
    def memory(number: int) -> Memory:
        text = f"用户更喜欢深色主题，而且他们住在北京的朝阳区，第{number}号"
        return Memory(id=f"x-{number}", kind="fact", text=text)

    return [
        Case(older=memory(n), newer=memory(n + 1), kind="update", similarity=0.9, confidence=0.5)
        for n in range(count)
    ]


def test_other_scripts_are_asked_as_they_are_and_not_underestimated() -> None:
    cases = chinese(100)
    assert "朝阳区" in prompt_for(cases)
    question, answers = 5002, 15 * 100  # of the o200k vocabulary
    limits = {"money": 1.0, "price_per_million": 0.0}
    assert fitting(cases, tokens=question + answers, **limits) < 100
    assert fitting(cases, tokens=4 * (question + answers), **limits) == 100
    assert fitting([], tokens=0, **limits) == 0


def test_the_number_of_a_pair_is_a_number_or_one_in_quotes() -> None:
    def read(place: str) -> object:
        return read_answer('{"decisions": [{"pair": %s, "decision": "MERGE"}]}' % place, 1)  # noqa: UP031

    assert read("1") == read('"1"') == ("MERGE",)
    assert read("true") == read('"one"') == read("[1]") == read("1.5") == read("null") == (None,)
