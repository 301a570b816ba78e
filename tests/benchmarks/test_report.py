"""The report says what the results say, losses and gaps included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.report.__main__ import write
from benchmarks.report.figures import exponents, verdicts
from benchmarks.report.tables import absent, losses, speed
from tests.benchmarks.tiny import results


def test_a_faster_peer_is_named_with_the_factor() -> None:
    assert "keyword, 10 texts at 1,000: Floor is 2 times as fast (0.1 against 0.2 ms)." in losses(results())


def test_an_engine_with_wrong_answers_wins_nothing() -> None:
    best = {(v.size, v.op): v.best for v in verdicts(results())}

    assert best[(1000, "keyword")] == "floor"
    assert "0.01 (×0.05) r 0.300 †" in speed(results(), 1000)


def test_failures_and_missing_engines_are_listed_with_their_reasons() -> None:
    said = absent(results())

    assert "- mem0: unavailable: no wheel for this system" in said
    assert "- Chroma at 10,000: failed: load: no answer within 5 s" in said


def test_growth_is_the_slope_over_sizes() -> None:
    assert exponents(results())["hybrid"]["floor"] == pytest.approx(1.0)
    assert "chroma" not in exponents(results())["hybrid"]


def test_a_report_is_written_whole_from_a_results_file(tmp_path: Path) -> None:
    source = tmp_path / "speed-quick.json"
    source.write_text(json.dumps(results()))

    text = write(source, tmp_path / "REPORT.md", plots=False).read_text()

    for heading in ("Where others are faster", "Growth", "Safety", "What is missing", "What favours skep"):
        assert f"### {heading}" in text
    assert "commit `0123456789ab`" in text


def test_plots_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    source = tmp_path / "speed-quick.json"
    source.write_text(json.dumps(results()))

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(source, tmp_path / folder / "REPORT.md")

    for name in ("speed-growth.svg", "speed-trade.svg"):
        assert (tmp_path / "a/plots" / name).read_bytes() == (tmp_path / "b/plots" / name).read_bytes()
