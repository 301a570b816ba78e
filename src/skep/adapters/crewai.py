"""A bank as the storage of CrewAI's memory: records with scopes and categories, found by skep's recall.

CrewAI asks a storage with a vector and never with words. So `BankStorage` makes the vectors too: given as the embedder
of `Memory`, it knows the text of each, and recalls by that. A record is one memory: its id is the key, its scope is the
path of a project below `root`, its categories are tags.
"""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from skep.embedding.embedder import default_embedder
from skep.errors import InvalidInputError, MissingExtraError
from skep.model import BELOW, Memory, Scope, namespace_parts, namespace_path

try:
    from crewai.memory.types import MemoryRecord, ScopeInfo
except ImportError as error:
    raise MissingExtraError("BankStorage", "crewai") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.embedding.embedder import Embedder

KNOWN = 4096
"""Vectors whose texts are kept."""


class BankStorage:
    """A storage backend of CrewAI over a bank.

    Args:
        bank: The bank, or an agent's bank in a hive.
        root: The first part of every path, so that other memories of the bank stay apart.
        embedder: Makes the vectors by which CrewAI compares new texts; the bundled one if not said.
    """

    def __init__(self, bank: MemoryBank, *, root: str = "crewai", embedder: Embedder | None = None) -> None:
        self.bank = bank
        self.root = root
        self._embedder = embedder or default_embedder()
        self._texts: OrderedDict[bytes, str] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """The vectors of some texts: `Memory(storage=storage, embedder=storage)`."""
        rows = [row.tolist() for row in self._embedder.embed(list(texts))]
        for text, row in zip(texts, rows, strict=True):
            self._note(row, text)
        return rows

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records; one whose id is there is replaced."""
        for record in records:
            self._note(record.embedding, record.content)
        held = self._held([record.id for record in records])
        self.bank.remember_many(
            {**_fields(record, self.root), "key": record.id, "created_at": _seconds(record.created_at)}
            for record in records
            if record.id not in held
        )
        for record in records:
            if record.id in held:
                self.bank.revise(held[record.id].id, **_fields(record, self.root))

    def update(self, record: MemoryRecord) -> None:
        """Replace the record of the same id; it keeps the time at which it was made."""
        self.save([record])

    def search(
        self,
        query_embedding: list[float],
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        metadata_filter: dict[str, Any] | None = None,
        limit: int = 10,
        min_score: float = 0.0,
    ) -> list[tuple[MemoryRecord, float]]:
        """The records that answer the text of a vector, best first."""
        with self._lock:
            asked = self._texts.get(_name(query_embedding))
        if asked is None:
            raise InvalidInputError(
                "skep does not know which text this vector stands for; let the storage make the vectors:"
                " Memory(storage=storage, embedder=storage)",
                field="query_embedding",
            )
        where = self._where(scope_prefix, categories, metadata_filter)
        hits = self.bank.recall(asked, limit=limit, **where)
        found = [(hit.memory, max(hit.score, hit.signals.get("semantic", 0.0))) for hit in hits]
        return [(_record(memory), score) for memory, score in found if score >= min_score]

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Erase the records that meet every condition; how many."""
        given = {
            "until": None if older_than is None else _seconds(older_than),
            "key": record_ids or None,
        }
        found = [
            memory.id
            for memory in self._listed(scope_prefix, categories, metadata_filter, **given)
            if older_than is None or memory.created_at < _seconds(older_than)
        ]
        if found:
            self.bank.forget(found)
        return len(found)

    def reset(self, scope_prefix: str | None = None) -> None:
        """Erase every record of a scope."""
        self.delete(scope_prefix)

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """A record by its id; None if there is none."""
        held = self._held([record_id])
        return _record(held[record_id]) if held else None

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Records of a scope, newest first."""
        rest = self._listed(scope_prefix)
        return [
            _record(memory)
            for number, memory in zip(range(offset + limit), rest, strict=False)
            if number >= offset
        ]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """How many records a scope holds, with what lies below it."""
        records = [_record(memory) for memory in self._listed(scope)]
        times = [record.created_at for record in records]
        return ScopeInfo(
            path="/" + "/".join(_parts(scope)),
            record_count=len(records),
            categories=sorted({each for record in records for each in record.categories}),
            oldest_record=min(times, default=None),
            newest_record=max(times, default=None),
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """The scopes right below one."""
        above = _parts(parent)
        paths = (namespace_parts(scope.project or "")[1:] for scope in self.bank.scopes(self._scope(parent)))
        return sorted({"/" + "/".join(path[: len(above) + 1]) for path in paths if len(path) > len(above)})

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """The categories of a scope, and how many records have each."""
        counts: dict[str, int] = {}
        for memory in self._listed(scope_prefix):
            for each in memory.tags:
                counts[each] = counts.get(each, 0) + 1
        return counts

    def count(self, scope_prefix: str | None = None) -> int:
        """The number of records of a scope."""
        return sum(1 for _ in self._listed(scope_prefix))

    async def asave(self, records: list[MemoryRecord]) -> None:
        """`save` in a thread."""
        await asyncio.to_thread(self.save, records)

    async def asearch(self, *given: Any, **named: Any) -> list[tuple[MemoryRecord, float]]:
        """`search` in a thread."""
        return await asyncio.to_thread(self.search, *given, **named)

    async def adelete(self, *given: Any, **named: Any) -> int:
        """`delete` in a thread."""
        return await asyncio.to_thread(self.delete, *given, **named)

    def _note(self, vector: Sequence[float] | None, text: str) -> None:
        """Keep which text a vector stands for."""
        if not vector:
            return
        with self._lock:
            self._texts[_name(vector)] = text
            self._texts.move_to_end(_name(vector))
            while len(self._texts) > KNOWN:
                self._texts.popitem(last=False)

    def _scope(self, prefix: str | None) -> Scope:
        return Scope(project=namespace_path((self.root, *_parts(prefix))) + BELOW)

    def _where(
        self,
        prefix: str | None = None,
        categories: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        return {
            "scope": self._scope(prefix),
            "tags": [tuple(categories)] if categories else (),
            "metadata": {"values": dict(metadata)} if metadata else None,
        }

    def _listed(
        self,
        prefix: str | None = None,
        categories: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **given: Any,
    ) -> Iterator[Memory]:
        """Records that meet some conditions, newest first."""
        cursor: str | None = None
        while True:
            page = self.bank.find(
                limit=1000, cursor=cursor, **self._where(prefix, categories, metadata), **given
            )
            yield from page.memories
            if (cursor := page.cursor) is None:
                return

    def _held(self, ids: Sequence[str]) -> dict[str, Memory]:
        """The memories of some records, by their ids."""
        return {str(memory.key): memory for memory in self._listed(key=ids)} if ids else {}


def _parts(scope: str | None) -> tuple[str, ...]:
    return tuple(part for part in (scope or "").split("/") if part)


def _name(vector: Sequence[float]) -> bytes:
    """A vector as it is known again, whether or not it went through single precision."""
    return array("f", vector).tobytes()


def _seconds(moment: datetime) -> float:
    """A time of CrewAI, which writes UTC without saying so."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)


def _fields(record: MemoryRecord, root: str) -> dict[str, Any]:
    """What a memory says of a record."""
    return {
        "text": record.content,
        "scope": Scope(project=namespace_path((root, *_parts(record.scope)))),
        "tags": record.categories,
        "importance": record.importance,
        "source": record.source,
        "metadata": {"values": record.metadata, "private": record.private},
    }


def _record(memory: Memory) -> MemoryRecord:
    return MemoryRecord(
        id=memory.key or memory.id,
        content=memory.text,
        scope="/" + "/".join(namespace_parts(memory.scope.project or "")[1:]),
        categories=list(memory.tags),
        metadata=memory.metadata.get("values", {}),
        importance=memory.importance,
        created_at=_moment(memory.created_at),
        last_accessed=_moment(memory.last_used_at or memory.created_at),
        source=memory.source,
        private=bool(memory.metadata.get("private")),
    )
