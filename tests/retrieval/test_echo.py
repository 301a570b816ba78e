"""Words that the first hits share, and who else holds them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS
from skep.retrieval.shortlist_features import WORDS, echo, voices
from skep.retrieval.sources import InMemorySources

World = Callable[..., InMemorySources]
NOW = 1_750_000_000.0
PLAIN = msgspec.structs.replace(
    PRESETS["default"],
    **dict.fromkeys(
        ("echo", "late", "close", "relative_floor", "short_floor", "brief_floor", "meaning_floor"), 0.0
    ),
)


def test_a_word_of_one_hit_alone_has_no_say() -> None:
    said = voices(["the kiln and the clay", "the clay and the glaze"], np.array([1.0, 0.9]), ["pot"])

    assert said == {"clai": 1.9}


def test_words_of_the_query_and_stop_words_are_no_echo() -> None:
    assert voices(["the pot", "the pot"], np.ones(2), ["pot"]) == {}


def test_a_first_hit_is_not_heard_by_itself() -> None:
    heard = echo(np.array([[2.0], [0.0], [2.0]]), np.array([1.0, 1.0]))

    assert heard.tolist() == [0.0, 0.0, 1.0]


def test_nothing_held_is_nothing_heard() -> None:
    assert echo(np.zeros((3, 2)), np.ones(2)).tolist() == [0.0, 0.0, 0.0]


def test_a_memory_that_shares_the_words_of_the_answers_is_lifted(world: World) -> None:
    sources = world(
        "Quarterly audit: kiln, glaze and clay were counted by the auditors",
        "Quarterly audit: the kiln, its glaze and all clay in store",
        "Audit notes on parking and lunch for everyone",
        "A shelf of clay, glaze and kiln bricks",
    )

    def ids(weight: float) -> list[str]:
        config = msgspec.structs.replace(PLAIN, echo=weight)
        return [hit.memory.id for hit in run("quarterly audit", config, sources, NOW, limit=4).hits]

    assert ids(0.0) == ["m-1", "m-0", "m-2", "m-3"]
    assert ids(1.0) == ["m-1", "m-0", "m-3", "m-2"]


def test_the_trace_names_the_words(world: World) -> None:
    sources = world("audit of kiln and clay", "audit of clay in the kiln", "audit of lunch")
    found = run("audit", PRESETS["default"], sources, NOW, explain=True)

    (line,) = [stage for stage in found.trace if stage.name == "echo"]
    assert sorted(line.note.split()) == ["clai", "kiln"]
    assert len(line.note.split()) <= WORDS
