"""The same figures as SVG or PNG, with the `plot` extra."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skep.errors import MissingExtraError
from skep.tuning.compare import Comparison
from skep.tuning.files import write_bytes
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.versions import Version

FORMATS = (".svg", ".png")
_GOOD, _BAD, _PLAIN = "#2a7f62", "#b3423a", "#4a5a6a"


def save_figure(figure: Any, file: Path) -> None:
    """Write a figure as SVG or PNG, by the suffix of the file."""
    suffix = file.suffix.lower()
    if suffix not in FORMATS:
        what, fix = f"{file.name!r} is not an image", f"end it with {' or '.join(FORMATS)}"
        raise RefusedError([Finding(code="unsupported-file", file=file.name, what=what, fix=fix)])
    out = io.BytesIO()
    figure.savefig(out, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)
    write_bytes(file, out.getvalue())


def versions_figure(versions: Sequence[Version]) -> Any:
    """nUDCG and distractors on the holdout, over versions."""
    figure, axes = _figure()
    measured = [version for version in versions if version.results is not None]
    numbers = [version.number for version in measured]
    axes.plot(numbers, [v.results.nudcg for v in measured if v.results], marker="o", color=_GOOD)
    axes.set(xlabel="version", ylabel="nUDCG (holdout)", xticks=numbers)
    for version in measured:
        if version.config is not None and version.results is not None:
            label = f" {version.config.name}" + (" (forced)" if version.forced else "")
            axes.annotate(label, (version.number, version.results.nudcg), fontsize=8)
    other = axes.twinx()
    other.bar(
        numbers, [v.results.distractors for v in measured if v.results], color=_BAD, alpha=0.25, width=0.4
    )
    other.set_ylabel("distractors")
    return figure


def deltas_figure(comparison: Comparison) -> Any:
    """Change of nUDCG per query, worst first."""
    deltas = sorted(comparison.deltas, key=lambda item: item.delta)
    figure, axes = _figure(height=1.2 + 0.18 * len(deltas))
    colours = [_GOOD if item.delta >= 0 else _BAD for item in deltas]
    axes.barh([item.query for item in deltas], [item.delta for item in deltas], color=colours)
    axes.axvline(0, color=_PLAIN, linewidth=0.8)
    axes.set(xlabel="change of nUDCG", title=comparison.verdict())
    axes.tick_params(axis="y", labelsize=7)
    axes.title.set_fontsize(9)
    return figure


def scores_figure(query: str, scores: Sequence[float], kept: int) -> Any:
    """Scores by rank, with the place where the answer was cut."""
    figure, axes = _figure()
    ranks = list(range(1, len(scores) + 1))
    axes.plot(ranks, list(scores), marker="o", color=_PLAIN)
    if kept < len(scores):
        axes.axvline(kept + 0.5, color=_BAD, linestyle="--", label=f"cut after {kept}")
        axes.legend()
    axes.set(xlabel="rank", ylabel="score", xticks=ranks, title=query)
    return figure


def _figure(height: float = 3.6) -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("drawing figures", "plot") from None
    figure: Any = Figure(figsize=(7.2, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes
