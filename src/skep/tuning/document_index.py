"""Documents of a collection in a bank: read and checked, indexed, and eval sets learnt from their use.

A chunk is a memory of kind `document`: its source is the chunk id, its tags are the collection and the values of
filterable fields, its metadata keeps the path, the headings and a hash of the content. Indexing writes only what
changed, and takes out of recall what was removed from the folder. `harvest` turns recorded outcomes into an
eval set: what a task that went well used is relevant to its query, what a failed task used is a distractor. Called by
`deploy` and `skep tune`; reads the workspace and the bank, sends nothing anywhere.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, cast

import msgspec

from skep.bank.bank import Bank
from skep.errors import MissingExtraError, NotFoundError, did_you_mean
from skep.model import Event, Memory
from skep.tuning.documents import (
    MAX_DOCUMENT_BYTES,
    SUFFIXES,
    Chunk,
    Document,
    FieldValue,
    FrontMatterError,
    chunk,
    read_document,
)
from skep.tuning.findings import Finding, RefusedError, refuse_errors
from skep.tuning.schemas import EVERYTHING, RESERVED
from skep.tuning.search_config import Scalar, field_tag
from skep.tuning.workspace import (
    Collection,
    EvalQuery,
    EvalSet,
    Field,
    Split,
    Workspace,
    inside,
    is_document_path,
    is_name,
    write_json,
)

MAX_VALUE = 150
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A document and its fields as typed values."""

    document: Document
    fields: dict[str, tuple[Scalar, ...]]

    def tags(self, collection: Collection) -> tuple[str, ...]:
        """The tags its chunks carry: the collection, and one per value of a filterable field."""
        return (
            field_tag(RESERVED, collection.name),
            *(
                field_tag(name, value)
                for name in collection.filterable
                for value in self.fields.get(name, ())
            ),
        )


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """All documents of a collection that can be used, and findings about the rest."""

    collection: Collection
    sources: tuple[Source, ...]
    findings: tuple[Finding, ...]

    def values(self) -> dict[str, dict[str, int]]:
        """Per filterable field: every value, with the number of documents that have it."""
        counted: dict[str, Counter[str]] = {name: Counter() for name in self.collection.filterable}
        for source in self.sources:
            for name, counter in counted.items():
                counter.update(
                    field_tag(name, value).partition(":")[2] for value in source.fields.get(name, ())
                )
        return {name: dict(sorted(counter.items())) for name, counter in counted.items()}


def read_sources(workspace: Workspace, collection: Collection) -> Sources:
    """Read every document of a collection."""
    findings: list[Finding] = []
    sources: list[Source] = []
    if collection.folder and not is_document_path(collection.folder.rstrip("/")):
        what, fix = f"{collection.folder[:80]!r} leaves documents/", "name a folder below documents/"
        place = f"collections/{collection.name}.json"
        findings.append(Finding(code="outside-workspace", file=place, path="folder", what=what, fix=fix))
    else:
        for path in _paths(workspace, collection):
            document = _read(workspace, path, findings)
            if document is not None:
                document.fields.update(_folder_fields(path, document, collection))
                wrong = list(_check_fields(document, collection))
                findings.extend(wrong)
                if not any(finding.severity == "error" for finding in wrong):
                    sources.append(Source(document=document, fields=dict(_typed(document, collection))))
    if not sources and not findings:
        what, fix = f"the collection {collection.name!r} has no documents", "put files into documents/"
        findings.append(Finding(code="no-documents", file="documents", what=what, fix=fix))
    return Sources(collection=collection, sources=tuple(sources), findings=tuple(findings))


def _folder_fields(path: str, document: Document, collection: Collection) -> Iterator[tuple[str, str]]:
    """Fields that the collection takes from the name of a document's folder, where the document does not state them."""
    folder = path.rpartition("/")[0].rpartition("/")[2]
    for name, field in collection.fields.items():
        if field.from_folder and folder and name not in document.fields:
            yield name, folder


def _paths(workspace: Workspace, collection: Collection) -> Iterator[str]:
    folder = collection.folder.rstrip("/")
    for path in workspace.documents:
        if not folder or path.startswith(folder + "/"):
            yield path


