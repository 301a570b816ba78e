"""Memories near others by meaning or by words, within their scope, for many memories in one pass over the index.

Every step of maintenance that compares memories calls this, and the search for conflicts in a whole bank. It reads
through the engine and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice

from skep.engine.engine import Engine
from skep.filters import Filter
from skep.model import CURRENT, Memory, Scope
from skep.runtime import lazy
from skep.storage.memory_rows import searched_text
from skep.text.terms import STOP, numbering, query_terms

Among = Mapping[str, tuple[str, ...]]
"""By kind of memory: the kinds among which others are looked for."""
Neighbours = dict[str, list[tuple[Memory, float]]]
"""By id: the others with their similarity, nearest first."""
LOADED = 5000
"""Memories read per statement."""
HALVINGS = 40
_WORD = lazy(r"\w+")
PARTS = 6
"""Terms that one word has at most."""


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
