"""What the members of a hive sent for one recall: columns over all of it, and the statistics of the whole.

Each memory stands there once, at the place where it was first heard of; a place is a row of the union.

Conversations among the candidates of a hive: who stands beside whom in time.

Many shelves as one bank: what the recall pipeline sees when it runs over a hive.

It implements the pipeline's `Sources` over the answers of all shelves. Statistics are the sums over the
shelves, so every score is the one that a single bank holding everything would have given. A row is a
position in the union.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from skep.embedding.embedder import checked, guarded
from skep.embedding.static_table import word_table
from skep.errors import EmbeddingError
from skep.filters import BETWEEN, admits_memory
from skep.hive.messages import Ask, Fetched, Moment, Slice
from skep.hive.shard_index import impact, inverse_frequency
from skep.hive.shard_rows import order_of
from skep.model import WORDS_ALONE, Link, Memory
from skep.retrieval.sources import Counters, Scopes, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.embedding.embedder import Embedder
    from skep.filters import Filter


if TYPE_CHECKING:
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]


class UnionPool(msgspec.Struct, frozen=True):
    """The candidates of one search; see `retrieval.sources.Pool`."""

    rows: Any
    words: Any
    cosine: Any
    created_at: Any
    confidence: Any
    last_evidence_at: Any
    importance: Any
    words_total: int
    vectors_total: int


_TYPES: dict[str, Any] = {
    "length": np.uint32,
    "cosine": np.float32,
    "content": np.int64,
    "created_at": np.float64,
    "confidence": np.float64,
    "last_evidence_at": np.float64,
    "importance": np.float64,
}


class Gathered:
    """The rows that members sent, in columns."""

    def __init__(self, ask: Ask, dim: int) -> None:
        """Begin with nothing.

        Args:
            ask: What the members are asked; which columns they send follows from it.
            dim: The length of a vector.
        """
        self._ask = ask
        self.ids: list[str] = []
        self.homes: list[str] = []
        self.at: dict[str, int] = {}
        self.keys: list[str] = []
        self.voices: list[str] = []
        self.authors: list[str] = []
        self.texts: list[str] = []
        self.heirs: list[str] = []
        """What was put in the place of each; empty where it was not replaced, or nobody said so."""
        self.admitted = np.zeros(0, np.bool_)
        self.columns: dict[str, NDArray[Any]] = {n: np.zeros(0, t) for n, t in _TYPES.items()}
        self.vectors = np.zeros((0, dim), np.float32)
        self.uses: list[tuple[int, int, float, tuple[str, ...]]] = []
        self._counts = np.zeros((0, len(ask.terms)), np.uint16)
        self._held = 0
        self._total_terms = 0
        self._having = np.zeros(len(ask.terms), np.int64)

    def count(self, parts: Iterable[Slice]) -> None:
        """Add up what members hold."""
        for part in parts:
            self._held += part.held
            self._total_terms += part.terms
            if part.having:
                self._having += np.array(part.having, np.int64)

    def add(self, answers: Mapping[str, Slice]) -> None:
        """Append the candidates of many slices, each memory once."""
        parts = [(name, part) for name, part in sorted(answers.items()) if part.ids]
        if not parts:
            return
        slices = [part for _, part in parts]
        sent = list(chain.from_iterable([part.ids for part in slices]))
        homes = list(chain.from_iterable([[name] * len(part.ids) for name, part in parts]))
        position = len(sent)
        if not self.at and len(set(sent)) == position:
            self.at, self.ids, self.homes = dict(zip(sent, count(), strict=False)), sent, homes
            keep: Sequence[int] = range(position)
        else:
            keep = self._fresh(sent, homes)
        at = np.array(keep, np.int64)
        for name, kind in _TYPES.items():
            fresh = np.frombuffer(b"".join([getattr(part, name) for part in slices]), kind)[at]
            self.columns[name] = np.concatenate([self.columns[name], fresh])
        width = len(self._ask.terms)
        counts = np.frombuffer(b"".join([part.counts for part in slices]), np.uint16).reshape(
            position, width
        )[at]
        self._counts = np.concatenate([self._counts, counts])
        self._add_lists(slices, keep, position)

    def _fresh(self, sent: Sequence[str], homes: Sequence[str]) -> list[int]:
        """The places of memories that were not sent before; they are noted."""
        keep: list[int] = []
        for place, memory_id in enumerate(sent):
            if memory_id not in self.at:
                self.at[memory_id] = len(self.ids)
                self.ids.append(memory_id)
                self.homes.append(homes[place])
                keep.append(place)
        return keep

    def _add_lists(self, slices: Sequence[Slice], keep: Sequence[int], total: int) -> None:
        def pick(name: str, absent: Any) -> list[Any]:
            joined = list(chain.from_iterable([getattr(part, name) for part in slices]))
            if not joined:
                return [absent] * len(keep)
            if len(joined) != total:  # a member of an older version leaves out what it does not know of
                each = [getattr(part, name) or [absent] * len(part.ids) for part in slices]
                joined = list(chain.from_iterable(each))
            return joined if len(keep) == total else [joined[i] for i in keep]

        self.keys += pick("keys", "")
        self.voices += pick("voices", "")
        self.authors += pick("authors", "")
        self.texts += pick("texts", "")
        self.heirs += pick("heirs", "")
        flags = b"".join([part.admitted or b"\x01" * len(part.ids) for part in slices])
        at = np.array(keep, np.int64)
        self.admitted = np.concatenate([self.admitted, np.frombuffer(flags, np.uint8)[at] > 0])
        if self._ask.vectors:
            dim = self.vectors.shape[1]
            fresh = np.frombuffer(b"".join([part.vectors for part in slices]), np.float32).reshape(-1, dim)
            fresh = fresh if len(at) == total else fresh[at]
            self.vectors = np.concatenate([self.vectors, fresh]) if len(self.vectors) else fresh
        if self._ask.counters:
            joined = [
                np.frombuffer(b"".join([getattr(part, name) for part in slices]), kind)[at].tolist()
                for name, kind in (
                    ("uses", np.int64),
                    ("confirmations", np.int64),
                    ("last_used_at", np.float64),
                )
            ]
            self.uses += list(zip(*joined, pick("agents", ()), strict=True))

    def words(self) -> Singles:
        """BM25 of every row."""
        if not self._ask.terms:
            return np.zeros(len(self.ids), np.float32)
        return self._impacts(slice(None)).sum(axis=1).astype(np.float32)

    def idf(self, terms: Sequence[str]) -> Floats:
        """How rare each term is in the whole hive."""
        known = dict(zip(self._ask.terms, self._having.tolist(), strict=True))
        return inverse_frequency(self._held, [known.get(term, 0) for term in terms])

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of BM25 that each term gives to each row; row -1 gives zeros."""
        if not self.ids:
            return np.zeros((len(rows), len(terms)), np.float32)
        found = self._impacts(rows)
        found[rows < 0] = 0.0
        column = {term: index for index, term in enumerate(self._ask.terms)}
        picked = [column.get(term, -1) for term in terms]
        padded = np.concatenate([found, np.zeros((len(rows), 1))], axis=1)
        return padded[:, picked].astype(np.float32)

    def _impacts(self, at: Any) -> Floats:
        mean = self._total_terms / max(1, self._held)
        idf = inverse_frequency(self._held, self._having)
        return impact(self._counts[at], self.columns["length"][at], mean, idf)

    def pool(self, at: Ints, words: Singles, matched: int = 0, embedded: int = 0) -> UnionPool:
        """These rows as a pool."""
        columns = self.columns
        return UnionPool(
            at,
            words[at].astype(np.float64),
            columns["cosine"][at],
            columns["created_at"][at],
            columns["confidence"][at].astype(np.float32).astype(np.float64),
            columns["last_evidence_at"][at],
            columns["importance"][at].astype(np.float32).astype(np.float64),
            matched,
            embedded,
        )


