"""Almost the same words about different matters: neither takes the place of the other."""

from __future__ import annotations

import pytest

from skep.bank.bank import Bank
from skep.embedding.embedder import default_embedder
from skep.semantics.compare_texts import compare

APART = [
    ("pytest failed in test_a", "pytest failed in test_b"),
    ("The build failed in tests/test_a.py", "The build failed in tests/test_b.py"),
    ("Deploy failed on host db1.example.com", "Deploy failed on host db2.example.com"),
    ("npm install failed with ENOENT", "npm install failed with EACCES"),
    ("Migration 0012 failed on staging", "Migration 0013 failed on staging"),
    ("mypy reports an error in src/foo.py line 10", "mypy reports an error in src/bar.py line 12"),
    ("ImportError in module foo.bar", "ImportError in module foo.baz"),
    ("There is a bug in src/parser.py", "There is a bug in src/lexer.py"),
    ("Do not edit src/generated/api.ts", "Do not edit src/generated/models.ts"),
    ("Never commit to release_1", "Never commit to release_2"),
    ("src/app/main.py has no tests", "src/app/util.py has no tests"),
    ("Error E1001 means the token expired", "Error E1002 means the token expired"),
    ("The function parse_date raises ValueError", "The function parse_time raises ValueError"),
    ("team A uses X", "team B uses Y"),
    ("Team A uses Go", "Team B uses Go"),
    ("team a needs a token", "team b needs a token"),
    ("Plan A costs 100 dollars", "Plan B costs 200 dollars"),
    ("Room A seats 10 people", "Room B seats 20 people"),
    ("In team A we use tabs", "In team B we use spaces"),
    ("Section A of the report is done", "Section B of the report is missing"),
]
REPLACED = [
    ("Our config lives in /etc/app/old.yaml", "Our config lives in /etc/app/new.yaml"),
    ("The entry point is src/main.py", "The entry point is src/app.py"),
    ("The database host is db1.example.com", "The database host is db2.example.com"),
    ("The server runs node18", "The server runs node20"),
    ("Team A uses Postgres for the ledger", "Team A uses MySQL for the ledger"),
    ("We chose plan A", "We chose plan B"),
    ("The blood type of Ana is A", "The blood type of Ana is B"),
    ("Plan A is the default", "Plan B is the default"),
    ("The last deploy failed on host web1", "The last deploy failed on host web2"),
    ("The nightly run failed 3 times", "The nightly run failed 5 times"),
    ("Use node18 for the builds", "Use node20 for the builds"),
]


@pytest.mark.parametrize(("older", "newer"), APART)
@pytest.mark.parametrize("turned", [False, True])
def test_what_is_of_another_matter_replaces_nothing(bank: Bank, older: str, newer: str, turned: bool) -> None:
    one, other = (newer, older) if turned else (older, newer)
    bank.remember(one)
    done = bank.remember(other, on_conflict="supersede")

    assert (done.action, done.conflicts) == ("stored", ())


@pytest.mark.parametrize(("older", "newer"), REPLACED)
def test_what_has_one_value_at_a_time_is_still_replaced(bank: Bank, older: str, newer: str) -> None:
    bank.remember(older)

    assert bank.remember(newer, on_conflict="supersede").action == "superseded"


@pytest.mark.parametrize(
    ("one", "other", "kind"),
    [
        ("The build failed on main", "The build passed on main", "contradiction"),
        ("Model A costs more than model B", "Model B costs less than model A", "duplicate"),
    ],
)
def test_the_rules_say_nothing_of_what_is_no_other_matter(one: str, other: str, kind: str) -> None:
    embedder = default_embedder()
    a, b = embedder.embed([one, other])
    verdict = compare(one, other, similarity=embedder.calibrate(float(a @ b)))

    assert verdict.kind == kind
