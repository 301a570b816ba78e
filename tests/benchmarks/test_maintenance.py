"""The measurements of maintenance, on banks small enough for a test."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.maintenance import report
from benchmarks.maintenance.__main__ import measure
from benchmarks.maintenance.cost import _spread  # pyright: ignore[reportPrivateUsage]
from benchmarks.maintenance.merging import count, planted_copies
from benchmarks.maintenance.planted import COPIES, Planted, planted


def test_the_same_seed_plants_the_same_bank_and_no_text_twice() -> None:
    items = planted(60, 5)
    assert items == planted(60, 5)
    assert len({item.text for item in items}) == len(items)
    assert {item.edit for item in planted(600, 5)} >= set(COPIES)


def test_merges_are_counted_as_right_or_wrong_by_what_the_texts_say() -> None:
    items = [Planted("a", 0, "original"), Planted("A.", 0, "spelling"), Planted("b", 1, "not: value")]
    found = count(items, ["1", "2", "3"], {"2": "1", "3": "2"})
    assert (found["merged"], found["wrong"], found["wrong_share"]) == (1.0, 1, 0.5)


def test_planted_copies_in_the_same_words_are_merged_and_no_near_miss() -> None:
    found = planted_copies(150, 7)
    assert found["copies"] > 60
    for edit in ("article", "spelling"):
        merged, copies = found["by_edit"][edit]
        assert merged == copies > 0
    assert found["wrong"] == 0


def test_every_part_that_needs_no_data_gives_figures() -> None:
    found = measure(None, ["updates", "planted", "pairs", "cost"], 12, [40], 10, 3)
    assert set(found) == {"planted", "cost"}
    (cost,) = found["cost"]
    assert cost["new"] == 10
    assert len(cost["rounds"]) == 3
    ratios = sorted(each["ratio"] for each in cost["rounds"])
    assert [cost["ratio"][name] for name in ("lowest", "median", "highest")] == ratios
    assert ratios[0] > 0
    assert cost["rounds_within_3x"] == sum(ratio <= 3 for ratio in ratios)


def measured(memories: int, ratios: list[float]) -> dict[str, Any]:
    rounds = [{"embed_and_index_s": 0.1, "maintain_s": ratio / 10, "ratio": ratio} for ratio in ratios]
    spread = {name: _spread([each[name] for each in rounds]) for name in rounds[0]}
    return {
        "memories": memories,
        "new": 1000,
        "processor": {"compiled": True, "neighbours": "AVX-512"},
        "load": 0.5,
        "nothing_new_s": 0.002,
        "nothing_new_after_s": 0.01,
        **spread,
        "rounds_within_3x": sum(ratio <= 3 for ratio in ratios),
        "warm_up": {"ratio": 5.0},
        "rounds": rounds,
    }


def test_the_report_says_whether_the_goal_is_reached_and_in_how_many_rounds() -> None:
    text = f"before\n{report.BEGIN}\nold figures\n{report.END}\nafter\n"
    good = report.filled(text, [measured(8000, [1, 1, 1]), measured(100_000, [2.5, 2.9, 3.4])])
    assert good.startswith("before\n")
    assert good.endswith("\nafter\n")
    assert "old figures" not in good
    assert "**2.90** (2.50 to 3.40)" in good
    assert "**reached by the median** (2.90), and in 2 of 3 rounds: 2.50, 2.90, 3.40" in good
    assert "AVX-512" in good
    assert report.filled(good, [measured(100_000, [3.5, 3.2, 2.0])]).count("not reached by the median") == 1
    with pytest.raises(ValueError, match="no place"):
        report.filled("before", [measured(8000, [1])])
