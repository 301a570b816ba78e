"""The stored memories that a memory repeats, updates or contradicts, and those that lie near it.

Candidates come through the index (near in meaning, or sharing most words; `neighbours` and `sharing_words` find those
of many memories in one pass), so that a scan of a bank stays far from quadratic; the comparer (`pair_judge`) judges
each pair. The write path, maintenance, recall and the hive call this; it reads through the engine and writes nothing.

Memories of one scope are compared, and with shared ones. Documents are compared with documents. Other tags (both have
some, and none in common) or another kind do not switch this off, but then only what is SURE counts. A pair that
somebody has decided (`settled`) does not come up again.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

from skep.clock import AHEAD_SECONDS
from skep.embedding.static_table import bundled_table
from skep.engine.embeddings import Progress
from skep.engine.engine import Engine, Nearest
from skep.filters import Filter
from skep.model import CURRENT, Conflict, Memory, Scope
from skep.runtime import gc_paused, lazy
from skep.semantics.link_graph import CONTRADICTS
from skep.storage.memory_rows import searched_text
from skep.text.terms import STOP, numbering, query_terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.semantics.pair_judge import Reader as PairReader
    from skep.semantics.pair_judge import Verdict


Among = Mapping[str, tuple[str, ...]]
"""By kind of memory: the kinds among which others are looked for."""
Neighbours = dict[str, list[tuple[Memory, float]]]
"""By id: the others with their similarity, nearest first."""
LOADED = 5000
"""Memories read per statement."""
HALVINGS = 40
"""Steps by which a bar is found."""
_WORD = lazy(r"\w+")
PARTS = 6
"""Terms that one word has at most."""
STATED = ("fact", "procedure", "episode")
"""Kinds that may say the same, or not go together, whichever they are."""
ContradictionFn = Callable[[Memory, Memory], bool]
"""Asked about a stored and a new memory when the comparer says nothing; True means they contradict."""
CANDIDATE = 0.3
"""Similarity on the common scale from which two memories are compared."""
OVERLAP = 0.5
"""Share of words in common from which two memories are compared whatever their similarity."""
REPORTED = 0.65
"""Probability from which the verdict of the comparer is a conflict. Below that it says nothing."""
APART = 0.85
"""Probability below which a verdict leaves it open whether near memories repeat each other, and a judge is asked."""
LIKELY = 0.75
"""Probability from which an update or a contradiction replaces the older memory, if that is asked for."""
SURE = 0.9
"""The same for repetitions in other words, for memories with other tags or of another kind, and for maintenance."""
CONFLICTS: dict[str, Literal["duplicate", "contradiction", "update"]] = {
    "same": "duplicate",
    "updates": "update",
    "contradicts": "contradiction",
}
"""Verdicts that are conflicts, and their names."""
JUDGEMENTS = "judgement/"
"""How the names of the settings begin that hold judgements on pairs."""
NEIGHBOURS = 10
"""Memories that a new one is read together with at most: those nearest in meaning."""
ALIKE = 0.4
"""The share of words, and the similarity, from which two hits of a recall are compared."""
SHORT = 12
"""Words up to which a memory is also compared with others that share most of them, however far in meaning."""
AMONG: Among = {**dict.fromkeys(STATED, STATED), "document": ("document",)}
"""What is compared with what, by kind."""
NEAR = 0.5
"""Similarity from which memories are compared where many are: in maintenance, and in a large bank."""
PAIRS_EACH = 2
"""Pairs that are compared per memory on average where many are, the nearest first: the cost grows with the bank."""
FEW_PAIRS = 10_000
"""Pairs that are compared in any case."""
READ = 1000
"""Pairs that a model reads at most where many are compared: some ten seconds of a processor."""
COMPARED = 1024
"""Pairs that are compared at once where many are."""


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
        contradiction_fn: Asked about pairs on which the comparer says nothing.
        limit: How many near memories to compare with.
        shared: Whether memories without a scope count as well.
        vector: What the embedder makes of it, where the caller has that already. Without one, and where a slow embedder
            has none to give at once, the search goes by words.
    """
    near, _ = _candidates(
        engine, memory, threshold, limit or engine.settings.conflict_candidates, shared=shared, vector=vector
    )
    return _judged_all(engine, memory, near, contradiction_fn)


