"""Values revised in passing: maintenance links the newer memory to the older one, and recall puts it first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.model import Hit, Link, Memory
from skep.recall.conflict_marks import newest_first
from skep.semantics.link_graph import MARKED, UPDATES

OLD = "I'm planning a movie night for the family, and the snack budget is $50, so what should we get for everybody?"
NEW = "Thinking about drinks for Friday: I've adjusted the snack budget to $75, can you suggest some that go with it?"
OTHER = "I'm worried about the $50 book budget of my reading group, and whether that is enough for everybody"


def told(bank: Bank, text: str, day: int, user: str = "ana") -> Memory:
    at = 1_750_000_000.0 + 86_400 * day
    return bank.remember(
        text, kind="episode", created_at=at, scope={"user": user}, on_conflict="ignore"
    ).memory


def links(bank: Bank) -> list[tuple[str, str]]:
    return [(link.src, link.dst) for link in bank.engine.store.all_links() if link.rel == UPDATES]


def test_a_turn_that_revises_a_value_is_linked_to_the_one_that_held_it_and_both_stay(bank: Bank) -> None:
    old, other, new = told(bank, OLD, 0), told(bank, OTHER, 1), told(bank, NEW, 2)
    report = bank.maintain()

    assert links(bank) == [(new.id, old.id)]
    assert {bank.get(memory.id).status for memory in (old, other, new)} == {"active"}
    assert any("newer value" in action for step in report.steps for action in step.actions)


def test_running_again_or_dry_writes_no_link(bank: Bank) -> None:
    told(bank, OLD, 0)
    told(bank, NEW, 2)
    bank.maintain(dry_run=True)
    assert links(bank) == []
    bank.maintain()
    events = bank.status().events
    bank.engine.store.set_mark("conflicts", 0)
    bank.maintain()
    assert len(links(bank)) == 1
    assert bank.status().events == events


def test_an_older_turn_revises_nothing_and_other_scopes_are_not_looked_at(bank: Bank) -> None:
    told(bank, NEW, 0)
    told(bank, OLD, 2)
    told(bank, OLD, -2, user="bo")
    bank.maintain()
    assert links(bank) == []


def test_recall_puts_the_newer_value_first_and_marks_the_older(bank: Bank) -> None:
    old, new = told(bank, OLD, 0), told(bank, NEW, 2)
    bank.maintain()
    hits = bank.recall("What is the snack budget for the family movie night?", scope={"user": "ana"})
    order = [hit.memory.id for hit in hits]
    flags = {hit.memory.id: hit.flags for hit in hits}
    assert order.index(new.id) < order.index(old.id)
    assert "outdated" in flags[old.id]
    assert "outdated" not in flags[new.id]
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


def test_a_question_for_something_else_in_the_older_turn_still_gets_it_as_it_is(bank: Bank) -> None:
    old = told(bank, OLD, 0)
    told(bank, NEW, 2)
    bank.maintain()
    hits = bank.recall("Who comes to the family movie night?", scope={"user": "ana"})
    assert (hits[0].memory.id, hits[0].flags) == (old.id, ())


def test_a_preset_that_ranks_by_meaning_alone_still_does(bank: Bank) -> None:
    told(bank, OLD, 0)
    told(bank, NEW, 2)
    ask = "What is the snack budget for the family movie night?"
    before = [hit.memory.id for hit in bank.recall(ask, scope={"user": "ana"}, preset="semantic")]
    bank.maintain()
    assert before == [hit.memory.id for hit in bank.recall(ask, scope={"user": "ana"}, preset="semantic")]


def test_a_link_that_is_undone_counts_no_more(bank: Bank) -> None:
    old, new = told(bank, OLD, 0), told(bank, NEW, 2)
    bank.maintain()
    bank.unlink(new.id, old.id, rel=UPDATES)
    hits = bank.recall("What is the snack budget for the family movie night?", scope={"user": "ana"})
    assert links(bank) == []
    assert bank.engine.setting(MARKED) is True
    assert {hit.memory.id for hit in hits} >= {old.id, new.id}


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_every_hit_stays_and_scores_stay_where_they_are_whatever_the_links(
    pairs: list[tuple[int, int]],
) -> None:
    hits = tuple(
        Hit(memory=Memory(id=str(n), kind="fact", text=f"memory {n}"), score=1.0 - n / 10) for n in range(6)
    )
    found = newest_first(
        "what is it?", hits, lambda _: [Link(src=str(a), dst=str(b), rel=UPDATES) for a, b in pairs]
    )
    assert {hit.memory.id for hit in found} == {hit.memory.id for hit in hits}
    assert [hit.score for hit in found] == [hit.score for hit in hits]


def test_a_chain_of_changes_ends_with_the_newest_on_top() -> None:
    hits = tuple(
        Hit(memory=Memory(id=name, kind="fact", text=name), score=score)
        for name, score in zip("abc", (3, 2, 1), strict=True)
    )
    chain = [Link(src="c", dst="b", rel=UPDATES), Link(src="b", dst="a", rel=UPDATES)]
    found = newest_first("what is it?", hits, lambda _: chain)
    assert [(hit.memory.id, "outdated" in hit.flags) for hit in found] == [
        ("c", False),
        ("b", True),
        ("a", True),
    ]
