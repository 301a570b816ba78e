"""Updates: maintenance links the newer memory to the older one, and both stay."""

from __future__ import annotations

from skep.bank.bank import Bank
from skep.model import Memory
from skep.semantics.link_graph import MARKED, UPDATES

OLD = "The budget of the summer fair is 500 euros"
NEW = "The budget of the summer fair is 750 euros"
OTHER = "The budget of the book club is 500 euros"


def told(bank: Bank, text: str, day: int, user: str = "ana") -> Memory:
    at = 1_750_000_000.0 + 86_400 * day
    return bank.remember(text, created_at=at, scope={"user": user}, on_conflict="ignore").memory


def links(bank: Bank) -> list[tuple[str, str]]:
    return [(link.src, link.dst) for link in bank.engine.store.all_links() if link.rel == UPDATES]


def test_a_new_value_is_linked_to_the_old_one_and_both_stay(bank: Bank) -> None:
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


def test_other_scopes_are_not_looked_at(bank: Bank) -> None:
    told(bank, OLD, 0, user="bo")
    told(bank, NEW, 2)
    bank.maintain()
    assert links(bank) == []


def test_a_link_that_is_undone_counts_no_more(bank: Bank) -> None:
    old, new = told(bank, OLD, 0), told(bank, NEW, 2)
    bank.maintain()
    bank.unlink(new.id, old.id, rel=UPDATES)
    hits = bank.recall("What is the budget of the summer fair?", scope={"user": "ana"})
    assert links(bank) == []
    assert bank.engine.setting(MARKED) is True
    assert {hit.memory.id for hit in hits} >= {old.id, new.id}