class Found(NamedTuple):
    """What the search before a write found."""

    conflicts: tuple[Conflict, ...]
    nearest: Nearest | None
    """The neighbours that the bank's reader of pairs reads the memory with, once it is written."""


def find_before_write(
    engine: Engine,
    memory: Memory,
    contradiction_fn: ContradictionFn | None,
    vector: NDArray[np.float32] | None,
) -> Found:
    """The conflicts of a memory that is to be written, as `find_for` gives them, and its nearest neighbours."""
    limit, reads = engine.settings.conflict_candidates, engine.reader is not None
    near, nearest = _candidates(
        engine, memory, CANDIDATE, limit, shared=True, vector=vector, nearest=NEIGHBOURS if reads else 0
    )
    return Found(tuple(_judged_all(engine, memory, near, contradiction_fn)), nearest)


def _judged_all(
    engine: Engine,
    memory: Memory,
    near: Sequence[tuple[Memory, float]],
    contradiction_fn: ContradictionFn | None,
) -> list[Conflict]:
    if not near:
        return []
    pairs = [(existing, memory, similarity) for existing, similarity in near]
    return _surest_first(judge_many(pairs, contradiction_fn, engine.reader))


def _surest_first(judged: Iterable[Conflict | None]) -> list[Conflict]:
    found = [conflict for conflict in judged if conflict is not None]
    return sorted(found, key=lambda c: (-c.confidence, c.existing.id))


def repeats(conflict: Conflict, memory: Memory) -> bool:
    """True if a memory is the same statement as a stored one, so that it need not be stored again."""
    return conflict.kind == "duplicate" and same_words(conflict.existing.text, memory.text)


def replaces(conflict: Conflict) -> bool:
    """True if a memory and a stored one hardly both hold, so that the newer stands for the older."""
    return conflict.kind != "duplicate" and conflict.confidence >= LIKELY


def holds(memory: Memory, now: float) -> bool:
    """True if a memory is of the present; one that is not so yet, or no longer, takes the place of none."""
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
    pairs: Sequence[tuple[Memory, Memory, float]],
    contradiction_fn: ContradictionFn | None = None,
    reader: PairReader | None = None,
    *,
    unsure: float = math.inf,
) -> list[Conflict | None]:
    """The conflicts of pairs of a stored memory and another, given how near they are; all are compared at once.

    From a similarity of `unsure` on, pairs on which the comparer is not sure at all count as possible repetitions.
    """
    from skep.semantics.pair_judge import Pair  # its weights are read when something is to be compared
    from skep.semantics.pair_judge import judge_many as verdicts_of

    asked: list[Pair] = []
    for existing, memory, similarity in pairs:
        earlier, later = (
            (existing, memory) if memory.created_at >= existing.created_at else (memory, existing)
        )
        asked.append(Pair(earlier.text, later.text, similarity, existing.polarity * memory.polarity))
    return [
        _conflict(existing, memory, similarity, verdict, contradiction_fn, unsure)
        for (existing, memory, similarity), verdict in zip(pairs, verdicts_of(asked, reader), strict=True)
    ]


def _conflict(
    existing: Memory,
    memory: Memory,
    similarity: float,
    verdict: Verdict,
    contradiction_fn: ContradictionFn | None,
    unsure: float,
) -> Conflict | None:
    kind, reason, confidence = CONFLICTS.get(verdict.kind), verdict.reason, verdict.probability
    if (
        kind == "duplicate" and existing.kind != memory.kind
    ):  # an episode is the evidence of a fact, not its copy
        kind = None
    if confidence < (REPORTED if kind != "duplicate" and _alike(existing, memory) else SURE):
        kind = None
    related = memory.id in existing.evidence or existing.id in memory.evidence
    if (
        kind is not None and related and existing.level != memory.level
    ):  # a summary never contradicts its sources
        kind, reason = "duplicate", "similarity"
    if kind is None and confidence < APART and similarity >= unsure and _alike(existing, memory):
        kind, reason = "duplicate", "similarity"
    if kind is None:
        if contradiction_fn is None or not contradiction_fn(existing, memory):
            return None
        kind, reason, confidence = "contradiction", "custom", 1.0
    return Conflict(
        existing=existing,
        memory=memory if memory.id else None,
        kind=kind,
        similarity=similarity,
        reason=reason,
        confidence=confidence,
    )


def _alike(a: Memory, b: Memory) -> bool:
    """True if two memories are of one kind, and no tags set them apart."""
    return a.kind == b.kind and (not a.tags or not b.tags or not set(a.tags).isdisjoint(b.tags))


def key_of(a: str, b: str) -> str:
    """The setting that holds the judgement on two memories."""
    return JUDGEMENTS + "|".join(sorted((a, b)))


def settled(engine: Engine, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of some pairs of memories that somebody has judged: such a pair is not raised again.

    A judgement is the decision of a judge or of a person (`resolve`), or a link `contradicts`, which says that both
    stay.
    """
    if not pairs:
        return set()
    ids = sorted({each for pair in pairs for each in pair})
    links, judgements = engine.judged(ids, CONTRADICTS, [key_of(*pair) for pair in pairs])
    linked = set(map(frozenset, links))
    return {pair for pair in pairs if frozenset(pair) in linked or _judged(judgements.get(key_of(*pair)))}


def _judged(judgement: object) -> bool:
    """True if a setting holds a decision."""
    return isinstance(judgement, Mapping) and judgement.get("decision") is not None  # pyright: ignore[reportUnknownMemberType]


def scan(
    engine: Engine,
    memories: Sequence[Memory],
    *,
    threshold: float = CANDIDATE,
    contradiction_fn: ContradictionFn | None = None,
    progress: Progress | None = None,
    shared: bool = True,
) -> list[Conflict]:
    """The conflicts among many memories, each pair once; the newer one stands as `memory`.

    Of a large bank only the nearest pairs are compared, from NEAR on. `progress` is told how many of them are done.
    """
    engine.index.refresh()
    if PAIRS_EACH * len(memories) > FEW_PAIRS:
        threshold = max(threshold, NEAR)
    with gc_paused():
        near = pairs_near(engine, memories, threshold=threshold, among=AMONG, shared=shared)
        decided = settled(engine, [(one.id, other.id) for one, other, _ in near])
        pairs = nearest([pair for pair in near if (pair[0].id, pair[1].id) not in decided], len(memories))
    place = {memory.id: number for number, memory in enumerate(memories)}
    found: list[Conflict] = []
    read = reader_for(engine, len(pairs))
    at_once = COMPARED if contradiction_fn is None else 1  # one that is asked may take its time
    for start in range(0, len(pairs), at_once):
        part = pairs[start : start + at_once]
        with nullcontext() if contradiction_fn else gc_paused():  # what is made stays: it holds no garbage
            judged = judge_many(
                [(other, one, similarity) for one, other, similarity in part],
                contradiction_fn,
                read,
            )
        found += [conflict for conflict in judged if conflict is not None]
        if progress is not None:
            progress(start + len(part), len(pairs))
    found.sort(key=lambda c: (place[c.memory.id if c.memory else ""], -c.confidence, c.existing.id))
    now = engine.now()
    return [_newer_last(c, c.memory, now) for c in found if c.memory is not None]


def reader_for(engine: Engine, pairs: int) -> PairReader | None:
    """The model that reads pairs, if the bank has one; of very many it reads `READ`, spread over all batches."""
    if engine.reader is None:
        return None
    return partial(engine.reader, most=-(-READ * COMPARED // max(pairs, 1)))


def nearest(pairs: list[tuple[Memory, Memory, float]], memories: int) -> list[tuple[Memory, Memory, float]]:
    """The pairs of so many memories that are compared, and in what order.

    The nearest `PAIRS_EACH` per memory on average, at least `FEW_PAIRS`. Pairs of neighbours stand together: a text
    that is in many pairs is taken apart once.
    """
    chosen = sorted(pairs, key=lambda pair: (-pair[2], pair[0].id, pair[1].id))
    chosen = chosen[: max(FEW_PAIRS, PAIRS_EACH * memories)]
    of: dict[str, list[int]] = {}
    for number, (one, other, _) in enumerate(chosen):
        of.setdefault(one.id, []).append(number)
        of.setdefault(other.id, []).append(number)
    out: dict[int, None] = {}
    for start in list(of):
        waiting = deque([start])
        while waiting:
            for number in of.pop(waiting.popleft(), ()):
                if number not in out:
                    out[number] = None
                    one, other, _ = chosen[number]
                    waiting += (one.id, other.id)
    return [chosen[number] for number in out]


def pairs_near(
    engine: Engine,
    memories: Sequence[Memory],
    *,
    threshold: float,
    among: Among | None = None,
    shared: bool = False,
    decided: Container[str] = (),
) -> list[tuple[Memory, Memory, float]]:
    """The pairs worth comparing of some memories with what is stored, each once, with their similarity.

    They are near in meaning, or share most of their words. The first of a pair is one of `memories`.

    Args:
        engine: The bank.
        memories: Whose pairs.
        threshold: The least similarity; of texts that share most of their words it does not count.
        among: By kind, the kinds that are compared with it; without it, its own.
        shared: Whether memories without a scope are compared with those of every scope.
        decided: Keys of pairs (`key_of`) to leave out.
    """
    limit = engine.settings.conflict_candidates
    rows = rows_by_id(engine, (memory.id for memory in memories))
    known: dict[int, Memory] = {}
    near = neighbours(
        engine, memories, threshold=threshold, limit=limit, among=among, shared=shared, rows=rows, known=known
    )
    alike = sharing_words(
        engine,
        memories,
        least=OVERLAP,
        limit=limit,
        longest=SHORT,
        among=among,
        shared=shared,
        rows=rows,
        known=known,
    )
    pairs: dict[str, tuple[Memory, Memory, float]] = {}
    for memory in memories:
        for other, similarity in (*near[memory.id], *alike.get(memory.id, ())):
            key = key_of(memory.id, other.id)
            if key not in pairs and key not in decided and comparable(memory, other):
                pairs[key] = memory, other, similarity
    return list(pairs.values())


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


def in_order(pairs: Sequence[tuple[Memory, Memory]], now: float) -> list[tuple[Memory, Memory]]:
    """Pairs of memories, each by age: see `older_first`."""
    return [older_first(one, other, now) for one, other in pairs]


def newer_than(memories: Sequence[Memory], now: float) -> NDArray[np.bool_]:
    """For each memory (row) those that are newer (columns); the rule of `older_first`.

    Of two memories of one moment by two writers neither is newer.
    """
    import numpy as np

    ages = [age(memory) for memory in memories]
    made, count = np.array([each[0] for each in ages]), np.array([each[2] for each in ages])
    known: dict[str, int] = {}
    writers = np.array([known.setdefault(each[1], len(known)) for each in ages])
    same = writers[:, None] == writers[None, :]
    ahead = made > now + AHEAD_SECONDS
    by_count = same & ((made[:, None] == made[None, :]) | ahead[:, None] | ahead[None, :])
    return np.where(by_count, count[:, None] < count[None, :], made[:, None] < made[None, :])


def _candidates(
    engine: Engine,
    memory: Memory,
    threshold: float,
    limit: int,
    *,
    shared: bool,
    vector: NDArray[np.float32] | None,
    nearest: int = 0,
) -> tuple[list[tuple[Memory, float]], Nearest | None]:
    """Stored memories worth comparing, with their similarity; and so many of the nearest, where there is a vector.

    Only memories of the same scope and shared ones are looked at: what is private to one must not show up in an
    answer to another.
    """
    import numpy as np

    text = searched_text(memory.title, memory.text)
    if vector is None:
        vector = engine.embeddings.at_once(text, memory.id)
    where = Filter(
        scope=memory.scope if not memory.scope.shared else Scope(),
        include_shared=shared,
        kinds=AMONG[memory.kind],
        statuses=CURRENT,
    )
    index = engine.index
    with engine.snapshot():
        present = engine.present()
        index.refresh(present.turn)
        pool = index.search(query_terms(text), vector, where, k_words=limit, k_vectors=max(limit, nearest))
        rows = pool.rows.tolist()
        if vector is None:
            near = _near_by_table(text, engine.texts_of(rows), rows)
        else:
            near = engine.embeddings.scale(present.active)(pool.cosine).tolist()
        similar = {row: 0.0 if math.isnan(cosine) else cosine for row, cosine in zip(rows, near, strict=True)}
        others: list[int] = []
        if nearest and vector is not None:
            others = [rows[at] for at in _best(pool.cosine, nearest)]
            words = np.where(pool.words > 0, pool.words, np.nan)
            compared = {rows[at] for at in (*_best(pool.cosine, limit), *_best(words, limit))}
            similar = {row: similarity for row, similarity in similar.items() if row in compared}
        apart = [row for row, similarity in similar.items() if similarity < threshold]
        mine = whole_words(text)
        for row, theirs in engine.texts_of(apart).items():
            if in_common(mine, whole_words(theirs)) < OVERLAP:
                del similar[row]
        stored = engine.memories(list(dict.fromkeys((*similar, *others))))
        others = [row for row in others if row in stored]
        vectors = index.vectors(np.array(others, np.int64)) if others else None
    decided = settled(engine, [(memory.id, each.id) for each in stored.values()] if memory.id else [])
    near = [
        (stored[row], similarity)
        for row, similarity in similar.items()
        if row in stored
        and stored[row].id != memory.id
        and (memory.id, stored[row].id) not in decided
        and stored[row].status in CURRENT
        and comparable(stored[row], memory)
    ]
    if vectors is None or vector is None:
        return near, None
    return near, Nearest(vector, [stored[row] for row in others], vectors, present.head)


def _best(values: NDArray[np.floating], most: int) -> list[int]:
    """The places of the largest values, the first of equal ones first; nan is none.

    >>> import numpy as np
    >>> _best(np.array([2.0, np.nan, 3.0, 2.0]), 2)
    [2, 0]
    """
    import numpy as np

    order = np.argsort(-values, kind="stable")[:most]
    return order[~np.isnan(values[order])].tolist()


def worth_comparing(mine: set[str], theirs: set[str], similarity: float) -> bool:
    """True if two texts may be about the same: near in meaning, or sharing most of their words."""
    return similarity >= CANDIDATE or in_common(mine, theirs) >= OVERLAP


def _near_by_table(text: str, others: Mapping[int, str], rows: Sequence[int]) -> list[float]:
    """Similarities by the bundled word table, of texts that share words; used where the bank's embedder is slow."""
    if not rows:
        return []
    table = bundled_table()
    made = table.embed([text, *(others.get(row, "") for row in rows)])
    return [table.calibrate(cosine) for cosine in (made[1:] @ made[0]).tolist()]


def comparable(a: Memory, b: Memory) -> bool:
    """True if two memories may be in conflict at all: neither replaced the other."""
    return a.id not in (b.superseded_by, b.merged_into) and b.id not in (a.superseded_by, a.merged_into)


def same_words(a: str, b: str) -> bool:
    """True if two texts are one statement but for case, punctuation, articles and fillers; the order of words counts.

    >>> same_words("The build takes 9 minutes.", "the build takes 9 minutes")
    True
    >>> same_words("We moved from Rome to Oslo", "We moved from Oslo to Rome")
    False
    """
    return bare_words(a) == bare_words(b)


def bare_words(text: str) -> tuple[str, ...]:
    """The words of a statement in order; see `pair_judge.statement`."""
    from skep.semantics.pair_judge import statement

    return statement(text)


def opposed(
    memories: Sequence[Memory],
    vectors: Callable[[Sequence[Memory]], NDArray[np.float32]],
    calibrate: Callable[[NDArray[np.float32]], NDArray[np.float32]],
    decided: Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]],
    now: float,
) -> list[tuple[str, str]]:
    """The ids of memories that contradict or update one another, the older first, among those that share words.

    Args:
        memories: The memories.
        vectors: Their unit vectors, one row each; asked for only if some are worth comparing.
        calibrate: Raw cosines on the common scale.
        decided: Of pairs of memories, those of which somebody has decided that both stay.
        now: The time of the question; a memory dated later was dated by a clock that was ahead.
    """
    alike: list[tuple[int, int, float]] = []
    for i, j, shared in texts_alike([memory.text for memory in memories], ALIKE):
        one, other = memories[i], memories[j]
        together = one.scope == other.scope or not one.scope.apart(other.scope)
        if one.kind == other.kind and together and comparable(one, other):
            alike.append((i, j, shared))
    if not alike:
        return []
    import numpy as np

    rows = vectors(memories)
    left, right = rows[[i for i, _, _ in alike]], rows[[j for _, j, _ in alike]]
    similar = np.nan_to_num(calibrate(np.vecdot(left, right).astype(np.float32))).tolist()
    near = [
        (*older_first(memories[i], memories[j], now), similarity)
        for (i, j, shared), similarity in zip(alike, similar, strict=True)
        if similarity >= ALIKE or shared >= OVERLAP
    ]
    judged = zip(near, judge_many(near), strict=True)
    pairs = [
        (older.id, newer.id) for (older, newer, _), found in judged if found is not None and replaces(found)
    ]
    kept = decided(pairs) if pairs else set[tuple[str, str]]()
    return [pair for pair in pairs if pair not in kept]


