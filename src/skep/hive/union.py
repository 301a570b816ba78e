"""Many shelves as one bank: what the recall pipeline sees when it runs over a hive.

It implements the pipeline's `Sources` over the answers of all shelves. Statistics are the sums over the
shelves, so every score is the one that a single bank holding everything would have given. A row is a
position in the union.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from skep.embedding.checking import checked, guarded
from skep.embedding.static import word_table
from skep.errors import EmbeddingError
from skep.hive.admission import BETWEEN, admits_memory
from skep.hive.bm25 import impact, inverse_frequency
from skep.hive.pool import Ask, Fetched, Moment, Slice
from skep.hive.rows import order_of
from skep.hive.talks import Talks
from skep.model import WORDS_ALONE, Link, Memory
from skep.retrieval.sources import Counters, Scopes, Tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.embedding.base import Embedder
    from skep.storage.base import Filter

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

GONE = Memory(id="", kind="fact", text="")
"""Stands for a memory that could not be fetched any more; never shown."""


class Members(Protocol):
    """The shelves behind a union."""

    def ask(self, ask: Ask, *, but: Container[str] = ()) -> Mapping[str, Slice]:
        """The answers by member; some need not be asked."""
        ...

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id, each from the member named, or from whoever has it."""
        ...


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
    ) -> None:
        self._members = members
        self._embedder = embedder
        self._trust = trust
        self._template = Ask(
            texts=texts, vectors=vectors, counters=counters, boosted=boosted, boost=boost,
            embedder=embedder.fingerprint,
        )  # fmt: skip
        self._share = share
        self._budget = budget
        self._terms: tuple[str, ...] = ()
        self._ids: list[str] = []
        self._homes: list[str] = []
        self._at: dict[str, int] = {}
        self._keys: list[str] = []
        self._voices: list[str] = []
        self._authors: list[str] = []
        self._texts: list[str] = []
        self._admitted = np.zeros(0, np.bool_)
        self._columns: dict[str, NDArray[Any]] = {n: np.zeros(0, t) for n, t in _TYPES.items()}
        self._counts = np.zeros((0, 0), np.uint16)
        self._row_vectors = np.zeros((0, embedder.dim), np.float32)
        self._uses: list[tuple[int, int, float, tuple[str, ...]]] = []
        self._held = 0
        self._total_terms = 0
        self._having = np.zeros(0, np.int64)
        self._surrounded: set[int] = set()
        self._talks: Talks | None = None
        self._whole: set[str] = set()
        self.same: dict[str, list[str]] = {}
        """Per candidate, others that say exactly the same."""
        self._memories: dict[str, Memory] = {}
        self._links: dict[str, list[Link]] = {}
        self.problem = ""
        """Why the question went by words alone."""

    @property
    def size(self) -> int:
        """How many candidates the shelves sent, each memory once."""
        return len(self._ids)

    def homes(self) -> dict[str, str]:
        """The member each candidate came from."""
        return dict(zip(self._ids, self._homes, strict=True))

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
        """Ask every shelf, add up the statistics, and score everything at once."""
        self._terms = tuple(terms)
        self._counts = np.zeros((0, len(self._terms)), np.uint16)
        ask = msgspec.structs.replace(
            self._template,
            terms=self._terms,
            vector=None if vector is None else vector.astype("<f4").tobytes(),
            where=where,
            k_words=self._share(max(k_words, self._budget)) if k_words else 0,
            k_vectors=self._share(max(k_vectors, self._budget)) if k_vectors else 0,
        )
        self._template = ask
        answers = self._members.ask(ask)
        self._add(answers)
        self._whole = {name for name, part in answers.items() if part.whole}
        for part in answers.values():
            self._held += part.held
            self._total_terms += part.terms
        self._having = np.sum(
            [part.having for part in answers.values() if part.having] or [[0] * len(terms)], axis=0
        )
        words = self._bm25()
        kept = self._best(words, self._columns["cosine"], k_words, k_vectors)
        kept = self._distinct(kept)
        return self._pool(
            kept,
            words,
            sum(part.matched for part in answers.values()),
            sum(part.embedded for part in answers.values()),
        )

    def _add(self, answers: Mapping[str, Slice]) -> None:
        """Append the candidates of many slices, each memory once."""
        parts = [(name, part) for name, part in sorted(answers.items()) if part.ids]
        if not parts:
            return
        slices = [part for _, part in parts]
        sent = list(chain.from_iterable([part.ids for part in slices]))
        homes = list(chain.from_iterable([[name] * len(part.ids) for name, part in parts]))
        position = len(sent)
        if not self._at and len(set(sent)) == position:
            self._at, self._ids, self._homes = dict(zip(sent, count(), strict=False)), sent, homes
            keep: Sequence[int] = range(position)
        else:
            keep = self._fresh(sent, homes)
        at = np.array(keep, np.int64)
        for name, kind in _TYPES.items():
            fresh = np.frombuffer(b"".join([getattr(part, name) for part in slices]), kind)[at]
            self._columns[name] = np.concatenate([self._columns[name], fresh])
        width = len(self._terms)
        counts = np.frombuffer(b"".join([part.counts for part in slices]), np.uint16).reshape(
            position, width
        )[at]
        self._counts = np.concatenate([self._counts, counts])
        self._add_lists(slices, keep, position)

    def _fresh(self, sent: Sequence[str], homes: Sequence[str]) -> list[int]:
        """The places of memories that were not sent before; they are noted."""
        keep: list[int] = []
        for place, memory_id in enumerate(sent):
            if memory_id not in self._at:
                self._at[memory_id] = len(self._ids)
                self._ids.append(memory_id)
                self._homes.append(homes[place])
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

        self._keys += pick("keys", "")
        self._voices += pick("voices", "")
        self._authors += pick("authors", "")
        self._texts += pick("texts", "")
        flags = b"".join([part.admitted or b"\x01" * len(part.ids) for part in slices])
        at = np.array(keep, np.int64)
        self._admitted = np.concatenate([self._admitted, np.frombuffer(flags, np.uint8)[at] > 0])
        if self._template.vectors:
            dim = self._embedder.dim
            fresh = np.frombuffer(b"".join([part.vectors for part in slices]), np.float32).reshape(-1, dim)
            fresh = fresh if len(at) == total else fresh[at]
            known = self._row_vectors
            self._row_vectors = np.concatenate([known, fresh]) if len(known) else fresh
        if self._template.counters:
            joined = [
                np.frombuffer(b"".join([getattr(part, name) for part in slices]), kind)[at].tolist()
                for name, kind in (
                    ("uses", np.int64),
                    ("confirmations", np.int64),
                    ("last_used_at", np.float64),
                )
            ]
            self._uses += list(zip(*joined, pick("agents", ()), strict=True))

    def _bm25(self) -> Singles:
        if not self._terms:
            return np.zeros(len(self._ids), np.float32)
        return self._impacts(slice(None)).sum(axis=1).astype(np.float32)

    def _impacts(self, at: Any) -> Floats:
        mean = self._total_terms / max(1, self._held)
        idf = inverse_frequency(self._held, self._having)
        return impact(self._counts[at], self._columns["length"][at], mean, idf)

    @staticmethod
    def _best(words: Singles, cosine: Singles, k_words: int, k_vectors: int) -> Ints:
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

    def _distinct(self, at: Ints) -> Ints:
        """One of several that say the same: the surest, then the oldest. What was left out is remembered."""
        content = self._columns["content"][at]
        if len(np.unique(content)) == len(at):
            return at
        order = np.lexsort((at, self._columns["created_at"][at], -self._columns["confidence"][at]))
        first: dict[int, int] = {}
        for index in _list(order):
            row, what = int(at[index]), int(content[index])
            if what in first:
                self.same.setdefault(self._ids[first[what]], []).append(self._ids[row])
            else:
                first[what] = row
        return np.array(sorted(first.values()), np.int64)

    def _pool(self, at: Ints, words: Singles, matched: int = 0, embedded: int = 0) -> UnionPool:
        columns = self._columns
        return UnionPool(
            at,
            words[at],
            columns["cosine"][at],
            columns["created_at"][at],
            columns["confidence"][at].astype(np.float32),
            columns["last_evidence_at"][at],
            columns["importance"][at].astype(np.float32),
            matched,
            embedded,
        )

    # What the pipeline asks afterwards

    def replaced(
        self,
        terms: Sequence[str],  # noqa: ARG002
        vector: Singles | None,  # noqa: ARG002
        where: Filter,  # noqa: ARG002
        count: int,  # noqa: ARG002
    ) -> UnionPool | None:
        """None: members send what is current, and another round of asking would cost as much as the recall."""
        return None

    def heirs(self, rows: Ints) -> list[str | None]:
        """None of them: nothing that was replaced is asked for."""
        return [None] * len(rows)

    def idf(self, terms: Sequence[str]) -> Floats:
        """How rare each term is in the whole hive."""
        known = dict(zip(self._terms, self._having.tolist(), strict=True))
        return inverse_frequency(self._held, [known.get(term, 0) for term in terms])

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of BM25 that each term gives to each row; row -1 gives zeros."""
        if not self._ids:
            return np.zeros((len(rows), len(terms)), np.float32)
        found = self._impacts(rows)
        found[rows < 0] = 0.0
        column = {term: index for index, term in enumerate(self._terms)}
        picked = [column.get(term, -1) for term in terms]
        padded = np.concatenate([found, np.zeros((len(rows), 1))], axis=1)
        return padded[:, picked].astype(np.float32)

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row, wherever in the hive they are."""
        if not len(rows):
            return np.full((0, 2 * window), -1, np.int64)
        self._ask_around([row for row in _list(rows) if self._keys[row]], window, where)
        if self._talks is None or self._talks.size != len(self._keys):
            moments = self._columns["created_at"]
            tied = len(np.unique(moments)) < len(moments)
            ids = self._ids[: len(self._keys)]
            orders = np.array([order_of(i) for i in ids]) if tied else np.zeros(len(ids), np.int64)
            self._talks = Talks(self._keys, self._voices, moments, orders, self._admitted)
        found = self._talks.around(rows, window)
        self._surrounded.update(_list(found[found >= 0]))
        return found

    def _ask_around(self, rows: Sequence[int], window: int, where: Filter) -> None:
        """Have the neighbours of rows sent; twice as far as needed, so that theirs are there as well."""
        fresh = [row for row in rows if row not in self._surrounded]
        if not fresh:
            return
        moments = self._columns["created_at"]
        near: dict[str, list[Moment]] = {}
        for row in fresh:
            near.setdefault(self._keys[row], []).append((float(moments[row]), order_of(self._ids[row])))
        anchors = {key: tuple(found) for key, found in near.items()}
        ask = msgspec.structs.replace(self._template, near=anchors, window=2 * window, where=where)
        self._add(self._members.ask(ask, but=self._whole))
        self._surrounded.update(fresh)

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> UnionPool:  # noqa: ARG002
        """These very rows as a pool; they came with their counts and cosines."""
        return self._pool(rows, self._bm25())

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        if self._template.texts:
            return [self._texts[row] for row in _list(rows)]
        return [f"{m.title}\n{m.text}" if m.title else m.text for m in self.memories(rows)]

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row."""
        if self._template.vectors:
            return self._row_vectors[rows]
        return self._embedder.embed(self.texts(rows))

    def scopes(self, rows: Ints) -> Scopes:
        """The scope of each row as keys; a conversation is named by user, project and session."""
        known: dict[str, int] = {}

        def keys(parts: Sequence[str]) -> NDArray[np.uint64]:
            found = [known.setdefault(part, len(known) + 1) if part.strip(BETWEEN) else 0 for part in parts]
            return np.array(found, np.uint64)

        named = [self._keys[row].rpartition(BETWEEN) for row in _list(rows)]
        return Scopes(
            place=keys([place for place, _, _ in named]),
            talk=keys([place + BETWEEN * 2 + session if session else "" for place, _, session in named]),
        )

    def authors(self, rows: Ints) -> list[str]:
        """The agent that wrote each row."""
        return [self._authors[row] for row in _list(rows)]

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row, with the trust the hive has in its author."""
        entries = [self._uses[row] for row in _list(rows)]
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
        wanted = {self._ids[row]: self._homes[row] for row in _list(rows)}
        unknown = {i: home for i, home in wanted.items() if i not in self._memories}
        if unknown:
            fetched = self._members.fetch(unknown)
            self._memories.update({memory.id: memory for memory in fetched.memories})
        return [self._memories.get(self._ids[row], GONE) for row in _list(rows)]

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id that the filter admits; what links lead to is fetched and appended."""
        unknown = [i for i in ids if i not in self._memories]
        if unknown:
            homes = {i: self._homes[self._at[i]] if i in self._at else "" for i in unknown}
            self._memories.update({memory.id: memory for memory in self._members.fetch(homes).memories})
        rows: list[int | None] = []
        for memory_id in ids:
            memory = self._memories.get(memory_id)
            if memory is None or not admits_memory(where, memory):
                rows.append(None)
                continue
            if memory_id not in self._at:
                self._at[memory_id] = len(self._ids)
                self._ids.append(memory_id)
                self._homes.append("")
            rows.append(self._at[memory_id])
        return rows

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        homes = {i: self._homes[self._at[i]] if i in self._at else "" for i in ids}
        return list(self._members.fetch(homes, links=True).links)


def _list(rows: Ints) -> list[int]:
    return rows.tolist()