def best(words: Singles, cosine: Singles, k_words: int, k_vectors: int) -> Ints:
    """The best by words and the best by meaning, as one bank would have chosen them."""
    kept = np.zeros(len(words), np.bool_)
    by_words = np.flatnonzero(words > 0)
    if len(by_words) > k_words:
        by_words = by_words[np.argsort(-words[by_words], kind="stable")[:k_words]]
    by_meaning = np.flatnonzero(~np.isnan(cosine))
    if len(by_meaning) > k_vectors:
        by_meaning = by_meaning[np.argsort(-cosine[by_meaning], kind="stable")[:k_vectors]]
    kept[by_words] = True
    kept[by_meaning] = True
    return np.flatnonzero(kept)


PAUSE_SECONDS = 3600.0
"""A longer silence than this separates one conversation from the next."""


class Talks:
    """All rows in the order they were said, conversation by conversation."""

    def __init__(
        self,
        keys: Sequence[str],
        voices: Sequence[str],
        moments: NDArray[np.float64],
        orders: Ints,
        admitted: NDArray[np.bool_],
    ) -> None:
        self.size = len(keys)
        self._talk = _codes(keys)
        self._voice = _codes(voices)
        self._moments = moments
        self._admitted = admitted
        self._spoken: Ints = np.lexsort((np.arange(self.size), orders, moments, self._talk))
        self._place = np.empty(self.size, np.int64)
        self._place[self._spoken] = np.arange(self.size)

    def around(self, rows: Ints, window: int) -> Ints:
        """The neighbours of rows, from far before to far after; -1 where there is none or it is not admitted.

        A walk ends at a pause, at the end of the conversation, and where another kind of memory begins.
        """
        found = np.full((len(rows), 2 * window), -1, np.int64)
        for step, nearest in ((-1, window - 1), (1, window)):
            walking = self._talk[rows] > 0
            last = self._moments[rows]
            for distance in range(1, window + 1):
                at = self._place[rows] + step * distance
                walking &= (at >= 0) & (at < self.size)
                there = self._spoken[np.clip(at, 0, self.size - 1)]
                walking &= self._talk[there] == self._talk[rows]
                walking &= self._voice[there] == self._voice[rows]
                walking &= np.abs(self._moments[there] - last) <= PAUSE_SECONDS
                column = nearest + step * (distance - 1)
                found[:, column] = np.where(walking & self._admitted[there], there, -1)
                last = self._moments[there]
        return found


