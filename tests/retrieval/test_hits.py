"""Hits carry the signals that explain them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from skep.model import Hit, Memory
from skep.retrieval import pipeline
from skep.retrieval.pipeline import Candidates

COUNT = 8
fraction = st.one_of(st.floats(0, 1), st.sampled_from([0.0, -0.0, float("inf"), 1e-320]))
signals = st.dictionaries(
    st.sampled_from(["words", "semantic", "coverage", "recency", "trust", "usage", "context", "é", "time"]),
    st.lists(fraction, min_size=COUNT, max_size=COUNT),
)
places = st.lists(st.integers(1, 30), min_size=COUNT, max_size=COUNT)
ranks = st.dictionaries(st.sampled_from(["lexical", "semantic", "matched"]), places)
statuses = st.sampled_from(["active", "active", "active", "pending", "superseded"])


def memory(number: int, status: Any = "active", *, stale: bool = False) -> Memory:
    return Memory(f"a-{number}", "fact", f"text {number}", status=status, stale=stale)


def found_of(
    measured: dict[str, Any], ranked: dict[str, Any], at: list[int], outdated: dict[int, int] | None = None
) -> Candidates:
    none = np.zeros(COUNT)
    whole = Candidates(
        rows=np.arange(COUNT) + 100,
        words=none,
        cosine=none,
        created_at=none,
        importance=none,
        spoken=np.zeros(COUNT, bool),
        confidence=none,
        last_evidence_at=none,
        former=np.full(COUNT, -1),
        score=np.linspace(1, 0.3, COUNT),
        signals=measured,
        ranks=ranked,
        outdated=outdated or {},
    )
    return whole.take(at)


def hits_of(found: Candidates, memories: dict[int, Memory], threshold: float = 0.7) -> tuple[Hit, ...]:
    call: Any = SimpleNamespace(
        memories=lambda rows: [memories[row] for row in rows.tolist()],  # pyright: ignore
        config=SimpleNamespace(disagreement=threshold),
    )
    return pipeline._hits(found, call)  # pyright: ignore[reportPrivateUsage]


@given(
    signals,
    ranks,
    st.lists(st.integers(0, COUNT - 1), unique=True),
    st.lists(st.tuples(statuses, st.booleans()), min_size=COUNT, max_size=COUNT),
    st.dictionaries(st.integers(100, 107), st.integers(100, 107), max_size=1),
    st.sampled_from([0.0, 0.5, 0.7, 1.0]),
)
def test_a_hit_shows_every_signal_and_rank_as_a_plain_number(
    measured: dict[str, list[float]],
    ranked: dict[str, list[int]],
    at: list[int],
    states: list[tuple[Any, bool]],
    outdated: dict[int, int],
    threshold: float,
) -> None:
    memories = {100 + i: memory(i, status, stale=stale) for i, (status, stale) in enumerate(states)}
    found = found_of(
        {name: np.array(values) for name, values in measured.items()},
        {name: np.array(values, dtype=np.int64) for name, values in ranked.items()},
        at,
        outdated,
    )

    hits = hits_of(found, memories, threshold)

    assert [hit.memory for hit in hits] == [memories[100 + place] for place in at]
    for place, hit in zip(at, hits, strict=True):
        assert list(hit.signals) == list(measured)
        assert {type(value) for value in hit.signals.values()} <= {float}
        assert {type(value) for value in hit.ranks.values()} <= {int}
        newer = outdated.get(100 + place)
        assert hit.updated_by == (None if newer is None else memories[newer].id)
        assert ("outdated" in hit.flags) is (newer is not None)


def test_a_hit_over_the_threshold_of_disagreement_is_marked_and_the_figure_is_not_shown() -> None:
    odd = np.array([0.0, 0.39, 0.4, 0.41, 0.9, 0.0, 0.0, 1.0])
    found = found_of({"words": np.zeros(8), "disagreement": odd}, {}, list(range(8)))
    hits = hits_of(found, {100 + i: memory(i) for i in range(COUNT)}, 0.4)

    assert [at for at, hit in enumerate(hits) if hit.flags == ("disagreement",)] == [3, 4, 7]
    assert all(list(hit.signals) == ["words"] for hit in hits)


def test_no_two_hits_share_what_a_caller_can_change() -> None:
    found = found_of({"words": np.ones(8)}, {"lexical": np.arange(8)}, [0, 1])
    one, other = hits_of(found, {100: memory(0), 101: memory(1)})

    one.signals["seen"] = 1.0
    one.ranks["seen"] = 1

    assert other.signals == {"words": 1.0}
    assert other.ranks == {"lexical": 1}
    assert list(found.signals) == ["words"]
