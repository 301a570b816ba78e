"""Which stored memories a memory does not go together with.

Candidates come through the index (near in meaning, or sharing most words), so that a scan of the bank stays far from
quadratic; each pair is then judged by `compare`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from skep.clock import AHEAD_SECONDS
from skep.embedding.static_table import bundled_table
from skep.engine.embeddings import Progress
from skep.engine.engine import Engine
from skep.filters import Filter
from skep.model import CURRENT, Conflict, Memory, Scope
from skep.runtime import lazy, undisturbed
from skep.storage.memory_rows import searched_text
from skep.text.terms import query_terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.semantics.compare_texts import Verdict


ContradictionFn = Callable[[Memory, Memory], bool]
"""Asked about a stored and a new memory when the rules say nothing; True means they contradict."""
CANDIDATE = 0.80
"""Similarity on the common scale from which two memories are compared."""
OVERLAP = 0.5
"""Share of words in common from which two memories are compared whatever their similarity."""
ALIKE = 0.4
"""The same, and similarity, where both are there: a name of two words is much of a short text."""
TOLD = 0.58
"""Similarity from which two memories are compared if one tells of a change: "moved from Rome to Oslo"."""
DUPLICATE = 0.95
"""Similarity from which a memory that repeats another need not be stored again."""
SURE = 0.90
"""How sure that has to be: the same words in another order are as similar as can be, and may say the opposite."""
LIKELY = 1 / 3
"""How sure a contradiction or an update has to be to count as one: the likeliest of three is. What may hold beside the
other (who speaks French may speak German) is not."""
COMPARED = 1024
"""Pairs that are compared at once where many are."""
_WORD = lazy(r"\w+")


def find_for(
    engine: Engine,
    memory: Memory,
    *,
    threshold: float = CANDIDATE,
    contradiction_fn: ContradictionFn | None = None,
    limit: int | None = None,
    shared: bool = True,
    vector: NDArray[np.float32] | None = None,
) -> list[Conflict]:
    """The conflicts of one memory with what is stored, surest first.

    Args:
        engine: The bank.
        memory: The memory; one that is not stored has no id.
        threshold: The similarity from which two memories are compared.
        contradiction_fn: Asked about pairs on which the rules say nothing.
        limit: How many near memories to compare with.
        shared: Whether memories without a scope count as well.
        vector: What the embedder makes of it, where the caller has that already. Without one, and where a slow embedder
            has none to give at once, the search goes by words.
    """
    near = _candidates(
        engine, memory, threshold, limit or engine.settings.conflict_candidates, shared=shared, vector=vector
    )
    if not near:
        return []
    return _surest_first(
        judge_many([(existing, memory, similarity) for existing, similarity in near], contradiction_fn)
    )


def _surest_first(judged: Iterable[Conflict | None]) -> list[Conflict]:
    found = [conflict for conflict in judged if conflict is not None]
    return sorted(found, key=lambda c: (-c.confidence, c.existing.id))


def repeats(conflict: Conflict) -> bool:
    """Whether a memory so surely says what is stored that it need not be stored again."""
    return conflict.kind == "duplicate" and conflict.similarity >= DUPLICATE and conflict.confidence >= SURE


def replaces(conflict: Conflict) -> bool:
    """Whether a memory and a stored one hardly both hold, so that the newer stands for the older."""
    return conflict.kind != "duplicate" and conflict.confidence >= LIKELY


def holds(memory: Memory, now: float) -> bool:
    """Whether a memory is of the present; one that is not so yet, or no longer, takes the place of none."""
    begun = memory.valid_from is None or memory.valid_from <= now
    return begun and (memory.valid_to is None or now < memory.valid_to)


def refused(conflicts: Sequence[Conflict]) -> tuple[Conflict, ...]:
    """Those for which a memory is not written where conflicts are refused: it repeats, or would replace, something."""
    return tuple(c for c in conflicts if c.kind == "duplicate" or replaces(c))


def judge(
    existing: Memory, memory: Memory, similarity: float, contradiction_fn: ContradictionFn | None = None
) -> Conflict | None:
    """The conflict between two memories that were found to be near, if there is one."""
    return judge_many([(existing, memory, similarity)], contradiction_fn)[0]


def judge_many(
    pairs: Sequence[tuple[Memory, Memory, float]], contradiction_fn: ContradictionFn | None = None
) -> list[Conflict | None]:
    """The conflicts of pairs of a stored memory and another, given how near they are; all are compared at once."""
    from skep.semantics.compare_texts import (
        Asked,
        compare_many,  # its tables are read when something is to be compared
    )

    verdicts = compare_many(
        [
            Asked(
                existing.text,
                memory.text,
                similarity,
                existing.polarity,
                memory.polarity,
                "b" if memory.created_at >= existing.created_at else "a",
            )
            for existing, memory, similarity in pairs
        ]
    )
    return [
        _conflict(existing, memory, similarity, verdict, contradiction_fn)
        for (existing, memory, similarity), verdict in zip(pairs, verdicts, strict=True)
    ]


def _conflict(
    existing: Memory,
    memory: Memory,
    similarity: float,
    verdict: Verdict,
    contradiction_fn: ContradictionFn | None,
) -> Conflict | None:
    verdict = _summaries_repeat(existing, memory, verdict)
    if verdict.kind == "neutral":
        if contradiction_fn is None or not contradiction_fn(existing, memory):
            return None
        return Conflict(
            existing=existing,
            memory=memory if memory.id else None,
            kind="contradiction",
            similarity=similarity,
            reason="custom",
            confidence=1.0,
        )
    return Conflict(
        existing=existing,
        memory=memory if memory.id else None,
        kind=verdict.kind,
        similarity=similarity,
        reason=verdict.reason,
        confidence=verdict.confidence,
    )


def _summaries_repeat(existing: Memory, memory: Memory, verdict: Verdict) -> Verdict:
    """A summary repeats its sources; it never contradicts them."""
    related = memory.id in existing.evidence or existing.id in memory.evidence
    if verdict.kind != "neutral" and related and existing.level != memory.level:
        return msgspec.structs.replace(verdict, kind="duplicate", reason="similarity")
    return verdict


def scan(
    engine: Engine,
    memories: Sequence[Memory],
    *,
    threshold: float = CANDIDATE,
    contradiction_fn: ContradictionFn | None = None,
    progress: Progress | None = None,
    shared: bool = True,
) -> Iterator[Conflict]:
    """The conflicts among many memories, each pair once; the newer one stands as `memory`.

    Pairs of several memories are compared at once, and one that was found to be in conflict not again from its other
    side.
    """
    most = COMPARED if contradiction_fn is None else 1  # one that is asked may take its time
    seen: set[frozenset[str]] = set()
    done = 0
    while done < len(memories):
        pairs: list[tuple[Memory, Memory, float]] = []
        counts: list[tuple[Memory, int]] = []
        with nullcontext() if contradiction_fn else undisturbed():  # what is made stays: it holds no garbage
            while done + len(counts) < len(memories) and len(pairs) < most:
                memory, before = memories[done + len(counts)], len(pairs)
                pairs += _new_pairs(engine, memory, threshold, seen, shared=shared)
                counts.append((memory, len(pairs) - before))
            judged = iter(judge_many(pairs, contradiction_fn) if pairs else ())
        for memory, count in counts:
            for conflict in _surest_first(islice(judged, count)):
                pair = frozenset((memory.id, conflict.existing.id))
                if pair not in seen:  # both sides may have come at once
                    seen.add(pair)
                    yield _newer_last(conflict, memory, engine.now())
            done += 1
            if progress is not None:
                progress(done, len(memories))


def _new_pairs(
    engine: Engine, memory: Memory, threshold: float, seen: set[frozenset[str]], *, shared: bool
) -> list[tuple[Memory, Memory, float]]:
    """A memory with those worth comparing with it, but for pairs that were found to be in conflict."""
    limit = engine.settings.conflict_candidates
    near = _candidates(engine, memory, threshold, limit, shared=shared, vector=None)
    return [
        (existing, memory, similarity)
        for existing, similarity in near
        if frozenset((existing.id, memory.id)) not in seen
    ]


def _newer_last(conflict: Conflict, memory: Memory, now: float) -> Conflict:
    older = conflict.existing
    if older_first(older, memory, now)[0] is older:
        return conflict
    return msgspec.structs.replace(conflict, existing=memory, memory=older)


def age(memory: Memory) -> tuple[float, str, int]:
    """Older first. What was written at one moment by one writer keeps the order in which it was written."""
    actor, _, counter = memory.id.rpartition("-")
    return memory.created_at, actor, int(counter) if counter.isdecimal() else 0


def older_first(a: Memory, b: Memory, now: float) -> tuple[Memory, Memory]:
    """Two memories by age. A date in the future is that of a clock which was ahead: then one writer's order counts."""
    one, other = age(a), age(b)
    if max(one[0], other[0]) > now + AHEAD_SECONDS and one[1] == other[1]:
        return (a, b) if one[2] <= other[2] else (b, a)
    return (a, b) if one <= other else (b, a)


