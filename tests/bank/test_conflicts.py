"""What a new memory does to those it does not go together with."""

from __future__ import annotations

import pytest
from tests.conftest import Clock

from skep.bank import Bank
from skep.errors import ConflictError, InvalidInputError
from skep.model import Memory


def test_raise_policy_stores_nothing_and_names_what_it_contradicts(bank: Bank) -> None:
    kept = bank.remember("Use ruff for linting").memory

    with pytest.raises(ConflictError) as caught:
        bank.remember("Never use ruff for linting", on_conflict="raise")

    assert (kept.id,) == tuple(c.existing.id for c in caught.value.conflicts)
    assert [kept.id] == [hit.memory.id for hit in bank.recall("linting")]


def test_warn_stores_and_reports(bank: Bank) -> None:
    kept = bank.remember("Use ruff for linting").memory
    result = bank.remember("Never use ruff for linting")
    assert result.action == "stored"
    (conflict,) = result.conflicts
    assert (conflict.kind, conflict.reason, conflict.existing.id) == ("contradiction", "negation", kept.id)
    assert conflict.memory == result.memory
    assert bank.status().memories == 2


def test_ignore_does_not_look(bank: Bank) -> None:
    bank.remember("Use ruff for linting")
    assert bank.remember("Never use ruff for linting", on_conflict="ignore").conflicts == ()


def test_supersede_replaces_what_no_longer_holds(bank: Bank, clock: Clock) -> None:
    old = bank.remember("Use ruff for linting").memory
    clock.pass_days(1)
    result = bank.remember("Use flake8 for linting", on_conflict="supersede")
    assert result.action == "superseded"
    assert bank.get(old.id).superseded_by == result.memory.id
    assert [hit.memory.text for hit in bank.recall("linting")] == ["Use flake8 for linting"]


def test_supersede_confirms_what_is_repeated_instead_of_storing_it_twice(bank: Bank) -> None:
    first = bank.remember("The staging database runs PostgreSQL 16", importance=0.5).memory
    result = bank.remember("The staging database runs PostgreSQL 16", on_conflict="supersede", agent="other")
    assert (result.action, result.memory.id) == ("confirmed", first.id)
    assert result.memory.importance > first.importance
    assert result.memory.confirmations == 1
    assert bank.status().memories == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Ana lives in Rome", "Ana lives in Oslo"),
        ("The server has 16 GB of RAM", "The server has 32 GB of RAM"),
        ("Use ruff for linting", "Use flake8 for linting"),
        ("The API rate limit is 100 requests per minute", "The API rate limit is 250 requests per minute"),
    ],
)
def test_a_new_value_for_the_same_thing_is_an_update(bank: Bank, before: str, after: str) -> None:
    bank.remember(before)
    (conflict,) = bank.remember(after).conflicts
    assert conflict.kind == "update"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The server has 16 GB of RAM", "The office has a garden"),
        ("Ana lives in Rome", "Ana likes pasta"),
        ("Deploys happen on Tuesdays", "The mobile team owns the notifications API"),
    ],
)
def test_what_goes_together_is_not_a_conflict(bank: Bank, a: str, b: str) -> None:
    bank.remember(a)
    assert bank.remember(b).conflicts == ()


def test_explicit_polarity_comes_first(bank: Bank) -> None:
    bank.remember("The feature flag for search is on in production", polarity=1)
    (conflict,) = bank.remember("The feature flag for search is on in production", polarity=-1).conflicts
    assert (conflict.kind, conflict.reason) == ("contradiction", "polarity")


def test_a_function_of_the_user_is_asked_when_the_rules_say_nothing(bank: Bank) -> None:
    asked: list[tuple[str, str]] = []

    def custom(existing: Memory, new: Memory) -> bool:
        asked.append((existing.text, new.text))
        return "secret" in new.text

    bank.remember("The launch party is in the large hall on Friday evening")
    result = bank.remember(
        "The secret launch party is in the large hall on Friday evening with everybody",
        contradiction_fn=custom,
    )
    if asked:
        assert [c.reason for c in result.conflicts] == ["custom"]
    else:
        assert result.conflicts


def test_other_kinds_other_scopes_and_disjoint_tags_do_not_conflict(bank: Bank) -> None:
    bank.remember("Use ruff for linting", scope={"user": "ana"})
    bank.remember("Use ruff for linting", tags=["python"])
    bank.remember("Use ruff for linting", kind="episode")
    assert bank.remember("Never use ruff for linting", tags=["rust"], scope={"user": "bo"}).conflicts == ()


def test_the_whole_bank_can_be_scanned_each_pair_once(bank: Bank, clock: Clock) -> None:
    a = bank.remember("Use ruff for linting", on_conflict="ignore").memory
    clock.pass_seconds(1)
    b = bank.remember("Never use ruff for linting", on_conflict="ignore").memory
    bank.remember_many([f"Note number {i} about {word}" for i, word in enumerate(["tea", "rivers", "maps"])])
    seen: list[tuple[int, int]] = []
    found = bank.find_conflicts(progress=lambda done, total: seen.append((done, total)))
    (conflict,) = [c for c in found if c.kind == "contradiction"]
    assert conflict.memory is not None
    assert (conflict.existing.id, conflict.memory.id) == (a.id, b.id)
    assert seen[-1] == (5, 5)
    assert [c.existing.id for c in bank.find_conflicts(b.id)] == [a.id]


def test_recall_marks_hits_that_do_not_go_together(bank: Bank) -> None:
    a = bank.remember("Use ruff for linting").memory
    b = bank.remember("Never use ruff for linting").memory
    hits = {hit.memory.id: hit for hit in bank.recall("ruff linting")}
    assert "conflict" in hits[a.id].flags
    assert hits[a.id].conflicts_with == (b.id,)
    assert hits[b.id].conflicts_with == (a.id,)
    assert "conflicts with" in hits[a.id].why()


def test_an_unknown_policy_is_refused(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'supersede'"):
        bank.remember("x", on_conflict="supercede")  # type: ignore[arg-type]
