"""A language model as a reranker."""

from __future__ import annotations

import json

import pytest
from tests.llm.chat_server import Busy, ChatServer

from skep.bank.bank import Bank
from skep.errors import LLMError
from skep.llm import open_llm
from skep.retrieval.rerankers import LLMReranker


def test_the_order_of_a_model_counts_and_what_it_leaves_out_stands_last(bank: Bank, chat: ChatServer) -> None:
    bank.remember_many(["Ana drinks tea", "Ana drinks coffee at noon", "Ana drinks water"])

    def says(prompt: str) -> str:
        lines = dict(line.split(": ", 1) for line in prompt.splitlines() if line[:1].isdigit())
        number = next(int(key) for key, text in lines.items() if "coffee" in text)
        return json.dumps([{"text": number, "score": 0.9}, {"text": 99, "score": 1}, {"text": 0, "score": 1}])

    chat.says = [says]
    llm = open_llm("openai:m", base_url=chat.url, sleep=lambda _seconds: None)
    found = bank.recall("what does Ana drink?", reranker=LLMReranker(llm))
    assert found[0].memory.text == "Ana drinks coffee at noon"
    assert len(found) == 3
    chat.says = [Busy(503)]
    with pytest.raises(LLMError, match="503"):
        bank.recall("what does Ana drink?", reranker=LLMReranker(llm))