def _candidates(
    engine: Engine,
    memory: Memory,
    threshold: float,
    limit: int,
    *,
    shared: bool,
    vector: NDArray[np.float32] | None,
) -> list[tuple[Memory, float]]:
    """Stored memories worth comparing, with their similarity.

    Only memories of the same scope and shared ones are looked at: what is private to one must not show up in an
    answer to another.
    """
    text = searched_text(memory.title, memory.text)
    if vector is None:
        vector = engine.embeddings.at_once(text, memory.id)
    where = Filter(
        scope=memory.scope if not memory.scope.shared else Scope(),
        include_shared=shared,
        kinds=(memory.kind,),
        statuses=CURRENT,
    )
    index = engine.index
    with engine.snapshot():
        index.refresh()
        pool = index.search(query_terms(text), vector, where, k_words=limit, k_vectors=limit)
        rows = pool.rows.tolist()
        if vector is None:
            near = _near_by_table(text, engine.texts_of(rows), rows)
        else:
            near = engine.embeddings.calibrate_many(pool.cosine).tolist()
        similar = {row: 0.0 if math.isnan(cosine) else cosine for row, cosine in zip(rows, near, strict=True)}
        apart = [row for row, similarity in similar.items() if similarity < threshold]
        mine = whole_words(text)
        for row, theirs in engine.texts_of(apart).items():
            if not worth_comparing(mine, whole_words(theirs), similar[row]):
                del similar[row]
        stored = engine.memories(list(similar))
    return [
        (stored[row], similarity)
        for row, similarity in similar.items()
        if row in stored
        and stored[row].id != memory.id
        and stored[row].status in CURRENT
        and comparable(stored[row], memory)
    ]


