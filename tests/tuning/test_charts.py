"""Figures made of characters."""

from __future__ import annotations

from skep.tuning import tuning_report


def test_a_sparkline_has_one_character_per_value() -> None:
    assert tuning_report.sparkline([0.1, 0.5, 0.9]) == "▁▅█"
    assert tuning_report.sparkline([1, 1]) == "▅▅"
    assert tuning_report.sparkline([]) == ""


def test_a_score_curve_marks_the_cut() -> None:
    lines = tuning_report.score_curve([1.0, 0.9, 0.2], 2).splitlines()

    assert "cut" in lines[2]
    assert len(lines) == 4
    assert "cut" not in tuning_report.score_curve([1.0, 0.9], 2)


def test_tables_align_figures_to_the_right() -> None:
    assert tuning_report.table(("name", "n"), [("a", "1"), ("bb", "20")]).splitlines()[2:] == [
        "a      1",
        "bb    20",
    ]
