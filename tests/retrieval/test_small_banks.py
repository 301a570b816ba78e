"""Laws of the absolute scale: what a small bank holds is judged like what a large one holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from skep.filters import Filter
from skep.model import Hit, Memory, Scope
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS, preset
from skep.retrieval.sources import InMemorySources

from .conftest import DIM, NOW, Bag, memory

World = Callable[..., InMemorySources]
DEFAULT = PRESETS["default"]
NEAR, FAR = 0.6, 0.05
"""Cosines of a good paraphrase and of a stranger."""


class Meaning(Bag):
    """An embedder that knows which texts mean the same: those that a test names."""

    def __init__(self, question: str, *same: str) -> None:
        self.cosine = {question: 1.0} | dict.fromkeys(same, NEAR)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        out = np.zeros((len(texts), DIM), dtype=np.float32)
        for place, text in enumerate(texts):
            share = self.cosine.get(text, FAR)
            out[place, 0] = share
            out[place, 1 + hash_of(text)] = (1 - share**2) ** 0.5
        return out


def hash_of(text: str) -> int:
    return sum(text.encode()) % (DIM - 1)


def first(sources: InMemorySources, question: str, **given: object) -> Hit:
    return run(question, preset("default", model=True), sources, NOW, **given).hits[0]  # type: ignore[arg-type]


QUESTION = "How do we ship a new version to customers?"
ANSWER = "Releases go out through the blue pipeline every Tuesday"
STRANGERS = (
    "The new coffee machine stands on the second floor",
    "Customers like the calendar on the wall",
    "The lawn is mown on Fridays",
    "Ana keeps bees behind the barn",
    "The piano was tuned in March",
    "Rain came through the attic window",
    "The bakery closes at six",
    "Ben collects stamps of lighthouses",
    "Soup is served from noon",
    "The harbour froze in January",
    "Two swans nest by the mill",
    "The choir meets in the chapel",
    "Cleo painted her door yellow",
    "A fox crossed the yard",
    "The clock in the hall runs late",
    "Pears are ripe in September",
    "The ferry to the island was cancelled",
    "Dan repaired the fence",
    "The lamp in the cellar flickers",
)


@pytest.mark.parametrize("word", ["version", "ship", "customers"])
def test_in_a_bank_of_twenty_one_common_word_never_beats_the_nearest_meaning(world: World, word: str) -> None:
    accident = f"The {word} of the puppet show was painted green"
    texts = (ANSWER, accident, *STRANGERS[2:])
    sources = world(*texts, embedder=Meaning(QUESTION, ANSWER))

    assert first(sources, QUESTION).memory.text == ANSWER


def test_even_a_word_that_all_others_share_with_the_question_does_not_bury_it(world: World) -> None:
    sources = world(
        ANSWER, *(f"{text}, says the new version" for text in STRANGERS), embedder=Meaning(QUESTION, ANSWER)
    )

    assert first(sources, QUESTION).memory.text == ANSWER


@pytest.mark.parametrize("count", [20, 2000])
def test_a_text_that_holds_every_word_has_the_same_share_of_the_most_however_large_the_bank(
    world: World, count: int
) -> None:
    fillers = [f"Shelf {number} of the archive keeps boxes, folders and maps" for number in range(count - 1)]
    hit = first(
        world("The zebra census counts stripes every fourth spring", *fillers), "zebra census stripes"
    )

    assert hit.signals["words"] == pytest.approx(0.48, abs=0.05)
    assert hit.signals["coverage"] == pytest.approx(1.0)


def test_a_word_that_nobody_knows_lowers_what_the_known_ones_count(world: World) -> None:
    sources = world("The zebra census counts stripes", *STRANGERS)

    whole, part = (
        first(sources, question).signals["words"] for question in ("zebra census", "zebra census quagga")
    )

    assert part < whole


def test_a_score_does_not_depend_on_the_other_candidates(world: World) -> None:
    """A filter that leaves out the best hit changes nothing of the score of the others."""
    sources = world(
        memory(0, "The zebra census counts stripes", tags=("a",)),
        *(memory(1 + at, text, tags=("b",)) for at, text in enumerate(("The census is late", *STRANGERS))),
    )

    def scores(where: Filter) -> dict[str, float]:
        hits = run("zebra census", DEFAULT, sources, NOW, where=where, limit=20).hits
        return {hit.memory.id: hit.score for hit in hits if hit.memory.id != "m-0"}

    whole, filtered = scores(Filter()), scores(Filter(tags=(("b",),)))
    assert len(whole) == 19
    assert whole == pytest.approx({each: filtered[each] for each in whole})


VAIN = (
    "User: {question}\nAssistant: I don't have that in my memory.",
    "User: {question} Assistant: I could not find anything about it.",
    "User: {question}\nAssistant: Sorry, I don't know.",
)


def test_a_session_in_which_nobody_knew_never_stands_above_a_fact(world: World) -> None:
    question = "Which port does the broker listen on?"
    vain = [
        memory(10 + at, text.format(question=question), kind="episode", scope=Scope(session=f"s{at}"))
        for at, text in enumerate(VAIN)
    ]
    facts: list[Memory] = [
        memory(0, "The broker listens on port 1883"),
        memory(1, "The printer is on floor two"),
    ]
    hits = run(question, DEFAULT, world(*facts, *vain), NOW, limit=9).hits

    assert hits[0].memory.id == "m-0"
    assert {hit.memory.id for hit in hits} >= {"m-10", "m-11", "m-12"}
    assert all(hit.signals["unanswered"] == 1.0 for hit in hits if hit.memory.id >= "m-10")


def test_a_session_that_found_the_answer_is_found_by_it(world: World) -> None:
    question = "Which port does the broker listen on?"
    answered = memory(
        0,
        f"User: {question}\nAssistant: I don't know the old one, but it is 1883 now.",
        scope=Scope(session="s"),
    )
    hits = run(question, DEFAULT, world(answered, *STRANGERS), NOW).hits

    assert hits[0].memory.id == "m-0"
    assert "unanswered" not in hits[0].signals
