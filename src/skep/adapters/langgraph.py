"""A bank as a LangGraph store: items in namespaces, filters, search by meaning, time to live.

A graph that is compiled with `store=SkepStore(bank)` calls it. An item is one memory: its key is the key, its namespace
is the path of a project below `root`, its value is metadata, so `find` and `recall` see it as well.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from skep.clock import Now, system_now
from skep.errors import MissingExtraError
from skep.model import BELOW, Memory, Scope, namespace_parts, namespace_path

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        tokenize_path,
    )
except ImportError as error:
    raise MissingExtraError("SkepStore", "langgraph") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

_KEY = re.compile(r"[A-Za-z0-9_.-]+")
MOST = 10_000
NOTHING: dict[str, Any] = {"$in": []}
"""A condition that no value meets."""
Found = tuple[Memory, float | None]


class SkepStore(BaseStore):
    """A LangGraph store over a bank.

    Args:
        bank: The bank, or an agent's bank in a hive.
        root: The first part of every path, so that other memories of the bank stay apart.
        fields: The parts of a value that are searched, as LangGraph writes paths; the whole value if not said.
        ttl: `default_ttl` and `refresh_on_read`, in minutes. What is over is never returned; `sweep_ttl` erases it.
    """

    supports_ttl = True

    def __init__(
        self,
        bank: MemoryBank,
        *,
        root: str = "langgraph",
        fields: Sequence[str] | None = None,
        ttl: TTLConfig | None = None,
        now: Now = system_now,
    ) -> None:
        self.bank = bank
        self.root = root
        self.fields = None if fields is None else list(fields)
        self.ttl_config = ttl
        self.now = now

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do one after the other; each sees what those before it wrote. Puts that follow each other are one write."""
        results: list[Result] = []
        items: list[dict[str, Any]] = []
        for op in ops:
            if isinstance(op, PutOp) and op.value is not None:
                items.append(self._memory(op))
                results.append(None)
                continue
            self._write(items)
            results.append(self._do(op))
        self._write(items)
        return results

    def _write(self, items: list[dict[str, Any]]) -> None:
        """Store what waits; equal keys one after the other, so that the last stays."""
        if items:
            self.bank.remember_many(items)
            items.clear()

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def sweep_ttl(self) -> int:
        """Erase the items whose time is over; how many."""
        over = [m.id for m in self._listed(Scope(project=self._path(()) + BELOW), {"status": "expired"})]
        if over:
            self.bank.forget(over)
        return len(over)

    def _do(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            memory = self._held(op.namespace, op.key)
            if memory is None:
                return None
            return Item(**self._item(memory, refresh=op.refresh_ttl))
        if isinstance(op, PutOp):
            return self._delete(op)
        if isinstance(op, SearchOp):
            found = self._search(op)
            return [
                SearchItem(**self._item(memory, refresh=op.refresh_ttl), score=score)
                for memory, score in found
            ]
        return self._namespaces(op)

    def _delete(self, op: PutOp) -> None:
        memory = self._held(op.namespace, op.key)
        if memory is not None:
            self.bank.forget(memory.id)

    def _memory(self, op: PutOp) -> dict[str, Any]:
        """The arguments of `remember` for an item."""
        value = cast("Mapping[str, Any]", op.value)
        metadata: dict[str, Any] = {"value": dict(value), "updated_at": self.now()}
        if op.ttl is not None:
            metadata["ttl"] = op.ttl
        if op.index is False:
            metadata["unindexed"] = True
        item = {"text": self._text(op), "key": op.key, "metadata": metadata}
        return item | {
            "scope": Scope(project=self._path(op.namespace)),
            "ttl": None if op.ttl is None else op.ttl * 60,
        }

    def _text(self, op: PutOp) -> str:
        """The text that is searched: the chosen fields of the value, or all of it, in lines."""
        value = cast("Mapping[str, Any]", op.value)
        chosen = op.index if isinstance(op.index, list) else self.fields
        if chosen is None or chosen == ["$"]:
            lines = list(_lines(value))
        else:
            lines = [text for path in chosen for text in get_text_at_path(value, tokenize_path(path))]
        return "\n".join(line for line in lines if line.strip()) or op.key

    def _search(self, op: SearchOp) -> list[Found]:
        scope = Scope(project=self._path(op.namespace_prefix) + BELOW)
        metadata = {} if not op.filter else {"value": _conditions(op.filter)}
        end = op.offset + op.limit
        if not op.query or not op.query.strip():
            rest = self._listed(scope, {"metadata": metadata})
            return [
                (memory, None)
                for number, memory in zip(range(end), rest, strict=False)
                if number >= op.offset
            ]
        indexed = {**metadata, "unindexed": {"$ne": True}}
        hits = self.bank.recall(op.query, scope=scope, metadata=indexed, limit=min(end, MOST))
        return [(hit.memory, hit.score) for hit in hits][op.offset :]

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        scopes = self.bank.scopes(Scope(project=self._path(()) + BELOW))
        every = {namespace_parts(scope.project or "")[1:] for scope in scopes}
        fitting = {
            parts for parts in every if parts and all(_matches(m, parts) for m in op.match_conditions or ())
        }
        cut = {parts[: op.max_depth] if op.max_depth else parts for parts in fitting}
        return sorted(cut)[op.offset : op.offset + op.limit]

    def _path(self, namespace: Sequence[str]) -> str:
        return namespace_path((self.root, *namespace))

    def _held(self, namespace: Sequence[str], key: str) -> Memory | None:
        found = self.bank.find(key=key, scope=Scope(project=self._path(namespace)), limit=1).memories
        return found[0] if found else None

    def _listed(self, scope: Scope, conditions: dict[str, Any]) -> Iterator[Memory]:
        """Items below a namespace, newest first."""
        cursor: str | None = None
        while True:
            page = self.bank.find(scope=scope, limit=1000, cursor=cursor, **conditions)
            yield from (memory for memory in page if memory.key is not None)
            if (cursor := page.cursor) is None:
                return

    def _item(self, memory: Memory, *, refresh: bool) -> dict[str, Any]:
        """The fields of an item; reading one whose end moves with every read moves it."""
        ttl = memory.metadata.get("ttl")
        if ttl is not None and refresh and (self.ttl_config or {}).get("refresh_on_read"):
            self.bank.revise(memory.id, ttl=ttl * 60)
        return {
            "namespace": namespace_parts(memory.scope.project or "")[1:],
            "key": memory.key,
            "value": memory.metadata["value"],
            "created_at": memory.created,
            "updated_at": datetime.fromtimestamp(memory.metadata["updated_at"], UTC),
        }


def _lines(value: Any, name: str = "") -> Iterator[str]:
    """A value as lines of plain text."""
    if isinstance(value, Mapping):
        for key, held in cast("Mapping[str, Any]", value).items():
            yield from _lines(held, key)
    elif isinstance(value, list | tuple):
        for held in cast("Sequence[Any]", value):
            yield from _lines(held, name)
    elif isinstance(value, str):
        yield value
    elif value is not None:
        yield f"{name}: {value}" if name else str(value)


def _conditions(asked: Mapping[str, Any]) -> dict[str, Any]:
    """A filter of LangGraph as one of `find`: a dot in a key leads further in."""
    out: dict[str, Any] = {}
    for key, wanted in asked.items():
        if not _KEY.fullmatch(key):
            raise ValueError(
                f"Invalid filter key: {key!r}; use letters, digits, underscores, dots and hyphens"
            )
        here = out
        *outer, last = key.split(".")
        for part in outer:
            here = here.setdefault(part, {})
        here[last] = _bounded(wanted)
    return out


def _bounded(wanted: Any) -> Any:
    """A condition with values that JSON has: infinity is the last number, and nothing equals NaN."""
    if isinstance(wanted, Mapping):
        inner = cast("Mapping[str, Any]", wanted)
        if any(isinstance(v, float) and math.isnan(v) for v in inner.values()):
            return NOTHING
        return {key: _bounded(value) for key, value in inner.items()}
    if isinstance(wanted, int) and not isinstance(wanted, bool) and abs(wanted) >= 1 << 63:
        wanted = float(wanted)
    if isinstance(wanted, float) and not math.isfinite(wanted):
        return NOTHING if math.isnan(wanted) else math.copysign(1.7976931348623157e308, wanted)
    return NOTHING if isinstance(wanted, str) and "\x00" in wanted else wanted


def _matches(condition: MatchCondition, parts: tuple[str, ...]) -> bool:
    path = condition.path
    if len(path) > len(parts):
        return False
    compared = parts[: len(path)] if condition.match_type == "prefix" else parts[len(parts) - len(path) :]
    return all(wanted in ("*", part) for wanted, part in zip(path, compared, strict=True))
