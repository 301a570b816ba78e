"""The documents of a collection with their fields checked, and what their fields may be filtered by."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import date

import msgspec

from skep.errors import MissingExtraError
from skep.tuning.documents import (
    MAX_DOCUMENT_BYTES,
    SUFFIXES,
    Document,
    FieldValue,
    FrontMatterError,
    read_document,
)
from skep.tuning.files import inside, is_document_path
from skep.tuning.findings import Finding, did_you_mean
from skep.tuning.schemas import RESERVED
from skep.tuning.search_config import Scalar, field_tag
from skep.tuning.workspace import Collection, Field, Workspace

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
                wrong = list(_check_fields(document, collection))
                findings.extend(wrong)
                if not any(finding.severity == "error" for finding in wrong):
                    sources.append(Source(document=document, fields=dict(_typed(document, collection))))
    if not sources and not findings:
        what, fix = f"the collection {collection.name!r} has no documents", "put files into documents/"
        findings.append(Finding(code="no-documents", file="documents", what=what, fix=fix))
    return Sources(collection=collection, sources=tuple(sources), findings=tuple(findings))


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
