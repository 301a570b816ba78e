"""Other servers' tools over a bank."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_wire import Client

from skep.server.mcp.start import Banks
from skep.server.mcp.tool_profiles import build_server


@pytest.fixture
def reference(tmp_path: Path, connect: Callable[..., Client]) -> Client:
    banks = Banks(str(tmp_path / "bank.skep"), environ={}, start=tmp_path)
    client = connect(build_server("reference", banks, version="1"))
    client.initialize()
    return client


def graph(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    return client.call(name, **arguments)["structuredContent"]


ANA = {"name": "Ana", "entityType": "person", "observations": ["likes tea", "rows on Sundays"]}
ACME = {"name": "Acme", "entityType": "company", "observations": []}
WORKS = {"from": "Ana", "to": "Acme", "relationType": "works_at"}


def test_a_graph_comes_back_as_it_was_written(reference: Client) -> None:
    assert graph(reference, "create_entities", entities=[ANA, ACME]) == {"entities": [ANA, ACME]}
    assert graph(reference, "create_relations", relations=[WORKS]) == {"relations": [WORKS]}

    assert graph(reference, "read_graph") == {"entities": [ANA, ACME], "relations": [WORKS]}


def test_creating_what_is_there_changes_nothing(reference: Client) -> None:
    reference.call("create_entities", entities=[ANA, ACME])
    reference.call("create_relations", relations=[WORKS])

    assert graph(reference, "create_entities", entities=[ANA]) == {"entities": []}
    assert graph(reference, "create_relations", relations=[WORKS]) == {"relations": []}


def test_observations_are_added_once_and_deleted(reference: Client) -> None:
    reference.call("create_entities", entities=[ANA])
    more = [{"entityName": "Ana", "contents": ["likes tea", "speaks Norwegian"]}]

    added = graph(reference, "add_observations", observations=more)
    assert added == {"results": [{"entityName": "Ana", "addedObservations": ["speaks Norwegian"]}]}

    reference.call("delete_observations", deletions=[{"entityName": "Ana", "observations": ["likes tea"]}])
    [ana] = graph(reference, "open_nodes", names=["Ana", "nobody"])["entities"]
    assert ana["observations"] == ["rows on Sundays", "speaks Norwegian"]


def test_an_unknown_entity_is_an_error_the_model_can_read(reference: Client) -> None:
    result = reference.call("add_observations", observations=[{"entityName": "Bo", "contents": ["x"]}])

    assert result["isError"]
    assert result["content"][0]["text"] == "Entity with name Bo not found"


def test_secrets_are_left_out_of_observations(reference: Client) -> None:
    reference.call("create_entities", entities=[ANA])

    contents = ["deploys with AKIAIOSFODNN7EXAMPLE"]
    reference.call("add_observations", observations=[{"entityName": "Ana", "contents": contents}])

    [ana] = graph(reference, "open_nodes", names=["Ana"])["entities"]
    assert ana["observations"][-1] == "deploys with [api-key]"


def test_deleting_an_entity_takes_its_observations_and_relations(reference: Client) -> None:
    reference.call("create_entities", entities=[ANA, ACME])
    reference.call("create_relations", relations=[WORKS])

    reference.call("delete_entities", entityNames=["Ana", "nobody"])

    assert graph(reference, "read_graph") == {"entities": [ACME], "relations": []}


def test_relations_are_deleted(reference: Client) -> None:
    reference.call("create_entities", entities=[ANA, ACME])
    reference.call("create_relations", relations=[WORKS])

    reference.call("delete_relations", relations=[WORKS])

    assert graph(reference, "read_graph")["relations"] == []


def test_search_finds_an_entity_by_name_and_by_what_was_observed(reference: Client) -> None:
    reference.call("create_entities", entities=[ANA, ACME])

    assert "Ana" in [
        one["name"] for one in graph(reference, "search_nodes", query="who rows on Sundays?")["entities"]
    ]
    assert graph(reference, "search_nodes", query="Acme")["entities"][0] == ACME


def test_search_and_fetch_speak_json(tmp_path: Path, connect: Callable[..., Client]) -> None:
    banks = Banks(str(tmp_path / "bank.skep"), environ={}, start=tmp_path)
    writer = connect(build_server("default", banks, version="1"))
    writer.initialize()
    writer.text("remember", text="The staging database runs PostgreSQL 16", title="Staging")
    client = connect(build_server("search", banks, version="1"))
    client.initialize()

    [result] = json.loads(client.text("search", query="postgres on staging"))["results"]
    fetched = json.loads(client.text("fetch", id=result["id"]))

    assert set(result) == {"id", "title", "url"}
    assert fetched["text"] == "The staging database runs PostgreSQL 16"
    assert fetched["title"] == result["title"] == "Staging"
    banks.close()
