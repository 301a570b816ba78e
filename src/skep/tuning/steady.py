"""A bank that holds still: the same few queries asked under hundreds of configs, each piece of work done once.

Candidates depend on the query and the filter, not on how they are ranked, so that most of a trial is ranking alone.
Writes to the bank during the search are not seen; the gate measures on the bank itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank import Bank
from skep.model import Memory
from skep.recall.sources import BankSources
from skep.retrieval.pipeline import run
from skep.tuning.evaluate import prepared
from skep.tuning.indexing import document_of
from skep.tuning.search_config import SearchConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.recall.question import Question
    from skep.retrieval.sources import Tokens
    from skep.storage.base import Filter
    from skep.storage.segments import Pool

    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]


class SteadySources(BankSources):
    """The sources of a recall, each answer kept."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank.engine)
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._memories: dict[int, Memory] = {}
        table = super().tokens
        self._tokens = SteadyTokens(table) if table is not None else None

    @property
    def tokens(self) -> Tokens | None:
        """The table for late interaction."""
        return self._tokens

    def embed(self, text: str) -> Singles | None:
        """The vector of a query in the active space."""
        key = ("embed", text)
        if key not in self._kept:
            self._kept[key] = super().embed(text)
        return self._kept[key]

    def calibrate(self, cosines: Singles) -> Singles:
        """Raw cosines on the common scale."""
        key = ("calibrate", cosines.shape, cosines.tobytes())
        if key not in self._kept:
            self._kept[key] = super().calibrate(cosines)
        return self._kept[key]

    def search(
        self, terms: Sequence[str], vector: Singles | None, where: Filter, k_words: int, k_vectors: int
    ) -> Pool:
        """Candidates by words and by meaning under one filter."""
        meaning = None if vector is None else vector.tobytes()
        key = ("search", tuple(terms), meaning, msgspec.json.encode(where), k_words, k_vectors)
        if key not in self._kept:
            self._kept[key] = super().search(terms, vector, where, k_words, k_vectors)
        return self._kept[key]

    def texts(self, rows: Ints) -> list[str]:
        """Title and text of each row."""
        key = ("texts", rows.tobytes())
        if key not in self._kept:
            self._kept[key] = super().texts(rows)
        return self._kept[key]

    def memories(self, rows: Ints) -> list[Memory]:
        """The memories of these rows, in the same order."""
        import numpy as np

        wanted = rows.tolist()
        missing = [row for row in wanted if row not in self._memories]
        if missing:
            found = super().memories(np.array(missing, dtype=np.int64))
            self._memories.update(zip(missing, found, strict=True))
        return [self._memories[row] for row in wanted]


class SteadyTokens:
    """Word pieces, each text cut once."""

    def __init__(self, table: Tokens) -> None:
        self._table = table
        self._pieces: dict[tuple[str, int], NDArray[np.int32]] = {}

    def tokens(self, text: str) -> list[int]:
        """The pieces of a text that carry meaning, in order."""
        return self._table.tokens(text)

    def pieces(self, texts: Sequence[str], most: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The first `most` pieces of each text that carry meaning, text after text, and how many each has."""
        import numpy as np

        for text in texts:
            if (text, most) not in self._pieces:
                self._pieces[text, most] = self._table.pieces([text], most)[0]
        found = [self._pieces[text, most] for text in texts]
        flat = np.concatenate(found) if found else np.zeros(0, np.int32)
        return flat, np.array([len(each) for each in found], dtype=np.int32)

    def closest(
        self, asked: Sequence[int], pieces: NDArray[np.int32], lengths: NDArray[np.int32], block: int
    ) -> Singles:
        """The highest cosine of each piece asked for (rows) in each stretch of pieces (columns)."""
        return self._table.closest(asked, pieces, lengths, block)

    def token_vectors(self, ids: Sequence[int]) -> Singles:
        """One unit row per piece."""
        return self._table.token_vectors(ids)

    def token_weights(self, ids: Sequence[int]) -> Singles:
        """How much each piece counts."""
        return self._table.token_weights(ids)

    def calibrate(self, cosine: float) -> float:
        """A raw cosine of sums of these rows on the common scale."""
        return self._table.calibrate(cosine)


class SteadySearcher:
    """Ranks as `Searcher` does, many times faster, on a bank that holds still."""

    def __init__(self, bank: Bank) -> None:
        self._now = bank.engine.now()
        bank.engine.index.refresh()
        self._sources = SteadySources(bank)
        self._ready: tuple[SearchConfig, Question] | None = None

    def ask(self, query: str, config: SearchConfig) -> list[str]:
        """The document of each chunk in the answer, best first."""
        if self._ready is None or self._ready[0] != config:
            self._ready = (config, prepared(config))
        asked, now = self._ready[1], self._now
        found = run(query, asked.config, self._sources, now, where=asked.at(now), limit=asked.limit)
        return [document_of(hit.memory) for hit in found.hits]
