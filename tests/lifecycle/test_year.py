"""A year of daily maintenance: no question that was answered before is unanswered after it."""

from __future__ import annotations

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank

FACTS = (
    ("The tide gauge in the harbour is read at six", "when is the tide gauge read?"),
    ("Marit keeps the spare keys of the boathouse", "who keeps the spare keys of the boathouse?"),
    ("The winch needs grade two grease", "which grease does the winch need?"),
    ("Ferries to Hitra leave from pier four", "which pier do ferries to Hitra leave from?"),
    ("Ferries to Smola leave from pier seven", "which pier do ferries to Smola leave from?"),
    ("The guest berth costs 25 euros a night", "what does a guest berth cost?"),
    ("The guest berth does not include electricity", "does the guest berth include electricity?"),
    ("Use a bowline on the mooring ring", "which knot on the mooring ring?"),
    ("Do not use a clove hitch on the mooring ring", "may I use a clove hitch on the mooring ring?"),
    ("Skipper Aune likes coffee", "what does skipper Aune like?"),
    ("Skipper Aune drinks coffee at every watch", "what does skipper Aune drink at every watch?"),
)
EPISODES = (
    "User: the bilge pump fails again. Assistant: The float switch was stuck; clean it. User: works.",
    "User: which paint for the hull? Assistant: I don't have a paint for the hull stored.",
)


@pytest.mark.slow
def test_a_year_of_daily_maintenance_takes_no_answer_away() -> None:
    clock = Clock()
    with Bank.open(":memory:", now=clock) as kept, Bank.open(":memory:", now=clock) as left_alone:
        for bank in (kept, left_alone):
            for text, _ in FACTS:
                bank.remember(text)
            for text in EPISODES:
                bank.remember(text, kind="episode")
        for _ in range(365):
            clock.pass_days(1)
            kept.maintain()

        for text, question in FACTS:
            before, after = (
                [hit.memory.text for hit in bank.recall(question, limit=5)] for bank in (left_alone, kept)
            )
            assert (text in after) >= (text in before), question
        assert {memory.status for memory in kept.find(limit=100)} == {"active"}
        assert {memory.confidence for memory in kept.find(kind="fact")} == {0.8}
        assert kept.maintain().changed == 0
