"""Arguments of a recall that cannot mean anything are refused, and the refusal says what to do."""

from __future__ import annotations

from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.errors import InvalidInputError

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kind": ""}, "kind must be one of"),
    ({"kind": "facts"}, "did you mean 'fact'"),
    ({"tags": [[]]}, "empty list"),
    ({"domain": ""}, "domain is empty"),
    ({"scope": {"usr": "ana"}}, "did you mean 'user'"),
    ({"min_confidence": 2}, "between 0 and 1"),
    ({"min_importance": float("nan")}, "between 0 and 1"),
    ({"since": "2024-05-02", "until": "2024-05-01"}, r"since \(2024-05-02.*must be before until"),
    ({"since": "2024-05-01", "until": "2024-05-01"}, "must be before until"),
    ({"since": "yesterday"}, "since 'yesterday' is not an ISO 8601 time"),
    ({"as_of": "yesterday"}, "as_of 'yesterday' is not an ISO 8601 time"),
    ({"include_superseded": "no"}, "include_superseded must be true or false"),
    ({"explain": "no"}, "explain must be true or false"),
    ({"limit": 0}, "between 1 and"),
]


@pytest.mark.parametrize(("given", "told"), REFUSED)
def test_what_means_nothing_is_refused(plain_bank: Bank, given: dict[str, Any], told: str) -> None:
    plain_bank.remember("the kettle leaks")
    with pytest.raises(InvalidInputError, match=told):
        plain_bank.recall("kettle", **given)


def test_find_refuses_a_time_that_ends_before_it_begins(plain_bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="must be before until"):
        plain_bank.find(since="2024-05-02", until="2024-05-01")
