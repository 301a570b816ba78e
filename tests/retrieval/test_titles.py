"""Titles: a memory headed with what the query names comes first."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from skep.embedding.embedder import default_embedder
from skep.model import Memory
from skep.retrieval.guidance import names, title, titles_named
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS, RecallConfig
from skep.retrieval.sources import InMemorySources

NOW = 1_700_000_000.0
DAY = 86_400.0
DEFAULT = PRESETS["default"]
PLAIN = replace(DEFAULT, title=0.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Blue Heron. A boat built in Cowes.", " blue heron "),
        ("Blue Heron (boat). Built in Cowes.", " blue heron "),
        ("Blue Heron: built in Cowes", " blue heron "),
        ("Blue Heron - built in Cowes", " blue heron "),
        ("Blue Heron\nBuilt in Cowes", " blue heron "),
        ("Edward J. Hale. A painter.", " edward j hale "),
    ],
)
def test_what_stands_before_a_stop_a_colon_a_dash_or_a_line_is_the_title(text: str, expected: str) -> None:
    assert title(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Blue Heron.",  # nothing follows, so it heads nothing
        "Blue Heron was built in Cowes",
        "It is. Really.",  # no word that means anything
        "1984. A year.",
        "We looked at nine boats in Cowes before we bought one. It was blue.",
    ],
)
def test_a_sentence_a_number_or_a_heading_alone_is_no_title(text: str) -> None:
    assert title(text) == ""


def test_a_title_must_stand_in_the_query_word_for_word() -> None:
    heads = [names("Blue Heron: a boat"), names("Heron Blue: a paint"), names("Blue Herons at sea: a song")]
    assert titles_named("Who built the blue heron?", heads).tolist() == [1.0, 0.0, 0.0]


def test_a_title_may_hold_several_names_of_one_thing() -> None:
    heads = [
        names("kubernetes; k8s; kube\nServices run on EKS"),
        names("turbo\nThe monorepo is built with it"),
    ]
    assert titles_named("what is our k8s deploy story?", heads).tolist() == [1.0, 0.0]
    assert titles_named("how does kube schedule pods?", heads).tolist() == [1.0, 0.0]


def test_a_title_that_several_have_tells_less() -> None:
    assert titles_named(
        "What did Ana say?", [names("Ana: yes"), names("Ana: no"), names("Bea: no")]
    ).tolist() == [
        0.5,
        0.5,
        0.0,
    ]


def _order(texts: Sequence[str], query: str, config: RecallConfig = DEFAULT) -> list[int]:
    memories = [
        Memory(id=f"m{at}", kind="fact", text=text, created_at=NOW - DAY * (len(texts) - at))
        for at, text in enumerate(texts)
    ]
    sources = InMemorySources(memories, default_embedder())
    found = run(query, config, sources, NOW, limit=10)
    return [int(hit.memory.id[1:]) for hit in found.hits]


def test_the_memory_about_a_thing_comes_before_those_that_mention_it() -> None:
    texts = [
        "Larkspur. A ferry company on the lake, founded by two sisters.",
        "Larkspur timetable. The ferry company Larkspur has ferries every hour, and the ferry company has a lake pass.",
        "Harbour. Ferries of every ferry company on the lake land here.",
    ]
    query = "Which ferry company on the lake is Larkspur?"
    assert _order(texts, query, PLAIN)[0] == 1
    assert _order(texts, query)[0] == 0


def test_a_newer_memory_about_something_else_does_not_take_the_place_of_the_one_titles_named() -> None:
    texts = [
        "Tamsin Reed. Tennis player from Leeds, plays left-handed.",
        "Oscar Reed. Tennis player from York, plays with Tamsin left-handed.",
    ]
    assert _order(texts, "Where is the tennis player Tamsin Reed from?")[0] == 0
