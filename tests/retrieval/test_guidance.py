"""Memories that say how to answer: standing instructions and preferences."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from skep.embedding.embedder import default_embedder
from skep.retrieval.guidance import guidance, is_standing
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS
from skep.retrieval.sources import InMemorySources

World = Callable[..., InMemorySources]
NOW = 1_750_000_000.0
DEFAULT = PRESETS["default"]
WITHOUT = msgspec.structs.replace(DEFAULT, guidance=0.0)


@pytest.mark.parametrize(
    "text",
    [
        "Always name the time zone when I ask about meetings.",
        "Whenever we talk about money, please give amounts in euro.",
        "From now on, use metric units if I ask for a recipe",
        "Don't show code when the user asks for an overview",
    ],
)
def test_an_order_with_its_occasion_is_a_standing_instruction(text: str) -> None:
    assert is_standing(text)


@pytest.mark.parametrize(
    "text",
    [
        "Never store repository secrets.",
        "I always feel better when it rains.",
        "Maria said she would be there to help John whenever he needs it.",
        "Ana asked when we talk about the budget",
        "Always name the time zone when I ask about meetings. " + "The rest is about other things. " * 10,
    ],
)
def test_what_has_no_occasion_or_is_no_order_or_is_long_is_none(text: str) -> None:
    assert not is_standing(text)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("I prefer trains to planes", 0.2), ("She'd rather walk", 0.2), ("Ana likes trains", 0.0)],
)
def test_a_preference_is_something_liked_better(text: str, counts: float) -> None:
    assert guidance("What would you recommend?", [text], np.zeros(1)).tolist() == [counts]


def test_only_the_nearest_instruction_counts_and_by_how_near_it_is() -> None:
    texts = [
        "Always be brief when I ask about code",
        "Always be kind when I ask about people",
        "Code is read often",
    ]

    assert guidance("How do people meet?", texts, np.array([0.1, 0.5, 0.9])).tolist() == [0.0, 1.0, 0.0]
    assert guidance("How do people meet?", texts, np.array([0.1, 0.0, 0.9])).tolist() == [0.5, 0.0, 0.0]
    assert guidance("How do people meet?", texts, np.array([np.nan, -0.2, 0.9])).tolist() == [0.0, 0.0, 0.0]


def test_preferences_count_where_advice_is_asked() -> None:
    texts = ["I prefer trains", "The train is late"]

    assert guidance("How should I travel?", texts, np.zeros(2)).tolist() == [0.2, 0.0]
    assert guidance("How did I travel?", texts, np.zeros(2)).tolist() == [0.0, 0.0]


def test_the_instruction_for_a_question_comes_up_with_what_answers_it(world: World) -> None:
    places = (
        "oven",
        "roof",
        "harbour",
        "museum",
        "library",
        "station",
        "bakery",
        "market",
        "tunnel",
        "chapel",
        "pier",
        "inn",
    )
    talks = [f"Notes on the {place}, written after the meeting there" for place in places]
    rule = "Always name the time zone when I ask about appointments"
    sources = world(*talks, "The next meeting with Ana is on Friday", rule, embedder=default_embedder())

    def ids(config: object) -> list[str]:
        found = run("When is the next meeting with Ana?", config, sources, NOW, limit=10)  # type: ignore[arg-type]
        return [hit.memory.id for hit in found.hits]

    assert "m-13" not in ids(WITHOUT)
    assert "m-13" in ids(DEFAULT)
    assert ids(DEFAULT)[0] == "m-12"


def test_a_question_that_nothing_says_how_to_answer_has_no_such_signal(world: World) -> None:
    found = run("audit report", DEFAULT, world("The audit report", "A report"), NOW)

    assert all("guidance" not in hit.signals for hit in found.hits)
