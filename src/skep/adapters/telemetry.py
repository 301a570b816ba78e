"""A bank whose calls are spans of OpenTelemetry, by the convention for memories (`gen_ai.memory.*`).

A program wraps its bank once, `bank = traced(Bank.open(...))`, and gives it to whoever works with it. What was asked
and what is stored is in no span unless `content=True` says so. Spans go where the program's own set-up of
OpenTelemetry sends them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from skep.errors import MissingExtraError

try:
    from opentelemetry.trace import SpanKind, get_tracer
    from opentelemetry.trace.status import Status, StatusCode
except ImportError as error:
    raise MissingExtraError("traced", "trace") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

OPERATIONS: Mapping[str, str] = {
    "recall": "search_memory",
    "rank": "search_memory",
    "search_memory": "search_memory",
    "find": "search_memory",
    "get": "search_memory",
    "remember": "create_memory",
    "remember_many": "create_memory",
    "revise": "update_memory",
    "retract": "update_memory",
    "restore": "update_memory",
    "supersede": "update_memory",
    "merge": "update_memory",
    "mark": "update_memory",
    "confirm": "update_memory",
    "dispute": "update_memory",
    "forget": "delete_memory",
}
"""The operation of the convention that a verb is. `remember` with a key is `upsert_memory`."""


def traced(bank: MemoryBank, *, store: str | None = None, content: bool = False) -> MemoryBank:
    """A bank with the same methods, each of which is a span.

    Args:
        bank: A bank, or an agent's bank in a hive.
        store: The name of the memory in spans; that of its file or actor, if not said.
        content: Put questions and memories into the spans. They may be personal; think of who reads traces.
    """
    return cast("MemoryBank", _Traced(bank, store or bank.actor, content=content))


class _Traced:
    """Hands every call on to a bank; calls of `OPERATIONS` inside a span."""

    def __init__(self, bank: MemoryBank, store: str, *, content: bool) -> None:
        self._bank = bank
        self._store = store
        self._content = content
        self._tracer = get_tracer("skep")

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._bank, name)
        return partial(self._called, name, found) if name in OPERATIONS else found

    def __enter__(self) -> _Traced:
        return self

    def __exit__(self, *_unused: object) -> None:
        self._bank.close()

    def _called(self, verb: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        operation = "upsert_memory" if verb == "remember" and options.get("key") else OPERATIONS[verb]
        told: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "skep",
            "gen_ai.memory.store.id": self._store,
            "skep.verb": verb,
        }
        if self._content and operation == "search_memory" and args and isinstance(args[0], str):
            told["gen_ai.memory.query.text"] = args[0]
        with self._tracer.start_as_current_span(
            operation,
            kind=SpanKind.INTERNAL,
            attributes=told,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                answer = method(*args, **options)
            except Exception as error:
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(Status(StatusCode.ERROR))  # a message may quote what is stored
                raise
            span.set_attributes(self._answered(answer))
            return answer

    def _answered(self, answer: Any) -> dict[str, Any]:
        """The ids and the number of what came of a call, and the texts where they are wanted."""
        several = hasattr(answer, "__len__")
        memories = [
            memory for one in (answer if several else [answer]) if (memory := _memory(one)) is not None
        ]
        ids = [memory.id for memory in memories] or list(getattr(answer, "memories", None) or ())
        told: dict[str, Any] = {"gen_ai.memory.record.count": len(ids) or (len(answer) if several else 0)}
        if len(ids) == 1 and isinstance(ids[0], str):
            told["gen_ai.memory.record.id"] = ids[0]
        if self._content and memories:
            records = [{"id": memory.id, "content": memory.text} for memory in memories]
            told["gen_ai.memory.records"] = json.dumps(records, ensure_ascii=False)
        return told


def _memory(one: Any) -> Any:
    """The memory in a hit or the result of a write, or the memory itself."""
    held = getattr(one, "memory", one)
    return held if hasattr(held, "text") and hasattr(held, "id") else None
