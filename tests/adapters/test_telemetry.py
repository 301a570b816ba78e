"""Spans of a bank, by OpenTelemetry's convention for memories, in OpenTelemetry's own SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from skep.adapters.telemetry import traced
from skep.bank.bank import Bank
from skep.errors import NotFoundError

EXPORTER = InMemorySpanExporter()
PROVIDER = TracerProvider()
PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[str, dict[str, Any]]]]:
    EXPORTER.clear()
    monkeypatch.setattr("skep.adapters.telemetry.get_tracer", PROVIDER.get_tracer)
    return lambda: [(span.name, dict(span.attributes or {})) for span in EXPORTER.get_finished_spans()]


def test_every_verb_is_an_operation_of_the_convention(bank: Bank, spans: Callable[[], Any]) -> None:
    seen = traced(bank, store="team")
    first = seen.remember("The gate code is 4411").memory
    seen.remember("Ana edits in Helix", key="editor")
    seen.recall("gate code")
    seen.revise(first.id, text="The gate code is 4412")
    seen.forget(first.id)

    found = spans()
    assert [name for name, _ in found] == [
        "create_memory",
        "upsert_memory",
        "search_memory",
        "update_memory",
        "delete_memory",
    ]
    assert all(told["gen_ai.memory.store.id"] == "team" for _, told in found)
    assert [found[at][1].get("gen_ai.memory.record.id") for at in (0, 3, 4)] == [first.id] * 3
    assert found[2][1]["gen_ai.memory.record.count"] == 2


def test_nothing_that_is_stored_or_asked_is_in_a_span_unless_wanted(
    bank: Bank, spans: Callable[[], Any]
) -> None:
    for content in (False, True):
        seen = traced(bank, content=content)
        seen.remember("The gate code is 4411")
        seen.recall("gate code")
        told = json.dumps(spans())
        assert ("4411" in told) is content
        assert ("gate code" in told) is content


def test_an_error_is_named_and_not_quoted(bank: Bank, spans: Callable[[], Any]) -> None:
    with pytest.raises(NotFoundError):
        traced(bank).get("nobody-1")
    (name, told) = spans()[0]
    assert (name, told["error.type"]) == ("search_memory", "NotFoundError")
    assert "nobody-1" not in json.dumps(told)


def test_the_rest_of_a_bank_is_as_it_was(bank: Bank, spans: Callable[[], Any]) -> None:
    seen = traced(bank)
    assert seen.status() == bank.status()
    assert seen.actor == bank.actor
    assert spans() == []
