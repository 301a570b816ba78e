"""The members of a hive as the sources of one recall.

`HiveSources` implements `retrieval.sources.Sources` over the slices that members send. One question brings all
candidates of a member with what is known of them; another round is asked only for neighbours in time and for what
stands elsewhere. A row is a position among the candidates in the order of their arrival. Word counts of all members
are added up, so every score is close to the one that a single bank holding everything would give. Called by
`hive_recall` and `agent_bank`; it reaches members only through `Members`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np

from skep.embedding.embedder import checked, guarded
from skep.errors import EmbeddingError
from skep.events import dot_of
from skep.filters import admits_memory
from skep.hive.messages import ROW, Ask, Fetched, Slice
from skep.model import WORDS_ALONE, Link, Memory
from skep.retrieval.sources import PAUSE_SECONDS, Counters

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.embedding.embedder import Embedder
    from skep.filters import Filter

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

GONE = Memory(id="", kind="fact", text="")
"""Stands for a memory that could not be fetched any more; never shown."""


class Members(Protocol):
    """The members that a recall asks."""

    def ask(self, ask: Ask) -> Mapping[str, Slice]:
        """The answers by member."""
        ...

    def fetch(self, ids: Mapping[str, str], *, links: bool = False) -> Fetched:
        """Memories by id, each from the member named, or from whoever has it."""
        ...


class HivePool(NamedTuple):
    """The candidates of one search; see `retrieval.sources.Pool`."""

    rows: Ints
    words: Floats
    cosine: Singles
    created_at: Floats
    confidence: Floats
    last_evidence_at: Floats
    importance: Floats
    spoken: NDArray[np.bool_]
    words_total: int
    vectors_total: int


class HiveSources:
    """The sources of one recall over a hive."""

    def __init__(
        self,
        members: Members,
        embedder: Embedder,
        *,
        calibrate: Callable[[Singles], Singles],
        trust: Callable[[str | None], float],
        ask: Ask,
        budget: int = 0,
        share: Callable[[int], int] = int,
    ) -> None:
        """Prepare a recall.

        Args:
            members: Whom to ask.
            embedder: What turns the question into a vector.
            calibrate: Raw cosines on the common scale.
            trust: How far an agent is trusted.
            ask: What every question of this recall asks for beside its words.
            budget: At least so many candidates are wanted.
            share: How many of so many candidates each member is asked for.
        """
        self._members = members
        self._embedder = embedder
        self._calibrate = calibrate
        self._trust = trust
        self._template = msgspec.structs.replace(ask, embedder=embedder.fingerprint)
        self._budget = budget
        self._share = share
        self.problem = ""
        """Why the question went by words alone."""
        self._begin(self._template)

    def _begin(self, ask: Ask) -> None:
        """Let go of what an earlier search brought."""
        self._ask = ask
        self.ids: list[str] = []
        self._homes: list[str] = []
        self._at: dict[str, int] = {}
        self._texts: list[str] = []
        self._heirs: list[str] = []
        self._agents: list[tuple[str, ...]] = []
        self._rows = np.zeros(0, ROW)
        self._weights = np.zeros((0, len(ask.terms)), np.float32)
        self._vectors = np.zeros((0, ask.vectors), np.float32)
        self._counters = np.zeros((0, 3), np.float64)
        self._idf = np.zeros(len(ask.terms))
        self._held = 0.0
        self._whole = False
        """True if the members have sent all they hold."""
        self._former: Ints = np.zeros(0, np.int64)
        self._surrounded: set[int] = set()
        self._memories: dict[str, Memory] = {}
        self.same: dict[str, list[str]] = {}
        """Per candidate, others that say exactly the same."""

    def homes(self) -> dict[str, str]:
        """The member each candidate came from."""
        return dict(zip(self.ids, self._homes, strict=True))

    def _add(self, answers: Mapping[str, Slice]) -> Ints:
        """Append the candidates of some slices, each memory once; the rows of all that are new."""
        first = len(self.ids)
        for home, part in sorted(answers.items()):
            keep = [at for at, name in enumerate(part.ids) if name not in self._at]
            if not keep:
                continue
            self._at.update((part.ids[at], len(self.ids) + place) for place, at in enumerate(keep))
            self.ids += [part.ids[at] for at in keep]
            self._homes += [home] * len(keep)
            self._texts += [part.texts[at] for at in keep]
            self._heirs += [part.heirs[at] for at in keep] if part.heirs else [""] * len(keep)
            self._rows = np.concatenate([self._rows, np.frombuffer(part.rows, ROW)[keep]])
            self._weights = _joined(self._weights, part.weights, keep)
            self._vectors = _joined(self._vectors, part.vectors, keep)
            if self._ask.counters:
                self._counters = _joined(self._counters, part.counters, keep)
                self._agents += [part.agents[at] for at in keep]
        return np.arange(first, len(self.ids))

    # What the pipeline asks first

    def embed(self, text: str) -> Singles | None:
        """The vector of a query, embedded once for all members; None, and `problem` says why, if that fails."""
        name, dim = self._embedder.fingerprint, self._embedder.dim
        try:
            vector = checked(guarded(name, lambda: self._embedder.embed([text])), 1, dim, name)[0]
        except EmbeddingError as error:
            self.problem = f"{WORDS_ALONE}: {error}"
            return None
        return vector if vector.any() else None

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale; nan stays nan."""
        return self._calibrate(cosines)

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> HivePool:
        """Ask every member, add up the word counts, and choose as one bank would. Every recall begins with it."""
        ask = msgspec.structs.replace(
            self._template,
            terms=tuple(terms),
            vector=None if vector is None else vector.astype("<f4").tobytes(),
            where=where,
            k_words=self._share(max(k_words, self._budget)) if k_words else 0,
            k_vectors=self._share(max(k_vectors, self._budget)) if k_vectors else 0,
        )
        self._begin(ask)
        answers = self._members.ask(ask)
        parts = answers.values()
        found = self._add(answers)
        self._whole = all(part.whole for part in parts)
        self._held = sum(part.held for part in parts)
        having = sum((np.array(part.having) for part in parts if part.having), np.zeros(len(terms)))
        self._idf = np.log1p(np.maximum(self._held - having + 0.5, 0.0) / (having + 0.5))
        words = self.impacts(terms, found).sum(axis=1)
        kept = self._distinct(_best(words, self._rows["cosine"], k_words, k_vectors))
        self._former = self._add({name: part.former for name, part in answers.items() if part.former})
        self._former = self._former[[bool(self._heirs[row]) for row in _list(self._former)]]
        matched, embedded = (sum(getattr(part, name) for part in parts) for name in ("matched", "embedded"))
        return self._pool(kept, matched, embedded)

    def _distinct(self, at: Ints) -> Ints:
        """One of several that say the same: the surest, then the oldest. What was left out is remembered."""
        rows = self._rows[at]
        if len(np.unique(rows["content"])) == len(at):
            return at
        first: dict[int, int] = {}
        for index in np.lexsort((at, rows["created_at"], -rows["confidence"])).tolist():
            row, said = int(at[index]), int(rows["content"][index])
            if first.setdefault(said, row) != row:
                self.same.setdefault(self.ids[first[said]], []).append(self.ids[row])
        return np.array(sorted(first.values()), np.int64)

    def _pool(self, rows: Ints, matched: int = 0, embedded: int = 0) -> HivePool:
        found = self._rows[rows]
        cosine, created_at, evidence_at = (
            np.ascontiguousarray(found[name]) for name in ("cosine", "created_at", "last_evidence_at")
        )
        # Of single precision in an index: the same here, so that equal scores stay equal.
        confidence, importance = (
            found[name].astype(np.float32).astype(np.float64) for name in ("confidence", "importance")
        )
        words = self.impacts(self._ask.terms, rows).sum(axis=1, dtype=np.float64)
        spoken = found["talk"] != 0
        return HivePool(
            rows, words, cosine, created_at, confidence, evidence_at, importance, spoken, matched, embedded
        )

    # What it asks afterwards

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> HivePool:  # noqa: ARG002
        """These very rows as a pool; they came with their word weights and cosines."""
        return self._pool(rows)

    def idf(self, terms: Sequence[str]) -> Floats:
        """The rarity of each term of the question in the whole hive; other terms count as never said."""
        known = dict(zip(self._ask.terms, self._idf.tolist(), strict=True))
        never = np.log1p(2 * self._held + 1)
        return np.array([known.get(term, never) for term in terms])

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of BM25 that each term gives to each row; row -1 gives zeros."""
        weighed = np.zeros(
            (len(rows), len(self._ask.terms) + 1), np.float32
        )  # the last stands for other terms
        there = rows >= 0
        weighed[there, :-1] = self._weights[rows[there]] * self._idf
        place = {term: at for at, term in enumerate(self._ask.terms)}
        return weighed[:, [place.get(term, -1) for term in terms]]

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        return [self._texts[row] for row in _list(rows)]

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row."""
        return self._vectors[rows] if self._ask.vectors else self._embedder.embed(self.texts(rows))

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row, with the trust the hive has in its author."""
        uses, confirmations, last = self._counters[rows].T
        trust = [self._least([*self._agents[row]]) for row in _list(rows)]
        return Counters(uses.astype(np.int64), confirmations.astype(np.int64), np.array(trust), last)

    def _least(self, authors: Sequence[str]) -> float:
        """The trust in the least trusted of some authors: a derived memory deserves no more."""
        return min((self._trust(author) for author in authors), default=self._trust(None))

    def replaced(
        self,
        terms: Sequence[str],  # noqa: ARG002
        vector: Singles | None,  # noqa: ARG002
        where: Filter,  # noqa: ARG002
        count: int,
    ) -> HivePool | None:
        """The best among what was replaced; it came with the candidates."""
        if not len(self._former):
            return None
        words = self.impacts(self._ask.terms, self._former).sum(axis=1)
        return self._pool(self._former[_best(words, self._rows["cosine"][self._former], count, count)])

    def heirs(self, rows: Ints) -> list[str | None]:
        """The id of the memory in place of each replaced row. A member follows a chain as far as its bank knows;
        a memory nobody has sent yet is asked for: once, and once more for each further step that only another knows.
        """
        ends = [self._heirs[row] for row in _list(rows)]
        passed = [{end} for end in ends]
        open_ = set(range(len(ends)))
        while open_:
            unknown = tuple(sorted({ends[place] for place in open_}.difference(self._at)))
            if unknown:
                self._add(self._members.ask(msgspec.structs.replace(self._ask, only=unknown, former=0)))
            for place in sorted(open_):
                row = self._at.get(ends[place])
                after = "" if row is None else self._heirs[row]
                if not after or after in passed[place]:
                    open_.discard(place)
                else:
                    ends[place] = after
                    passed[place].add(after)
        return [end if end in self._at else None for end in ends]

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row, wherever in the hive they are; see `retrieval.sources.Sources`."""
        self._ask_around(rows, window, where)
        talking = np.flatnonzero(self._rows["scope"])
        numbers = np.array([dot_of(self.ids[row])[1] for row in _list(talking)])
        keys = self._rows[talking]
        line = np.lexsort((numbers, keys["created_at"], keys["kind"], keys["scope"]))
        line, keys = talking[line], keys[line]
        parted = (keys["scope"][1:] != keys["scope"][:-1]) | (keys["kind"][1:] != keys["kind"][:-1])
        parted |= np.diff(keys["created_at"]) > PAUSE_SECONDS
        part = np.concatenate([[0], np.cumsum(parted)])
        found = np.full((len(rows), 2 * window), -1, np.int64)
        place = np.full(len(self.ids), -1, np.int64)
        place[line] = np.arange(len(line))
        asked = np.flatnonzero(place[rows] >= 0)
        if len(asked):
            here = place[rows[asked]][:, None]
            there = here + np.array([*range(-window, 0), *range(1, window + 1)])
            inside = np.clip(there, 0, len(line) - 1)
            beside = (there == inside) & (part[inside] == part[here]) & keys["admitted"][inside]
            found[asked] = np.where(beside, line[inside], -1)
            self._surrounded.update(_list(found[found >= 0]))
        return found

    def _ask_around(self, rows: Ints, window: int, where: Filter) -> None:
        """Have the neighbours of rows sent; twice as far as needed, so that theirs are there as well."""
        near: dict[int, list[float]] = {}
        for row in _list(rows):
            if row not in self._surrounded and self._rows["scope"][row]:
                near.setdefault(int(self._rows["scope"][row]), []).append(
                    float(self._rows["created_at"][row])
                )
                self._surrounded.add(row)
        if near and not self._whole:
            moments = {scope: tuple(sorted(set(found))) for scope, found in near.items()}
            ask = msgspec.structs.replace(self._ask, near=moments, window=2 * window, where=where, former=0)
            self._add(self._members.ask(ask))

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, fetched from whoever sent them."""
        ids = [self.ids[row] for row in _list(rows)]
        self._fetch(ids)
        return [self._memories.get(memory_id, GONE) for memory_id in ids]

    def _fetch(self, ids: Iterable[str]) -> None:
        """Have memories sent that were not sent yet."""
        homes = self._home_of(name for name in ids if name not in self._memories)
        if homes:
            self._memories.update({memory.id: memory for memory in self._members.fetch(homes).memories})

    def _home_of(self, ids: Iterable[str]) -> dict[str, str]:
        """The member that sent each memory; empty where nobody did."""
        return {name: self._homes[self._at[name]] if name in self._at else "" for name in ids}

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id that the filter admits; what links lead to is fetched and appended."""
        judged = self._at if where == self._ask.where else {}  # whoever sent it has said so
        self._fetch([name for name in ids if name not in judged])
        rows: list[int | None] = []
        for name in ids:
            if name in judged:
                rows.append(judged[name] if self._rows["admitted"][judged[name]] else None)
                continue
            memory = self._memories.get(name)
            if memory is not None and admits_memory(where, memory):
                rows.append(self._row(memory))
            else:
                rows.append(None)
        return rows

    def _row(self, memory: Memory) -> int:
        """The row of a memory that was fetched; what no member sent as a candidate holds no word of the question."""
        if memory.id not in self._at:
            text, width = (
                f"{memory.title}\n{memory.text}" if memory.title else memory.text,
                len(self._ask.terms),
            )
            row = np.zeros(1, ROW)
            row["cosine"], row["admitted"] = np.nan, True
            part = Slice(
                ids=(memory.id,), rows=row.tobytes(), texts=(text,), weights=bytes(4 * width),
                vectors=bytes(4 * self._ask.vectors), counters=bytes(24), agents=((),),
            )  # fmt: skip
            self._add({"": part})
        return self._at[memory.id]

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        return list(self._members.fetch(self._home_of(ids), links=True).links)


