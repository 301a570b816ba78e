"""Whose the first hits are, who wrote a memory, and what else belongs there."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from skep.model import Memory, Scope
from skep.retrieval.pipeline import run
from skep.retrieval.query import author
from skep.retrieval.recall_config import PRESETS, RecallConfig
from skep.retrieval.shortlist import thread
from skep.retrieval.shortlist_features import TALK, VOTERS, belonging, home
from skep.retrieval.sources import InMemorySources, Scopes

from .conftest import memory

World = Callable[..., InMemorySources]
NOW = 1_750_000_000.0
WORDS = RecallConfig(weights={"lexical": 1.0}, k_vectors=0, coverage=0.1)


def keys(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def scopes(place: np.ndarray, talk: np.ndarray | None = None) -> Scopes:
    return Scopes(place, np.zeros(len(place), dtype=np.uint64) if talk is None else talk)


def test_nobody_votes_for_itself() -> None:
    assert belonging(keys(1, 2), np.array([2.0, 2.0])).tolist() == [0.0, 0.0]
    assert belonging(keys(1, 1, 2), np.array([2.0, 2.0, 2.0])).tolist() == [0.5, 0.5, 0.0]


def test_only_the_first_hits_vote_and_the_best_count_most() -> None:
    many = keys(*[1] * VOTERS, *[2] * 20)
    assert belonging(many, np.ones(VOTERS + 20))[VOTERS:].tolist() == [0.0] * 20

    share = belonging(keys(1, 2, 1, 2), np.array([4.0, 2.0, 0.1, 0.1]))
    assert share[2] > 0.75
    assert share[3] < 0.25


def test_what_is_for_everybody_is_at_home_everywhere_and_has_no_vote() -> None:
    share = belonging(keys(0, 1, 1, 2), np.array([9.0, 2.0, 2.0, 2.0]))

    assert share[0] == share[1] == share[2] == pytest.approx(1 / 2)
    assert share[3] == 0.0


def test_what_one_has_is_not_held_against_it_where_the_rest_is_for_everybody() -> None:
    assert belonging(keys(1, 0, 0), np.ones(3)).tolist() == [0.0, 0.0, 0.0]
    assert not home(scopes(keys(1, 0, 1, 0), keys(7, 0, 7, 0)), np.ones(4)).any()


def test_scores_below_zero_do_no_harm() -> None:
    assert belonging(keys(1, 2), np.array([-1.0, -2.0])).tolist() == [0.0, 0.0]


def test_where_all_belong_to_one_there_is_nothing_to_tell() -> None:
    assert not home(scopes(keys(5, 5, 5), keys(9, 9, 9)), np.ones(3)).any()
    assert not home(scopes(keys()), np.zeros(0)).any()


def test_a_session_counts_less_than_a_project_and_nothing_for_questions_over_several() -> None:
    talks = scopes(keys(1, 1, 1, 1), keys(7, 7, 8, 8))
    score = np.array([3.0, 3.0, 1.0, 1.0])

    assert home(talks, score).tolist() == (TALK * belonging(talks.talk, score)).tolist()
    assert not home(talks, score, over_all=True).any()
    assert home(scopes(talks.talk), score, over_all=True).tolist() == belonging(talks.talk, score).tolist()


def at(number: int, text: str, project: str | None, session: str | None = None) -> Memory:
    return memory(number, text, scope=Scope(project=project, session=session))


def ids(question: str, sources: InMemorySources, config: RecallConfig) -> list[str]:
    return [hit.memory.id for hit in run(question, config, sources, NOW, limit=9).hits]


def test_a_like_worded_memory_of_another_project_gives_way(world: World) -> None:
    sources = world(
        at(0, "The kiln budget was set by the council", "pottery"),
        at(1, "The kiln of the council is fired on Mondays", "pottery"),
        at(2, "The budget was set in spring", "bridge"),
        at(3, "The budget was set at length, in the second of many long meetings", "pottery"),
    )
    question = "Who set the budget of the council's kiln?"

    assert ids(question, sources, WORDS) == ["m-0", "m-1", "m-2", "m-3"]
    moved = msgspec.structs.replace(WORDS, home=1.0)
    assert ids(question, sources, moved) == ["m-0", "m-1", "m-3", "m-2"]


def test_the_trace_says_so_and_one_home_leaves_no_trace(world: World) -> None:
    two = world(*(at(i, f"audit of shelf {i}", "a" if i else "b") for i in range(3)))
    one = world(*(at(i, f"audit of shelf {i}", "a") for i in range(3)))

    def stages(sources: InMemorySources) -> list[str]:
        return [line.name for line in run("audit", PRESETS["default"], sources, NOW, explain=True).trace]

    assert "home" in stages(two)
    assert "home" not in stages(one)


def test_an_agent_is_named_word_for_word() -> None:
    authors = ["storage", "paper_a", "paper_b", "networking", ""]

    assert author("How does Paper A's network work?", authors).tolist() == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert author("Which paper is about tapes?", authors).tolist() == [0.0] * 5
    assert author("What of storage?", ["storage"] * 3).tolist() == [0.0] * 3
    assert author("", authors).tolist() == [0.0] * 5
    assert author("what ?", ["?!", "ops"]).tolist() == [0.0, 0.0]


def test_what_the_named_agent_wrote_comes_first(world: World) -> None:
    sources = world(
        memory(0, "The retention of backups is ten days", agent="compute"),
        memory(1, "The retention of backups is thirty days", agent="storage"),
        memory(2, "Lunch is at noon", agent="storage"),
    )
    question = "What retention of backups does storage have?"

    def found(weight: float) -> dict[str, float]:
        config = msgspec.structs.replace(WORDS, author=weight)
        return {hit.memory.id: hit.score for hit in run(question, config, sources, NOW).hits}

    before, after = found(0.0), found(0.5)
    assert after["m-1"] - before["m-1"] == pytest.approx(0.5)
    assert after["m-0"] == pytest.approx(before["m-0"])
    assert next(iter(after)) == "m-1"


def test_a_thread_draws_up_only_what_lies_behind() -> None:
    rows, before = np.array([4, 9, 5]), np.array([9, -1, 4])

    assert thread(rows, before, np.array([4.0, 3.0, 2.0])).tolist() == [0.0, 0.0, 0.5]
    assert thread(rows, np.full(3, -1), np.array([4.0, 3.0, 2.0])).tolist() == [0.0, 0.0, 0.0]
    assert thread(rows, before, np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_the_reply_follows_what_it_replies_to(world: World) -> None:
    told = [("The audit of the kiln found a crack", 0), ("It will be mended by then, they say", 60)]
    talk = [at(i, text, "p", "s") for i, (text, _) in enumerate(told)]
    talk = [
        msgspec.structs.replace(m, created_at=NOW - 9000 + s) for m, (_, s) in zip(talk, told, strict=True)
    ]
    other = at(2, "They say by then it rains a lot, which matters little to anybody in the valley", "p", "t")
    sources = world(*talk, other)
    question = "audit of the kiln, and what do they say by then of the valley"

    assert ids(question, sources, WORDS) == ["m-0", "m-2", "m-1"]
    assert ids(question, sources, msgspec.structs.replace(WORDS, thread=0.9)) == ["m-0", "m-2", "m-1"]
    threaded = msgspec.structs.replace(WORDS, thread=0.9, context=0.001)
    assert ids(question, sources, threaded) == ["m-0", "m-1", "m-2"]
    pages = world(*(msgspec.structs.replace(each, scope=Scope(project="p")) for each in (*talk, other)))
    assert ids(question, pages, threaded) == ["m-0", "m-2", "m-1"]
    drawn = run(question, threaded, sources, NOW, explain=True)
    assert [line.note for line in drawn.trace if line.name == "thread"] == ["1 follow a better one"]
