"""What an agent does is traced under the names of the conventions, and one id follows it."""

from __future__ import annotations

import json

import pytest
from tests.llm.chat_server import ChatServer

from skep.agent import Agent
from skep.agent import agent as agent_module
from skep.bank.bank import Bank
from skep.hive.traces import Span, Tracer, carried
from skep.llm import LLM


def test_each_call_is_a_span_with_the_names_of_the_conventions(
    bank: Bank, chat: ChatServer, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[Span] = []
    monkeypatch.setattr(agent_module, "tracer", Tracer(spans.append))
    chat.says = [json.dumps({"known": False})]
    with carried("trace-7"):
        Agent(bank, "ana", llm=llm).answer("where is the backup?")
        Agent(bank, "bob").learn_from_content("The backup goes to nas3.", "a.md")
    assert [(span.name, span.trace) for span in spans] == [
        ("agent.answer", "trace-7"),
        ("agent.learn_from_content", "trace-7"),
    ]
    first = spans[0].attributes
    assert first["gen_ai.operation.name"] == "search_memory"
    assert first["gen_ai.agent.name"] == "ana"
    assert first["gen_ai.memory.store.id"] == bank.actor
    assert (first["gen_ai.provider.name"], first["gen_ai.request.model"]) == ("openai", "m")
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (11, 7)
    assert "gen_ai.usage.input_tokens" not in spans[1].attributes
