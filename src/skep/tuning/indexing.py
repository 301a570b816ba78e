"""Documents into the bank: only what changed is written, and what was removed from the folder leaves recall.

Each chunk is a memory of kind `document`. Its source is the chunk id, its tags are the collection and the
values of filterable fields, and its metadata keeps the path, the headings and a hash of the content.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from skep.bank import Bank
from skep.model import Memory
from skep.tuning.chunking import Chunk, chunk
from skep.tuning.findings import Finding, refuse_errors
from skep.tuning.schemas import EVERYTHING, RESERVED
from skep.tuning.search_config import field_tag
from skep.tuning.sources import Source, Sources

Progress = Callable[[int, int], None]
PAGE = 5000
TITLE_LIMIT = 500


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """What indexing did to the bank."""

    collection: str
    documents: int
    added: int = 0
    changed: int = 0
    removed: int = 0
    unchanged: int = 0
    data: str = ""
    """The data version: equal when the bank holds the same chunks."""
    fields: dict[str, dict[str, int]] = msgspec.field(default_factory=dict[str, dict[str, int]])
    """Per filterable field: its values, with the number of documents that have them."""
    findings: tuple[Finding, ...] = ()

    @property
    def chunks(self) -> int:
        """How many chunks the collection now has."""
        return self.added + self.changed + self.unchanged


def index(bank: Bank, sources: Sources, *, progress: Progress | None = None) -> IndexReport:
    """Make the bank hold exactly the chunks of a collection; an error in any document writes nothing."""
    refuse_errors(sources.findings)
    wanted = {item["source"]: item for item in _items(sources)}
    stored = indexed(bank, sources.collection.name)
    new = [item for source, item in wanted.items() if source not in stored]
    changed = [
        (stored[source], item)
        for source, item in wanted.items()
        if source in stored and _hash_of(stored[source]) != item["metadata"]["hash"]
    ]
    gone = [memory for source, memory in stored.items() if source not in wanted]
    total, done = len(new) + len(changed) + len(gone), 0

    def step(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, total)

    if new:
        bank.remember_many(new, progress=lambda written, _of: progress(written, total) if progress else None)
        step(len(new))
    for memory, item in changed:
        keys = ("text", "title", "tags", "metadata")
        bank.revise(memory.id, **{key: item[key] for key in keys})
        step(1)
    for memory in gone:
        bank.retract(memory.id, reason="its document changed or was removed")
        step(1)
    if total:
        bank.reembed()
    return IndexReport(
        collection=sources.collection.name,
        documents=len(sources.sources),
        added=len(new),
        changed=len(changed),
        removed=len(gone),
        unchanged=len(wanted) - len(new) - len(changed),
        data=_version({source: item["metadata"]["hash"] for source, item in wanted.items()}),
        fields=sources.values(),
        findings=sources.findings,
    )


def indexed(bank: Bank, collection: str) -> dict[str, Memory]:
    """The chunks of a collection in the bank, by chunk id."""
    return {memory.source: memory for memory in _documents(bank, collection) if memory.source is not None}


def data_version(bank: Bank, collection: str) -> str:
    """Equal when the bank holds the same chunks of a collection; for `*`, the same memories."""
    if collection == EVERYTHING:
        store = bank.engine.store
        return hashlib.sha256(f"{store.identity()} {store.head()}".encode()).hexdigest()[:16]
    return _version({source: _hash_of(memory) for source, memory in indexed(bank, collection).items()})


def source_version(sources: Sources) -> str:
    """The data version the bank will have once these sources are indexed."""
    return _version({item["source"]: item["metadata"]["hash"] for item in _items(sources)})


def document_of(memory: Memory) -> str:
    """What labels call this memory: the path of its document, or `memory:` and its id."""
    path: object = memory.metadata.get("path")
    return path if memory.kind == "document" and isinstance(path, str) else f"memory:{memory.id}"


def watch(
    root: Path,
    once: Callable[[], None],
    *,
    interval: float = 1.0,
    sleep: Callable[[float], None] = time.sleep,
    rounds: int | None = None,
) -> None:
    """Call `once` now and whenever a file of the workspace changes, by looking every `interval` seconds.

    Args:
        root: The workspace.
        once: What to do; it should report its own findings and not raise for them.
        interval: Seconds between looks.
        sleep: How to wait.
        rounds: Stop after so many looks; None looks until interrupted.
    """
    seen: dict[str, tuple[int, int]] | None = None
    while rounds is None or rounds > 0:
        now = dict(_snapshot(root))
        if now != seen:
            seen = now
            once()
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            sleep(interval)


def _snapshot(root: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder in ("collections", "documents"):
        for file in sorted((root / folder).rglob("*")):
            try:
                stat = file.stat()
            except OSError:
                continue
            if file.is_file():
                yield str(file), (stat.st_mtime_ns, stat.st_size)


def _items(sources: Sources) -> Iterator[dict[str, Any]]:
    for source in sources.sources:
        for piece in chunk(source.document.path, source.document.text, sources.collection.chunking):
            yield _item(source, piece, sources)


def _item(source: Source, piece: Chunk, sources: Sources) -> dict[str, Any]:
    title, tags = _title(source, piece), list(source.tags(sources.collection))
    body = msgspec.json.encode((title, piece.text, tags))
    return {
        "text": piece.text,
        "kind": "document",
        "title": title,
        "tags": tags,
        "source": piece.id,
        "confidence": 1.0,
        "metadata": {
            "collection": sources.collection.name,
            "path": piece.document,
            "headings": list(piece.headings),
            "fields": {name: list(values) for name, values in source.fields.items()},
            "hash": hashlib.sha256(body).hexdigest()[:16],
        },
    }


def _title(source: Source, piece: Chunk) -> str:
    """The document's title and the headings below it, each once."""
    parts = dict.fromkeys(part.strip() for part in (source.document.title, *piece.headings) if part.strip())
    return " › ".join(parts)[:TITLE_LIMIT]


def _documents(bank: Bank, collection: str) -> Iterator[Memory]:
    cursor: str | None = None
    while True:
        page = bank.find(kind="document", tags=[field_tag(RESERVED, collection)], limit=PAGE, cursor=cursor)
        yield from page.memories
        cursor = page.cursor
        if cursor is None:
            return


def _hash_of(memory: Memory) -> str:
    return str(cast("object", memory.metadata.get("hash", "")))


def _version(hashes: Mapping[str, str]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(hashes.items()))).hexdigest()[:16]