def _joined(known: NDArray[Any], sent: bytes, keep: list[int]) -> NDArray[Any]:
    """A matrix with some of the lines that were sent."""
    width = known.shape[1]
    if not width:
        return np.zeros((len(known) + len(keep), 0), known.dtype)
    return np.concatenate([known, np.frombuffer(sent, known.dtype).reshape(-1, width)[keep]])


def _best(words: Any, cosine: Any, k_words: int, k_vectors: int) -> Ints:
    """The best by words and the best by meaning, as one bank would choose them."""
    kept = np.zeros(len(words), np.bool_)
    for score, there, most in ((words, words > 0, k_words), (cosine, ~np.isnan(cosine), k_vectors)):
        at = np.flatnonzero(there)
        kept[at[np.argsort(-score[at], kind="stable")[:most]]] = True
    return np.flatnonzero(kept)


def fault_of(part: Slice, ask: Ask) -> str | None:
    """The fault of an answer; None when it can be used. A member may be broken or hostile."""
    count, terms = len(part.ids), len(ask.terms)
    if len(part.rows) != ROW.itemsize * count or len(part.weights) != 4 * count * terms:
        return "its columns have the wrong size"
    if len(part.texts) != count or len(part.heirs) not in (0, count):
        return "its texts have the wrong size"
    if len(part.vectors) != 4 * ask.vectors * count:
        return "its vectors have the wrong size"
    if ask.counters and not len(part.counters) == 24 * len(part.agents) == 24 * count:
        return "its counters have the wrong size"
    if len(part.having) not in (0, terms) or not all(
        0 <= n <= part.held + 1 for n in (*part.having, part.held)
    ):
        return "its statistics contradict themselves"
    rows, weights = np.frombuffer(part.rows, ROW), np.frombuffer(part.weights, "<f4")
    for name, low, high in (("confidence", 0, 1), ("importance", 0, 1), ("cosine", -1.01, 1.01)):
        values = rows[name][~np.isnan(rows[name])] if name == "cosine" else rows[name]
        if not ((values >= low) & (values <= high)).all():
            return f"{name} is out of range"
    for name in ("created_at", "last_evidence_at"):
        if not np.isfinite(rows[name]).all():
            return f"{name} is out of range"
    if not ((weights >= 0) & (weights <= 2.21)).all():
        return "its word weights are out of range"
    if part.former is not None:
        return "what was replaced is nested" if part.former.former is not None else fault_of(part.former, ask)
    return None


def _list(rows: Ints) -> list[int]:
    return rows.tolist()
