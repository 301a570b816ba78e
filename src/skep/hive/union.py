"""Many shelves as one bank: what the recall pipeline sees when it runs over a hive.

It implements the pipeline's `Sources` over the answers of all shelves. Statistics are the sums over the
shelves, so every score is the one that a single bank holding everything would have given. A row is a
position in the union.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
import numpy as np

from skep.embedding.checking import checked, guarded
from skep.embedding.static import word_table
from skep.errors import EmbeddingError
from skep.hive.admission import BETWEEN, admits_memory
from skep.hive.gathered import Gathered, UnionPool, best
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
