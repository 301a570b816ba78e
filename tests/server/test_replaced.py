"""A bank file that is replaced while a call is on its way: who reads gets the answer of the new file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_wire import Client

from skep.bank.bank import Bank
from skep.server.mcp.session import Session
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_calls import Call
from skep.server.mcp.tool_profiles import build_server

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there an open file keeps its name")


class Racing(Banks):
    """Banks whose file is replaced between being looked up and being used, as many times as asked for."""

    races = 0

    def of(self, call: Call, session: Session) -> Bank:
        bank = super().of(call, session)
        if self.races:
            self.races -= 1
            path = Path(str(call.place))
            with Bank.open(path.with_name("other.skep")) as other:
                other.remember("The harbour opens at six", on_conflict="ignore")
            Bank.put_back(path.with_name("other.skep"), path)
        return bank


@pytest.fixture
def racing(tmp_path: Path, connect: Callable[..., Client]) -> tuple[Racing, Client]:
    banks = Racing(str(tmp_path / "bank.skep"), environ={}, start=tmp_path)
    client = connect(build_server("full", banks, version="1"))
    client.initialize()
    client.text("remember", text="The harbour opens at five")
    return banks, client


READS: dict[str, dict[str, Any]] = {
    "recall": {"query": "when does the harbour open"},
    "find": {},
    "history": {},
}


@pytest.mark.parametrize("name", READS)
def test_a_read_is_answered_from_the_new_file(racing: tuple[Racing, Client], name: str) -> None:
    banks, client = racing
    banks.races = 1
    result = client.call(name, **READS[name])
    assert not result.get("isError"), result
    assert "harbour opens at six" in result["content"][0]["text"]


def test_a_file_that_is_replaced_again_and_again_is_told(racing: tuple[Racing, Client]) -> None:
    banks, client = racing
    banks.races = 2
    result = client.call("recall", query="when does the harbour open")
    assert result["isError"]
    assert "replaced" in result["content"][0]["text"]


def test_a_write_is_not_done_twice(racing: tuple[Racing, Client]) -> None:
    banks, client = racing
    banks.races = 1
    assert client.call("remember", text="The harbour has two cranes")["isError"]
    client.text("remember", text="The harbour has two cranes")
    assert client.text("find").count("two cranes") == 1