def _read(workspace: Workspace, path: str, findings: list[Finding]) -> Document | None:
    name = f"documents/{path}"
    file = workspace.root / "documents" / path

    def found(code: str, what: str, fix: str, *, place: str = "", warn: bool = False) -> None:
        severity = "warning" if warn else "error"
        findings.append(Finding(code=code, file=name, path=place, what=what, fix=fix, severity=severity))

    if file.suffix.lower() not in SUFFIXES:
        kinds = ", ".join(SUFFIXES)
        found(
            "unsupported-file", f"{file.suffix or 'no suffix'} is not read", f"use one of {kinds}", warn=True
        )
        return None
    if not inside(workspace.root, file):
        found("outside-workspace", "it links to a place outside the workspace", "copy the file in")
        return None
    try:
        size = file.stat().st_size
        if size > MAX_DOCUMENT_BYTES:
            limit = MAX_DOCUMENT_BYTES // 1024 // 1024
            found("too-large", f"it has {size:,} bytes", f"keep documents under {limit} MiB; split it")
            return None
        document = read_document(path, file)
    except UnicodeDecodeError as error:
        found("not-utf8", f"byte {error.start} is not UTF-8", "save it as UTF-8")
    except FrontMatterError as error:
        found(
            "bad-front-matter",
            str(error),
            "write 'key: value' lines between two '---'",
            place=f"line {error.line}",
        )
    except MissingExtraError as error:
        found("missing-extra", "PDF documents need an optional dependency", str(error).partition("; ")[2])
    except (OSError, RecursionError, ValueError) as error:
        found("unreadable", f"it cannot be read ({error})", "check the file")
    else:
        if document.text.strip():
            return document
        found("empty-document", "it has no text", "write something, or remove it", warn=True)
    return None


def _check_fields(document: Document, collection: Collection) -> Iterator[Finding]:
    name = f"documents/{document.path}"
    for key, value in document.fields.items():
        field = collection.fields.get(key)
        if field is None:
            what = f"the collection {collection.name!r} has no field {key!r}"
            fix = did_you_mean(key, collection.fields)
            yield Finding(code="unknown-field", file=name, path=key, what=what, fix=fix, severity="warning")
            continue
        for item in _items(value):
            if _parsed(item, field) is None:
                what, fix = f"{item[:80]!r} is not a {field.type}", _HINTS[field.type]
                yield Finding(code="bad-field-value", file=name, path=key, what=what, fix=fix)


def _typed(document: Document, collection: Collection) -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    for key, value in document.fields.items():
        field = collection.fields.get(key)
        if field is not None:
            parsed = (_parsed(item, field) for item in _items(value))
            yield key, tuple(item for item in parsed if item is not None)


def _items(value: FieldValue) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


_HINTS = {
    "text": "write plain text",
    "keyword": f"write a word or a short phrase of at most {MAX_VALUE} characters",
    "number": "write digits, such as 3 or 2.5",
    "boolean": "write true or false",
    "date": "write it as 2026-03-01",
}


def _parsed(text: str, field: Field) -> Scalar | None:
    """A front-matter value as the type of its field; None when it is not one."""
    if field.type == "number":
        return _number(text)
    if field.type == "boolean":
        return {"true": True, "yes": True, "false": False, "no": False}.get(text.lower())
    if field.type == "date":
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            return None
    if field.type == "keyword" and (not text or len(text) > MAX_VALUE or _CONTROL.search(text)):
        return None
    return text


def _number(text: str) -> float | None:
    if not re.fullmatch(r"[+-]?\d{1,15}(\.\d{1,15})?", text):
        return None
    return float(text)


Progress = Callable[[int, int], None]
PAGE = 5000
TITLE_LIMIT = 500


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of indexing on the bank."""

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
        """Chunks that the collection has now."""
        return self.added + self.changed + self.unchanged


def index(bank: Bank, sources: Sources, *, progress: Progress | None = None) -> IndexReport:
    """Make the bank hold exactly the chunks of a collection; an error in any document writes nothing."""
    refuse_errors(sources.findings)
    wanted = {item["source"]: item for item in _chunk_items(sources)}
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
        engine = bank.engine
        return hashlib.sha256(f"{engine.identity()} {engine.head()}".encode()).hexdigest()[:16]
    return _version({source: _hash_of(memory) for source, memory in indexed(bank, collection).items()})


def source_version(sources: Sources) -> str:
    """The data version the bank will have once these sources are indexed."""
    return _version({item["source"]: item["metadata"]["hash"] for item in _chunk_items(sources)})


def document_of(memory: Memory) -> str:
    """The name of a memory in labels: the path of its document, or `memory:` and its id."""
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


def _chunk_items(sources: Sources) -> Iterator[dict[str, Any]]:
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


NOTE = "Harvested from the outcomes that the bank recorded. Review it before use: votes are few at first."


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome: which memories a task used, and whether it went well."""

    task: str
    used: tuple[str, ...]
    success: bool
    at: float


