"""A workspace: a folder of files that says what is searched, how, and how well it must go.

::

    collections/*.json      fields, and how documents are cut
    documents/**            .md .txt .html .pdf
    configs/*.json          search configs; active.json is a copy of what is deployed
    evals/*.json            queries with what answers them and what would mislead
    */*.schema.json         JSON Schemas, for editors

`load` reads all of it and never raises: what is wrong becomes a finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from skep.tuning.chunking import Chunking
from skep.tuning.files import is_name, read_json, walk
from skep.tuning.findings import Finding, RefusedError, did_you_mean
from skep.tuning.metrics import DEFAULT_K, Labels
from skep.tuning.schema_check import check
from skep.tuning.schemas import COLLECTION, CONFIG, EVALS, EVERYTHING, Schema
from skep.tuning.search_config import SearchConfig, from_raw, merged

ACTIVE = "active"
FOLDERS = ("collections", "configs", "documents", "evals")
Split = Literal["tune", "holdout"]
SPLITS: tuple[Split, ...] = ("tune", "holdout")
LATENCY_BUDGET_MS = 100.0

_T = TypeVar("_T")


class Field(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the front matter of a document may state."""

    type: Literal["text", "keyword", "number", "boolean", "date"]
    filterable: bool = False
    description: str = ""


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """Which documents belong together, what they state, and how they are cut."""

    name: str
    description: str = ""
    folder: str = ""
    fields: dict[str, Field] = msgspec.field(default_factory=dict[str, Field])
    chunking: Chunking = Chunking()

    @property
    def filterable(self) -> tuple[str, ...]:
        """The fields that configs may filter on."""
        return tuple(sorted(name for name, field in self.fields.items() if field.filterable))


class EvalQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One question, and what is known about its answers."""

    id: str
    query: str
    relevant: tuple[str, ...]
    distractors: tuple[str, ...] = ()
    grades: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    split: Split = "tune"
    note: str = ""

    def labels(self) -> Labels:
        """What the metric needs."""
        return Labels(
            relevant={document: self.grades.get(document, 1.0) for document in self.relevant},
            distractors=frozenset(self.distractors),
        )


class EvalSet(msgspec.Struct, frozen=True, kw_only=True):
    """Questions that configs are measured with."""

    name: str
    queries: tuple[EvalQuery, ...]
    note: str = ""
    collection: str = ""
    k: int = DEFAULT_K
    latency_budget_ms: float = LATENCY_BUDGET_MS

    def of(self, split: Split | None) -> tuple[EvalQuery, ...]:
        """The queries of one split, or all of them."""
        return tuple(query for query in self.queries if split is None or query.split == split)


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
        name: msgspec.convert({"collection": only, **_without_schema(raw)}, EvalSet)
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
            if not wrong and not (folder == "configs" and file.stem == ACTIVE) and raw["name"] != file.stem:
                what = f"it is named {raw['name']!r} inside and {file.stem!r} outside"
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


def _without_schema(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "$schema"}
