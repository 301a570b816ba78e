"""The client of language models: every dialect whole and streamed, faults, JSON, deadlines and budgets."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.llm.chat_server import IN, OUT, Busy, ChatServer, Cut, Raw, Reset, Slow

from skep.errors import BudgetError, ConfigError, InvalidInputError, LLMError
from skep.llm import LLM, Budget, open_llm
from skep.llm.budget import Price, most_tokens
from skep.llm.language_model import tokens_of

KEY = "sk-very-secret"
DIALECTS = ["openai", "anthropic", "gemini", "ollama"]


class Colour(msgspec.Struct):
    name: str
    shade: int


def model(chat: ChatServer, dialect: str = "openai", **options: object) -> LLM:
    options.setdefault("sleep", lambda _seconds: None)
    return open_llm(f"{dialect}:m1", key=KEY, base_url=chat.url, **options)  # type: ignore[arg-type]


def ask_again_and_again(llm: LLM, prompt: str) -> None:
    for _ in range(100):
        llm.ask(prompt, max_tokens=50)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_spoken_whole(chat: ChatServer, dialect: str) -> None:
    chat.says = ["green tea"]
    llm = model(chat, dialect, price=Price(input=1_000_000, output=2_000_000))
    reply = llm.ask("what?", system="be brief", max_tokens=99)
    assert (reply.text, reply.tokens_in, reply.tokens_out) == ("green tea", IN, OUT)
    assert reply.money == llm.spent.money == IN + 2 * OUT
    asked, headers = json.dumps(chat.asked[0]), json.dumps(chat.headers[0])
    assert all(part in asked for part in ("what?", "be brief", "99"))
    assert (KEY in headers) is (dialect != "ollama")
    assert KEY not in asked


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_spoken_in_pieces(chat: ChatServer, dialect: str) -> None:
    chat.says = ["a rather long answer, and it comes in pieces"]
    llm = model(chat, dialect)
    pieces = list(llm.stream("what?"))
    assert len(pieces) > 3
    assert "".join(pieces) == chat.says[0]
    assert (llm.spent.tokens_in, llm.spent.tokens_out) == (IN, OUT)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_busy_service_is_asked_again_after_the_pause_it_wants(chat: ChatServer, dialect: str) -> None:
    waits: list[float] = []
    chat.says = [Busy(429, "7"), Busy(503), "fine"]
    assert model(chat, dialect, sleep=waits.append).ask("x").text == "fine"
    assert waits == [7.0, 1.0]


def test_patience_ends_and_what_was_wrong_is_told_without_the_key(chat: ChatServer) -> None:
    chat.says = [Busy(529)]
    with pytest.raises(LLMError, match=r"529.*slow down.*gave up after 3 tries") as caught:
        model(chat).ask("x")
    assert caught.value.passing
    assert len(chat.asked) == 3
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("body", ['{"error": {"code": "insufficient_quota"}}'])
def test_no_second_try_where_waiting_does_not_help(chat: ChatServer, body: str) -> None:
    chat.says = [Busy(429, body=body)]
    with pytest.raises(LLMError, match="check the address"):
        model(chat).ask("x")
    chat.says = [Busy(401)]
    with pytest.raises(LLMError, match="401"):
        model(chat).ask("x")
    assert len(chat.asked) == 2


def test_a_pause_longer_than_the_time_left_is_not_waited_for(chat: ChatServer) -> None:
    waits: list[float] = []
    chat.says = [Busy(429, "25")]
    with pytest.raises(LLMError):
        model(chat, timeout=20, sleep=waits.append).ask("x")
    assert waits == []


@pytest.mark.parametrize("fault", [Cut(), Reset()])
def test_an_answer_that_breaks_off_is_asked_for_again(chat: ChatServer, fault: Cut | Reset) -> None:
    chat.says = [fault, "fine"]
    llm = model(chat)
    assert llm.ask("x").text == "fine"
    assert llm.spent.calls == 2


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_stream_that_breaks_off_is_an_error_and_no_shorter_answer(chat: ChatServer, dialect: str) -> None:
    chat.says = [Cut("one two three four five six seven eight nine ten")]
    llm = model(chat, dialect)
    got: list[str] = []
    with pytest.raises(LLMError, match="broke off"):
        got.extend(llm.stream("x"))
    assert llm.spent.tokens_out > 0
    assert len(chat.asked) == 1


def test_a_deadline_holds_for_an_answer_that_comes_byte_by_byte(chat: ChatServer) -> None:
    chat.says = [Slow()]
    llm = model(chat, timeout=0.5)
    begun = time.monotonic()
    with pytest.raises(LLMError, match="did not answer in time") as caught:
        llm.ask("x" * 300)
    with pytest.raises(LLMError, match="did not answer in time"):
        list(llm.stream("x"))
    assert time.monotonic() - begun < 20  # the whole answer would take 200 s
    assert caught.value.tokens == tokens_of("x" * 300)


def test_json_is_checked_and_asked_for_once_more_with_what_was_wrong(chat: ChatServer) -> None:
    chat.says = ['Here: {"name": "green", "shade": "dark"}', '```json\n{"name": "green", "shade": 3}\n```']
    assert model(chat).ask_json("which colour?", Colour) == Colour("green", 3)
    first, second = (turn["messages"][0]["content"] for turn in chat.asked)
    assert '"shade"' in first
    assert "Expected `int`, got `str`" in second


@pytest.mark.parametrize(
    "answer", ["", "no idea", "{", "[" * 100_000, '{"name": 1}', '{"name": "x", "shade":']
)
def test_an_answer_that_is_no_json_twice_is_an_error(chat: ChatServer, answer: str) -> None:
    chat.says = [answer]
    llm = model(chat)
    with pytest.raises(LLMError, match="asked twice") as caught:
        llm.ask_json("which colour?", Colour)
    assert len(chat.asked) == 2
    assert caught.value.tokens == 2 * (IN + OUT)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"choices": []}', b"\xff\xfe", b'{"choices": [{"message": 7}]}', b"1" * 5000]
)
def test_an_answer_of_another_shape_is_an_error_and_paid_for(chat: ChatServer, body: bytes) -> None:
    chat.says = [Raw(body)]
    llm = model(chat)
    with pytest.raises(LLMError, match="unknown shape"):
        llm.ask("a question of some length")
    assert llm.spent.tokens >= tokens_of("a question of some length")


def test_nobody_listens_is_said_at_once_and_costs_nothing() -> None:
    waits: list[float] = []
    llm = open_llm("openai:m", base_url="http://127.0.0.1:9", sleep=waits.append)
    with pytest.raises(LLMError, match="is it running") as caught:
        llm.ask("x")
    assert caught.value.passing
    assert (caught.value.tokens, llm.spent.tokens, waits) == (0, 0, [])


def test_a_budget_is_never_exceeded_and_the_answer_is_cut_to_what_is_left(chat: ChatServer) -> None:
    prompt = "tell me everything about tea"
    llm = model(chat, budget=Budget(max_tokens=200))
    llm.ask(prompt, max_tokens=1000)
    assert chat.asked[0]["max_tokens"] == 200 - most_tokens(prompt) - 64
    with pytest.raises(BudgetError, match="does not fit into the budget"):
        ask_again_and_again(llm, prompt)
    assert llm.spent.tokens <= 200
    assert llm.spent.calls == len(chat.asked)


def test_a_budget_in_money_needs_a_price(chat: ChatServer) -> None:
    with pytest.raises(BudgetError, match="needs the price"):
        model(chat, budget=Budget(max_money=1.0)).ask("x")
    llm = model(chat, price=1_000.0, budget=Budget(max_tokens=None, max_money=0.2))
    with pytest.raises(BudgetError):
        ask_again_and_again(llm, "x")
    assert 0 < llm.spent.money <= 0.2
    with pytest.raises(InvalidInputError):
        Budget(max_money=-1)


def test_threads_that_ask_at_once_do_not_exceed_a_budget_together(chat: ChatServer) -> None:
    llm = model(chat, budget=Budget(max_tokens=400))
    refused: list[BudgetError] = []

    def ask() -> None:
        try:
            llm.ask("x" * 30, max_tokens=20)
        except BudgetError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert refused
    assert llm.spent.tokens <= 400


def test_what_loops_is_stopped_by_a_number_of_calls(chat: ChatServer) -> None:
    llm = model(chat, budget=Budget(max_calls=3))
    for _ in range(3):
        llm.ask("again")
    with pytest.raises(BudgetError, match="3 calls"):
        llm.ask("again")


@given(st.text())
def test_a_text_is_never_more_tokens_than_is_reserved_for_it(text: str) -> None:
    assert tokens_of(text) <= most_tokens(text) + 2


def test_a_command_answers_on_its_standard_output(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text("import sys; print(sys.stdin.read().upper())")
    llm = open_llm(f"command:{sys.executable} {script}")
    assert llm.ask("hello", system="shout").text.strip() == "SHOUT\n\nHELLO"
    assert "".join(llm.stream("hello")).strip() == "HELLO"
    script.write_text("import sys; sys.exit('log in first')")
    with pytest.raises(LLMError, match="log in first"):
        llm.ask("hello")
    script.write_text("import time; time.sleep(60)")
    with pytest.raises(LLMError, match="did not answer in time"):
        open_llm(f"command:{sys.executable} {script}", timeout=0.3).ask("hello")
    with pytest.raises(LLMError, match="no-such-program"):
        open_llm("command:no-such-program").ask("hello")


def test_a_function_may_stand_for_a_model() -> None:
    assert open_llm(str.title).ask("green tea").text == "Green Tea"
    with pytest.raises(LLMError, match="ZeroDivisionError"):
        open_llm(lambda _: str(1 / 0)).ask("x")
    with pytest.raises(LLMError, match="NoneType"):
        open_llm(lambda _: None).ask("x")  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("opnai:gpt", "did you mean 'openai'"),
        ("openai:", "name a model"),
        ("openai:gpt", "OPENAI_API_KEY"),
        ("command:", "name a program"),
        ("command:'", "cannot be read"),
    ],
)
def test_a_model_that_cannot_be_is_refused_with_what_to_do(spec: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_llm(spec)


def test_an_entry_point_finds_keys_and_addresses_in_its_environment(chat: ChatServer) -> None:
    environ = {"GOOGLE_API_KEY": KEY, "OLLAMA_HOST": chat.url, "ANTHROPIC_API_KEY": "a"}
    open_llm("ollama:m", environ=environ).ask("x")
    assert chat.asked[0]["path"] == "/api/chat"
    assert open_llm("gemini:m", environ=environ).name == "gemini:m"


def test_a_whole_address_is_taken_as_it_is(chat: ChatServer) -> None:
    open_llm("openai:m", base_url=f"{chat.url}/v1/chat/completions?tenant=1").ask("x")
    assert chat.asked[0]["path"] == "/v1/chat/completions?tenant=1"
