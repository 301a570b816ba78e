"""One trace id follows one operation."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from skep.hive import traces
from skep.hive.traces import Span, Tracer, current_trace


def make(spans: list[Span]) -> Tracer:
    ids = iter(f"id{n}" for n in range(100))
    times = iter(float(n) for n in range(100))
    return Tracer(spans.append, now=lambda: next(times), new_id=lambda: next(ids))


def test_inner_steps_share_the_trace_of_the_outer_one() -> None:
    spans: list[Span] = []
    tracer = make(spans)
    with tracer.span("outer") as outer, tracer.span("inner") as inner:
        assert current_trace() == outer.trace
        inner.note(members=3)

    assert [s.name for s in spans] == ["inner", "outer"]
    assert spans[0].trace == spans[1].trace
    assert spans[0].parent == outer.id
    assert spans[0].line() == f"{outer.trace} inner 1000.0 ms members=3"
    assert current_trace() == ""


def test_a_step_that_arrives_with_a_trace_continues_it() -> None:
    spans: list[Span] = []
    with make(spans).span("remote", trace="abc"):
        assert current_trace() == "abc"

    assert spans[0].parent is None


def test_a_failing_step_is_recorded_and_not_swallowed() -> None:
    spans: list[Span] = []
    with pytest.raises(ValueError, match="no"), make(spans).span("broken"):
        raise ValueError("no")

    assert spans[0].error == "ValueError: no"
    assert "failed: ValueError: no" in spans[0].line()


def test_without_a_sink_a_step_is_a_readable_log_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "skep.hive.trace"), Tracer().span("hive.recall", members=20):
        pass

    assert "hive.recall" in caplog.text
    assert "members=20" in caplog.text


def test_open_telemetry_gets_every_span_when_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    processor = pytest.importorskip("opentelemetry.sdk.trace.export")
    exporter = export.InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(processor.SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "_otel_module", [provider])
    with Tracer(lambda span: None).span("hive.recall", members=20) as span:
        pass

    (exported,) = exporter.get_finished_spans()
    attributes: dict[str, Any] = dict(exported.attributes)
    assert exported.name == "hive.recall"
    assert attributes == {"skep.trace": span.trace, "skep.members": 20}