def _codes(names: Sequence[str]) -> NDArray[Any]:
    """A number per name; 0 for the empty one."""
    known = {"": 0}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


GONE = Memory(id="", kind="fact", text="")
"""Stands for a memory that could not be fetched any more; never shown."""
BEYOND = 1 << 40
"""Rows from here on were not sent by a shelf: links lead there."""


class Members(Protocol):
    """The shelves behind a union."""

    def ask(self, ask: Ask, *, but: Container[str] = ()) -> Mapping[str, Slice]:
        """The answers by member; some need not be asked."""
        ...

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id, each from the member named, or from whoever has it."""
        ...


class Union:
    """Implements `retrieval.sources.Sources` over shelves, for one recall."""

    def __init__(
        self,
        members: Members,
        embedder: Embedder,
        *,
        trust: Callable[[str | None], float],
        texts: bool = False,
        vectors: bool = False,
        counters: bool = False,
        budget: int = 0,
        share: Callable[[int], int] = int,
        boosted: tuple[str, ...] = (),
        boost: int = 1,
        former: int = 0,
    ) -> None:
        self._members = members
        self._embedder = embedder
        self._trust = trust
        self._template = Ask(
            texts=texts, vectors=vectors, counters=counters, boosted=boosted, boost=boost, former=former,
            embedder=embedder.fingerprint,
        )  # fmt: skip
        self._share = share
        self._budget = budget
        self.problem = ""
        """Why the question went by words alone."""
        self._begin(self._template)

    def _begin(self, ask: Ask) -> None:
        """Let go of what an earlier search brought."""
        self._ask = ask
        self._sent = Gathered(ask, self._embedder.dim)
        self._former: Ints = np.zeros(0, np.int64)
        self._surrounded: set[int] = set()
        self._talks: Talks | None = None
        self._whole: set[str] = set()
        self.same: dict[str, list[str]] = {}
        """Per candidate, others that say exactly the same."""
        self._beyond: list[str] = []
        self._beyond_at: dict[str, int] = {}
        self._memories: dict[str, Memory] = {}

    @property
    def size(self) -> int:
        """How many memories the shelves sent, each counted once."""
        return len(self._sent.ids)

    def homes(self) -> dict[str, str]:
        """The member each candidate came from."""
        return dict(zip(self._sent.ids, self._sent.homes, strict=True))

    @property
    def tokens(self) -> Tokens | None:
        """The table for late interaction: the embedder's own, or the bundled one."""
        return word_table(self._embedder)

    def embed(self, text: str) -> Singles | None:
        """The vector of a query, embedded once for all shelves; None, and `problem` says why, if that fails."""
        name, dim = self._embedder.fingerprint, self._embedder.dim
        try:
            vector = checked(guarded(name, lambda: self._embedder.embed([text])), 1, dim, name)[0]
        except EmbeddingError as error:
            self.problem = f"{WORDS_ALONE}: {error}"
            return None
        return vector if vector.any() else None

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale; nan stays nan."""
        many = getattr(self._embedder, "calibrate_many", None)
        if many is not None:
            return many(cosines)
        calibrate = self._embedder.calibrate
        flat = [c if c != c else calibrate(c) for c in cosines.ravel().tolist()]  # noqa: PLR0124
        return np.array(flat, dtype=np.float32).reshape(cosines.shape)

    # Gathering

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> UnionPool:
        """Ask every shelf, add up the statistics, and score everything at once. Every recall begins with it."""
        ask = msgspec.structs.replace(
            self._template,
            terms=tuple(terms),
            vector=None if vector is None else vector.astype("<f4").tobytes(),
            where=where,
            k_words=self._share(max(k_words, self._budget)) if k_words else 0,
            k_vectors=self._share(max(k_vectors, self._budget)) if k_vectors else 0,
        )
        self._begin(ask)
        sent, answers = self._sent, self._members.ask(ask)
        sent.add(answers)
        self._whole = {name for name, part in answers.items() if part.whole}
        sent.count(answers.values())
        words = sent.words()
        kept = self._distinct(best(words, sent.columns["cosine"], k_words, k_vectors))
        found = sent.pool(
            kept,
            words,
            sum(part.matched for part in answers.values()),
            sum(part.embedded for part in answers.values()),
        )
        sent.add({name: part.former for name, part in answers.items() if part.former is not None})
        fresh = range(len(words), len(sent.ids))
        self._former = np.array([row for row in fresh if sent.heirs[row]], np.int64)
        return found

    def _distinct(self, at: Ints) -> Ints:
        """One of several that say the same: the surest, then the oldest. What was left out is remembered."""
        content = self._sent.columns["content"][at]
        if len(np.unique(content)) == len(at):
            return at
        order = np.lexsort((at, self._sent.columns["created_at"][at], -self._sent.columns["confidence"][at]))
        first: dict[int, int] = {}
        for index in _list(order):
            row, what = int(at[index]), int(content[index])
            if what in first:
                self.same.setdefault(self._sent.ids[first[what]], []).append(self._sent.ids[row])
            else:
                first[what] = row
        return np.array(sorted(first.values()), np.int64)

    # What the pipeline asks afterwards

    def replaced(
        self,
        terms: Sequence[str],  # noqa: ARG002
        vector: Singles | None,  # noqa: ARG002
        where: Filter,  # noqa: ARG002
        count: int,
    ) -> UnionPool | None:
        """The best among what was replaced; the shelves sent it with the candidates."""
        if not len(self._former):
            return None
        words = self._sent.words()
        kept = best(words[self._former], self._sent.columns["cosine"][self._former], count, count)
        return self._sent.pool(self._former[kept], words)

    def heirs(self, rows: Ints) -> list[str | None]:
        """What stands in place of each replaced row now. A shelf follows a chain as far as its bank knows it, and what
        no shelf has sent yet is asked for: once, and once more for each further step that only another knows.
        """
        sent, ends = self._sent, [self._sent.heirs[row] for row in _list(rows)]
        passed = [{end} for end in ends]
        open_ = set(range(len(ends)))
        while open_:
            unknown = tuple(sorted({ends[place] for place in open_}.difference(sent.at)))
            if unknown:
                ask = msgspec.structs.replace(self._ask, only=unknown, former=0)
                sent.add(self._members.ask(ask))
            for place in sorted(open_):
                row = sent.at.get(ends[place])
                after = "" if row is None else sent.heirs[row]
                if not after or after in passed[place]:
                    open_.discard(place)
                else:
                    ends[place] = after
                    passed[place].add(after)
        return [end if end in sent.at else None for end in ends]

    def idf(self, terms: Sequence[str]) -> Floats:
        """How rare each term is in the whole hive."""
        return self._sent.idf(terms)

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of BM25 that each term gives to each row; row -1 gives zeros."""
        return self._sent.impacts(terms, rows)

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row, wherever in the hive they are."""
        if not len(rows):
            return np.full((0, 2 * window), -1, np.int64)
        self._ask_around([row for row in _list(rows) if self._sent.keys[row]], window, where)
        sent = self._sent
        if self._talks is None or self._talks.size != len(sent.ids):
            moments = self._sent.columns["created_at"]
            tied = len(np.unique(moments)) < len(moments)
            orders = np.array([order_of(i) for i in sent.ids]) if tied else np.zeros(len(sent.ids), np.int64)
            self._talks = Talks(sent.keys, sent.voices, moments, orders, sent.admitted)
        found = self._talks.around(rows, window)
        self._surrounded.update(_list(found[found >= 0]))
        return found

    def _ask_around(self, rows: Sequence[int], window: int, where: Filter) -> None:
        """Have the neighbours of rows sent; twice as far as needed, so that theirs are there as well."""
        fresh = [row for row in rows if row not in self._surrounded]
        if not fresh:
            return
        moments = self._sent.columns["created_at"]
        near: dict[str, list[Moment]] = {}
        for row in fresh:
            near.setdefault(self._sent.keys[row], []).append(
                (float(moments[row]), order_of(self._sent.ids[row]))
            )
        anchors = {key: tuple(found) for key, found in near.items()}
        ask = msgspec.structs.replace(self._ask, near=anchors, window=2 * window, where=where, former=0)
        self._sent.add(self._members.ask(ask, but=self._whole))
        self._surrounded.update(fresh)

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> UnionPool:  # noqa: ARG002
        """These very rows as a pool; they came with their counts and cosines."""
        return self._sent.pool(rows, self._sent.words())

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        if self._ask.texts:
            return [self._sent.texts[row] for row in _list(rows)]
        return [f"{m.title}\n{m.text}" if m.title else m.text for m in self.memories(rows)]

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row."""
        if self._ask.vectors:
            return self._sent.vectors[rows]
        return self._embedder.embed(self.texts(rows))

    def scopes(self, rows: Ints) -> Scopes:
        """The scope of each row as keys; a conversation is named by user, project and session."""
        known: dict[str, int] = {}

        def keys(parts: Sequence[str]) -> NDArray[np.uint64]:
            found = [known.setdefault(part, len(known) + 1) if part.strip(BETWEEN) else 0 for part in parts]
            return np.array(found, np.uint64)

        named = [self._sent.keys[row].rpartition(BETWEEN) for row in _list(rows)]
        return Scopes(
            place=keys([place for place, _, _ in named]),
            talk=keys([place + BETWEEN * 2 + session if session else "" for place, _, session in named]),
        )

    def authors(self, rows: Ints) -> list[str]:
        """The agent that wrote each row."""
        return [self._sent.authors[row] for row in _list(rows)]

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row, with the trust the hive has in its author."""
        entries = [self._sent.uses[row] for row in _list(rows)]
        return Counters(
            uses=np.array([entry[0] for entry in entries], np.int64),
            confirmations=np.array([entry[1] for entry in entries], np.int64),
            trust=np.array([self._least(entry[3]) for entry in entries], np.float64),
            last_used_at=np.array([entry[2] for entry in entries], np.float64),
        )

    def _least(self, authors: tuple[str, ...]) -> float:
        """What is derived is trusted no more than the least trusted of its sources."""
        return min((self._trust(author) for author in authors), default=self._trust(None))

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, fetched from whoever sent them."""
        ids = [self._id(row) for row in _list(rows)]
        self._fetch(ids)
        return [self._memories.get(memory_id, GONE) for memory_id in ids]

    def _id(self, row: int) -> str:
        return self._beyond[row - BEYOND] if row >= BEYOND else self._sent.ids[row]

    def _fetch(self, ids: Sequence[str]) -> None:
        """Have memories sent that were not sent yet."""
        homes = self._homes([i for i in ids if i not in self._memories])
        if homes:
            self._memories.update({memory.id: memory for memory in self._members.fetch(homes).memories})

    def _homes(self, ids: Sequence[str]) -> dict[str, str]:
        """Who sent some memories; empty where nobody did."""
        sent = self._sent
        return {i: sent.homes[sent.at[i]] if i in sent.at else "" for i in ids}

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id that the filter admits; what links lead to is fetched and appended."""
        sent = self._sent
        judged = sent.at if where == self._ask.where else {}  # whoever sent it has said so
        self._fetch([i for i in ids if i not in judged])
        rows: list[int | None] = []
        for memory_id in ids:
            row = judged.get(memory_id)
            if row is not None:
                rows.append(row if sent.admitted[row] else None)
                continue
            memory = self._memories.get(memory_id)
            admitted = memory is not None and admits_memory(where, memory)
            rows.append(self._row(memory_id) if admitted else None)
        return rows

    def _row(self, memory_id: str) -> int:
        row = self._sent.at.get(memory_id)
        if row is not None:
            return row
        if memory_id not in self._beyond_at:
            self._beyond_at[memory_id] = BEYOND + len(self._beyond)
            self._beyond.append(memory_id)
        return self._beyond_at[memory_id]

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        return list(self._members.fetch(self._homes(ids), links=True).links)


def _list(rows: Ints) -> list[int]:
    return rows.tolist()