def texts_alike(texts: Sequence[str], least: float) -> list[tuple[int, int, float]]:
    """The pairs of texts that have at least this share of their words in common, with the share."""
    words = [whole_words(text) for text in texts]
    pairs = ((i, j) for i in range(len(words)) for j in range(i + 1, len(words)))
    shares = ((i, j, in_common(words[i], words[j])) for i, j in pairs)
    return [each for each in shares if each[2] >= least]


def neighbours(
    engine: Engine,
    memories: Sequence[Memory],
    *,
    threshold: float,
    limit: int,
    among: Among | None = None,
    shared: bool = False,
    rows: dict[str, int] | None = None,
    known: dict[int, Memory] | None = None,
) -> Neighbours:
    """Current memories at least this similar to each, all found in one pass over the index.

    Args:
        engine: The bank.
        memories: Whose neighbours; one without a vector has none.
        threshold: The least similarity.
        limit: How many at most for each.
        among: Where to look for the neighbours of each kind; without it, each memory among its own kind.
        shared: Whether to look among memories without a scope as well.
        rows: Where they stand, if that is known.
        known: Memories by row; those that are asked for and those that are read are added.
    """
    import numpy as np

    rows = rows if rows is not None else rows_by_id(engine, (memory.id for memory in memories))
    mine = {rows[memory.id]: memory for memory in memories if memory.id in rows}
    groups: dict[tuple[Scope, tuple[str, ...]], list[int]] = {}
    for row, memory in mine.items():
        groups.setdefault((memory.scope, _among(among, memory)), []).append(row)
    least = raw_bar(engine, threshold)
    pairs: list[tuple[int, int, float]] = []
    for (scope, kinds), asked in groups.items():
        where = Filter(scope=scope, include_shared=shared, kinds=kinds, statuses=CURRENT)
        found = engine.index.near_pairs(np.array(asked, dtype=np.int64), where, least=least, most=limit)
        similar = engine.embeddings.calibrate_many(found.cosine).tolist()
        pairs += zip(found.asked.tolist(), found.rows.tolist(), similar, strict=True)
    known = {} if known is None else known
    known |= mine
    known |= load_current(engine, {row for _, row, _ in pairs} - known.keys())
    out: Neighbours = {memory.id: [] for memory in memories}
    for asked_row, row, similarity in pairs:
        if row in known and similarity >= threshold:
            out[known[asked_row].id].append((known[row], similarity))
    return out


