"""Importer of COGX archives, which cognee writes and which it reads from other memories.

`cognee.export(dataset, format="cogx")` makes a folder with a `manifest.json` and one file of JSON lines per kind of
record; packed it is a `.cogx.tar.gz`. The shapes were read in cognee's `modules/migration`. Nodes of cognee's own graph
(`nodes.jsonl`) are left out: they repeat the records or belong to its upkeep.
"""

from __future__ import annotations

import tarfile
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Final, cast

from skep.errors import InvalidInputError
from skep.integrations.importers.chats import Turn, episodes
from skep.integrations.importers.item import Item, decoded, head, item, moment

COGNEE: Final = "cognee"
MANIFEST: Final = "manifest.json"
PACKED: Final = ".cogx.tar.gz"
Record = dict[str, Any]


def is_cogx(path: Path) -> bool:
    """A COGX archive: the folder, or the same packed."""
    return path.name.endswith(PACKED) or (path.is_dir() and '"cogx_version"' in head(path / MANIFEST))


def read_cogx(path: Path) -> Iterator[Item]:
    """Memories, facts, entities, documents and conversations, with the links among them.

    Raises:
        InvalidInputError: The archive is damaged, or of another version.
    """
    try:
        yield from _items(path)
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise InvalidInputError(
            f"{path} cannot be read as a COGX archive ({error}); export it again"
        ) from error


def _items(path: Path) -> Iterator[Item]:
    with ExitStack() as opened:
        files = _packed(opened.enter_context(tarfile.open(path))) if path.is_file() else _folder(path)
        version = str(_manifest(path, files).get("cogx_version", ""))
        if version.partition(".")[0] != "0":
            raise InvalidInputError(f"{path} is COGX {version or 'of no version'}; skep reads version 0")
        entities = {_id(record): record for record in _records(path, files, "entities")}
        documents = {_id(record): record for record in _records(path, files, "documents")}
        for record in _records(path, files, "memories"):
            yield from _made(record, str(record.get("content") or ""), tags=record.get("categories"))
        for record in _records(path, files, "memory_blocks"):
            yield from _made(record, str(record.get("value") or ""), title=record.get("label"))
        linked: dict[str, list[tuple[str, str]]] = {}
        for record in _records(path, files, "facts"):
            yield from _fact(record, entities, documents, linked)
        for record in entities.values():
            yield from _made(record, str(record.get("description") or ""), title=record.get("name"),
                             tags=[record.get("entity_type"), *_list(record.get("aliases"))])  # fmt: skip
        for key, record in documents.items():
            yield from _made(record, str(record.get("content") or ""), title=record.get("title"),
                             kind="document", links=linked.get(key, ()))  # fmt: skip
        for record in _records(path, files, "episodes"):
            said = [cast("Record", turn) for turn in _list(record.get("turns")) if isinstance(turn, dict)]
            turns: list[Turn] = [
                (
                    str(turn.get("role")),
                    str(turn.get("content") or ""),
                    moment(turn.get("occurred_at")),
                    str(n),
                )
                for n, turn in enumerate(said)
            ]
            yield from episodes(turns, origin=COGNEE, key=_id(record), title=record.get("title"))


def _fact(
    record: Record,
    entities: dict[str, Record],
    documents: dict[str, Record],
    linked: dict[str, list[tuple[str, str]]],
) -> Iterator[Item]:
    """A statement about entities. What only says that a document holds one becomes a link of the document."""
    ends = [str(record.get(end) or "") for end in ("subject_ref", "object_ref")]
    relation = str(record.get("predicate") or "related")
    if ends[0] in documents and ends[1] in entities:
        linked.setdefault(ends[0], []).append((relation, ends[1]))
    names = [
        str(entities[end].get("name")) if end in entities else "" if _opaque(end) else end for end in ends
    ]
    if not all(names):  # an end is a node of cognee's own
        return
    start, end = moment(record.get("valid_at")), moment(record.get("invalid_at"))
    sure = record.get("confidence")
    yield from _made(
        record,
        str(record.get("fact_text") or f"{names[0]} {relation.replace('_', ' ')} {names[1]}"),
        tags=[relation],
        links=[("about", one) for one in ends if one in entities],
        valid_from=start,
        valid_to=end if end is not None and (start is None or end > start) else None,
        confidence=sure if isinstance(sure, float | int) and 0 <= sure <= 1 else None,
    )


def _opaque(ref: str) -> bool:
    """True for the id of a node, which says nothing to anybody."""
    try:
        uuid.UUID(ref)
    except ValueError:
        return not ref
    return True


def _made(
    record: Record, text: str, *, tags: Any = None, links: Iterable[tuple[str, str]] = (), **fields: Any
) -> Iterator[Item]:
    held, metadata = record.get("scope"), record.get("metadata")
    scope = {
        part: str(value)
        for part, name in (("user", "user_id"), ("session", "session_id"))
        if isinstance(held, dict) and (value := cast("Record", held).get(name))
    }
    made = item(
        text,
        origin=COGNEE,
        key=_id(record),
        tags=tuple(str(tag) for tag in _list(tags) if tag),
        links=tuple(links),
        created_at=moment(record.get("created_at")),
        scope=scope or None,
        metadata=metadata if isinstance(metadata, dict) and metadata else None,
        **fields,
    )
    if made is not None:
        yield made


def _list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _id(record: Record) -> str:
    return str(record.get("external_id") or "")


Files = dict[str, Any]
"""What opens each file of an archive, by its name."""


def _folder(path: Path) -> Files:
    return {one.name: lambda one=one: one.open("rb") for one in path.iterdir() if one.is_file()}


def _packed(archive: tarfile.TarFile) -> Files:
    """The files at the top of an archive, or one folder down. Nothing is unpacked onto the disk."""
    return {
        Path(member.name).name: lambda member=member: archive.extractfile(member)
        for member in archive
        if member.isfile() and len(Path(member.name).parts) <= 2
    }


def _manifest(path: Path, files: Files) -> Record:
    if MANIFEST not in files:
        raise InvalidInputError(f"{path} has no {MANIFEST}; it is no COGX archive")
    with files[MANIFEST]() as file:
        try:
            found = decoded(cast("IO[bytes]", file).read())
        except ValueError as error:
            raise InvalidInputError(f"{path}, {MANIFEST}: {error}") from error
    return cast("Record", found) if isinstance(found, dict) else {}


def _records(path: Path, files: Files, name: str) -> Iterator[Record]:
    if f"{name}.jsonl" not in files:
        return
    with files[f"{name}.jsonl"]() as file:
        for number, line in enumerate(cast("IO[bytes]", file), 1):
            if not line.strip():
                continue
            try:
                found = decoded(line)
            except ValueError as error:
                raise InvalidInputError(
                    f"{path}, {name}.jsonl, line {number}: not valid JSON ({error})"
                ) from error
            if isinstance(found, dict):
                yield cast("Record", found)
