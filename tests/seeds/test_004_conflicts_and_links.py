"""Source document 004: hybrid retrieval, conflicts, links; each promise as its users would try it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import Clock

from skep import Bank, ConflictError, InvalidInputError, NotFoundError
from skep.config import Settings
from skep.errors import LineageError
from skep.retrieval.recall_config import Expand, preset


def ids(text: str) -> list[str]:
    return re.findall(r"\[([a-z0-9]+-\d+)\]", text)


def test_the_hybrid_preset_has_the_weights_of_the_document() -> None:
    assert preset("hybrid").weights == {
        "semantic": 0.55,
        "lexical": 0.20,
        "recency": 0.15,
        "importance": 0.10,
    }


def test_an_exact_identifier_is_found_whatever_its_vector_is(meaning: Bank) -> None:
    wanted = meaning.remember("PR #441 renamed MemoryStore.recall").memory
    meaning.remember_many([f"Review number {n} of the storage code went well" for n in range(20)])
    assert meaning.recall("PR #441", preset="hybrid")[0].memory.id == wanted.id


def test_of_near_identical_memories_the_newer_ranks_first_in_hybrid(bank: Bank, clock: Clock) -> None:
    bank.remember("The cache holds an hour of answers", kind="episode")
    clock.pass_days(30)
    newer = bank.remember("The cache holds an hour of answers.", kind="episode").memory
    assert bank.recall("cache answers", preset="hybrid")[0].memory.id == newer.id


def test_without_the_other_three_weights_hybrid_is_semantic(bank: Bank) -> None:
    bank.remember_many(
        [f"The {word} is stored in shelf {n}" for n, word in enumerate(("ink", "paper", "glue"))]
    )
    plain = bank.recall("where is the paper", preset="semantic")
    same = bank.recall("where is the paper", preset="hybrid", config={"weights": {"semantic": 0.55}})
    assert [hit.memory.id for hit in same] == [hit.memory.id for hit in plain]
    assert [hit.score for hit in same] == pytest.approx([hit.score for hit in plain])


def test_a_second_recall_has_the_order_of_the_first(bank: Bank) -> None:
    bank.remember_many([f"Note {n} about the harbour crane" for n in range(12)])
    first, second = (bank.recall("harbour crane", preset="hybrid") for _ in range(2))
    assert [hit.memory.id for hit in first] == [hit.memory.id for hit in second]


def test_weights_that_are_all_zero_are_refused(bank: Bank) -> None:
    with pytest.raises(ValueError, match="all weights are 0"):
        bank.recall("anything", config={"weights": {"semantic": 0.0}})


def test_importance_and_use_are_weak_features_where_a_config_asks_for_them(bank: Bank) -> None:
    plain = bank.remember("The archive opens at nine", importance=0.1, on_conflict="ignore").memory
    weighty = bank.remember("The archive opens at ten", importance=0.9, on_conflict="ignore").memory
    weights = {"semantic": 1.0, "importance": 0.05, "usage": 0.05}
    found = bank.recall("when does the archive open", config={"weights": weights, "updates": False})
    assert {"importance", "usage"} <= found[0].signals.keys()
    assert found[0].memory.id == weighty.id != plain.id
    assert "importance" not in preset("default").weights


def test_an_empty_bank_answers_with_nothing_and_says_why(bank: Bank) -> None:
    found = bank.recall("anything", preset="hybrid")
    assert not found
    assert found.reason


def test_a_memory_that_was_used_in_the_future_is_no_older_than_now(bank: Bank, clock: Clock) -> None:
    bank.remember("The crane was greased", created_at=clock.now + 900)
    hit = bank.recall("crane", config={"weights": {"semantic": 1.0, "recency": 1.0}})[0]
    assert hit.signals["recency"] == 1.0


def test_the_conflict_of_the_document_is_seen_at_the_write_and_at_recall(meaning: Bank) -> None:
    ruff = meaning.remember("Use ruff for linting").memory
    stored = meaning.remember("Use flake8 for linting")
    assert [conflict.existing.id for conflict in stored.conflicts] == [ruff.id]
    assert stored.action == "stored"
    hits = {hit.memory.text: hit for hit in meaning.recall("linting")}
    assert hits["Use ruff for linting"].conflicts_with == (stored.memory.id,)


def test_use_x_and_never_use_x_contradict(bank: Bank) -> None:
    bank.remember("Use ruff for linting")
    (conflict,) = bank.remember("Never use ruff for linting").conflicts
    assert (conflict.kind, conflict.reason) == ("contradiction", "negation")


@pytest.mark.parametrize("policy", ["ignore", "warn", "supersede", "raise"])
def test_a_bank_has_a_policy_for_conflicts(policy: Any) -> None:
    for bank in (
        Bank.open(":memory:", embedder="static", settings=Settings(on_conflict=policy)),
        Bank.open(":memory:", embedder="static"),
    ):
        bank.set_setting("conflict/policy", policy)
        bank.remember("Use ruff for linting")
        if policy == "raise":
            with pytest.raises(ConflictError):
                bank.remember("Never use ruff for linting")
            assert len(bank.find()) == 1
        else:
            done = bank.remember("Never use ruff for linting")
            assert done.action == ("superseded" if policy == "supersede" else "stored")
            assert bool(done.conflicts) == (policy != "ignore")
        assert bank.remember("Always use ruff for linting", on_conflict="ignore").conflicts == ()
        bank.close()


def test_a_setting_that_nothing_reads_is_refused(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'conflict/policy'"):
        bank.set_setting("conflict/polcy", "supersede")
    with pytest.raises(InvalidInputError, match="must be one of"):
        bank.set_setting("conflict/policy", "replace")
    bank.set_setting("myapp/colour", "green")
    assert bank.setting("myapp/colour") == "green"


def test_a_bank_has_a_contradiction_fn_that_is_asked_where_the_rules_say_nothing() -> None:
    asked: list[tuple[str, str]] = []

    def one_drink(stored: Any, new: Any) -> bool:
        asked.append((stored.text, new.text))
        return "coffee" in stored.text + new.text

    with Bank.open(":memory:", embedder="static", settings=Settings(contradiction_fn=one_drink)) as bank:
        bank.remember("Ana likes tea")
        (conflict,) = bank.remember("Ana likes coffee").conflicts
        assert (conflict.kind, conflict.reason) == ("contradiction", "custom")
        assert [found.reason for found in bank.find_conflicts()] == ["custom"]
        bank.remember("Ana does not like tea")
        assert ("Ana likes tea", "Ana does not like tea") not in asked


def test_what_was_replaced_is_found_only_where_asked_and_carries_a_flag(bank: Bank) -> None:
    old = bank.remember("Use ruff for linting").memory
    new = bank.remember("Never use ruff for linting", on_conflict="supersede").memory
    assert [hit.memory.id for hit in bank.recall("ruff linting")] == [new.id]
    flags = {hit.memory.id: hit.flags for hit in bank.recall("ruff linting", include_superseded=True)}
    assert flags == {new.id: (), old.id: ("outdated", "superseded")}
    assert bank.get(old.id).superseded_by == new.id


def test_restore_undoes_a_supersede(bank: Bank) -> None:
    old, new = (bank.remember(text).memory for text in ("The door code is 11", "Use the side entrance"))
    bank.supersede(old.id, new.id)
    bank.restore(old.id)
    assert bank.get(old.id).status == "active"


def test_cycles_chains_and_the_memory_itself(bank: Bank) -> None:
    a, b, c = (bank.remember(text).memory.id for text in ("Paint it red", "Paint it blue", "Paint it green"))
    bank.supersede(a, b)
    for old, new in ((b, a), (a, a)):
        with pytest.raises(LineageError):
            bank.supersede(old, new)
    bank.supersede(b, c)
    assert [hit.memory.id for hit in bank.recall("which colour to paint it")] == [c]


def test_both_hold_is_said_once_at_every_door(skep: Callable[..., Any], agent: Any) -> None:
    first = ids(agent.text("remember", text="Use ruff for linting"))[0]
    told = agent.text("remember", text="Never use ruff for linting")
    second = ids(told)[0]
    assert f"resolve(id='{first}', other='{second}', decision='KEEP_BOTH')" in told
    assert first in agent.text("resolve")
    agent.text("resolve", id=first, other=second, decision="KEEP_BOTH")
    assert agent.text("resolve") == "no conflicts"
    third = skep("add", "Use ruff for linting in the old repository only")["memory"]["id"]
    assert skep("judge", first, third, "keep_both")["events"] >= 1
    assert skep("conflicts", first) == []


def test_a_decision_can_be_changed_and_is_refused_on_what_is_gone(bank: Bank) -> None:
    a, b = (bank.remember(text).memory.id for text in ("Use ruff for linting", "Never use ruff for linting"))
    bank.resolve_judgement(a, b, "CONTRADICTION")
    assert bank.get(a).confidence == 0.4
    bank.resolve_judgement(a, b, "KEEP_BOTH")
    assert bank.get(a).confidence == 0.8
    bank.resolve_judgement(a, b, "SUPERSEDED")
    assert bank.get(a).superseded_by == b
    with pytest.raises(NotFoundError, match="superseded"):
        bank.resolve_judgement(a, b, "KEEP_BOTH")


def test_the_five_tools_are_within_reach_of_eight(agent: Any) -> None:
    names = [tool["name"] for tool in agent.ask("tools/list", {})["result"]["tools"]]
    assert len(names) == 8
    a = ids(agent.text("remember", text="Always write tests before code"))[0]
    b = ids(agent.text("remember", text="The parser was written from its tests", kind="episode"))[0]
    assert agent.text("link", src=b, dst=a, rel="example_of") == f"linked [{b}] example_of [{a}]"
    assert "Always write tests" in agent.text("link", src=b, verb="show", depth=2)
    walked = agent.text(
        "recall", query="parser written", limit=1, expand={"relations": ["example_of"], "decay": 0.7}
    )
    assert "Always write tests" in walked
    assert agent.text("link", src=b, dst=a, verb="remove") == "removed 1 link"
    agent.text("resolve", id=a, other=b, decision="SUPERSEDED")
    assert "Always write tests" not in agent.text("recall", query="write tests before code")


def test_links_round_trip_and_the_same_one_twice_is_one(bank: Bank) -> None:
    a, b = (bank.remember(text).memory.id for text in ("Rule: greet visitors", "Ana greeted the auditors"))
    assert bank.link(b, a, "example_of") == bank.link(b, a, "example_of")
    graph = bank.neighbors(a)
    assert [(link.src, link.rel, link.dst) for link in graph.links] == [(b, "example_of", a)]
    assert bank.unlink(b, a) == 1
    assert bank.neighbors(a).links == ()
    with pytest.raises(InvalidInputError, match="itself"):
        bank.link(a, a)


def test_a_link_may_lead_to_what_is_not_there_where_that_is_asked(
    bank: Bank, skep: Callable[..., Any]
) -> None:
    a = bank.remember("Rule: greet visitors").memory.id
    with pytest.raises(NotFoundError):
        bank.link(a, "zz-9", "refines")
    bank.link(a, "zz-9", "refines", dangling=True)
    assert bank.neighbors(a).dangling == ("zz-9",)
    b = skep("add", "Rule: close the gate")["memory"]["id"]
    skep("link", b, "zz-9", "--dangling")
    assert skep("neighbors", b)["dangling"] == ["zz-9"]


def test_a_link_to_what_was_forgotten_since_is_told_as_gone(bank: Bank) -> None:
    a, b = (bank.remember(text).memory.id for text in ("Rule: greet visitors", "Ana greeted the auditors"))
    bank.link(b, a, "example_of")
    bank.forget(a)
    assert a not in bank.neighbors(b).memories


def test_cycles_of_links_end(bank: Bank) -> None:
    a, b, c = (bank.remember(text).memory.id for text in ("Red paint", "Blue paint", "Green paint"))
    for src, dst in ((a, b), (b, c), (c, a)):
        bank.link(src, dst, "refines")
    assert set(bank.neighbors(a, depth=5).memories) == {b, c}


SAID = ("The parser was written from its tests", "Always write tests first", "House rules of the team")


def test_recall_walks_links_with_relations_depth_cap_and_score(bank: Bank) -> None:
    a, b, c = (bank.remember(text, on_conflict="ignore").memory.id for text in SAID)
    bank.link(a, b, "example_of")
    bank.link(b, c, "refines")
    walk = Expand(relations=("example_of",), depth=1, cap=5, decay=0.7)
    hits = bank.recall("who wrote the parser", limit=1, expand=walk).hits
    assert [(hit.memory.id, hit.flags) for hit in hits] == [(a, ()), (b, ("expanded",))]
    assert hits[1].score == pytest.approx(0.7 * hits[0].score)


def test_the_command_walks_links_with_the_same_parameters(skep: Callable[..., Any]) -> None:
    a, b, c = (skep("add", text, "--on-conflict", "ignore")["memory"]["id"] for text in SAID)
    skep("link", a, b, "--rel", "example_of")
    skep("link", b, c, "--rel", "refines")
    walk = ("--rel", "example_of", "--rel", "refines", "--depth", "2", "--cap", "2", "--decay", "0.7")
    hits = skep("search", "who wrote the parser", "-n", "1", *walk)["hits"]
    assert [hit["memory"]["id"] for hit in hits] == [a, b, c]


def test_conflicts_are_looked_for_within_kind_scope_and_tags(bank: Bank) -> None:
    text, denial = "Use ruff for linting", "Never use ruff for linting"
    bank.remember(text, scope={"project": "a"}, tags=["python"])
    assert not bank.remember(denial, scope={"project": "b"}).conflicts
    assert not bank.remember(denial, kind="document", scope={"project": "a"}).conflicts
    assert bank.remember(denial, scope={"project": "a"}, tags=["python"]).conflicts


def test_a_summary_supersedes_its_sources_and_leads_to_them(bank: Bank, clock: Clock) -> None:
    from skep.lifecycle.maintain import STEPS, MaintainConfig

    said = "The nightly build failed because the disk was full on node 3"
    for text in (said, f"{said} again", f"Seen once more: {said}"):
        bank.remember(text, kind="episode", on_conflict="ignore")
        clock.pass_seconds(60)
    bank.maintain(MaintainConfig(steps=STEPS))
    (summary,) = [memory for memory in bank.find(kind="episode") if memory.level == 1]
    sources = bank.neighbors(summary.id, "derived_from", "out").memories
    assert len(sources) == 3
    assert {memory.status for memory in sources.values()} == {"superseded"}
