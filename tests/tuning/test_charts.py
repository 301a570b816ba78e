from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.errors import MissingExtraError
from skep.tuning import deploy as deploy_module
from skep.tuning import tuning_report
from skep.tuning.deploy import compare, deploy, judge
from skep.tuning.evaluate import evaluate
from skep.tuning.findings import RefusedError
from skep.tuning.workspace import Workspace


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


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_every_figure_is_written_as_an_image(
    suffix: str, tmp_path: Path, workspace: Workspace, indexed: Bank, rng: np.random.Generator
) -> None:
    pytest.importorskip("matplotlib")
    configs = (workspace.config("naive"), workspace.config("filtered"))
    for config in configs:
        verdict = judge(workspace, indexed, config, workspace.eval_set(), rng=rng)
        deploy(workspace, indexed, verdict, author="ana")
    results = [evaluate(indexed, config, workspace.eval_set(), rng=rng) for config in configs]
    figures = {
        "versions": tuning_report.versions_figure(deploy_module.history(indexed)),
        "deltas": tuning_report.deltas_figure(compare(results[0], results[1], configs=configs, rng=rng)),
        "scores": tuning_report.scores_figure("a query", [1.0, 0.9, 0.2], 2),
    }
    start = b"\x89PNG" if suffix == ".png" else b"<?xml"
    for name, figure in figures.items():
        tuning_report.save_figure(figure, tmp_path / f"{name}{suffix}")
        assert (tmp_path / f"{name}{suffix}").read_bytes().startswith(start)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(RefusedError):
        tuning_report.save_figure(tuning_report.scores_figure("q", [1.0], 1), tmp_path / "figure.docx")


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)

    with pytest.raises(MissingExtraError, match=r"skep\[plot\]"):
        tuning_report.scores_figure("q", [1.0], 1)
