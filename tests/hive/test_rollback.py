"""Rolling back one source: first what it would touch, then all of it, in every copy; and back again."""

from __future__ import annotations

from typing import Any

import pytest

from skep.hive.hive import Hive


@pytest.fixture
def poisoned(hive: Hive, clock: Any) -> dict[str, str]:
    """Mallory (as eve) wrote two things, others built on one of them; ids by name."""
    ids: dict[str, str] = {}
    ids["before"] = hive.agent("eve").remember("Server number nine is in rack nine.").memory.id
    clock.pass_days(1)
    ids["since"] = str(clock())
    ids["lie"] = (
        hive.agent("eve").remember("The backup key was moved to rack two.", confidence=0.95).memory.id
    )
    ids["other"] = hive.agent("eve").remember("Lunch is served in the cellar today.").memory.id
    ids["derived"] = (
        hive.agent("ana")
        .remember("Whoever needs the backup key goes to rack two.", evidence=[ids["lie"]])
        .memory.id
    )
    ids["deeper"] = (
        hive.agent("bob")
        .remember("Visitors are led to rack two on Mondays.", evidence=[ids["derived"]])
        .memory.id
    )
    ids["honest"] = hive.agent("cy").remember("The coffee machine stands in the hall.").memory.id
    hive.agent("eve").confirm(ids["honest"])
    return ids


def statuses(hive: Hive, memory_id: str) -> set[str]:
    found = (member.get(memory_id) for member in hive.members.values())
    return {memory.status for memory in found if memory is not None}


def test_the_blast_radius_is_shown_before_anything_happens(hive: Hive, poisoned: dict[str, str]) -> None:
    plan = hive.rollback("eve", since=float(poisoned["since"]), dry_run=True)

    assert set(plan.written) == {poisoned["lie"], poisoned["other"]}
    assert set(plan.derived) == {poisoned["derived"], poisoned["deeper"]}
    assert len(plan.confirmations) == 1
    assert plan.copies == sum(plan.members.values()) >= 4
    assert not plan.applied
    assert statuses(hive, poisoned["lie"]) == {"active"}
    assert "4 memories" in plan.lines()[0]


def test_everything_of_the_source_and_built_on_it_goes_everywhere(
    hive: Hive, poisoned: dict[str, str]
) -> None:
    done = hive.rollback("eve", since=float(poisoned["since"]))

    assert done.applied
    for name in ("lie", "other", "derived", "deeper"):
        assert statuses(hive, poisoned[name]) == {"retracted"}
    for name in ("before", "honest"):
        assert statuses(hive, poisoned[name]) == {"active"}
    assert hive.get(poisoned["honest"]).confirmations == 0  # type: ignore[union-attr]
    shown = {hit.memory.id for hit in hive.agent("fay").recall("backup key", limit=20)}
    assert shown.isdisjoint(poisoned[name] for name in ("lie", "other", "derived", "deeper"))


def test_a_second_rollback_finds_nothing(hive: Hive, poisoned: dict[str, str]) -> None:
    hive.rollback("eve")
    again = hive.rollback("eve")

    assert (again.written, again.derived, again.copies) == ((), (), 0)


def test_a_rollback_can_be_taken_back(hive: Hive, poisoned: dict[str, str]) -> None:
    hive.rollback("eve")
    hive.agent("ana").restore(poisoned["lie"])

    assert statuses(hive, poisoned["lie"]) == {"active"}


def test_a_file_or_address_is_a_source_too(hive: Hive) -> None:
    one = hive.agent("ana").remember("The cat sleeps on the red mat.", source="notes/cat.md").memory
    hive.agent("ana").remember("The dog sleeps in the long hall.", source="notes/dog.md")

    assert hive.rollback("notes/cat.md", dry_run=True).written == (one.id,)


def test_what_the_source_changed_of_others_is_undone_too(hive: Hive, clock: Any) -> None:
    key = hive.agent("ana").remember("The backup key is kept in rack one.").memory.id
    door = hive.agent("bob").remember("The door of the server room is green.").memory.id
    hive.agent("bob").revise(door, importance=0.9)
    clock.pass_days(1)
    hive.agent("eve").revise(key, text="The backup key is kept in the cellar.")
    hive.agent("eve").link(key, door, "entails")
    hive.agent("eve").retract(door)

    plan = hive.rollback("eve", dry_run=True)
    assert (len(plan.changes), plan.written) == (3, ())
    assert "3 changes" in plan.lines()[0]
    hive.rollback("eve")

    assert hive.get(key).text == "The backup key is kept in rack one."  # type: ignore[union-attr]
    assert (hive.get(door).status, hive.get(door).importance) == ("active", 0.9)  # type: ignore[union-attr]
    assert hive.agent("ana").neighbors(key).links == ()
    assert hive.rollback("eve", dry_run=True).changes == ()
