"""How far a call goes through the house: budgets for `scripts/walk.py`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

WALK = Path(__file__).parents[1] / "scripts" / "walk.py"
BUDGETS = {"remember": (35, 130), "recall": (44, 330), "hive recall": (56, 830)}
"""Modules, and calls from one of them into another. They only ever become smaller. A hive recall asks three members,
each of which searches its own bank, so that its jumps are those of several recalls."""


@pytest.fixture(scope="module")
def walks() -> dict[str, Any]:
    return runpy.run_path(str(WALK))["walks"]()


@pytest.mark.parametrize("title", BUDGETS)
def test_a_call_stays_within_its_budget_of_modules_and_jumps(title: str, walks: dict[str, Any]) -> None:
    modules, jumps = BUDGETS[title]
    walk = walks[title]
    assert (len(walk.modules) <= modules, walk.total <= jumps) == (True, True), (
        len(walk.modules),
        walk.total,
    )


def test_a_walk_begins_where_a_user_enters(walks: dict[str, Any]) -> None:
    assert [next(iter(walk.modules)).partition(".")[0] for walk in walks.values()] == ["bank", "bank", "hive"]
