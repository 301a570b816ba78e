"""What a recall asks of the bank. Only this protocol touches storage; everything after it is values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.model import Link, Memory
    from skep.storage.base import Filter

    Ints = NDArray[np.int64]
    Keys = NDArray[np.uint64]
    Floats = NDArray[np.float64]
    Singles = NDArray[np.float32]

Reranker = Callable[[str, Sequence[str]], Sequence[float]]
"""Scores texts for a query; larger is better. Any callable, a cross-encoder for example."""


class Pool(Protocol):
    """The candidates of one search, one entry per row in every array."""

    @property
    def rows(self) -> Ints:
        """Keys of the memories; distinct."""
        ...

    @property
    def words(self) -> Floats:
        """BM25 over the whole bank, for every row; 0 where no term matches."""
        ...

    @property
    def cosine(self) -> Singles:
        """Raw cosine for every row that has a vector; nan where it has none."""
        ...

    @property
    def created_at(self) -> Floats:
        """Seconds since the epoch."""
        ...

    @property
    def confidence(self) -> Floats:
        """As stored."""
        ...

    @property
    def last_evidence_at(self) -> Floats:
        """Seconds since the epoch."""
        ...

    @property
    def importance(self) -> Floats:
        """As stored."""
        ...

    @property
    def lines(self) -> Floats | None:
        """All of it as lines of one array, as compiled loops take it: see `storage.segments`; None elsewhere."""
        ...

    @property
    def scale(self) -> tuple[Any, ...] | None:
        """What `Sources.calibrate` does to its cosines: points and their heights; empty for nothing, None if more."""
        ...

    @property
    def words_total(self) -> int:
        """How many memories matched a word, before the cut."""
        ...

    @property
    def vectors_total(self) -> int:
        """How many memories had a vector, before the cut."""
        ...


class Counters(NamedTuple):
    """What changes with use, one entry per row asked for."""

    uses: Ints
    confirmations: Ints
    trust: Floats
    """Of the source, in [0, 2]."""
    last_used_at: Floats
    """nan where it never was."""


class Scopes(NamedTuple):
    """What memories belong to, one entry per row asked for. Equal keys mean the same; 0 means nothing of the kind."""

    place: Keys
    """User and project."""
    talk: Keys
    """User, project and session."""


class Tokens(Protocol):
    """Word pieces with vectors, for late interaction; the bundled embedder is one."""

    def tokens(self, text: str) -> list[int]:
        """The pieces of a text that carry meaning, in order."""
        ...

    def pieces(self, texts: Sequence[str], most: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first `most` pieces of each text that carry meaning, text after text, and how many each has."""
        ...

    def closest(
        self, asked: Sequence[int], pieces: NDArray[np.int32], lengths: NDArray[np.int32], block: int
    ) -> Singles:
        """The highest cosine of each piece asked for (rows) in each stretch of `block` pieces of a text (columns)."""
        ...

    def token_vectors(self, ids: Sequence[int]) -> Singles:
        """One unit row per piece."""
        ...

    def token_weights(self, ids: Sequence[int]) -> Singles:
        """How much each piece counts."""
        ...

    def calibrate(self, cosine: float) -> float:
        """A raw cosine of sums of these rows on the common scale."""
        ...


class Sources(Protocol):
    """The bank as a recall sees it. Rows are the integer keys of the index."""

    @property
    def tokens(self) -> Tokens | None:
        """The table for late interaction: the embedder's own, or the bundled one; None without an embedder."""
        ...

    def embed(self, text: str) -> Singles | None:
        """The unit vector of a query; None without an embedder, or for a text with nothing to embed."""
        ...

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale; nan stays nan."""
        ...

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> Pool:
        """The best `k_words` by words and the best `k_vectors` by meaning, under one filter."""
        ...

    def replaced(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, count: int
    ) -> Pool | None:
        """The best `count` by words and by meaning among what was superseded or merged, in the scope of a filter.

        None where there is nothing of the kind, or it cannot be searched.
        """
        ...

    def heirs(self, rows: Ints) -> list[str | None]:
        """What stands in place of each replaced row now, at the end of its chain; None where nothing does."""
        ...

    def idf(self, terms: Sequence[str]) -> Floats:
        """ln(1 + (N - df + 0.5) / (df + 0.5)) of each term over the whole bank; unknown terms have df 0."""
        ...

    def impacts(self, terms: Sequence[str], rows: Ints) -> Singles:
        """The part of the BM25 score that each term (column) gives to each row; row -1 gives zeros."""
        ...

    def around(self, rows: Ints, window: int, where: Filter) -> Ints:
        """The neighbours in time of each row: columns -window..-1, 1..window; -1 where there is none.

        Neighbours have the same scope, which is not the shared one, whoever wrote them, follow one
        another within an hour, and pass the filter.
        """
        ...

    def lookup(self, rows: Ints, terms: Sequence[str], vector: Singles | None) -> Pool:
        """These very rows as a pool, in this order; for candidates that no list brought."""
        ...

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row, as indexed."""
        ...

    def vectors(self, rows: Ints) -> Singles:
        """The unit vector of each row; zeros where there is none."""
        ...

    def scopes(self, rows: Ints) -> Scopes:
        """The scope of each row as keys."""
        ...

    def authors(self, rows: Ints) -> list[str]:
        """The agent that wrote each row; empty where none is named."""
        ...

    def counters(self, rows: Ints) -> Counters:
        """Use statistics of each row."""
        ...

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, in the same order."""
        ...

    def rows_of(self, ids: Sequence[str], where: Filter) -> list[int | None]:
        """The row of each id, or None where it is gone or the filter does not admit it."""
        ...

    def links(self, ids: Sequence[str]) -> list[Link]:
        """Every link that starts or ends at one of these memories."""
        ...
