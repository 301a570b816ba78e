"""What the second look adds to a score: numbers, contrast, peers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from skep.retrieval.pipeline import run
from skep.retrieval.recall_config import PRESETS
from skep.retrieval.shortlist import contrast, peers
from skep.retrieval.sources import InMemorySources

World = Callable[..., InMemorySources]
NOW = 1_750_000_000.0
PLAIN = msgspec.structs.replace(PRESETS["default"], numbers=0.0, contrast=0.0, peers=0.0, currency=False)


def test_contrast_leaves_out_what_all_candidates_share() -> None:
    shared = np.array([1.0, 0.0, 0.0], np.float32)
    vectors = np.array([[0.9, 0.4, 0.0], [0.9, -0.4, 0.0], [0.9, 0.0, 0.4]], np.float32)

    found = contrast(shared * 0.9 + np.array([0.0, 0.3, 0.0], np.float32), vectors)

    assert found.argmax() == 0
    assert found[0] > 0.9
    assert found[1] < 0


def test_contrast_of_equal_candidates_is_nothing() -> None:
    assert contrast(np.ones(2, np.float32), np.ones((3, 2), np.float32)).tolist() == [0.0, 0.0, 0.0]


def test_a_peer_counts_by_its_own_rank_and_nobody_is_its_own_peer() -> None:
    alike = np.array([[1.0, 0.5], [0.5, 1.0]])

    assert peers(alike, np.array([1.0, 0.5])).tolist() == [0.25, 0.5]
    assert peers(np.ones((1, 1)), np.ones(1)).tolist() == [0.0]
    assert peers(alike, np.zeros(2)).tolist() == [0.0, 0.0]


def test_the_number_in_the_question_lifts_the_memory_that_holds_it(world: World) -> None:
    sources = world(
        "The audit report of the northern branch, audit and report",
        "The audit report of 2019, signed by many",
    )
    asked = "audit report northern branch 2019"

    def first(config: object) -> str:
        return run(asked, config, sources, NOW, limit=2).hits[0].memory.id  # type: ignore[arg-type]

    assert first(PLAIN) == "m-0"
    assert first(msgspec.structs.replace(PLAIN, numbers=3.0)) == "m-1"


def test_a_question_without_a_number_has_no_such_signal(world: World) -> None:
    found = run("audit report", PRESETS["default"], world("The audit report", "A report"), NOW)

    assert "numbers" not in found.hits[0].signals


@pytest.mark.parametrize("name", ["contrast", "peers"])
def test_each_can_be_switched_off_and_is_shown_where_it_is_on(world: World, name: str) -> None:
    sources = world("Ana likes tea", "Ana likes coffee", "The ledger is full")

    on = run("what does Ana like", PRESETS["default"], sources, NOW)
    off = run("what does Ana like", msgspec.structs.replace(PRESETS["default"], **{name: 0.0}), sources, NOW)

    assert name in on.hits[0].signals
    assert name not in off.hits[0].signals
