"""Traces: one id for one operation, wherever in the hive it leads.

The current trace travels in a context variable within a process and in the envelope between members. Where the
OpenTelemetry API is installed and set up, every span is one of its spans too; otherwise it is a line in the log
`skep.hive.trace`, e.g. `4f1c… hive.recall 3.1 ms members=20 completeness=1.0`.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar

import msgspec

A = TypeVar("A")
T = TypeVar("T")
logger = logging.getLogger("skep.hive.trace")


class Span(msgspec.Struct, kw_only=True):
    """One step of an operation. Attributes may be added while it runs."""

    trace: str
    id: str
    parent: str | None
    name: str
    started: float
    seconds: float = 0.0
    error: str | None = None
    attributes: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])

    def note(self, **attributes: Any) -> None:
        """Add what was learnt on the way."""
        self.attributes.update(attributes)

    def line(self) -> str:
        """In one readable line."""
        facts = "".join(f" {key}={value}" for key, value in self.attributes.items())
        failed = f" failed: {self.error}" if self.error else ""
        return f"{self.trace} {self.name} {self.seconds * 1000:.1f} ms{facts}{failed}"


_current: ContextVar[Span | None] = ContextVar("skep_span", default=None)


def _new_id() -> str:
    return secrets.token_hex(8)


def current_trace() -> str:
    """The id of the operation this code runs in; empty outside of any."""
    span = _current.get()
    return span.trace if span else ""


@contextmanager
def carried(trace: str) -> Generator[None]:
    """Run a block as part of an operation that began elsewhere, without a step of its own."""
    token = _current.set(Span(trace=trace, id="", parent=None, name="", started=0.0) if trace else None)
    try:
        yield
    finally:
        _current.reset(token)


class Tracer:
    """Opens spans, and hands each to `sink` when it ends."""

    def __init__(
        self,
        sink: Callable[[Span], None] | None = None,
        *,
        now: Callable[[], float] = time.perf_counter,
        new_id: Callable[[], str] = _new_id,
    ) -> None:
        self._sink = sink or _log
        self._now = now
        self._new_id = new_id

    def run(self, name: str, work: Callable[[A], T], given: A, *, trace: str, **attributes: Any) -> T:
        """Do a small and frequent step: as a span if anybody listens, else only the trace id goes along."""
        listening = self._sink is not _log or logger.isEnabledFor(logging.DEBUG) or _otel() is not None
        with self.span(name, trace=trace, **attributes) if listening else carried(trace):
            return work(given)

    @contextmanager
    def span(self, name: str, *, trace: str = "", **attributes: Any) -> Generator[Span]:
        """Run a block as one step of the current operation, of operation `trace`, or of a new one."""
        outer = _current.get()
        joined = outer if outer is not None and trace in ("", outer.trace) else None
        span = Span(
            trace=trace or (outer.trace if outer else self._new_id()),
            id=self._new_id(),
            parent=joined.id if joined else None,
            name=name,
            started=self._now(),
            attributes=dict(attributes),
        )
        token = _current.set(span)
        try:
            with _otel_span(span) as live:
                yield span
                if live is not None:
                    live.set_attributes(_told(span))
        except BaseException as error:
            span.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            _current.reset(token)
            span.seconds = self._now() - span.started
            self._sink(span)


def _log(span: Span) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(span.line())


def _otel_span(span: Span) -> AbstractContextManager[Any]:
    otel = _otel()
    if otel is None:
        return nullcontext()
    return otel.get_tracer("skep.hive").start_as_current_span(
        span.name, attributes={"skep.trace": span.trace, **_told(span)}
    )


def _told(span: Span) -> dict[str, str | int | float | bool]:
    """The attributes of a span under the names of OpenTelemetry's conventions, or under this project's."""
    return {
        key if key.startswith("gen_ai.") else f"skep.{key}": _plain(value)
        for key, value in span.attributes.items()
    }


_otel_module: list[Any] = []


def _otel() -> Any:
    """The module that makes OpenTelemetry's tracers; None when it is not installed, or installed and not set up."""
    if not _otel_module:
        try:
            from opentelemetry import trace
        except ImportError:
            _otel_module.append(None)
        else:
            _otel_module.append(trace)
    found = _otel_module[0]
    provider = found and getattr(found, "get_tracer_provider", lambda: found)()
    return (
        None
        if type(provider).__name__ in ("NoneType", "ProxyTracerProvider", "NoOpTracerProvider")
        else provider
    )


def _plain(value: Any) -> str | int | float | bool:
    return value if isinstance(value, str | int | float | bool) else str(value)


tracer = Tracer()
"""The tracer the hive uses unless given another."""
