"""Whatever a model sends: the server answers, the bank stays whole, and reading never writes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp_wire import META

from skep.bank.bank import Bank
from skep.server.mcp.session import Server
from skep.server.mcp.start import Banks
from skep.server.mcp.stdio import Connection
from skep.server.mcp.tool_calls import Tool
from skep.server.mcp.tool_profiles import PROFILES, build_server

TOOLS = [(profile, tool) for profile in ("full", "reference", "search") for tool in PROFILES[profile](None)]
WORDS = st.sampled_from(
    ["ruff", "Ana likes tea", "the gateway", "2025-01-01", "at-1", "*", "\u0000", "é" * 50, "🐝", ""]
)


def from_schema(schema: dict[str, Any], ids: list[str]) -> st.SearchStrategy[Any]:
    """Values that a schema allows, with ids of real memories among the texts."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema.get("type")
    if kind == "string":
        return (st.text(max_size=20) | WORDS | st.sampled_from(ids)).filter(
            lambda text: len(text) >= schema.get("minLength", 0)
        )
    if kind == "integer":
        return st.integers(schema.get("minimum", -5), min(schema.get("maximum", 200), 200))
    if kind == "number":
        return st.floats(schema.get("minimum", -5), schema.get("maximum", 5), allow_nan=False)
    if kind == "boolean":
        return st.booleans()
    if kind == "array":
        return st.lists(from_schema(schema.get("items", {}), ids), max_size=4)
    if kind == "object":
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        return st.fixed_dictionaries(
            {name: from_schema(properties[name], ids) for name in required},
            optional={
                name: from_schema(part, ids) for name, part in properties.items() if name not in required
            },
        )
    return ANYTHING


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def stored(path: Path) -> dict[str, bytes]:
    """The bytes of a bank by the name of the file they lie in; the empty write-ahead log of a reader is none."""
    files = (path, path.with_name(path.name + "-wal"))
    return {file.name: file.read_bytes() for file in files if file.exists() and file.stat().st_size}


class Desk:
    """A bank with a few memories in it, and a server over it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bank.skep"
        with Bank.open(self.path) as bank:
            known = bank.remember_many(
                ["Use ruff for linting", "Ana likes tea", "The gateway is called Heimdall"]
            )
            self.ids = [one.memory.id for one in known]
            bank.link(self.ids[0], self.ids[1])
        self.banks = Banks(str(self.path), environ={}, start=folder)
        self.servers: dict[str, Server] = {
            profile: build_server(profile, self.banks, version="1")
            for profile in ("full", "reference", "search")
        }

    def call(self, profile: str, tool: Tool, arguments: object) -> dict[str, Any]:
        """Call a tool as a stateless client does."""
        out = io.BytesIO()
        params = {"name": tool.name, "arguments": arguments, "_meta": META}
        frame = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        Connection(self.servers[profile], io.BytesIO(frame), out).run()
        [answer] = out.getvalue().splitlines()
        return json.loads(answer)

    def stored(self) -> dict[str, bytes]:
        """Every byte of the bank: the file, and what SQLite has not moved into it yet."""
        return stored(self.path)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = Desk(tmp_path_factory.mktemp("desk"))
    made.call("full", TOOLS[0][1], {"text": "open the bank"})
    yield made
    made.banks.close()


QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize(
    ("profile", "tool"), TOOLS, ids=[f"{profile}-{tool.name}" for profile, tool in TOOLS]
)
@QUICK
@given(data=st.data())
def test_arguments_of_any_shape_are_answered_and_reading_never_writes(
    desk: Desk, profile: str, tool: Tool, data: st.DataObject
) -> None:
    arguments = data.draw(from_schema(tool.schema, desk.ids) | ANYTHING, label="arguments")
    before = desk.stored()

    answer = desk.call(profile, tool, arguments)

    assert answer.get("error", {}).get("code") != -32603, answer
    if "result" in answer:
        assert answer["result"]["content"]
    if tool.reads:
        assert desk.stored() == before


def test_the_bank_is_whole_after_all_that(desk: Desk) -> None:
    for profile, tool in TOOLS:
        desk.call(profile, tool, {"text": "after", "query": "after", "id": desk.ids[0]})

    with Bank.open(desk.path) as bank:
        assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []


def reading_tools() -> list[tuple[str, Tool]]:
    return [(profile, tool) for profile, tool in TOOLS if tool.reads]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_session_that_only_reads_leaves_every_byte_as_it_was_even_when_it_ends(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    desk = Desk(tmp_path_factory.mktemp("reader"))
    before = desk.stored()

    calls = st.tuples(st.sampled_from(reading_tools()), st.data())
    for (profile, tool), inner in data.draw(st.lists(calls, min_size=5, max_size=15)):
        desk.call(profile, tool, inner.draw(from_schema(tool.schema, desk.ids)))
        desk.call("full", recall_tool(), {"query": "which linter is used?"})
    assert desk.stored() == before
    desk.banks.close()

    assert desk.stored() == before


def recall_tool() -> Tool:
    return next(tool for _, tool in TOOLS if tool.name == "recall")


def test_reading_where_there_is_no_bank_makes_none(tmp_path: Path) -> None:
    banks = Banks(None, environ={"HOME": str(tmp_path)}, start=tmp_path)
    server = build_server("full", banks, version="1")
    for _profile, tool in reading_tools():
        params = {"name": tool.name, "arguments": {"query": "x", "text": "x"}, "_meta": META}
        frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        Connection(server, io.BytesIO(json.dumps(frame).encode()), io.BytesIO()).run()
    banks.close()

    assert list(tmp_path.rglob("*")) == []


def test_uses_are_counted_with_the_next_write(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    for _ in range(3):
        desk.call("full", recall_tool(), {"query": "which linter is used?"})
    with Bank.open(desk.path) as bank:
        assert bank.get(desk.ids[0]).uses == 0

    desk.call("full", TOOLS[0][1], {"text": "something else entirely"})
    desk.banks.close()

    with Bank.open(desk.path) as bank:
        assert bank.get(desk.ids[0]).uses == 3
