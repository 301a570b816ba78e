"""Evidence says what a fact says; what asks, doubts, plans, contradicts or speaks of something else does not."""

from __future__ import annotations

import pytest

from skep.semantics.evidence import Said, against, supports, supports_many, told

FULL = "The nightly build failed because the disk was full on node 3"
SUPPORTED = [
    ("The staging database runs Postgres 14", "As seen today, the staging database runs Postgres 14"),
    (FULL, "The nightly build failed: the disk on node 3 was full once more"),
    (FULL, "The nightly build failed because node 3 had a full disk"),
    (FULL + " again", FULL),
    ("Ada moved to Oslo", "Long talk with the team. Ada has moved to Oslo and likes it there. We had lunch."),
    ("Deploys need two approvals. The canary runs for ten minutes.",
     "The canary runs for ten minutes. As ever, deploys need two approvals."),
]  # fmt: skip
UNSUPPORTED = [
    ("The release is on Friday", "Is the release on Friday?"),
    ("Is the release on Friday?", "The release is on Friday"),
    ("Deploys need two approvals", "If the budget is cut, deploys need two approvals"),
    ("Deploys need two approvals", "Deploys no longer need two approvals"),
    ("Deploys need two approvals", "The team thinks deploys need two approvals"),
    ("Deploys need two approvals. The canary runs for ten minutes.", "Deploys need two approvals."),
    ("The Berlin office has 40 desks", "The Munich office has 40 desks"),
    ("The Berlin office has 40 desks", "The Berlin office has 45 desks"),
    ("Use ruff for linting", "We talked about whether to use ruff or flake8 for linting"),
    ("The test suite passes on Windows", "The test suite does not pass on Windows"),
    ("The staging database runs Postgres 14", "As seen today, the staging database runs Postgres 16"),
    ("The office is in Rome", "The office was in Rome"),
    ("Ana likes Bob", "Bob likes Ana"),
    ("The type of music that Joe plays is rock music", "The type of music that Joe plays is rap rock"),
]


@pytest.mark.parametrize(("fact", "text"), SUPPORTED)
def test_who_says_what_a_fact_says_supports_it(fact: str, text: str) -> None:
    assert supports(fact, text, similarity=0.88)


@pytest.mark.parametrize(("fact", "text"), UNSUPPORTED)
def test_who_says_something_else_does_not(fact: str, text: str) -> None:
    assert not supports(fact, text, similarity=0.88)


def test_many_are_answered_as_each_would_be() -> None:
    every = [Said(fact, text, 0.88) for fact, text in (*SUPPORTED, *UNSUPPORTED)]
    assert supports_many(every) == [True] * len(SUPPORTED) + [False] * len(UNSUPPORTED)


def test_one_sentence_of_many_may_be_against_a_fact() -> None:
    fact = "The test suite passes on Windows"
    assert against(fact, "A long day. The test suite does not pass on Windows. We went home.", similarity=0.8)
    assert not against(fact, "A long day. The test suite passes on Windows. We went home.", similarity=0.8)


def test_the_occasion_is_no_part_of_what_happened_but_may_be_what_is_said() -> None:
    assert told("The backup failed on run 3.") == ("The backup failed",)
    assert told("The trial ends on day 3") == ("The trial ends on day 3",)
    assert told("How did it fail? It failed on node 3.") == ("It failed on node 3.",)