class Harvest(msgspec.Struct, frozen=True, kw_only=True):
    """Queries with labels learnt from what happened."""

    eval_set: EvalSet
    outcomes: int
    skipped: int
    """Queries whose votes cancelled out, or whose memories are gone."""

    def sample(self, count: int) -> tuple[EvalQuery, ...]:
        """A few queries to look at before use, spread evenly."""
        queries = self.eval_set.queries
        step = max(1, len(queries) // max(1, count))
        return queries[::step][:count]


def harvest(bank: Bank, *, name: str = "harvest", since: float | None = None) -> Harvest:
    """An eval set from what the bank has recorded.

    Args:
        bank: Its outcomes are read; each names the task, what was shown and what was used.
        name: The name of the eval set.
        since: Leave out what happened before.
    """
    results = [result for result in _results(bank) if since is None or result.at >= since]
    votes = tally(results)
    labels = {query: _by_document(bank, counted) for query, counted in votes.items()}
    queries = tuple(_queries(labels))
    if not queries:
        what = "no outcome names memories that helped or hurt"
        fix = "record outcomes with the memories that were used, then harvest again"
        raise RefusedError([Finding(code="no-traffic", file="", what=what, fix=fix)])
    eval_set = EvalSet(
        name=name,
        note=NOTE,
        collection=_collection(bank, votes),
        queries=queries,
    )
    return Harvest(eval_set=eval_set, outcomes=len(results), skipped=len(votes) - len(queries))


def tally(results: Sequence[Result]) -> dict[str, Counter[str]]:
    """Votes per task and memory: +1 for each time it helped, −1 for each it hurt."""
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for memory in dict.fromkeys(result.used):
            if query := _tidy(result.task):
                votes[query][memory] += 1 if result.success else -1
    return dict(votes)


def _queries(labels: Mapping[str, Mapping[str, int]]) -> Iterator[EvalQuery]:
    for query, votes in sorted(labels.items()):
        relevant = tuple(document for document, vote in sorted(votes.items()) if vote > 0)
        distractors = tuple(document for document, vote in sorted(votes.items()) if vote < 0)
        if relevant or distractors:
            digest = hashlib.sha256(query.encode()).hexdigest()
            split: Split = "holdout" if int(digest[:8], 16) % 2 else "tune"
            yield EvalQuery(
                id=f"h-{digest[:12]}", query=query, relevant=relevant, distractors=distractors, split=split
            )


def _by_document(bank: Bank, votes: Mapping[str, int]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for memory_id, vote in votes.items():
        try:
            counted[document_of(bank.get(memory_id))] += vote
        except NotFoundError:
            continue
    return counted


def _collection(bank: Bank, votes: Mapping[str, Mapping[str, int]]) -> str:
    """The one collection that all labelled memories are from; `*` when there is no such one."""
    found: set[str] = set()
    for memory_id in {memory for counted in votes.values() for memory in counted}:
        try:
            memory = bank.get(memory_id)
        except NotFoundError:
            continue
        name: object = memory.metadata.get("collection") if memory.kind == "document" else None
        found.add(name if isinstance(name, str) else EVERYTHING)
    return found.pop() if len(found) == 1 else EVERYTHING


def _results(bank: Bank) -> Iterator[Result]:
    for event in bank.engine.log.outcomes():
        body: Mapping[str, Any] = event.body
        named = cast("list[str]", body.get("used") or []) or cast("list[str]", body.get("shown") or [])
        yield Result(
            task=str(body.get("task", "")),
            used=tuple(memory_id for memory_id in named if _helped(bank, memory_id, event, len(named))),
            success=bool(body.get("success")),
            at=event.at,
        )


def _helped(bank: Bank, memory_id: str, outcome: Event, used: int) -> bool:
    """True if a memory that an outcome names is still here and is not the lesson which that outcome left behind.

    `learn` writes a lesson, one link to each memory it came from, and then the outcome: the counters of their events
    tell a lesson from what was used, whatever the clock says.
    """
    try:
        memory = bank.get(memory_id)
    except NotFoundError:
        return False
    made_by_task = memory.kind == "procedure" and memory.metadata.get("task") == outcome.body.get("task")
    return not (made_by_task and memory_id == f"{outcome.actor}-{outcome.counter - used}")


def _tidy(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()[:4000]


def write(workspace: Workspace, found: Harvest) -> str:
    """Write the eval set into the workspace; a file of that name is replaced only if it was harvested too."""
    name = found.eval_set.name
    relative = f"evals/{name}.json"
    file = workspace.root / relative
    if not is_name(name):
        what, fix = f"{name[:80]!r} cannot name an eval set", "use letters, digits and dashes"
        raise RefusedError([Finding(code="bad-name", file="evals", what=what, fix=fix)])
    earlier = workspace.evals.get(name)
    if file.exists() and (earlier is None or earlier.note != NOTE):
        what, fix = f"{relative} exists and was not harvested", "choose another name with --name"
        raise RefusedError([Finding(code="not-empty", file=relative, what=what, fix=fix)])
    raw = cast("dict[str, Any]", msgspec.to_builtins(found.eval_set))
    write_json(file, {"$schema": "./evals.schema.json", **raw})
    return relative
