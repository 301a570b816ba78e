"""Turns of a conversation: found by their neighbours, by who speaks, and by what they follow."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from skep.model import Memory, Scope
from skep.retrieval.conversation import AFTER, BEFORE, FADE, echo, filled, thread, voices
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS
from skep.retrieval.sources import InMemorySources

from .conftest import NOW, memory

World = Callable[..., InMemorySources]
DEFAULT = PRESETS["default"]
ALONE = msgspec.structs.replace(DEFAULT, conversation=False)


def turns(*texts: str, session: str | None = "talk", first: int = 0) -> list[Memory]:
    """Turns of one session, a minute apart."""
    return [
        memory(
            first + at,
            text,
            kind="episode",
            scope=Scope(project="yard", session=session),
            created_at=NOW - 9000 + 60 * (first + at),
        )
        for at, text in enumerate(texts)
    ]


def ids(sources: InMemorySources, question: str, config: object = DEFAULT) -> list[str]:
    return [hit.memory.id for hit in run(question, config, sources, NOW, limit=20).hits]  # type: ignore[arg-type]


OTHERS = (
    "Ana: The weather was lovely on the pier",
    "Ben: We had soup and bread at the inn",
    "Ana: My bicycle needs a new chain",
    "Ben: The museum opens at ten",
    "Ana: I finished the book about tides",
    "Ben: Lend it to me when you can",
)


def test_an_answer_that_repeats_no_word_of_its_question_is_found_beside_it(world: World) -> None:
    talk = turns(
        *OTHERS, "Ana: Where did the ledger migration get stuck?", "Ben: Two locks nobody released.", *OTHERS
    )
    question = "Where did the ledger migration get stuck?"

    assert ids(world(*talk), question)[:2] == ["m-6", "m-7"]
    assert ids(world(*talk), question, ALONE)[1] != "m-7"


def test_memories_without_a_session_keep_their_score_beside_a_conversation(world: World) -> None:
    facts = [
        memory(50 + at, text) for at, text in enumerate(("The ledger migration took four hours", *OTHERS))
    ]
    sources = world(*turns(*OTHERS), *facts)

    def scores(config: object) -> dict[str, float]:
        hits = run("How long did the ledger migration take?", config, sources, NOW, limit=20).hits  # type: ignore[arg-type]
        return {hit.memory.id: hit.score for hit in hits if hit.memory.scope.session is None}

    assert scores(DEFAULT) == pytest.approx(scores(ALONE))


def test_what_the_named_speaker_said_comes_before_what_others_said_in_the_same_words(world: World) -> None:
    talk = turns(*OTHERS, "Ana: I will paint the fence green", "Ben: I will paint the fence green", *OTHERS)
    sources = world(*talk)

    assert ids(sources, "What will Ana paint?")[0] == "m-6"
    assert ids(sources, "What will Ben paint?")[0] == "m-7"


def test_the_name_of_a_speaker_is_a_wish_and_no_word_to_match(world: World) -> None:
    """Ana's own turns do not say "Ana"; the turns of others, which call her, do."""
    talk = turns(*OTHERS, "Ben: Ana, Ana, are you there, Ana?", "Ana: The kiln is broken again", *OTHERS)

    assert ids(world(*talk), "What did Ana say is broken?")[0] == "m-7"


def test_a_question_that_names_all_speakers_prefers_none(world: World) -> None:
    talk = turns(*OTHERS, "Ana: I will paint the fence green", "Ben: I will paint the fence green", *OTHERS)
    hits = run("What will Ana and Ben paint?", DEFAULT, world(*talk), NOW, limit=20).hits

    assert all("speaker" not in hit.signals for hit in hits)


def test_a_turn_of_another_session_is_no_neighbour(world: World) -> None:
    asked = "Where did the ledger migration get stuck?"
    here = turns(asked)
    there = turns("Two locks nobody released.", session="other", first=1)
    hits = run(asked, DEFAULT, world(*here, *there), NOW).hits

    assert [hit.memory.id for hit in hits] == ["m-0", "m-1"]
    assert hits[1].signals["context"] == 0.0


def test_a_question_word_counts_once_by_its_best_evidence() -> None:
    own = np.array([[2.0, 0.0]])
    near = np.array([[[9.0, 0.0], [1.0, 4.0], [0.0, 5.0], [0.0, 0.0]]])

    assert filled(own, near).tolist() == [
        [pytest.approx(9 * BEFORE * FADE), pytest.approx(max(4 * BEFORE, 5 * AFTER))]
    ]


def test_a_thread_draws_up_only_what_lies_behind() -> None:
    rows, before = np.array([4, 9, 5]), np.array([9, -1, 4])

    assert thread(rows, before, np.array([4.0, 3.0, 2.0])).tolist() == [0.0, 0.0, 0.5]
    assert thread(rows, np.full(3, -1), np.array([4.0, 3.0, 2.0])).tolist() == [0.0, 0.0, 0.0]
    assert thread(rows, before, np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_a_word_of_one_hit_alone_has_no_say() -> None:
    said = voices(["the kiln and the clay", "the clay and the glaze"], np.array([1.0, 0.9]), ["pot"])

    assert said == {"clai": 1.9}


def test_words_of_the_question_and_stop_words_are_no_echo() -> None:
    assert voices(["the pot", "the pot"], np.ones(2), ["pot"]) == {}


def test_a_first_hit_is_not_heard_by_itself() -> None:
    assert echo(np.array([[2.0], [0.0], [2.0]]), np.array([1.0, 1.0])).tolist() == [0.0, 0.0, 1.0]


def test_nothing_held_is_nothing_heard() -> None:
    assert echo(np.zeros((3, 2)), np.ones(2)).tolist() == [0.0, 0.0, 0.0]
