"""What is derived follows its sources: it is said again without those that no longer stand."""

from __future__ import annotations

import pytest
from tests.lifecycle.test_reflection import TOLD, tell

from skep.bank.bank import Bank
from skep.lifecycle.maintain import STEPS, MaintainConfig

DERIVE = MaintainConfig(steps=("embed", "rederive"))


@pytest.mark.parametrize("how", ["retract", "forget"])
def test_a_source_that_is_gone_is_no_evidence_any_more(bank: Bank, how: str) -> None:
    told = tell(bank, *TOLD)
    bank.maintain()
    (fact,) = bank.find(kind="fact")
    getattr(bank, how)(told[1].id)
    bank.maintain(DERIVE)
    again = bank.get(fact.id)
    left = {each.id for each in told if each is not told[1]}
    assert (set(again.evidence), again.stale, again.text) == (left, False, fact.text)
    assert {link.dst for link in bank.neighbors(fact.id, "derived_from").links} == left
    with Bank.open(":memory:") as other:
        other.apply(bank.events())
        assert other.get(fact.id).evidence == again.evidence
    bank.revise(fact.id, importance=0.9)
    assert bank.get(fact.id).evidence == again.evidence
    assert bank.maintain().changed == 0


def test_words_that_only_a_lost_source_had_are_gone(bank: Bank) -> None:
    told = tell(bank, "The printer on floor two jams", "Note: the printer on floor two jams")
    bank.maintain(
        MaintainConfig(steps=("extract",)), distil=lambda _: ["The printer on floor two jams, says Ana"]
    )
    (fact,) = bank.find(kind="fact")
    bank.retract(told[0].id)
    bank.maintain(DERIVE)
    assert bank.get(fact.id).text == "Note: the printer on floor two jams"


def test_a_model_s_words_stay_while_a_source_says_them(bank: Bank) -> None:
    told = tell(bank, *TOLD)
    words = "The nightly build failed: node 3 had a full disk"
    bank.maintain(MaintainConfig(steps=("extract",)), distil=lambda _: [words])
    (fact,) = bank.find(kind="fact")
    bank.retract(told[0].id)
    bank.maintain(DERIVE)
    assert bank.get(fact.id).text == words


def test_sources_that_were_summed_up_still_count(bank: Bank) -> None:
    told = tell(bank, *TOLD)
    bank.maintain(MaintainConfig(steps=STEPS))
    (fact,) = bank.find(kind="fact")
    bank.retract(told[3].id)
    bank.maintain(DERIVE)
    again = bank.get(fact.id)
    assert (again.status, again.stale) == ("active", False)
    assert set(again.evidence) == {each.id for each in told[:3]}
