"""Source document 002: patterns, trajectories, strategies; each promise as its users would try it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.conftest import Clock

from skep import Bank
from skep.agent.strategies import analyse, keep
from skep.confidence import procedure_score

PATTERNS = {
    "Use bcrypt with 10+ rounds": "security",
    "JWT tokens in httpOnly cookies": "security",
    "Rate limiting with sliding window": "security",
    "Rate limit login attempts": "security",
    "Use JOIN instead of N+1 queries": "performance",
    "Add indexes on foreign keys": "performance",
    "Implement query result caching": "performance",
    "Use Redis caching for API responses": "backend",
    "Component-based architecture": "frontend",
    "Test-first development": "process",
}


def filled(bank: Bank) -> Bank:
    bank.remember_many([{"text": t, "kind": "procedure", "domain": d} for t, d in PATTERNS.items()])
    return bank


@pytest.mark.parametrize(
    ("query", "domain", "named"),
    [
        ("How to secure authentication?", "security", {
            "Use bcrypt with 10+ rounds", "JWT tokens in httpOnly cookies", "Rate limiting with sliding window"}),
        ("How do I optimize database queries?", "performance", {
            "Use JOIN instead of N+1 queries", "Add indexes on foreign keys", "Implement query result caching"}),
    ],
)  # fmt: skip
def test_the_queries_of_the_document_find_what_they_name(
    meaning: Bank, query: str, domain: str, named: set[str]
) -> None:
    for preset in ("default", "patterns"):
        hits = filled(meaning).recall(query, domain=domain, preset=preset, limit=10, min_confidence=0.3)
        assert named <= {hit.memory.text for hit in hits}


def test_a_pattern_has_the_fields_of_the_document(bank: Bank) -> None:
    kept = bank.remember(
        "Always use bcrypt with 10+ rounds", kind="procedure", title="API configuration for auth endpoints",
        domain="security", agent="backend-dev", metadata={"task_type": "authentication"}, confidence=0.85,
    ).memory  # fmt: skip
    assert bank.recall("bcrypt rounds")[0].memory.id == kept.id
    bank.learn("authentication", "success", used=[kept.id], task_type="authentication")
    now = bank.get(kept.id)
    assert (now.title, now.domain, now.agent, now.confidence > 0.85) == (
        "API configuration for auth endpoints", "security", "backend-dev", True)  # fmt: skip
    assert (now.successes, now.metadata["task_type"]) == (1, "authentication")


def test_a_task_is_recommended_what_fits_it(meaning: Bank) -> None:
    found = filled(meaning).recommend("Implement user login with password")
    assert found[0].memory.text == "Rate limit login attempts" or "bcrypt" in found[0].memory.text
    assert all(each.memory.domain == "security" for each in found)


def test_the_weighted_score_of_the_document() -> None:
    assert procedure_score(18 / 20, 20 / 100, 0.95, 0.85) == pytest.approx(0.695)


def test_test_first_is_recommended_after_two_successes(bank: Bank) -> None:
    tdd = bank.remember("Test-first development for APIs", kind="procedure").memory
    before = tdd.confidence
    for number, coverage in enumerate((95, 98)):
        bank.learn(f"API development {number}", "success", used=[tdd.id], metrics={"coverage": coverage})
    assert bank.get(tdd.id).confidence > before
    (found, *_) = bank.recommend("API development best practices")
    assert (found.memory.id, found.record, found.parts["success"]) == (tdd.id, "2 of 2", 1.0)


def test_a_failure_lowers_confidence_and_a_grade_counts_in_part(bank: Bank) -> None:
    tip = bank.remember("Rebuild the index", kind="procedure").memory
    bank.learn("speed up search", "failure", used=[tip.id])
    assert bank.get(tip.id).confidence < tip.confidence
    bank.learn("speed up search", 0.5, used=[tip.id])
    assert bank.recommend("speed up search")[0].parts["success"] == 0.25


def test_a_trajectory_keeps_task_steps_tools_patterns_and_outcome(
    skep: Callable[..., Any], agent: Any
) -> None:
    tip = skep("add", "Run the unit tests before a push", "--kind", "procedure")["memory"]["id"]
    steps = ("run_tests(unit)", "push(main) failed: refused")
    skep("learn", "ship the fix", "0.7", "--used", tip, "--task-type", "deploy",
         *(word for step in steps for word in ("--done", step)))  # fmt: skip
    agent.text(
        "report_outcome", task="ship again", success=True, used=[tip], steps=[steps[0]], task_type="deploy"
    )
    first, second = outcomes(skep)
    assert (first["task"], tuple(first["steps"]), tuple(first["used"])) == ("ship the fix", steps, (tip,))
    assert tuple(second["steps"]) == ("run_tests(unit)",)
    assert skep("stats")["trajectories"] == 2


def outcomes(skep: Callable[..., Any]) -> list[dict[str, Any]]:
    import msgspec

    from skep.cli.app import open_bank

    path = skep("config")["bank"]
    with open_bank(path, create=False) as bank:
        return msgspec.to_builtins(bank.outcomes())


def tasks(bank: Bank, clock: Clock) -> str:
    """Eight releases: those with a dry run went well, those pushed directly did not."""
    tip = bank.remember("Tell the crew before a release", kind="procedure", domain="backend").memory.id
    for number in range(4):
        clock.pass_days(1)
        bank.learn(f"release {number}", 0.9, used=[tip], task_type="release", domain="backend",
                   steps=["dry_run(staging)", "push(main)"])  # fmt: skip
        bank.learn(f"hotfix {number}", "failure", task_type="release", domain="backend",
                   steps=["push_directly(main) failed: refused"])  # fmt: skip
    return tip


def test_strategies_are_what_successes_have_and_failures_lack(bank: Bank, clock: Clock) -> None:
    tip = tasks(bank, clock)
    (found,) = analyse(bank)
    assert (found.task_type, found.outcomes) == ("release", 8)
    assert {part.what for part in found.worked} >= {"dry_run", "push", "Tell the crew before a release"}
    assert [part.what for part in found.failed] == ["push_directly"]
    assert tip in {part.memory for part in found.worked}
    kept = keep(bank, [found])[0]
    assert keep(bank, analyse(bank))[0].id == kept.id
    assert kept.id in {each.memory.id for each in bank.recommend("a release on Friday")}


def test_too_few_tasks_tell_no_strategy(bank: Bank) -> None:
    bank.learn("release", "success", task_type="release", steps=["dry_run()"])
    bank.learn("hotfix", "failure", task_type="release", steps=["push()"])
    assert analyse(bank) == []


def test_what_is_private_goes_into_no_shared_strategy(bank: Bank, clock: Clock) -> None:
    mine = bank.remember("Ana's own trick", kind="procedure", scope={"user": "ana"}).memory.id
    for number in range(5):
        bank.learn(f"ship {number}", "success", used=[mine], task_type="ship", steps=["trick(ana)"])
        bank.learn(f"drop {number}", "failure", task_type="ship", steps=["other()"])
    assert all("trick" not in each.text.casefold() for each in analyse(bank))


def test_a_strategy_is_carried_into_another_domain_by_its_steps_and_confirmed_by_use(
    bank: Bank, clock: Clock
) -> None:
    tasks(bank, clock)
    parts = bank.remember(
        "Small parts that are published on their own", kind="procedure", domain="frontend"
    ).memory
    for number in range(3):
        bank.learn(f"publish widget {number}", "success", used=[parts.id], task_type="publish", domain="frontend",
                   steps=["dry_run(storybook)", "screenshot(all)", "push(registry)"])  # fmt: skip
    keep(bank, analyse(bank))
    (link,) = bank.neighbors(parts.id, "analogy").links
    bank.learn("publish the backend in parts", "success", used=[parts.id], domain="backend")
    (stronger,) = bank.neighbors(parts.id, "analogy").links
    assert link.strength < stronger.strength
    for number in range(9):
        bank.learn(f"parts again {number}", "failure", used=[parts.id], domain="backend")
    assert bank.neighbors(parts.id, "analogy").links == ()


def test_euclidean_distance_orders_as_the_cosine_does(bank: Bank) -> None:
    filled(bank)
    texts = list(PATTERNS)
    vectors = bank.engine.embeddings.embedder.embed(texts)
    query = bank.engine.embeddings.embedder.embed(["caching of queries"])[0]
    cosine, distance = vectors @ query, np.linalg.norm(vectors - query, axis=1)
    assert np.allclose(distance**2, 2 - 2 * cosine, atol=1e-5)


def test_statistics_count_outcomes_by_domain_and_kind(bank: Bank, clock: Clock) -> None:
    tasks(bank, clock)
    found = bank.stats()
    assert (found["outcomes"], found["successes"], found["trajectories"]) == (8, 4, 8)
    assert found["by_domain"] == {"backend": {"successes": 4, "of": 8}}
    assert found["by_task_type"] == {"release": {"successes": 4, "of": 8}}
