from __future__ import annotations

import pytest

from skep.embedding.static import StaticEmbedder
from skep.retrieval.late import late_scores
from skep.retrieval.reading import subject, wanted


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
