"""What takes the place of what: nothing is replaced by what nobody is shown."""

from __future__ import annotations

import pytest

from skep.bank.bank import Bank
from skep.errors import ForgottenError, LineageError


@pytest.mark.parametrize("verb", ["supersede", "merge"])
@pytest.mark.parametrize("status", ["retracted", "deprecated", "quarantined", "expired"])
def test_nothing_is_replaced_by_what_is_shown_to_nobody(plain_bank: Bank, verb: str, status: str) -> None:
    old, new = (plain_bank.remember(text).memory.id for text in ("The roof is red", "The door is blue"))
    plain_bank.retract(new) if status == "retracted" else plain_bank.mark(new, status)
    before = plain_bank.versions()

    with pytest.raises(LineageError, match=f"{new} is {status}.*restore it first"):
        getattr(plain_bank, verb)(old, new)
    assert (plain_bank.versions(), plain_bank.get(old).status) == (before, "active")

    plain_bank.restore(new)
    getattr(plain_bank, verb)(old, new)
    plain_bank.restore(old)
    assert plain_bank.get(old).status == "active"


def test_nor_by_what_was_itself_replaced_by_that(plain_bank: Bank) -> None:
    old, new, last = (plain_bank.remember(text).memory.id for text in ("red roof", "blue door", "tall tree"))
    plain_bank.supersede(new, last)
    plain_bank.supersede(old, new)
    plain_bank.restore(old)
    gone = plain_bank.history(plain_bank.retract(last).id)[-1]
    with pytest.raises(LineageError, match=f"{last}, which stands for {new}, is retracted"):
        plain_bank.supersede(old, new)

    plain_bank.undo(gone.id)
    assert plain_bank.supersede(old, new).superseded_by == new


def test_nor_by_what_was_forgotten(plain_bank: Bank) -> None:
    old, new = (plain_bank.remember(text).memory.id for text in ("The roof is red", "The door is blue"))
    plain_bank.forget(new)
    with pytest.raises(ForgottenError, match="was forgotten"):
        plain_bank.supersede(old, new)


def test_what_replaces_a_memory_may_be_retracted_afterwards_and_that_undone(plain_bank: Bank) -> None:
    old, new = (plain_bank.remember(text).memory.id for text in ("The roof is red", "The roof is blue"))
    plain_bank.supersede(old, new)
    plain_bank.retract(new)
    retraction = plain_bank.history(new)[-1]
    plain_bank.undo(retraction.id)

    assert (plain_bank.get(old).status, plain_bank.get(new).status) == ("superseded", "active")
    assert plain_bank.restore(old).status == "active"
