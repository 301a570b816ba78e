"""A workspace and its files: read within bounds, written whole or not at all, laid out anew.

A workspace: a folder of files that says what is searched, how, and how well it must go.

::

    collections/*.json      fields, and how documents are cut
    documents/**            .md .txt .html .pdf
    configs/*.json          search configs; active.json is a copy of what is deployed
    evals/*.json            queries with what answers them and what would mislead
    */*.schema.json         JSON Schemas, for editors

The JSON may have comments and trailing commas. `load` reads all of it and never raises: what is wrong becomes a
finding. Called by the rest of this room and by `skep tune`; touches nothing outside the workspace's folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec
from msgspec import Meta

from skep.errors import did_you_mean
from skep.tuning.documents import Chunking
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.metrics import DEFAULT_K, Labels
from skep.tuning.schemas import (
    EVERYTHING,
    NAME,
    CollectionName,
    Count,
    FieldName,
    Label,
    Name,
    Schema,
    Text,
    check,
    json_schema,
)
from skep.tuning.search_config import CONFIG, SearchConfig, config_schema, from_raw, merged

MAX_JSON_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 32


class _DuplicateKeyError(ValueError):
    """An object states a key twice."""


def read_json(root: Path, relative: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """The JSON object in a file, or findings that say why there is none."""

    def failed(code: str, what: str, fix: str) -> tuple[None, list[Finding]]:
        return None, [Finding(code=code, file=relative, what=what, fix=fix)]

    file = root / relative
    try:
        if not inside(root, file):
            return failed(
                "outside-workspace", "it links to a place outside the workspace", "copy the file in"
            )
        size = file.stat().st_size
        if size > MAX_JSON_BYTES:
            limit = MAX_JSON_BYTES // 1024 // 1024
            return failed("too-large", f"it has {size:,} bytes", f"keep it under {limit} MiB; split it")
        text = file.read_bytes().decode("utf-8-sig")
        value: object = json.loads(plain_json(text), object_pairs_hook=_pairs, parse_constant=_constant)
    except OSError as error:
        return failed(
            "unreadable", f"it cannot be read ({error.strerror or error})", "check that it is a file"
        )
    except UnicodeDecodeError as error:
        return failed("not-utf8", f"byte {error.start} is not UTF-8", "save it as UTF-8")
    except _DuplicateKeyError as error:
        return failed("duplicate-key", str(error), "keep one of them")
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        return failed("malformed-json", f"{error.msg.lower()} at {place}", "correct the JSON there")
    except RecursionError:
        return failed("too-deep", "it is nested too deeply", f"nest at most {MAX_DEPTH} levels")
    except ValueError as error:
        return failed("malformed-json", str(error), "use plain JSON numbers")
    if isinstance(value, list) and relative.startswith("evals/"):
        value = {"queries": cast("list[Any]", value)}
    if not isinstance(value, dict):
        return failed("wrong-type", "it holds no JSON object", "put the keys between { and }")
    found = cast("dict[str, Any]", value)
    if _depth(found) > MAX_DEPTH:
        return failed("too-deep", "it is nested too deeply", f"nest at most {MAX_DEPTH} levels")
    return found, []


_APART = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)', re.S)
_COMMA = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|,(?=\s*[}\]])', re.S)


def plain_json(text: str) -> str:
    """JSON without comments and trailing commas, as in tsconfig.json; every other character keeps its line and column.

    >>> plain_json('{"a": "//", /* b */ "c": [1,], } // d')
    '{"a": "//",         "c": [1 ]  }     '
    """

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    return _COMMA.sub(blank, _APART.sub(blank, text))


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see the old one or the new one."""
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """As `write_json`, for text."""
    write_bytes(file, text.encode("utf-8"))


def write_bytes(file: Path, data: bytes) -> None:
    """As `write_json`, for bytes; a failure is a finding and leaves the old file as it was."""
    temporary = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        what = f"it cannot be written ({error.strerror or error})"
        fix = "check the folder's permissions and the free space"
        raise RefusedError([Finding(code="write-failed", file=str(file.name), what=what, fix=fix)]) from error


