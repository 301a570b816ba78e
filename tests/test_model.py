"""Values show themselves in a line, and in a notebook as a table."""

from __future__ import annotations

from datetime import UTC, datetime

from skep.bank.bank import Bank
from skep.model import Memory


def test_a_memory_shows_itself_in_one_line_however_long_its_text_is() -> None:
    shown = repr(Memory("a-1", "fact", "tea is green\n" * 900, title="Tea"))
    assert shown.startswith("Memory(a-1, fact, active, 'Tea: tea is green tea")
    assert len(shown) <= 120
    assert "\n" not in shown


def test_the_time_a_memory_was_learnt_at_can_be_read_as_a_datetime() -> None:
    memory = Memory("a-1", "fact", "tea", created_at=1_750_000_000.5)
    assert memory.created == datetime(2025, 6, 15, 15, 6, 40, 500_000, UTC)


def test_a_bank_its_pages_and_its_hits_are_tables_in_a_notebook_whatever_they_hold(bank: Bank) -> None:
    bank.remember("<script>tea</script> is green")
    for shown in (bank, bank.find(), bank.recall("tea green")):
        html = shown._repr_html_()  # pyright: ignore[reportPrivateUsage]
        assert "&lt;script&gt;tea" in html
        assert "<script" not in html
    assert repr(bank).endswith("1 memories)")
    bank.close()
    assert repr(bank) == "Bank(closed)"
