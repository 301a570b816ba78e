"""How far a call goes through the house: budgets for `scripts/walk.py`."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from skep.runtime import native

WALK = Path(__file__).parents[1] / "scripts" / "walk.py"
BUDGETS = {
    "minilm": {"remember": (33, 131), "recall": (30, 90), "hive recall": (45, 440)},
    "static": {"remember": (32, 99), "recall": (29, 90), "hive recall": (46, 475)},
}
"""Modules, and calls from one of them into another, by embedder. They only ever become smaller. The transformer reads a
new memory together with its neighbours. A hive recall asks three members, each of which searches its own bank, so that
its jumps are those of several recalls."""
BY_NUMPY = 80
"""More jumps without the compiled core, which does in one call what numpy does in several."""


@pytest.fixture(scope="module", params=BUDGETS)
def walked(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param, runpy.run_path(str(WALK))["walks"](request.param)


@pytest.mark.parametrize("title", BUDGETS["minilm"])
def test_a_call_stays_within_its_budget_of_modules_and_jumps(
    title: str, walked: tuple[str, dict[str, Any]]
) -> None:
    embedder, walks = walked
    modules, jumps = BUDGETS[embedder][title]
    walk = walks[title]
    jumps += 0 if native is not None else BY_NUMPY
    assert (len(walk.modules) <= modules, walk.total <= jumps) == (True, True), (
        len(walk.modules),
        walk.total,
    )


def test_a_walk_begins_where_a_user_enters(walked: tuple[str, dict[str, Any]]) -> None:
    assert [next(iter(walk.modules)).partition(".")[0] for walk in walked[1].values()] == [
        "bank",
        "bank",
        "hive",
    ]
