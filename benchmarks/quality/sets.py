"""Labelled sets in the common form: memories, questions with what may be searched, and labels.

A set is a folder with `corpus.jsonl.gz`, `queries.jsonl.gz`, `qrels.tsv.gz` and `META.json`; the project's own small
set is one JSON file. What else a memory is called stands in its title. Dates become `created_at`; the time of a
question becomes its `now`, and what was written later
is not searched.
"""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from skep.filters import Filter
from skep.model import Memory, Scope

OWN = Path(__file__).parent / "own.json"
EPOCH = 1_735_689_600.0
"""The first moment of 2025: for documents that carry an order and no date."""
MINUTE = 60.0
FORMATS = (
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d",
    "%I:%M %p on %d %B, %Y",
    "%B-%d-%Y",
    "%d/%b/%y %H:%M",
    "%Y-%m-%d %H:%M:%S",
)


EVERYWHERE = Scope(user="*", project="*", session="*")


class Question(NamedTuple):
    """One query with what may be searched and how it is labelled."""

    id: str
    text: str
    where: Filter
    now: float
    labels: dict[str, int]
    kind: str
    exclude: str | None
    answerable: bool | None
    """None where the set does not say."""


class EvalSet(NamedTuple):
    """A labelled set."""

    name: str
    memories: list[Memory]
    questions: list[Question]

    @property
    def scoped(self) -> bool:
        """Whether questions search a part of it alone, so that it is another task without scopes."""
        return any(q.where.tags or q.where.scope != EVERYWHERE for q in self.questions)


def names(root: Path) -> list[str]:
    """The sets under a folder that have questions."""
    return sorted(path.parent.name for path in root.glob("conv/*/queries.jsonl.gz"))


def load(root: Path, name: str, *, federated: bool = False) -> EvalSet:
    """One set; `federated` drops the scopes, so that every question searches everything."""
    folder = root / "conv" / name
    labels: dict[str, dict[str, int]] = {}
    with gzip.open(folder / "qrels.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            query, document, grade = line.rstrip("\n").split("\t")
            labels.setdefault(query, {})[document] = int(grade)
    scoped = bool(json.loads((folder / "META.json").read_text())["scoped"])
    corpus = _lines(folder / "corpus.jsonl.gz")
    memories = [_memory(each, place, scoped=scoped) for place, each in enumerate(corpus)]
    latest = max((memory.created_at for memory in memories), default=EPOCH)
    questions = [
        _question(each, labels.get(each["id"], {}), latest, name, scoped=scoped, federated=federated)
        for each in _lines(folder / "queries.jsonl.gz")
    ]
    return EvalSet(name, memories, questions)


def load_own(*, federated: bool = False) -> EvalSet:
    """The project's own small set."""
    raw = json.loads(OWN.read_text(encoding="utf-8"))
    memories = [_memory(each, place, scoped=True) for place, each in enumerate(raw["memories"])]
    latest = max(memory.created_at for memory in memories)
    questions = [
        _question(each, each["labels"], latest, "own", scoped="scope" in each["meta"], federated=federated)
        for each in raw["questions"]
    ]
    return EvalSet("own", memories, questions)


def moment(raw: Any) -> float | None:
    """A date in one of the known spellings, as seconds."""
    text = re.sub(r" \(\w+\)$", "", str(raw or "").strip())
    for form in FORMATS:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def _memory(raw: dict[str, Any], place: int, *, scoped: bool) -> Memory:
    meta = raw["meta"]
    named = (moment(meta.get(key)) for key in ("date", "timestamp", "created", "valid_from"))
    created = next((value for value in named if value is not None), EPOCH + MINUTE * place)
    session = meta.get("session", meta.get("batch"))
    return Memory(
        id=raw["id"],
        kind="episode" if "speaker" in meta or "batch" in meta else "fact",
        text=raw["text"],
        title=_names(meta),
        agent=meta.get("agent"),
        scope=Scope(
            user=meta.get("user"),
            project=meta.get("scope") if scoped else None,
            session=None if session is None or not scoped else str(session),
        ),
        tags=tuple(meta.get("scope_tags", ())),
        pinned=bool(meta.get("pinned")),
        status="superseded" if meta.get("superseded_by") else "active",
        superseded_by=meta.get("superseded_by"),
        created_at=created,
        last_evidence_at=created,
        confidence=1.0,
    )


def _names(meta: dict[str, Any]) -> str | None:
    """The name of a belief and what else it is called, where a set says so: a title."""
    if "aliases" not in meta:
        return None
    return ", ".join([meta["name"].replace("_", " "), *meta["aliases"]])


def _question(
    raw: dict[str, Any], labels: dict[str, int], latest: float, name: str, *, scoped: bool, federated: bool
) -> Question:
    meta = raw["meta"]
    asked = next((t for t in (moment(meta.get(k)) for k in ("date", "timestamp")) if t is not None), None)
    scope, tags = EVERYWHERE, tuple[tuple[str, ...], ...]()
    if "scope_tags" in meta and not federated:
        scope = Scope(user=meta.get("user"), project="*", session="*")
        tags = (tuple(meta["scope_tags"]),)
    elif scoped and not federated:
        scope = Scope(user="*", project=meta["scope"], session="*")
    answerable = meta.get("answerable")
    if answerable is None and name in ("precisionmem", "own"):
        answerable = any(grade > 0 for grade in labels.values())
    return Question(
        id=raw["id"],
        text=raw["text"],
        where=Filter(
            scope=scope, tags=tags, until=None if asked is None else asked + 1, min_confidence=0.0, now=latest
        ),
        now=latest + MINUTE if asked is None else asked + MINUTE,
        labels=labels,
        kind=str(
            meta.get("category") or meta.get("probe") or meta.get("difficulty") or meta.get("kind") or ""
        ),
        exclude=meta.get("self"),
        answerable=answerable,
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
