from __future__ import annotations

import pytest

from skep.embedding.static_table import StaticEmbedder
from skep.retrieval.query import subject, wanted
from skep.retrieval.shortlist_features import close_together, late_scores, matches, whole_texts


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