def inside(root: Path, file: Path) -> bool:
    """True if `file`, links followed, lies within `root`."""
    try:
        return file.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def is_name(text: str) -> bool:
    """True if `text` may name a config, a collection or an eval set.

    >>> is_name("v1-naive"), is_name("../v1"), is_name("")
    (True, False, False)
    """
    return len(text) <= 64 and re.fullmatch(NAME, text) is not None


def is_document_path(text: str) -> bool:
    """True if `text` is a path that stays below `documents/`.

    >>> is_document_path("api/jobs.md"), is_document_path("../x.md"), is_document_path("/etc/hosts")
    (True, False, False)
    """
    if not text or "\\" in text or "\0" in text or ":" in text.partition("/")[0]:
        return False
    path = PurePosixPath(text)
    return not path.is_absolute() and ".." not in path.parts and str(path) == text


def walk(root: Path, below: str) -> Iterator[tuple[str, Finding | None]]:
    """Every file below a folder, relative to it. Links to folders are reported and not followed."""
    base = root / below
    for folder, names, found in os.walk(base, followlinks=False):
        here = Path(folder)
        kept: list[str] = []
        for name in sorted(names):
            child = here / name
            relative = child.relative_to(root).as_posix()
            if child.is_symlink():
                yield relative, _link(root, child, relative)
            elif not name.startswith("."):
                kept.append(name)
        names[:] = kept
        for name in sorted(found):
            if name.startswith("."):
                continue
            file = here / name
            relative = file.relative_to(root).as_posix()
            if file.is_symlink() and not inside(root, file):
                what, fix = "it links to a place outside the workspace", "copy the file in"
                yield relative, Finding(code="outside-workspace", file=relative, what=what, fix=fix)
            else:
                yield file.relative_to(base).as_posix(), None


def _link(root: Path, child: Path, relative: str) -> Finding:
    try:
        target = child.resolve()
        cyclic = child.parent.resolve().is_relative_to(target)
    except (OSError, RuntimeError):
        target, cyclic = root, True
    if cyclic:
        what, fix = "the link leads back to one of its own parents", "remove the link"
        return Finding(code="cyclic-link", file=relative, what=what, fix=fix)
    if not target.is_relative_to(root.resolve()):
        what, fix = "the link leads outside the workspace", "copy the folder in"
        return Finding(code="outside-workspace", file=relative, what=what, fix=fix)
    what, fix = "links to folders are not followed", "copy the folder, or remove the link"
    return Finding(code="linked-folder", file=relative, what=what, fix=fix, severity="warning")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _DuplicateKeyError(f"the key {key[:80]!r} is stated twice in one object")
        made[key] = value
    return made


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(cast("dict[str, object]", item).values())
            elif isinstance(item, list):
                inner.extend(cast("list[object]", item))
        level = inner
    return deepest


ACTIVE = "active"
FOLDERS = ("collections", "configs", "documents", "evals")
Split = Literal["tune", "holdout"]
SPLITS: tuple[Split, ...] = ("tune", "holdout")
LATENCY_BUDGET_MS = 100.0

_T = TypeVar("_T")


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A field that the front matter of a document may state."""

    type: Annotated[
        Literal["text", "keyword", "number", "boolean", "date"],
        Meta(description="What its values look like."),
    ]
    filterable: Annotated[bool, Meta(description="Whether configs may filter on it.")] = False
    from_folder: Annotated[
        bool, Meta(description="Take it from the name of the document's folder where it is not stated.")
    ] = False
    description: Annotated[Text, Meta(description="What it means.")] = ""


class Collection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Documents that belong together, their fields, and their cutting."""

    name: Annotated[Name, Meta(description="The name of this file without .json.")]
    description: Annotated[Text, Meta(description="What is in it, for whoever writes configs.")] = ""
    folder: Annotated[
        Text,
        Meta(description="The folder below documents/ that belongs to it; empty means all of them."),
    ] = ""
    fields: Annotated[
        dict[FieldName, Field], Meta(description="What the front matter of its documents may state.")
    ] = msgspec.field(default_factory=dict[str, Field])
    chunking: Chunking = Chunking()

    @property
    def filterable(self) -> tuple[str, ...]:
        """The fields that configs may filter on."""
        return tuple(sorted(name for name, field in self.fields.items() if field.filterable))


class EvalQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question, and what is known about its answers."""

    id: Annotated[Name, Meta(description="Unique over all eval sets; made up where it is left out.")]
    query: Annotated[str, Meta(min_length=1, max_length=4000)]
    relevant: Annotated[
        tuple[Label, ...],
        Meta(description="Documents that answer it; empty when nothing should be returned."),
    ]
    distractors: Annotated[tuple[Label, ...], Meta(description="Documents that look right and mislead.")] = ()
    grades: Annotated[
        dict[str, Annotated[float, Meta(ge=0.01, le=100)]],
        Meta(description="What a relevant document is worth; 1 unless stated."),
    ] = msgspec.field(default_factory=dict[str, float])
    split: Annotated[Split, Meta(description="Tuned on, or kept for the gate.")] = "tune"
    note: Annotated[Text, Meta(description="Why it is labelled so.")] = ""

    def labels(self) -> Labels:
        """The labels as the metric takes them."""
        return Labels(
            relevant={document: self.grades.get(document, 1.0) for document in self.relevant},
            distractors=frozenset(self.distractors),
        )


class EvalSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Questions that configs are measured with."""

    name: Annotated[Name, Meta(description="The name of this file without .json.")]
    queries: Annotated[tuple[EvalQuery, ...], Meta(min_length=1, max_length=100_000)]
    note: Annotated[Text, Meta(description="Where the labels come from.")] = ""
    collection: Annotated[
        CollectionName, Meta(description="The collection it is about; * is every memory of the bank.")
    ] = ""
    k: Annotated[Count, Meta(description="How many results are looked at; the same for every config.")] = (
        DEFAULT_K
    )
    latency_budget_ms: Annotated[
        float,
        Meta(ge=0.001, le=600_000, description="The 95th percentile a deployed config may take per query."),
    ] = LATENCY_BUDGET_MS

    def of(self, split: Split | None) -> tuple[EvalQuery, ...]:
        """The queries of one split, or all of them."""
        return tuple(query for query in self.queries if split is None or query.split == split)


COLLECTION = json_schema(Collection, "A collection: which documents, which fields, and how they are cut")
EVALS = json_schema(EvalSet, "An eval set: queries, what answers them, and what would mislead")
for _made_up, _needed in ((EVALS, "name"), (EVALS["properties"]["queries"]["items"], "id")):
    _made_up["required"].remove(_needed)
FILES: dict[str, tuple[str, Schema]] = {
    "collections": ("collection.schema.json", COLLECTION),
    "configs": ("config.schema.json", CONFIG),
    "evals": ("evals.schema.json", EVALS),
}
"""Per folder of a workspace: the name of the schema file written there, and its content."""