def worth_comparing(mine: set[str], theirs: set[str], similarity: float) -> bool:
    """Whether two texts that are not near by meaning alone may still be about the same."""
    shared = in_common(mine, theirs)
    if shared >= OVERLAP or min(shared, similarity) >= ALIKE:
        return True
    if similarity < TOLD:
        return False
    from skep.semantics.lexicon import UPDATE_MARKERS

    return not UPDATE_MARKERS.isdisjoint(mine) or not UPDATE_MARKERS.isdisjoint(theirs)


def _near_by_table(text: str, others: Mapping[int, str], rows: Sequence[int]) -> list[float]:
    """How near texts that share words are, by the bundled table: what there is where the bank's embedder is slow."""
    if not rows:
        return []
    table = bundled_table()
    made = table.embed([text, *(others.get(row, "") for row in rows)])
    return [table.calibrate(cosine) for cosine in (made[1:] @ made[0]).tolist()]


def comparable(a: Memory, b: Memory) -> bool:
    """Whether two memories may be in conflict at all: neither replaced the other, and no tags set them apart."""
    if a.id in (b.superseded_by, b.merged_into) or b.id in (a.superseded_by, a.merged_into):
        return False
    return not a.tags or not b.tags or bool(set(a.tags) & set(b.tags))


def whole_words(text: str) -> set[str]:
    """Whole words: pieces of identifiers would make `flake8` look like three differences."""
    return set(_WORD.findall(text.casefold()))


def in_common(mine: set[str], theirs: set[str]) -> float:
    """The share of words that two texts have in common, 0 to 1."""
    both = len(mine & theirs)
    return both / max(1, len(mine) + len(theirs) - both)
