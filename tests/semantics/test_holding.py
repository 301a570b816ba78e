"""What maintenance may replace while nobody looks: values of which one holds at a time, and no others."""

from __future__ import annotations

import pytest

from skep.bank.bank import Bank

BOTH = [
    ("The bug occurs on Windows", "The bug occurs on Linux"),
    ("The API accepts JSON", "The API accepts XML"),
    ("Dana hired Tom", "Dana hired Anna"),
    ("Omar recommended the book Dune", "Omar recommended the book Hyperion"),
    ("Kim reviewed the pull request from Ben", "Kim reviewed the pull request from Ada"),
    ("The outage affected Europe", "The outage affected Asia"),
    ("Tara ran the marathon in Berlin", "Tara ran the marathon in Boston"),
    ("The project was funded by Intel", "The project was funded by Nvidia"),
    ("Eva called the dentist on Monday", "Eva called the dentist on Friday"),
    ("Ana trains on Mondays", "Ana trains on Thursdays"),
    ("Users can log in with Google", "Users can log in with GitHub"),
    ("The plugin works with Firefox", "The plugin works with Chrome"),
    ("Ivan is a member of the climbing club", "Ivan is a member of the sailing club"),
]
"""Neither is replaced, not even where the caller asks for it."""
UNSURE = [
    ("Backups are stored in Frankfurt", "Backups are stored in Dublin"),
    ("The tests pass on Python 3.11", "The tests pass on Python 3.12"),
    ("Ana was in Rome", "Ana was in Paris"),
    ("Maya's brother lives in Cork", "Maya's brother lives in Galway"),
    ("The firewall blocks port 22", "The firewall blocks port 23"),
    ("The SDK is written for Python", "The SDK is written for Java"),
    ("Rita drives a Toyota", "Rita drives a Volvo"),
]
"""Nothing says how many there may be: a judge is asked, and the caller may ask for it."""
ONE = [
    ("Ana lives in Rome", "Ana lives in Oslo"),
    ("The deadline is March 3", "The deadline is March 17"),
    ("The server runs Ubuntu 20.04", "The server runs Ubuntu 22.04"),
    ("The standup starts at 9:30", "The standup starts at 10:00"),
    ("The logs are kept for 30 days", "The logs are kept for 90 days"),
    ("The main language of the backend is Python", "The main language of the backend is Rust"),
    ("The headquarters of Norda is located in Turin", "The headquarters of Norda is located in Milan"),
    ("The author of Uncle Vanya is Anton Chekhov.", "The author of Uncle Vanya is Jean Giraudoux."),
    ("Paul weighs 82 kg", "Paul weighs 78 kg"),
]


def after_maintenance(older: str, newer: str) -> tuple[str, int]:
    """What became of the older memory, and how many pairs wait for a judge."""
    with Bank.open(":memory:") as bank:
        old = bank.remember(older, created_at=1.7e9).memory
        bank.remember(newer, created_at=1.7e9 + 86_400)
        report = bank.maintain()
        return bank.get(old.id).status, report.queued


def after_asking(older: str, newer: str) -> str:
    with Bank.open(":memory:") as bank:
        old = bank.remember(older, created_at=1.7e9).memory
        bank.remember(newer, created_at=1.7e9 + 86_400, on_conflict="supersede")
        return bank.get(old.id).status


@pytest.mark.parametrize(("older", "newer"), BOTH + UNSURE)
def test_what_may_hold_beside_the_new_is_left_in_place_and_shown_to_a_judge(older: str, newer: str) -> None:
    assert after_maintenance(older, newer) == ("active", 1)


@pytest.mark.parametrize(("older", "newer"), BOTH)
def test_what_is_known_to_hold_several_is_not_replaced_even_if_asked(older: str, newer: str) -> None:
    assert after_asking(older, newer) == "active"


@pytest.mark.parametrize(("older", "newer"), ONE)
def test_what_holds_one_value_is_replaced_unattended(older: str, newer: str) -> None:
    assert after_maintenance(older, newer) == ("superseded", 0)


@pytest.mark.parametrize(("older", "newer"), UNSURE + ONE)
def test_who_asks_for_it_has_a_likely_update_replaced(older: str, newer: str) -> None:
    assert after_asking(older, newer) == "superseded"