class Workspace(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that could be read, and everything that was wrong with the rest."""

    root: Path
    collections: dict[str, Collection]
    configs: dict[str, SearchConfig]
    """By name; the config in active.json under `active`."""
    evals: dict[str, EvalSet]
    documents: tuple[str, ...]
    """Paths below documents/."""
    findings: tuple[Finding, ...] = ()

    def config(self, name: str) -> SearchConfig:
        """A config by its name or its file; `RefusedError` when there is none that can be used."""
        stem = name.removeprefix("configs/").removesuffix(".json")
        return self._pick(stem, self.configs, "configs", "unknown-config")

    def eval_set(self, name: str | None = None) -> EvalSet:
        """An eval set by its name, or the only one there is."""
        if name is None and not self.evals:
            self._raise_about("evals")
            what, fix = "there is no eval set", "write one in evals/, or run `skep tune harvest`"
            raise RefusedError([Finding(code="no-evals", file="evals", what=what, fix=fix)])
        if name is None:
            return self.evals["golden"] if "golden" in self.evals else next(iter(self.evals.values()))
        stem = name.removeprefix("evals/").removesuffix(".json")
        return self._pick(stem, self.evals, "evals", "no-evals")

    def collection_of(self, config: SearchConfig) -> Collection | None:
        """The collection a config searches; None for every memory of the bank."""
        if config.collection == EVERYTHING:
            return None
        return self._pick(config.collection, self.collections, "collections", "unknown-collection")

    def _pick(self, name: str, known: Mapping[str, _T], folder: str, code: str) -> _T:
        if name in known:
            return known[name]
        if is_name(name):
            self._raise_about(f"{folder}/{name}.json")
        what = f"there is no {name[:80]!r} in {folder}/"
        raise RefusedError([Finding(code=code, file=folder, what=what, fix=did_you_mean(name, known))])

    def _raise_about(self, place: str) -> None:
        about = [finding for finding in self.findings if finding.file.startswith(place)]
        errors = [finding for finding in about if finding.severity == "error"]
        if errors:
            raise RefusedError(errors)


def load(root: Path) -> Workspace:
    """Read a workspace. What cannot be read is left out and reported in `findings`."""
    findings: list[Finding] = []
    if not any((root / folder).is_dir() for folder in ("collections", "configs")):
        what, fix = "it has neither collections/ nor configs/", "create one with `skep tune init DIR`"
        findings.append(Finding(code="no-workspace", file="", what=what, fix=fix))
    collections = {
        name: msgspec.convert(_without_schema(raw), Collection)
        for name, raw in _read_folder(root, "collections", COLLECTION, findings)
    }
    only = next(iter(collections)) if len(collections) == 1 else ""
    raws = dict(_read_folder(root, "configs", CONFIG, findings))
    configs = dict(_resolved(raws, only, findings))
    evals = {
        name: msgspec.convert({"collection": only, **_completed(name, raw, findings)}, EvalSet)
        for name, raw in _read_folder(root, "evals", EVALS, findings)
    }
    documents: list[str] = []
    for path, finding in walk(root, "documents"):
        if finding is None:
            documents.append(path)
        else:
            findings.append(finding)
    return Workspace(
        root=root,
        collections=collections,
        configs=configs,
        evals=evals,
        documents=tuple(sorted(documents)),
        findings=tuple(findings),
    )


def _read_folder(
    root: Path, folder: str, schema: Schema, findings: list[Finding]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every file of a folder that is well-formed, by name; the others become findings."""
    base = root / folder
    for file in sorted(base.glob("*.json")) if base.is_dir() else []:
        if file.name.endswith(".schema.json") or file.name.startswith("."):
            continue
        relative = f"{folder}/{file.name}"
        raw, wrong = read_json(root, relative)
        if raw is not None:
            wrong = check(raw, schema, relative)
            name = raw.get("name", file.stem)  # only an eval set may do without
            if not wrong and not (folder == "configs" and file.stem == ACTIVE) and name != file.stem:
                what = f"it is named {name!r} inside and {file.stem!r} outside"
                fix = "give both the same name"
                wrong = [Finding(code="name-differs", file=relative, path="name", what=what, fix=fix)]
        findings.extend(wrong)
        if raw is not None and not wrong:
            yield file.stem, raw


def _resolved(
    raws: Mapping[str, dict[str, Any]], only: str, findings: list[Finding]
) -> Iterator[tuple[str, SearchConfig]]:
    """Configs with what they extend filled in; circles and missing parents become findings."""
    for name in raws:
        chain: list[str] = [name]
        wrong: Finding | None = None
        while (parent := raws[chain[-1]].get("extends")) is not None and wrong is None:
            file = f"configs/{chain[-1]}.json"
            if parent in chain:
                what = "it extends itself: " + " → ".join([*chain, parent])
                fix = "remove one 'extends'"
                wrong = Finding(code="cyclic-extends", file=file, path="extends", what=what, fix=fix)
            elif parent not in raws:
                what, fix = f"there is no usable config {parent!r}", did_you_mean(parent, set(raws) - {name})
                wrong = Finding(code="unknown-config", file=file, path="extends", what=what, fix=fix)
            else:
                chain.append(parent)
        if wrong is not None:
            if wrong not in findings:
                findings.append(wrong)
            continue
        whole: dict[str, Any] = {"collection": only}
        for link in reversed(chain):
            whole = merged(whole, raws[link])
        yield name, from_raw(whole)


def _completed(name: str, raw: Mapping[str, Any], findings: list[Finding]) -> dict[str, Any]:
    """An eval set with the name, ids and splits that its file leaves out; the ones made up are told as a warning."""
    queries = [dict(query) for query in cast("list[dict[str, Any]]", raw["queries"])]
    made_up: list[str] = []
    if not all("id" in query for query in queries):
        made_up.append(f"ids {name}-1 to {name}-{len(queries)}")
        for number, query in enumerate(queries, 1):
            query.setdefault("id", f"{name}-{number}")
    if len(queries) > 1 and not any("split" in query for query in queries):
        ordered = sorted(queries, key=lambda query: hashlib.sha256(query["query"].encode()).digest())
        for query in ordered[: len(queries) // 2]:
            query["split"] = "holdout"
        held_out = ", ".join(query["id"] for query in queries if "split" in query)
        made_up.append(f"a holdout of {len(queries) // 2} queries ({held_out[:200]})")
    if made_up:
        what, fix = f"made up for it: {'; '.join(made_up)}", "write ids and splits into the file to keep them"
        file = f"evals/{name}.json"
        findings.append(
            Finding(code="made-up", file=file, path="queries", what=what, fix=fix, severity="warning")
        )
    return {**_without_schema(raw), "name": name, "queries": queries}


def _without_schema(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "$schema"}


STARTERS: dict[str, dict[str, Any]] = {
    "collections/knowledge-base.json": {
        "$schema": "./collection.schema.json",
        "name": "knowledge-base",
        "description": "What these documents are about.",
        "fields": {
            "title": {"type": "text"},
            "category": {"type": "keyword", "filterable": True, "from_folder": True},
        },
        "chunking": {"strategy": "by_heading", "max_tokens": 512, "heading_level": 2},
    },
    "configs/naive.json": {
        "$schema": "./config.schema.json",
        "name": "naive",
        "note": "The usual start: words and meaning fused by rank, always ten results.",
        "collection": "knowledge-base",
        "retrieval": {"method": "hybrid", "top_k": 10, "fusion": "rrf", "rrf_k": 60},
        "filters": {},
        "dynamic_k": {"enabled": False, "gap_threshold_factor": 2.0, "min_results": 1, "max_results": 10},
        "distraction_detection": {"enabled": False, "disagreement_threshold": 0.4},
    },
}
IGNORED = "bank.skep*\n"


def init(root: Path, *, example: bool = False) -> list[str]:
    """Lay out a workspace and return the files written. Nothing is written if any of them exists already."""
    wanted: dict[str, str | Mapping[str, Any]] = {".gitignore": IGNORED}
    for folder, (name, schema) in FILES.items():
        wanted[f"{folder}/{name}"] = schema
    wanted |= dict(_example()) if example else STARTERS
    taken = sorted(path for path in wanted if (root / path).exists())
    if taken or (root.exists() and not root.is_dir()):
        what = f"{', '.join(taken[:5]) or root.name} exists already"
        fix = "choose an empty folder"
        raise RefusedError([Finding(code="not-empty", file="", what=what, fix=fix)])
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, content in wanted.items():
        if isinstance(content, str):
            write_text(root / path, content)
        else:
            write_json(root / path, content)
    return sorted(wanted)


def offer_values(root: Path, values: Mapping[str, Sequence[str]]) -> None:
    """Write the filterable fields and their values into the schema of configs, for editors to complete."""
    name, _ = FILES["configs"]
    write_json(root / "configs" / name, config_schema(values))


def _example() -> Iterator[tuple[str, str]]:
    yield from _below(files("skep.tuning") / "example", "")


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".py", ".pyc")):
            yield f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")
