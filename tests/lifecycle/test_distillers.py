"""A model that words facts: one prompt for all clusters, checked answers, a limit, and nothing lost when it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.lifecycle.endpoint import Server, behind, program
from tests.lifecycle.test_lease import doubtful

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import ConfigError, DistilError
from skep.lifecycle.judge import LLMJudge
from skep.lifecycle.maintain import MaintainConfig
from skep.lifecycle.summarise import Distiller, prompt_for, read_answer

SAID = ("The customer asked for invoices in PDF format", "Deploying on Friday broke the login page")
EXTRACT = MaintainConfig(steps=("embed", "extract"))
ANSWERS = """
import json, re, sys
from pathlib import Path
prompt = sys.stdin.read()
calls = Path(sys.argv[1])
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
groups = re.findall(r"^Group (\\d+)$", prompt, re.M)
skip = sys.argv[2:] if calls.read_text() == "x" else []
print("Here:", json.dumps({"texts": [{"group": int(g), "text": f"said {g}"} for g in groups if g not in skip]}))
"""


@pytest.fixture
def model(tmp_path: Path) -> list[str]:
    script = tmp_path / "model.py"
    script.write_text(ANSWERS)
    return [sys.executable, str(script), str(tmp_path / "calls")]


def told(bank: Bank) -> None:
    for said in SAID:
        for text in (said, said + " again"):
            bank.remember(text, kind="episode", on_conflict="ignore")


def test_one_call_words_every_cluster(bank: Bank, model: list[str]) -> None:
    told(bank)
    distil = Distiller(program(model))
    report = bank.maintain(EXTRACT, distil=distil)
    assert {fact.text for fact in bank.find(kind="fact")} == {"said 1", "said 2"}
    assert Path(model[2]).read_text() == "x"
    assert report.spent_tokens == distil.tokens > 0


def test_what_an_answer_leaves_out_is_asked_for_once_more(bank: Bank, model: list[str]) -> None:
    told(bank)
    bank.maintain(EXTRACT, distil=Distiller(program([*model, "1"])))
    assert sorted(fact.text for fact in bank.find(kind="fact")) == ["said 1", "said 2"]
    assert Path(model[2]).read_text() == "xx"


def test_what_was_answered_is_kept_when_the_second_call_fails(
    bank: Bank, model: list[str], tmp_path: Path
) -> None:
    told(bank)
    script = tmp_path / "model.py"
    script.write_text(ANSWERS + "\nsys.exit(calls.read_text() != 'x')\n")
    bank.maintain(EXTRACT, distil=Distiller(program([*model, "1"])))
    assert [fact.text for fact in bank.find(kind="fact")] == ["said 2"]
    assert Path(model[2]).read_text() == "xx"


def test_what_the_limit_does_not_allow_waits_for_the_next_run(bank: Bank, model: list[str]) -> None:
    told(bank)
    one = Distiller(program(model))
    enough = next(
        n for n in range(1000) if Distiller(program(model), max_tokens=n).fitting([[SAID[0], SAID[0]]])
    )
    report = bank.maintain(EXTRACT, distil=Distiller(program(model), max_tokens=enough + 20))
    assert report.steps[-1].note == "the limit allows asking about 1 of 2 clusters; the others wait"
    assert len(list(bank.find(kind="fact"))) == 1
    bank.maintain(EXTRACT, distil=one)
    assert len(list(bank.find(kind="fact"))) == 2
    assert bank.maintain(EXTRACT, distil=one).changed == 0


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import sys; sys.exit('log in first')", "exit status 1: log in first"),
        ("print('no idea')", "cannot be read"),
    ],
)
def test_a_program_that_fails_is_told_and_asked_again(
    bank: Bank, model: list[str], code: str, why: str
) -> None:
    told(bank)
    note = bank.maintain(EXTRACT, distil=Distiller(program([sys.executable, "-c", code]))).steps[-1].note
    assert why in note
    assert note.endswith("the next run asks again")
    bank.maintain(EXTRACT, distil=Distiller(program(model)))
    assert len(list(bank.find(kind="fact"))) == 2


def test_answers_are_read_with_care() -> None:
    assert read_answer('{"texts": [{"group": 9, "text": "x"}, {"group": true, "text": "x"}, 7]}', 2) == {}
    for bad in ("", "no json", '{"texts": 7}', '{"other": []}', "[" * 100_000):
        with pytest.raises(DistilError):
            read_answer(bad, 1)


def test_texts_cannot_pose_as_groups() -> None:
    assert prompt_for([["one\nGroup 2\n- two"]]).count("\nGroup ") == 1


def call(path: Path, *args: str) -> Result:
    return CliRunner().invoke(app, ["--bank", str(path), "maintain", *args])


def test_from_the_shell(tmp_path: Path, model: list[str]) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        told(bank)
    assert "no program 'no-such-program'" in call(path, "--distil-command", "no-such-program -p").output
    done = json.loads(call(path, "--distil-command", " ".join(model), "--json").output)
    assert {why for step in done["steps"] if step["step"] == "extract" for why in step["actions"]} == {
        "2 episodes say 'said 1'",
        "2 episodes say 'said 2'",
    }


def worded(*texts: str) -> str:
    return json.dumps({"texts": [{"group": n, "text": text} for n, text in enumerate(texts, 1)]})


def test_an_endpoint_words_every_cluster_in_one_request(bank: Bank, endpoint: Server) -> None:
    told(bank)
    endpoint.says(worded("said 1", "said 2"), usage={"total_tokens": 500})
    distil = Distiller(behind(endpoint.url, key="secret", price_per_million=2000.0))
    report = bank.maintain(EXTRACT, distil=distil)
    assert {fact.text for fact in bank.find(kind="fact")} == {"said 1", "said 2"}
    assert [asked["model"] for asked in endpoint.asked] == ["m"]
    assert (report.spent_tokens, report.spent_money) == (500, pytest.approx(1.0))


def test_money_limits_what_an_endpoint_is_asked(bank: Bank, endpoint: Server) -> None:
    told(bank)
    dear = behind(endpoint.url, price_per_million=1000.0)
    report = bank.maintain(EXTRACT, distil=Distiller(dear, max_money=0.01))
    assert endpoint.asked == []
    assert report.steps[-1].note == "the limit allows asking about 0 of 2 clusters; the others wait"
    endpoint.says(worded("said 1", "said 2"))
    bank.maintain(EXTRACT, distil=Distiller(dear, max_money=1.0))
    assert len(list(bank.find(kind="fact"))) == 2


def test_what_the_model_spent_is_not_spent_again_by_the_judge(bank: Bank, endpoint: Server) -> None:
    told(bank)
    doubtful(bank, 1)
    endpoint.says(worded("said 1", "said 2"), usage={"total_tokens": 1990})
    config = MaintainConfig(steps=("embed", "extract", "conflicts", "judge"), max_tokens=2000)
    model = Distiller(behind(endpoint.url), max_tokens=2000)
    report = bank.maintain(config, distil=model, judge=LLMJudge(behind(endpoint.url)))
    assert len(endpoint.asked) == 1
    assert "allow asking about 0 of " in report.steps[-1].note


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b'{"choices": [{"message": {"content": "no"}}]}'])
def test_an_endpoint_that_answers_nonsense_is_told_paid_and_asked_again(
    bank: Bank, endpoint: Server, answer: bytes
) -> None:
    told(bank)
    endpoint.answers = [answer]
    report = bank.maintain(EXTRACT, distil=Distiller(behind(endpoint.url)))
    assert report.steps[-1].note.endswith("the next run asks again")
    assert report.spent_tokens > 100
    endpoint.says(worded("said 1", "said 2"))
    bank.maintain(EXTRACT, distil=Distiller(behind(endpoint.url)))
    assert len(list(bank.find(kind="fact"))) == 2


def test_nobody_behind_the_address(bank: Bank) -> None:
    told(bank)
    report = bank.maintain(EXTRACT, distil=Distiller(behind("http://127.0.0.1:9/")))
    assert "did not answer" in report.steps[-1].note
    assert report.spent_tokens == 0
    with pytest.raises(ConfigError, match="is no address"):
        behind("localhost:80")


def test_an_endpoint_from_the_shell(tmp_path: Path, endpoint: Server) -> None:
    path = tmp_path / "bank.skep"
    with Bank.open(path) as bank:
        told(bank)
    endpoint.says(worded("said 1", "said 2"))
    for given, why in (
        (("--distil-model", "m"), "belong to --distil-url"),
        (("--distil-url", endpoint.url), "needs --distil-model"),
        (("--distil-url", endpoint.url, "--distil-command", "true"), "one model at a time"),
    ):
        assert why in " ".join(call(path, *given).output.replace("│", " ").split())
    assert isinstance(call(path, "--distil-url", "nowhere", "--distil-model", "m").exception, ConfigError)
    done = json.loads(call(path, "--distil-url", endpoint.url, "--distil-model", "m", "--json").output)
    assert {why for step in done["steps"] if step["step"] == "extract" for why in step["actions"]} == {
        "2 episodes say 'said 1'",
        "2 episodes say 'said 2'",
    }


def test_what_was_worded_before_a_failure_stays_and_the_rest_is_asked_for_again(
    bank: Bank, endpoint: Server
) -> None:
    told(bank)
    endpoint.says(worded("said 1"), "busy")
    report = bank.maintain(EXTRACT, distil=Distiller(behind(endpoint.url)))
    assert [fact.text for fact in bank.find(kind="fact")] == ["said 1"]
    assert report.steps[-1].note.endswith("cannot be read (KeyError('texts')); the next run asks again")
    endpoint.says(worded("said 2"))
    bank.maintain(EXTRACT, distil=Distiller(behind(endpoint.url)))
    assert {fact.text for fact in bank.find(kind="fact")} == {"said 1", "said 2"}


def test_what_the_limit_kept_from_being_asked_for_once_more_waits(bank: Bank, endpoint: Server) -> None:
    told(bank)
    endpoint.says(worded("said 1"), usage={"total_tokens": 950})
    report = bank.maintain(EXTRACT, distil=Distiller(behind(endpoint.url), max_tokens=1000))
    assert len(endpoint.asked) == 1
    note = "the limit came before 1 clusters were worded; the next run asks again"
    assert report.steps[-1].note == note


def test_what_the_judge_has_spent_counts_for_the_model_that_distils(bank: Bank, endpoint: Server) -> None:
    for day in range(4):
        text = f"The nightly build failed because the disk was full on day {day}"
        bank.remember(text, kind="episode", on_conflict="ignore")
    doubtful(bank, 1)
    endpoint.says('{"decisions": [{"pair": 1, "decision": "KEEP_BOTH"}]}', usage={"total_tokens": 9_990})
    model = behind(endpoint.url)
    report = bank.maintain(
        MaintainConfig(steps=("embed", "judge", "reflect"), max_tokens=10_000),
        judge=LLMJudge(behind(endpoint.url)),
        distil=Distiller(model, max_tokens=10_000),
    )
    assert report.spent_tokens == 9_990
    assert report.steps[-1].note == "the limit allows asking about 0 of 1 clusters; the others wait"
