"""The values that engines are given. Imports nothing but `array`, so that cold starts stay honest."""

from __future__ import annotations

from array import array


class Row:
    """One memory: an id, a text, its vector and two filter fields."""

    __slots__ = ("id", "project", "team", "text", "vector")

    def __init__(self, id: str, text: str, vector: array[float], team: str, project: str) -> None:
        self.id = id
        self.text = text
        self.vector = vector
        self.team = team
        """One of ten values: a filter on it keeps 10 % of the rows."""
        self.project = project
        """One of a hundred values: a filter on it keeps 1 %."""


class Query:
    """One question: its words, its vector, and the filter values it may be narrowed to."""

    __slots__ = ("id", "project", "question", "team", "text", "vector")

    def __init__(
        self, id: str, text: str, question: str, vector: array[float], team: str, project: str
    ) -> None:
        self.id = id
        self.text = text
        """Content words only."""
        self.question = question
        """The same words among function words, as a person would ask."""
        self.vector = vector
        self.team = team
        self.project = project


Where = tuple[str, str] | None
"""A field (`team` or `project`) and the value it must have."""
Id = str | int
"""What an engine calls a row; `contract.Engine.row_id` says which row that is."""
Answer = list[tuple[Id, str]]
"""Ids and texts, best first. The text is empty where only ids were asked for."""

How = str
"""`synced`, `unsynced` or `checked`; see `contract.Engine.write`."""

CANDIDATES = 50
"""How many each signal contributes to a hybrid search."""
RRF_K = 60


class NotOfferedError(LookupError):
    """The engine does not do this; anything else that goes wrong is a failure."""


def refuse(how: How, *known: str) -> None:
    """NotOfferedError for a kind of write that the engine does not know."""
    if how not in known:
        raise NotOfferedError(f"knows no {how} write")


class Plain:
    """For engines whose default search is not more than the kinds measured already."""

    fusion: str = "listed"
    lengths: str = "all"
    drops_function_words: bool = False

    def row_id(self, id: Id) -> str:
        """Rows keep their ids."""
        return str(id)

    def flush(self) -> None:
        """Nothing is held back: a touch is written when it returns."""

    def default(self, query: Query, k: int) -> Answer:
        """Nothing to measure."""
        del query, k
        raise NotOfferedError("has no search of its own beyond those measured")

    def index(self, kind: str, query: Query) -> Answer:
        """Nothing to measure."""
        del kind, query
        raise NotOfferedError("its index and its store are not asked apart")


def fuse(*rankings: list[str], k: int = RRF_K) -> list[str]:
    """Reciprocal rank fusion, for engines that bring none of their own."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, key in enumerate(ranking, 1):
            scores[key] = scores.get(key, 0.0) + 1.0 / (k + rank)
    return sorted(scores, key=lambda key: -scores[key])


def any_word(text: str) -> str:
    """The words of a query, each once, as an FTS5 expression that any of them satisfies."""
    return " OR ".join(f'"{word}"' for word in dict.fromkeys(text.split()))
