"""What was replaced answers through what replaced it, in every layout as in one bank."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.hive_recall import Scatter
from skep.hive.hive_sources import fault_of
from skep.hive.messages import Ask, Slice

from .conftest import AGENTS, MakeHive

OLD = "We lint TypeScript with TSLint."
MIDDLE = "ESLint took over from it."
NEW = "Biome checks and formats all our code."
PARTS = pytest.mark.parametrize("kind", ["federated", "sharded"])
FREE = HivePolicy(stewards=("*",), deadline=10.0, hedge_after=5.0, contradiction="allow", quality_at=0.0)


def told(hive: Hive, *texts: str, by: tuple[str, ...] = AGENTS, **given: Any) -> list[str]:
    """Memories of different agents, of which each replaced the one before it."""
    ids = [
        hive.agent(by[number % len(by)]).remember(text, on_conflict="ignore", **given).memory.id
        for number, text in enumerate(texts)
    ]
    for old, new in pairwise(ids):
        hive.agent("dora").supersede(old, new)
    return ids


def found(hive: Hive, query: str, **options: Any) -> list[str]:
    return [hit.memory.id for hit in hive.agent("fay").recall(query, **options)]


@pytest.fixture
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    return make_hive(getattr(request, "param", "sharded"), policy=FREE)


def everywhere(test: Any) -> Any:
    return pytest.mark.parametrize("hive", ["flat", "federated", "sharded"], indirect=True)(test)


@everywhere
def test_the_words_of_the_old_find_the_new_whoever_holds_them(hive: Hive) -> None:
    for first in range(6):
        by = (AGENTS[first], AGENTS[(first + 3) % 6])
        old, new = told(hive, f"Unit {first} runs on gasoline{first}.", f"Batteries drive it {first}.", by=by)
        (hit,) = [h for h in hive.agent("fay").recall(f"gasoline{first}") if h.memory.id == new]
        assert hit.replaced == old
        assert "replaces" in hit.flags


@everywhere
def test_only_the_end_of_a_chain_through_many_members_is_shown(hive: Hive) -> None:
    ids = told(hive, OLD, MIDDLE, *(f"Step {n} of a long story" for n in range(8)), NEW)
    assert found(hive, "TSLint") == [ids[-1]]
    assert found(hive, "ESLint") == [ids[-1]]


@everywhere
def test_a_merged_copy_leads_to_what_it_was_merged_into(hive: Hive) -> None:
    kept = hive.agent("ana").remember("The deploy key rotates monthly.").memory.id
    copy = hive.agent("eve").remember("Monthly rotation of the deployment credential.").memory.id
    hive.agent("bob").merge(copy, kept)
    assert found(hive, "credential") == [kept]


@everywhere
def test_what_is_shown_passes_the_filter_and_what_leads_there_the_scope(hive: Hive) -> None:
    old = hive.agent("ana").remember(OLD, tags=["tools"]).memory.id
    new = hive.agent("eve").remember(NEW, tags=["style"], on_conflict="ignore").memory.id
    hive.agent("bob").supersede(old, new)
    assert found(hive, "TSLint", tags=["style"]) == [new]
    assert found(hive, "TSLint", tags=["tools"]) == []

    secret = hive.agent("ana").remember("Her codename is Heron.", scope={"user": "ann"}).memory.id
    public = hive.agent("eve").remember("Nobody is called by such names any more.").memory.id
    hive.agent("bob").supersede(secret, public)
    of_bob = hive.agent("fay").recall("Heron", scope={"user": "bob"}, include_shared=True)
    assert all("replaces" not in hit.flags for hit in of_bob)
    assert found(hive, "Heron", scope={"user": "ann"}, include_shared=True)[0] == public


@everywhere
def test_asked_for_what_was_replaced_it_is_shown_itself(hive: Hive) -> None:
    old, _ = told(hive, OLD, NEW)
    hits = hive.agent("fay").recall("TSLint", include_superseded=True)
    assert hits[0].memory.id == old
    assert all("replaces" not in hit.flags for hit in hits)


@everywhere
def test_the_end_of_a_chain_is_found_past_what_was_taken_back_or_forgotten(hive: Hive) -> None:
    one, two = told(hive, OLD, MIDDLE, NEW), told(hive, "Invoices go by fax.", "By courier.", "Peppol.")
    hive.agent("bob").retract(one[1])
    hive.agent("bob").forget(two[1])
    assert found(hive, "TSLint")[0] == one[2]
    assert found(hive, "fax")[0] == two[2]
    assert hive.agent("cy").get(two[0]).superseded_by == two[2]
    hive.agent("cy").forget(one[1])
    assert found(hive, "TSLint")[0] == one[2]


@PARTS
def test_what_a_member_had_replaced_is_answered_for_while_it_is_silent(
    make_hive: MakeHive, kind: str
) -> None:
    hive = make_hive(kind, policy=HivePolicy(stewards=("*",), deadline=2.0, hedge_after=0.2))
    _old, new = told(hive, OLD, NEW, by=("ana", "ana"), confidence=0.95)
    home = hive.layout.owner(new) if kind == "sharded" else "people"
    assert home is not None
    hive.members[home].stop()
    assert found(hive, "TSLint") == [new]


PLACES = ("Oslo", "Rome", "Lima", "Bonn", "Cork")
THINGS = ("the printer", "the boiler", "the archive", "the canteen")


def story(hive: Hive, clock: Any) -> None:
    """Facts that were replaced, merged, taken back or not, in chains over all members."""
    number = 0
    for place in PLACES:
        for thing in THINGS:
            ids: list[str] = []
            for step in range(1 + number % 4):
                text = f"In {place} {thing} belongs to {('Ana', 'Bob', 'Cyril', 'Dora')[step]} of desk {number + step}."
                stored = hive.agent(AGENTS[(number + 5 * step) % 6]).remember(
                    text, on_conflict="ignore", created_at=clock() - 1e6 + 10_000 * number + 1_000 * step
                )
                ids.append(stored.memory.id)
            for at, (old, new) in enumerate(pairwise(ids)):
                act = hive.agent("cy").merge if (number + at) % 5 == 0 else hive.agent("cy").supersede
                act(old, new)
            if len(ids) == 4 and number % 3 == 0:
                hive.agent("cy").retract(ids[1])
            number += 1


@pytest.mark.parametrize("config", [{}, {"k_vectors": 0}, {"weights": {"trust": 0.2, "lexical": 1.0}}])
def test_the_ranking_is_that_of_one_bank(make_hive: MakeHive, clock: Any, config: Any) -> None:
    """By words alone many scores are equal, and the order of equals is any."""
    answers: list[list[Any]] = []
    scores: list[list[float]] = []
    for kind in ("flat", "federated", "sharded"):
        hive = make_hive(kind, policy=FREE)
        story(hive, clock)
        eve = hive.agent("eve")
        shown: list[Any] = []
        told_scores: list[float] = []
        for place in PLACES:
            for who in ("Ana", "Bob", "Cyril"):
                hits = eve.recall(f"{who} in {place}", limit=40, config=config)
                told_scores += [hit.score for hit in hits]
                lines = [
                    (
                        hit.memory.text,
                        "replaces" in hit.flags,
                        "" if hit.replaced is None else eve.get(hit.replaced).text,
                    )
                    for hit in hits
                ]
                shown.append(sorted(lines) if config else lines)
        answers.append(shown)
        scores.append(told_scores)
    assert answers[0] == answers[1] == answers[2]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)
    assert scores[0] == pytest.approx(scores[2], rel=1e-5)
    assert sum(replaces for hits in answers[0] for _, replaces, _ in hits) > 20


@PARTS
def test_another_round_is_asked_only_for_what_stands_elsewhere(
    make_hive: MakeHive, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Ask] = []
    ask = Scatter.ask

    def counted(self: Scatter, question: Ask) -> Mapping[str, Slice]:
        asked.append(question)
        return ask(self, question)

    monkeypatch.setattr(Scatter, "ask", counted)
    hive = make_hive(kind, policy=FREE)
    told(hive, "The lift is grey.")
    assert len(found(hive, "lift")) == 1
    assert len(asked) == 1
    ids = told(hive, OLD, NEW, by=("ana", "bob" if kind == "federated" else "eve"))
    asked.clear()
    assert found(hive, "TSLint")[0] == ids[-1]
    assert len(asked) == 1  # found by meaning, or sent along by the group that holds both
    asked.clear()
    found(hive, "TSLint", preset="hybrid")
    assert [question.former for question in asked] == [0]


def test_a_chain_in_a_ring_of_members_ends(make_hive: MakeHive) -> None:
    """Members that each know one half of a ring cannot settle it; asking must come to an end all the same."""
    hive = make_hive("federated", policy=FREE)
    one, two = (hive.agent(name).remember(text).memory.id for name, text in (("ana", OLD), ("eve", NEW)))
    infra, sales = hive.members["infra"], hive.members["sales"]
    hive.members.adopt(infra, [two])
    hive.members.adopt(sales, [one])
    infra.bank.supersede(one, two)
    sales.bank.supersede(two, one)
    assert found(hive, "TSLint") == []


def test_nonsense_about_what_was_replaced_is_refused(make_hive: MakeHive) -> None:
    hive = make_hive("federated", policy=FREE)
    told(hive, OLD, NEW, by=("ana",))
    ask = Ask(terms=("tslint",), former=20)
    part = hive.members["infra"].shard.answer(ask)
    assert part.former is not None
    assert fault_of(part, ask) is None
    for wrong in (
        {"heirs": ("x",)},
        {"rows": b""},
        {"former": part.former},
    ):
        nested = msgspec.structs.replace(part.former, **wrong)
        assert fault_of(msgspec.structs.replace(part, former=nested), ask) is not None


@everywhere
def test_a_question_about_a_time_alone_is_asked_twice_and_answered(hive: Hive) -> None:
    stored = hive.agent("ana").remember("The lift was repaired.").memory.id
    assert found(hive, "What happened today?") == [stored]


def test_a_shard_without_anything_replaced_sends_nothing_more(make_hive: MakeHive) -> None:
    hive = make_hive("federated", policy=FREE)
    hive.agent("ana").remember(OLD)
    shard = hive.members["infra"].shard
    assert shard.answer(Ask(terms=("tslint",), former=20)).former is None


@everywhere
@pytest.mark.parametrize("verb", ["undo", "undo the winner", "restore", "forget"])
def test_what_a_merge_moved_is_moved_back_whoever_holds_it(hive: Hive, verb: str) -> None:
    for number in range(3):
        source, copy, kept = (
            hive.agent(AGENTS[(number + shift) % 6])
            .remember(f"{text} {number}", on_conflict="ignore")
            .memory.id
            for shift, text in (
                (0, "The plan says so"),
                (2, "A copy of the kettle"),
                (4, "That kettle itself"),
            )
        )
        hive.agent("dora").link(source, copy, "derived_from")
        hive.agent("bob").merge(copy, kept)
        assert [link.dst for link in hive.agent("fay").neighbors(source).links] == [kept]

        far = copy if verb == "undo the winner" else kept
        by = next((a for a in map(hive.agent, AGENTS) if not a.home.has(far)), hive.agent("cy"))
        match verb:
            case "undo":
                by.undo(next(event.id for event in by.history(copy) if event.kind == "merge"))
            case "undo the winner":
                by.undo(kept)
            case "restore":
                by.restore(copy)
            case _:
                by.forget(kept)
        assert hive.agent("fay").get(copy).status == "active"
        assert [link.dst for link in hive.agent("fay").neighbors(source).links] == [copy]
