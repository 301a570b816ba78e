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

from skep.bank import Bank
from skep.server.mcp.banks import Banks
from skep.server.mcp.loop import Connection
from skep.server.mcp.profiles import PROFILES, build_server
from skep.server.mcp.registry import Tool
from skep.server.mcp.session import Server

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

    def written(self) -> int:
        """How many events there are, not counting use statistics."""
        bank = next(iter(self.banks._open.values()), None)
        events = bank.history(limit=10_000) if bank is not None else []
        return sum(event.kind != "use" for event in events)


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
    before = desk.written()

    answer = desk.call(profile, tool, arguments)

    assert answer.get("error", {}).get("code") != -32603, answer
    if "result" in answer:
        assert answer["result"]["content"]
    if tool.reads:
        assert desk.written() == before


def test_the_bank_is_whole_after_all_that(desk: Desk) -> None:
    for profile, tool in TOOLS:
        desk.call(profile, tool, {"text": "after", "query": "after", "id": desk.ids[0]})

    with Bank.open(desk.path) as bank:
        assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []
