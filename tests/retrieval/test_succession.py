"""A question in the words of what was replaced finds what replaced it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from skep import Bank

OLD = "We lint TypeScript with TSLint."
NEW = "Biome checks and formats all our code."
OTHERS = ("The office dog", "Lunch is at noon")


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    with Bank.open(tmp_path / "bank.db") as opened:
        opened.remember_many(["The office dog is called Rufus.", "Lunch is at noon on Fridays."])
        yield opened


def replaced(bank: Bank, *texts: str, **given: object) -> list[str]:
    """Memories of which each replaced the one before it."""
    ids = [bank.remember(text, on_conflict="ignore", **given).memory.id for text in texts]  # type: ignore[arg-type]
    for old, new in pairwise(ids):
        bank.supersede(old, new)
    return ids


def found(bank: Bank, query: str, **given: object) -> list[str]:
    """The hits by id, without those of the bank that no chain is about."""
    hits = bank.recall(query, limit=10, **given)  # type: ignore[arg-type]
    return [hit.memory.id for hit in hits if not hit.memory.text.startswith(OTHERS)]


def test_the_words_of_the_old_find_the_new(bank: Bank) -> None:
    old, _ = replaced(bank, OLD, NEW)
    found = bank.recall("How is TSLint set up?", explain=True)
    assert found[0].memory.text == NEW
    assert old not in {hit.memory.id for hit in found}
    assert "replaces" in found[0].flags
    assert found[0].replaced == old
    assert found[0].why().endswith(f"; replaces {old}")
    assert any(stage.name == "succession" for stage in found.trace)


def test_a_chain_shows_only_its_end(bank: Bank) -> None:
    ids = replaced(bank, OLD, "ESLint took over from it.", NEW)
    assert found(bank, "TSLint") == [ids[-1]]
    assert found(bank, "ESLint") == [ids[-1]]


def test_a_long_chain_is_followed_to_its_end(bank: Bank) -> None:
    ids = replaced(bank, OLD, *(f"Step {n} of a long story" for n in range(150)), NEW)
    assert found(bank, "TSLint") == [ids[-1]]


def test_what_matches_by_itself_bears_no_mark(bank: Bank) -> None:
    replaced(bank, OLD, NEW)
    first = bank.recall("Biome")[0]
    assert (first.memory.text, first.flags) == (NEW, ())


def test_asked_for_what_was_replaced_it_is_shown_itself(bank: Bank) -> None:
    old, _ = replaced(bank, OLD, NEW)
    found = bank.recall("TSLint", include_superseded=True)
    assert found[0].memory.id == old
    assert all("replaces" not in hit.flags for hit in found)


def test_a_merged_copy_leads_to_what_it_was_merged_into(bank: Bank) -> None:
    kept = bank.remember("The deploy key rotates monthly.").memory.id
    copy = bank.remember("Monthly rotation of the deployment credential.", on_conflict="ignore").memory.id
    bank.merge(copy, kept)
    assert bank.recall("credential")[0].memory.id == kept
    assert found(bank, "credential") == [kept]


def test_nothing_of_another_user_is_looked_at(bank: Bank) -> None:
    """What only somebody else's replaced memory says finds nothing, though its successor is for everybody."""
    old = bank.remember("Ann's secret codename is Heron.", scope={"user": "ann"}).memory.id
    new = bank.remember("Codenames are no longer in use.").memory.id
    bank.supersede(old, new)
    of_bob = bank.recall("Heron", scope={"user": "bob"}, include_shared=True)
    assert [hit for hit in of_bob if "replaces" in hit.flags] == []
    of_ann = bank.recall("Heron", scope={"user": "ann"}, include_shared=True)
    assert of_ann[0].memory.id == new
    assert old not in {hit.memory.id for hit in (*of_ann, *of_bob)}


def test_filters_hold_for_what_is_shown(bank: Bank) -> None:
    old = bank.remember(OLD, tags=["tools"]).memory.id
    new = bank.remember(NEW, tags=["style"], on_conflict="ignore").memory.id
    bank.supersede(old, new)
    assert [hit.memory.id for hit in bank.recall("TSLint", tags=["style"])] == [new]
    assert not bank.recall("TSLint", tags=["tools"])


@pytest.mark.parametrize("end", ["retract", "forget"])
def test_a_successor_that_is_gone_is_not_shown(bank: Bank, end: str) -> None:
    _, new = replaced(bank, OLD, NEW)
    getattr(bank, end)(new)
    assert new not in {hit.memory.id for hit in bank.recall("TSLint")}


@pytest.mark.parametrize("end", ["retract", "forget"])
def test_a_link_of_a_chain_that_is_gone_is_passed_by(bank: Bank, end: str) -> None:
    first, middle, last = replaced(bank, OLD, "ESLint took over from it.", NEW)
    getattr(bank, end)(middle)
    hit = bank.recall("TSLint")[0]
    assert (hit.memory.id, hit.replaced) == (last, first)
    assert found(bank, "ESLint") == [last]


def test_a_link_that_was_taken_back_and_then_forgotten_leaves_no_gap(bank: Bank) -> None:
    start, first, middle, last = replaced(bank, "Nobody lints at all.", OLD, "ESLint took over from it.", NEW)
    bank.retract(middle)
    bank.retract(first)
    bank.forget(middle)
    assert found(bank, "Nobody at all?") == [last]
    assert bank.get(start).superseded_by == first
    bank.restore(first)
    assert found(bank, "Nobody at all?")[0] == first


def test_a_link_that_came_back_is_the_end_of_its_chain(bank: Bank) -> None:
    """Also where what replaced it never was; with the link itself gone for good, what it replaced stands again."""
    first, middle, _ = replaced(bank, OLD, "ESLint took over from it.", NEW)
    bank.restore(middle)
    assert found(bank, "TSLint")[0] == middle
    bank.undo(bank.history(middle)[-1].id)
    assert bank.recall("TSLint")[0].memory.text == NEW
    bank.undo(middle)
    assert found(bank, "TSLint")[0] == first


def test_what_was_forgotten_leads_nowhere(bank: Bank) -> None:
    old, new = replaced(bank, OLD, NEW)
    bank.forget(old)
    assert all("replaces" not in hit.flags for hit in bank.recall("TSLint") if hit.memory.id == new)


def test_only_the_current_value_is_preferred_where_presets_care(bank: Bank) -> None:
    """Other presets rank by their formula alone."""
    replaced(bank, OLD, NEW)
    assert all("replaces" not in hit.flags for hit in bank.recall("TSLint", preset="hybrid"))
    assert bank.recall("TSLint", preset="hybrid", config={"updates": True})[0].memory.text == NEW
