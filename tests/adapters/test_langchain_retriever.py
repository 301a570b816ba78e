"""LangChain's standard tests of a retriever, run against a bank."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_tests.integration_tests import RetrieversIntegrationTests

from skep.adapters.langchain import BankRetriever
from skep.bank.bank import Bank


class TestBankRetriever(RetrieversIntegrationTests):
    """Their four tests."""

    @pytest.fixture(autouse=True)
    def _filled(self, bank: Bank) -> None:
        days = ("Monday", "Friday", "Sunday", "Tuesday")
        bank.remember_many(f"note {n}: the backup runs on {day}" for n, day in enumerate(days))
        self.bank = bank

    @property
    def retriever_constructor(self) -> type[BankRetriever]:
        return BankRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"bank": self.bank}

    @property
    def retriever_query_example(self) -> str:
        return "when does the backup run"


def test_a_document_says_where_it_comes_from_and_how_sure_it_is(bank: Bank) -> None:
    memory = bank.remember(
        "Ana edits in Helix", scope={"user": "ana"}, metadata={"seen": 3}, source="chat/7"
    ).memory
    bank.remember("Bo edits in Emacs", scope={"user": "bo"})
    (document,) = BankRetriever(bank=bank, scope={"user": "ana"}).invoke("which editor does Ana use")
    assert (document.id, document.page_content) == (memory.id, "Ana edits in Helix")
    assert (document.metadata["source"], document.metadata["seen"]) == ("chat/7", 3)
    assert document.metadata["level"] in ("strong", "likely", "weak")


def test_a_retriever_may_leave_out_what_is_weak(bank: Bank) -> None:
    bank.remember("Ana edits in Helix")
    assert BankRetriever(bank=bank, levels=("strong", "likely")).invoke("the price of copper in 1987") == []
