"""The plots of the report, as SVG that comes out the same for the same results."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.report.figures import ENOUGH, ENOUGH_WORDS, TITLES, Report, right, sizes, value

PANELS = ("keyword", "vector", "hybrid", "filtered_1", "write", "write_find")
COLOURS = {
    "skep": "#d97706",
    "floor": "#6b7280",
    "sqlitevec": "#0f766e",
    "chroma": "#7c3aed",
    "lancedb": "#2563eb",
    "qdrant": "#be123c",
    "zvec": "#15803d",
    "mem0": "#000000",
}


def _pyplot() -> Any:
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "skep",
            "svg.fonttype": "path",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )
    return import_module("matplotlib.pyplot")


def _save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Date": None} if path.suffix == ".svg" else None
    figure.savefig(path, bbox_inches="tight", metadata=metadata, dpi=110)
    import_module("matplotlib.pyplot").close(figure)
    return path


def _legend(figure: Any, axes: Any) -> None:
    """One legend below all panels."""
    found = {
        text: mark for axis in axes for mark, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.tight_layout(rect=(0, 0.1, 1, 1))
    figure.legend(found.values(), found.keys(), loc="lower center", ncol=4, frameon=False)


def _plain(axis: Any, *, x: bool = False) -> None:
    """Labels such as 0.1, 1 and 10 instead of powers of ten; few enough not to run into each other."""
    ticker: Any = import_module("matplotlib.ticker")
    each = axis.xaxis if x else axis.yaxis
    each.set_major_locator(ticker.LogLocator(base=10, subs=(1.0, 2.0, 5.0) if x else (1.0,)))
    each.set_major_formatter(ticker.FormatStrFormatter("%g"))
    each.set_minor_formatter(ticker.NullFormatter())


def growth_plot(report: Report, path: Path) -> Path:
    """CPU time against size, one panel per operation, both axes logarithmic."""
    plt = _pyplot()
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.4), sharex=True)
    known = sizes(report)
    for axis, op in zip(axes.flat, PANELS, strict=True):
        for name in report["engines"]:
            points = [(s, t) for s in known if (t := value(report, s, name, op)) is not None]
            if points:
                axis.plot(
                    *zip(*points, strict=True),
                    marker="o",
                    markersize=4,
                    color=COLOURS.get(name),
                    linewidth=2.6 if name == "skep" else 1.2,
                    zorder=3 if name == "skep" else 2,
                    label=report["engines"][name]["title"],
                )
            wrong = [(s, t) for s, t in points if not right(report, s, name, op)]
            if wrong:
                axis.plot(
                    *zip(*wrong, strict=True), "o", color=COLOURS.get(name), markerfacecolor="white", zorder=4
                )
        axis.set(xscale="log", yscale="log", title=TITLES[op])
        axis.set_xticks(known, [f"{size:,}" for size in known])
        axis.minorticks_off()
        _plain(axis)
        axis.grid(visible=True, which="major", alpha=0.25)
    for axis in axes[1]:
        axis.set_xlabel("memories")
    for axis in axes[:, 0]:
        axis.set_ylabel("CPU ms per call (p50)")
    figure.suptitle(
        f"Less is better; both axes logarithmic; hollow: agreement with exact search below {ENOUGH}"
        f" ({ENOUGH_WORDS} where words are ranked)"
    )
    _legend(figure, axes.flat)
    return _save(figure, path)


def trade_plot(report: Report, path: Path) -> Path:
    """Speed against rightness of vector and hybrid search at the largest size."""
    plt = _pyplot()
    size = sizes(report)[-1]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6))
    for axis, op in zip(axes, ("vector_ids50", "hybrid"), strict=True):
        for name in report["engines"]:
            time, recall = value(report, size, name, op), value(report, size, name, op, "recall")
            if time is not None and recall is not None:
                title = report["engines"][name]["title"]
                axis.scatter([time], [recall], s=80, color=COLOURS.get(name), zorder=3, label=title)
        axis.set(xscale="log", title=f"{TITLES[op]}, {size:,} memories")
        _plain(axis, x=True)
        axis.set_xlabel("CPU ms per call (p50); left is faster")
        axis.set_ylabel("agreement with exact search")
        axis.margins(x=0.12, y=0.12)
        least = ENOUGH_WORDS if op == "hybrid" else ENOUGH
        if axis.get_ylim()[0] < least:
            axis.axhline(least, color="#9ca3af", linewidth=1, linestyle=":", zorder=1)
        axis.axhline(1.0, color="#d1d5db", linewidth=1, zorder=1)
        axis.grid(visible=True, alpha=0.25)
    _legend(figure, axes)
    return _save(figure, path)
