"""A program that words facts: one prompt for all clusters, checked answers, a limit, and nothing lost when it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.bank import Bank
from skep.cli import app
from skep.errors import DistilError
from skep.lifecycle.distillers import CommandDistiller, prompt_for, read_answer
from skep.lifecycle.maintain import MaintainConfig

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
    distil = CommandDistiller(model)
    report = bank.maintain(EXTRACT, distil=distil)
    assert {fact.text for fact in bank.find(kind="fact")} == {"said 1", "said 2"}
    assert Path(model[2]).read_text() == "x"
    assert report.spent_tokens == distil.tokens > 0


def test_what_an_answer_leaves_out_is_asked_for_once_more(bank: Bank, model: list[str]) -> None:
    told(bank)
    bank.maintain(EXTRACT, distil=CommandDistiller([*model, "1"]))
    assert sorted(fact.text for fact in bank.find(kind="fact")) == ["said 1", "said 2"]
    assert Path(model[2]).read_text() == "xx"


def test_what_the_limit_does_not_allow_waits_for_the_next_run(bank: Bank, model: list[str]) -> None:
    told(bank)
    one = CommandDistiller(model)
    enough = next(
        n for n in range(1000) if CommandDistiller(model, max_tokens=n).fitting([[SAID[0], SAID[0]]])
    )
    report = bank.maintain(EXTRACT, distil=CommandDistiller(model, max_tokens=enough + 20))
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
    note = bank.maintain(EXTRACT, distil=CommandDistiller([sys.executable, "-c", code])).steps[-1].note
    assert why in note
    assert note.endswith("the next run asks again")
    bank.maintain(EXTRACT, distil=CommandDistiller(model))
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
