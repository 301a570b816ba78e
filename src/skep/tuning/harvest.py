"""Learning from traffic: recalls and outcomes that the bank has recorded become an eval set.

What was used in a task that went well is relevant to its query; what was used in a task that failed is a
distractor. Several tasks with the same query vote. Everything is read from the bank and written to the
workspace: nothing leaves the machine.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from skep.bank import Bank
from skep.errors import NotFoundError
from skep.tuning.files import is_name, write_json
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.indexing import document_of
from skep.tuning.schemas import EVERYTHING
from skep.tuning.workspace import EvalQuery, EvalSet, Split, Workspace

NOTE = "Harvested from recalls and outcomes of the bank. Review it before use: votes are few at first."
WINDOW = 3600.0
"""An outcome speaks of a recall at most this many seconds before it."""


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A recall: what was asked and what was handed over."""

    query: str
    shown: tuple[str, ...]
    at: float


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
    recalls: int
    skipped: int
    """Queries whose votes cancelled out, or whose memories are gone."""

    def sample(self, count: int) -> tuple[EvalQuery, ...]:
        """A few queries to look at before use, spread evenly."""
        queries = self.eval_set.queries
        step = max(1, len(queries) // max(1, count))
        return queries[::step][:count]


def harvest(
    bank: Bank, *, name: str = "harvest", recalls: Iterable[Shown] = (), since: float | None = None
) -> Harvest:
    """An eval set from what the bank has recorded.

    Args:
        bank: Its outcomes are read; each names the task, what was shown and what was used.
        name: The name of the eval set.
        recalls: Recalls that were recorded elsewhere; an outcome that follows one belongs to its query.
        since: Leave out what happened before.
    """
    results = [result for result in _results(bank) if since is None or result.at >= since]
    asked = [shown for shown in recalls if since is None or shown.at >= since]
    votes = tally(asked, results)
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
    return Harvest(
        eval_set=eval_set, outcomes=len(results), recalls=len(asked), skipped=len(votes) - len(queries)
    )


def tally(recalls: Sequence[Shown], results: Sequence[Result]) -> dict[str, Counter[str]]:
    """Votes per query and memory: +1 for each task it helped, −1 for each it hurt.

    A result belongs to the newest recall before it that showed one of the memories it used; without such a
    recall, its task is the query.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    by_time = sorted(recalls, key=lambda shown: shown.at)
    for result in results:
        query = _query_of(result, by_time) or _tidy(result.task)
        if not query:
            continue
        for memory in dict.fromkeys(result.used):
            votes[query][memory] += 1 if result.success else -1
    return dict(votes)


def _query_of(result: Result, by_time: Sequence[Shown]) -> str:
    for shown in reversed(by_time):
        if shown.at > result.at:
            continue
        if result.at - shown.at > WINDOW:
            break
        if set(shown.shown) & set(result.used):
            return _tidy(shown.query)
    return ""


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
    for event in bank.engine.store.log.outcomes():
        body: Mapping[str, Any] = event.body
        named = cast("list[str]", body.get("used") or []) or cast("list[str]", body.get("shown") or [])
        yield Result(
            task=str(body.get("task", "")),
            used=tuple(memory_id for memory_id in named if _existed(bank, memory_id, event.at)),
            success=bool(body.get("success")),
            at=event.at,
        )


def _existed(bank: Bank, memory_id: str, at: float) -> bool:
    """Whether a memory was there before a task; the lesson a task leaves behind did not help it."""
    try:
        return bank.get(memory_id).created_at < at
    except NotFoundError:
        return False


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
