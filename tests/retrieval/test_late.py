from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep import runtime
from skep.embedding.static_table import StaticEmbedder
from skep.retrieval import shortlist_features
from skep.retrieval.query import subject, wanted
from skep.retrieval.shortlist_features import Matches, close_together, late_scores, matches, whole_texts


def test_late_interaction_sees_related_words_that_a_search_for_words_misses() -> None:
    scores = late_scores("puppy", ["The dog sleeps", "The invoice is late", ""], StaticEmbedder())

    assert scores[0] > scores[1]
    assert scores[2] == 0.0


def test_late_interaction_with_the_query_itself_is_one() -> None:
    assert [pytest.approx(1.0, abs=1e-3)] == late_scores(
        "rotate the keys", ["rotate the keys"], StaticEmbedder()
    ).tolist()


def test_a_name_at_the_head_is_the_subject() -> None:
    assert subject(["Ana"], ["Ana: I like tea", "I went there with my good old friend Ana"]).tolist() == [
        1.0,
        0.0,
    ]


def test_a_text_with_a_date_can_answer_when() -> None:
    assert wanted("time", ["We met last week", "We met"]).tolist() == [1.0, 0.0]


def test_words_that_stand_together_count_more_than_words_far_apart() -> None:
    filler = " ".join(["The weather stayed mild and the garden was quiet all afternoon."] * 4)
    together = f"{filler} Ana rotated the ledger keys. {filler}"
    apart = (
        f"Ana likes tea. {filler} The ledger is full. {filler} She lost her keys. {filler} Wheels rotated."
    )
    found = matches("Ana rotated ledger keys", [together, apart, ""], StaticEmbedder())
    assert found is not None

    whole, close = whole_texts(found), close_together(found)

    assert whole[0] == pytest.approx(whole[1])
    assert close[0] == pytest.approx(1.0, abs=1e-3)
    assert close[1] < 0.7
    assert close[2] == whole[2] == 0.0


def test_a_stretch_never_runs_over_into_the_next_text() -> None:
    found = matches("ledger keys", ["the ledger", "the keys", "ledger keys"], StaticEmbedder())
    assert found is not None

    close = close_together(found)

    assert close[2] == pytest.approx(1.0, abs=1e-3)
    assert max(close[0], close[1]) < 0.8


def test_nothing_to_compare_gives_no_matches() -> None:
    assert matches("", ["tea"], StaticEmbedder()) is None
    assert matches("tea", [""], StaticEmbedder()) is None


def made(seed: int, rows: int, lengths: Sequence[int]) -> Matches:
    """Matches of as many blocks as the lengths say, one in four of them of the very piece."""
    rng = np.random.default_rng(seed)
    sizes = np.array(lengths, dtype=np.int64)
    there = sizes > 0
    counts = sizes[there]
    best = np.minimum(rng.random((rows, int(counts.sum()))) * 1.3, 1.0).astype(np.float32)
    return Matches(best, np.cumsum(counts) - counts, there, rng.random(rows) + 0.1)


@given(
    st.integers(0, 99), st.integers(1, 40), st.lists(st.integers(0, 6), min_size=1, max_size=12).filter(any)
)
def test_scores_are_the_same_with_and_without_compiled_loops(
    native: Any, seed: int, rows: int, lengths: list[int]
) -> None:
    found = made(seed, rows, lengths)
    for score in (whole_texts, close_together):
        compiled = score(found)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "native", None)
            assert score(found).tobytes() == compiled.tobytes()


def test_weights_are_added_one_after_the_other_in_every_version_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runtime, "native", None)
    found = [made(seed, 12, [1, 3, 2]) for seed in range(20)]
    before = [close_together(each).tolist() for each in found]

    monkeypatch.setattr(
        shortlist_features, "sum", math.fsum, raising=False
    )  # from 3.12 on, `sum` makes up for what is rounded

    assert [close_together(each).tolist() for each in found] == before


def test_wrong_matches_are_refused_before_anything_is_added(native: Any) -> None:
    best, first, _, weights = made(1, 3, [2, 1, 4])
    out, rare = np.empty(3), np.ones(4)
    native.whole_texts(best, first, weights, out)
    native.close_together(best, first, weights, rare, 0.99, out)
    wrong: list[tuple[int, Any]] = [
        (0, best[:, ::2]),
        (0, best[:, :3]),
        (0, best.astype(np.float64)),
        (1, np.array([-1, 2, 3])),
        (1, np.array([0, 2, 2])),
        (1, np.array([0, 2, 7])),
        (2, weights[:2]),
        (-1, out[:2]),
    ]
    for place, value in wrong:
        for call, good in (
            (native.whole_texts, [best, first, weights, out]),
            (native.close_together, [best, first, weights, rare, 0.99, out]),
        ):
            changed: list[Any] = list(good)
            changed[place] = value
            with pytest.raises(ValueError, match=r"\w"):
                call(*changed)
    for few, same in ((rare[:3], 0.99), (rare, "same")):
        with pytest.raises((ValueError, TypeError)):
            native.close_together(best, first, weights, few, same, out)
    for call in (native.whole_texts, native.close_together):
        with pytest.raises(TypeError, match="arguments"):
            call()