def sharing_words(
    engine: Engine,
    memories: Sequence[Memory],
    *,
    least: float,
    limit: int,
    longest: int,
    among: Among | None = None,
    shared: bool = False,
    rows: dict[str, int] | None = None,
    known: dict[int, Memory] | None = None,
) -> Neighbours:
    """Current memories of the same kind and scope that share most of their words with a short one.

    Who shares half of its words holds one of the rarer half, so only those are looked for.

    Args:
        engine: The bank.
        memories: Whose; those of more than `longest` words are passed over, because long texts that share most of their
            words are near in meaning, too.
        least: The least share of words in common.
        limit: How many to look at for each, best first by BM25.
        longest: See `memories`.
        among: As in `neighbours`; so is `shared`.
        shared: Whether to look among memories without a scope as well.
        rows: Where they stand, if that is known.
        known: Memories by row, of which those that are current need not be read.
    """
    import numpy as np

    rows = rows if rows is not None else rows_by_id(engine, (memory.id for memory in memories))
    texts_here = [
        (memory, searched_text(memory.title, memory.text)) for memory in memories if memory.id in rows
    ]
    short = [(memory, text) for memory, text in texts_here if _few_words(text, longest)]
    spoken_in = _by_word([text for _, text in short])
    every = list(dict.fromkeys(term for spoken in spoken_in for terms in spoken for term in terms))
    worth = dict(zip(every, engine.index.idf(every).tolist(), strict=True))
    groups: dict[tuple[Scope, tuple[str, ...]], list[tuple[Memory, str, list[str]]]] = {}

    def rarity(terms: list[str]) -> tuple[float, list[str]]:
        return -(worth[terms[0]] if len(terms) == 1 else max(map(worth.__getitem__, terms))), terms

    for (memory, text), spoken in zip(short, spoken_in, strict=True):
        spoken.sort(key=rarity)
        rarest = [*chain.from_iterable(spoken[: len(spoken) // 2 + 1])]
        groups.setdefault((memory.scope, _among(among, memory)), []).append((memory, text, rarest))
    pools: list[tuple[Memory, str, list[int]]] = []
    for (scope, kinds), group in groups.items():
        where = Filter(scope=scope, include_shared=shared, kinds=kinds, statuses=CURRENT)
        best = engine.index.best_by_words([rarest for _, _, rarest in group], where, limit + 1)
        for (memory, text, _), found in zip(group, best, strict=True):
            mine = rows[memory.id]
            pools.append((memory, text, sorted([row for row in found.tolist() if row != mine])))
    known = {row: memory for row, memory in (known or {}).items() if memory.status in CURRENT}
    wanted = {row for _, _, found in pools for row in found}
    texts = {row: searched_text(known[row].title, known[row].text) for row in known.keys() & wanted}
    texts |= engine.texts_of(sorted(wanted - known.keys()))
    pairs: list[tuple[Memory, int]] = []
    for memory, text, found in pools:
        there = [row for row in found if row in texts]
        pairs += [(memory, there[i]) for i in _sharing(text, [texts[row] for row in there], least)]
    known = known | load_current(engine, {row for _, row in pairs} - known.keys())
    pairs = [(memory, row) for memory, row in pairs if row in known]
    left = engine.index.vectors(np.array([rows[memory.id] for memory, _ in pairs], dtype=np.int64))
    right = engine.index.vectors(np.array([row for _, row in pairs], dtype=np.int64))
    similar = engine.embeddings.calibrate_many(np.vecdot(left, right).astype(np.float32)).tolist()
    out: Neighbours = {}
    for (memory, row), similarity in zip(pairs, similar, strict=True):
        out.setdefault(memory.id, []).append((known[row], similarity))
    return out


def _among(among: Among | None, memory: Memory) -> tuple[str, ...]:
    return (memory.kind,) if among is None else among[memory.kind]


def _few_words(text: str, most: int) -> bool:
    """True if a text has at most so many different words."""
    return len(whole_words(text)) <= most


def _sharing(text: str, others: list[str], least: float) -> list[int]:
    """The texts that have so much in common with one; most need not be split to tell."""
    words = whole_words(text)
    needed = least * len(words)
    return [
        place
        for place, other in enumerate(map(str.casefold, others))
        if sum([word in other for word in words]) >= needed and in_common(words, whole_words(other)) >= least
    ]


def _by_word(texts: Sequence[str]) -> list[list[list[str]]]:
    """The terms of texts, word by word: an identifier and its parts are one word, however rare all of them are."""
    plain = [text for text in texts if text.isascii()]
    numbers = numbering()  # words repeat
    cut = numbers.cut(plain, joined=False)
    terms_of = [_distinct(joined) for joined in numbers.terms()]
    chunks = map(terms_of.__getitem__, cut.chunks)
    done = iter([_spoken(islice(chunks, size)) for size in cut.sizes])
    return [next(done) if text.isascii() else _composed(text) for text in texts]


def _distinct(joined: str) -> list[str]:
    """The terms that `query_terms` gives for a chunk, from its terms joined by blanks."""
    if " " not in joined:
        return [joined] if joined else []
    found = list(dict.fromkeys(joined.split()))
    return [term for term in found if term not in STOP] or found


def _spoken(chunks: Iterable[list[str]]) -> list[list[str]]:
    """The words of a text that is plain ASCII; the common ones where there are no others."""
    seen: set[str] = set()
    out: list[list[str]] = []
    common: list[list[str]] = []
    for terms in chunks:
        fresh = terms if seen.isdisjoint(terms) else [term for term in terms if term not in seen]
        if fresh:
            seen.update(fresh)
            (common if fresh[0] in STOP else out).extend(_words(fresh))
    return out or common


def _words(terms: list[str]) -> list[list[str]]:
    """The terms of a chunk as one word; as several in a language that is written without blanks."""
    return [terms] if len(terms) <= PARTS else [[term] for term in terms]


def _composed(text: str) -> list[list[str]]:
    """The same of any text: what stands beside a chunk may change its terms."""
    left = set(query_terms(text))
    seen: set[str] = set()
    out: list[list[str]] = []
    for chunk in text.split():
        terms = [term for term in query_terms(chunk) if term not in seen and term in left]
        seen.update(terms)
        if terms:
            out += _words(terms)
    return out + [[term] for term in query_terms(text) if term not in seen]


def raw_bar(engine: Engine, threshold: float) -> float:
    """A raw cosine that lies just below a similarity on the common scale, for any embedder's map."""
    low, high = -1.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if engine.embeddings.calibrate(middle) < threshold else (low, middle)
    return low


def load(engine: Engine, rows: Iterable[int]) -> dict[int, Memory]:
    """Memories by row, a few statements for all of them."""
    found: dict[int, Memory] = {}
    wanted = sorted(rows)
    for start in range(0, len(wanted), LOADED):
        found |= engine.memories(wanted[start : start + LOADED])
    return found


def load_current(engine: Engine, rows: Iterable[int]) -> dict[int, Memory]:
    """The same without what has reached its end since the index last heard of it."""
    return {row: memory for row, memory in load(engine, rows).items() if memory.status in CURRENT}


def by_id(engine: Engine, ids: Iterable[str]) -> dict[str, Memory]:
    """Memories by id, a few statements for all of them; what is unknown or forgotten is left out."""
    rows = rows_by_id(engine, ids)
    return {memory.id: memory for memory in load(engine, rows.values()).values()}


def standing(engine: Engine, ids: Iterable[str]) -> tuple[set[str], set[str]]:
    """Those of some memories that are current, and those of them that are active; they need not be read for that."""
    wanted = list(dict.fromkeys(ids))
    current: set[str] = set()
    active: set[str] = set()
    for start in range(0, len(wanted), LOADED):
        part = wanted[start : start + LOADED]
        here = engine.admitted_ids(part, Filter(statuses=("active",)))
        rest = [memory_id for memory_id in part if memory_id not in here]  # mostly none
        active |= here
        current |= here | engine.admitted_ids(rest, Filter(statuses=CURRENT))
    return current, active


def rows_by_id(engine: Engine, ids: Iterable[str]) -> dict[str, int]:
    """The rows of memories, a few statements for all of them."""
    found: dict[str, int] = {}
    wanted = list(dict.fromkeys(ids))
    for start in range(0, len(wanted), LOADED):
        found |= engine.rows_of(wanted[start : start + LOADED])
    return found


def whole_words(text: str) -> set[str]:
    """Whole words: pieces of identifiers would make `flake8` look like three differences."""
    return set(_WORD.findall(text.casefold()))


def in_common(mine: set[str], theirs: set[str]) -> float:
    """The share of words that two texts have in common, 0 to 1."""
    both = len(mine & theirs)
    return both / max(1, len(mine) + len(theirs) - both)
