from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pytest

from skep.filters import Filter
from skep.model import Link, Scope
from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS, Expand, RecallConfig
from skep.retrieval.score import LEVELS
from skep.retrieval.sources import InMemorySources

from .conftest import DAY, NOW, Bag, memory

World = Callable[..., InMemorySources]
TEXTS = (
    "The scheduler retries a job three times",
    "Backups run every night at two",
    "The parser lives in foo_bar.py",
    "Deploys need a green pipeline",
    "Retries of a job wait ten seconds",
)


def found(sources: InMemorySources, query: str, preset: str = "default", **more: object) -> list[str]:
    config = msgspec.structs.replace(PRESETS[preset], **more)
    return [hit.memory.id for hit in run(query, config, sources, NOW, limit=5)]


class Blind(Bag):
    """An embedder that puts everything in the same place."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.tile(np.eye(1, 64, dtype=np.float32), (len(texts), 1))


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "semantic"])
def test_every_preset_finds_what_shares_the_words(world: World, preset: str) -> None:
    assert found(world(*TEXTS), "when do backups run at night", preset)[0] == "m-1"


@pytest.mark.parametrize("field", ["k_words", "k_vectors", "reach", "shortlist", "max_results"])
@pytest.mark.parametrize("least", [1, 2])
def test_every_stage_can_be_as_short_as_it_may_be(world: World, field: str, least: int) -> None:
    copies = [f"Backups of host {name} run at night" for name in ("ada", "bob", "cyd", "dan", "eve", "fay")]

    assert found(world(*copies), "when do backups run", **{field: least})


@pytest.mark.parametrize("preset", ["default", "hybrid", "rrf"])
def test_an_exact_identifier_surfaces_even_when_the_embedding_is_blind(world: World, preset: str) -> None:
    assert found(world(*TEXTS, embedder=Blind()), "foo_bar.py", preset)[0] == "m-2"


def test_hybrid_with_only_the_cosine_weight_equals_semantic(world: World) -> None:
    sources = world(*TEXTS)

    for query in ("job retries", "green deploys", "parser"):
        alone = found(sources, query, "hybrid", weights={"semantic": 0.55}, k_words=0)
        assert alone == found(sources, query, "semantic")


def test_of_two_equal_memories_the_newer_ranks_first(world: World) -> None:
    older = memory(0, "The build takes nine minutes", created_at=NOW - 9 * DAY)
    newer = memory(1, "The build takes nine minutes", created_at=NOW - DAY)

    for preset in PRESETS:
        if preset != "stream":
            assert found(world(older, newer), "how long does the build take", preset)[0] == "m-1"


def test_a_word_of_the_neighbour_helps_a_turn_that_leaves_it_out(world: World) -> None:
    def turn(number: int, text: str, scope: Scope, at: float) -> object:
        return memory(number, text, scope=scope, created_at=at, kind="episode")

    ours, theirs = Scope(project="p", session="1"), Scope(project="p", session="2")
    sources = world(
        turn(0, "Did the ledger migration finish well?", ours, NOW - 60),
        turn(1, "It took four hours", ours, NOW - 30),
        turn(2, "It took two hours", theirs, NOW - 20),
    )
    asked = "ledger migration: how many hours"

    order = found(sources, asked)
    assert order.index("m-1") < order.index("m-2")
    assert found(sources, asked, conversation=False) == ["m-0", "m-2", "m-1"]


@pytest.mark.parametrize("bar", ["weak", "likely", "strong"])
def test_a_bar_withholds_what_lies_below_it_and_says_how_many(world: World, bar: str) -> None:
    config = msgspec.structs.replace(PRESETS["default"], bar=bar)
    whole = run("job retries", PRESETS["default"], world(*TEXTS), NOW)
    answer = run("job retries", config, world(*TEXTS), NOW)

    kept = [hit for hit in whole if LEVELS.index(hit.level) >= LEVELS.index(bar)]
    assert [hit.memory.id for hit in answer] == [hit.memory.id for hit in kept]
    withheld = len(whole) - len(kept)
    assert answer.reason == (f"{withheld} below the bar {bar!r}" if withheld else "")


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_question_that_nothing_answers_still_gets_the_nearest(world: World, preset: str) -> None:
    answer = run("quarterly zebra census", PRESETS[preset], world(*TEXTS), NOW)

    assert answer.hits
    assert answer.reason == ""


RETRIES = (
    "The scheduler retries a failed job three times",
    "Ana wrote the scheduler",
    "Backups run every night at two",
    "A failed job is reported to Ana",
)


def test_a_brief_question_in_two_parts_is_answered_in_both(world: World) -> None:
    texts = ("The thrush sings in the pear tree", "Rex sleeps under the stairs", "Ida sleeps by the window")
    sources = world(*texts, "The thrush eats snails", *RETRIES)

    assert {"m-0", "m-1", "m-2"} <= set(found(sources, "who sings or sleeps"))


def test_what_has_no_vector_yet_is_found_by_its_words(world: World) -> None:
    class Late(Bag):
        def embed(self, texts: Sequence[str]) -> np.ndarray:
            return np.array([super(Late, self).embed([text])[0] * (text != RETRIES[1]) for text in texts])

    assert found(world(*RETRIES, embedder=Late()), "who wrote the scheduler")[0] == "m-1"


def test_what_only_stands_beside_an_answer_is_lifted_in_a_conversation_alone(world: World) -> None:
    def memories(session: str | None) -> InMemorySources:
        texts = ("What did the audit of the harbour cranes find?", "Two bolts, both replaced.", *RETRIES)
        scope = Scope(project="yard", session=session)
        return world(*(memory(number, text, scope=scope) for number, text in enumerate(texts)))

    asked = "what did the audit of the harbour cranes find"

    assert found(memories("talk"), asked)[:2] == ["m-0", "m-1"]
    assert found(memories(None), asked) == found(memories(None), asked, conversation=False)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_an_empty_bank_and_a_filter_that_admits_nothing_say_so(world: World, preset: str) -> None:
    empty = run("anything", PRESETS[preset], world(), NOW)
    filtered = run("backups", PRESETS[preset], world(*TEXTS), NOW, where=Filter(tags=(("none",),)))

    assert (len(empty), empty.reason) == (0, "nothing is stored that the filters admit")
    assert (len(filtered), filtered.reason) == (0, "nothing is stored that the filters admit")


def test_without_an_embedder_a_question_in_other_words_says_why_it_finds_nothing(world: World) -> None:
    answer = run("zebra", PRESETS["default"], world(*TEXTS, embedder=None), NOW)

    assert (len(answer), answer.reason) == (
        0,
        "no memory that the filters admit shares a word with the question",
    )


def test_the_same_question_gives_the_same_answer(world: World) -> None:
    sources = world(*TEXTS, *TEXTS)

    assert found(sources, "job retries") == found(sources, "job retries")


def test_filters_apply_to_words_and_vectors_alike(world: World) -> None:
    sources = world(
        memory(0, "Backups run nightly", tags=("ops",)),
        memory(1, "Backups run weekly", tags=("dev",)),
    )

    for preset in PRESETS:
        hits = run("backups", PRESETS[preset], sources, NOW, where=Filter(tags=(("dev",),)))
        assert [hit.memory.id for hit in hits] == ["m-1"]


def test_a_named_time_lifts_the_memories_of_that_time(world: World) -> None:
    sources = world(
        memory(0, "Release notes were sent to all", created_at=NOW - 40 * DAY),
        memory(1, "Release notes were sent to all users", created_at=NOW - 400 * DAY),
    )
    asked = "release notes sent in May 2024"

    assert found(sources, asked, temporal="boost", temporal_boost=0.5)[0] == "m-1"
    assert found(sources, asked, temporal="filter") == ["m-1"]


def test_a_question_about_a_time_alone_is_answered_by_whatever_is_of_that_time(world: World) -> None:
    texts = (
        "Rewrote the importer in Rust",
        "Hired Ana for the billing team",
        "Moved the office to the harbour",
    )
    said = [
        memory(number, text, created_at=NOW - age * DAY)
        for number, (text, age) in enumerate(zip(texts, (1, 1, 90), strict=True))
    ]
    bank = world(*said)

    for asked in ("what did we do yesterday?", "yesterday", "What's new since yesterday?"):
        answer = run(asked, PRESETS["default"], bank, NOW, explain=True)
        assert sorted(hit.memory.id for hit in answer.hits[:2]) == ["m-0", "m-1"]
        assert any(stage.name == "time" for stage in answer.trace)
    strict = msgspec.structs.replace(PRESETS["default"], temporal="filter")
    for times, there in (((100, 0), ["m-0", "m-1"]), ((100, 2), []), ((1, 0), ["m-0", "m-1"]), ((0, -1), [])):
        since, until = (NOW - days * DAY for days in times)
        answer = run("yesterday", strict, bank, NOW, where=Filter(since=since, until=until))
        assert sorted(hit.memory.id for hit in answer) == there, "of that time, and of the time of the call"


def test_memories_of_too_little_confidence_stay_out(world: World) -> None:
    sources = world(memory(0, "Use ruff", confidence=0.2), memory(1, "Use ruff often", confidence=0.45))

    assert found(sources, "ruff") == ["m-1"]
    assert found(sources, "ruff", "stream") == []


def test_the_reranker_has_the_last_word_on_the_short_list(world: World) -> None:
    def longest(query: str, texts: Sequence[str]) -> list[float]:
        return [float(len(text)) for text in texts]

    answer = run("job", PRESETS["hybrid"], world(*TEXTS), NOW, reranker=longest, limit=1)

    assert max(TEXTS, key=len) == answer[0].memory.text


MANY = tuple(f"The nightly backup number {number} was checked" for number in range(150))


@pytest.mark.parametrize("preset", ["semantic", "hybrid", "default"])
def test_as_many_hits_as_are_asked_for_come_where_there_are_as_many(world: World, preset: str) -> None:
    """The candidates and the short list of a preset are fewer than these."""
    answer = run("the nightly backup that was checked", PRESETS[preset], world(*MANY), NOW, limit=140)

    assert len(answer.hits) == 140


def test_every_hit_that_is_asked_for_is_judged_alike(world: World) -> None:
    asked = "the nightly backup that was checked"
    answer = run(asked, PRESETS["default"], world(*MANY), NOW, limit=140)

    assert len(answer.hits) == 140
    assert {"coverage" in hit.signals for hit in answer} == {True}


def test_a_reranker_reads_no_more_texts_than_the_short_list_has(world: World) -> None:
    seen: list[int] = []

    def count(_query: str, texts: Sequence[str]) -> list[float]:
        seen.append(len(texts))
        return [1.0] * len(texts)

    config = msgspec.structs.replace(PRESETS["hybrid"], shortlist=20)
    run("the nightly backup", config, world(*MANY), NOW, limit=60, reranker=count)

    assert seen == [20]


def test_links_bring_their_memories_with_a_decayed_score(world: World) -> None:
    sources = world(*TEXTS, links=[Link(src="m-1", dst="m-3")])
    config = msgspec.structs.replace(PRESETS["hybrid"], expand=Expand(decay=0.5))

    hits = run("nightly backups at two", config, sources, NOW, limit=1).hits

    assert [hit.memory.id for hit in hits] == ["m-1", "m-3"]
    assert hits[1].score == pytest.approx(hits[0].score / 2)
    assert hits[1].flags == ("expanded",)


def test_without_an_embedder_hive_counts_matched_terms(world: World) -> None:
    hits = run("scheduler retries job", PRESETS["hive"], world(*TEXTS, embedder=None), NOW).hits

    assert (hits[0].memory.id, hits[0].signals["matched"]) == ("m-0", 3.0)
    assert hits[0].score == pytest.approx(3 + 0.01 * hits[0].signals["confidence"])


def test_matched_terms_of_what_was_replaced_count_for_what_replaced_it(world: World) -> None:
    old = memory(0, "the scheduler retries a failed job", status="superseded", superseded_by="m-1")
    bank = world(
        old, memory(1, "workers take care of that"), memory(2, "a job for the tailor"), embedder=None
    )
    config = msgspec.structs.replace(PRESETS["hive"], updates=True)

    hits = run("scheduler retries job", config, bank, NOW).hits

    assert [(hit.memory.id, hit.signals["matched"]) for hit in hits] == [("m-1", 3.0), ("m-2", 1.0)]
    assert hits[0].replaced == "m-0"


def test_stream_takes_what_is_surer_than_half(world: World) -> None:
    sources = world(
        memory(0, "Deploys need a green pipeline", confidence=0.5), memory(1, "Backups run nightly")
    )

    assert found(sources, "green pipeline for deploys", "stream") == ["m-1"]


def test_stream_keeps_one_of_near_copies(world: World) -> None:
    sources = world("Deploys need a green pipeline", "Deploys need a green pipeline!", "Backups run nightly")

    assert sorted(found(sources, "green pipeline for deploys", "stream")) == ["m-0", "m-2"]


def test_a_hit_explains_itself_and_the_trace_tells_what_was_cut(world: World) -> None:
    answer = run("job retries", PRESETS["default"], world(*TEXTS), NOW, limit=1, explain=True)

    assert "words" in answer[0].why()
    assert {"lexical", "semantic"} == set(answer[0].ranks)
    assert answer.trace[0].name == "candidates"
    assert answer.trace[-1].name == "limit"
    assert answer.trace[-1].kept == 1
    assert run("job retries", PRESETS["default"], world(*TEXTS), NOW).trace == ()


@pytest.mark.parametrize(
    ("asked", "preset", "more", "by"),
    [
        ("the nightly backup", "semantic", {}, {"semantic"}),
        ("the nightly backup", "hybrid", {"k_vectors": 0, "weights": {"lexical": 1.0}}, {"lexical"}),
        ("zebra", "hybrid", {}, {"semantic"}),
    ],
)
def test_words_and_meaning_disagree_only_where_both_were_looked_at(
    world: World, asked: str, preset: str, more: dict[str, object], by: set[str]
) -> None:
    config = msgspec.structs.replace(PRESETS[preset], **more)
    answer = run(asked, config, world(*MANY), NOW, limit=20)

    assert len(answer.hits) == 20
    assert [(hit.flags, set(hit.ranks)) for hit in answer] == [((), by)] * 20


def test_pending_and_stale_memories_are_flagged(world: World) -> None:
    sources = world(memory(0, "Use ruff", status="pending"), memory(1, "Use ruff weekly", stale=True))

    flags = {hit.memory.id: hit.flags for hit in run("ruff", PRESETS["hybrid"], sources, NOW)}

    assert "pending" in flags["m-0"]
    assert "stale" in flags["m-1"]


def test_a_config_built_by_hand_works_like_a_preset(world: World) -> None:
    config = RecallConfig(weights={"lexical": 1.0}, select="mmr", dynamic_k=True)

    assert run("foo_bar", config, world(*TEXTS), NOW)[0].memory.id == "m-2"
