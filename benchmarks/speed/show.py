"""The results as a table for the terminal: CPU milliseconds, and ratios to skep and to the floor."""

from __future__ import annotations

from typing import Any

from benchmarks.speed.plan import CHANGES, FINDS, SEARCHES, WRITES


def cell(ops: dict[str, Any], op: str, key: str = "cpu_p50") -> float | None:
    """One figure, or None where there is none."""
    value = ops.get(op, {}).get(key)
    return None if value is None else float(value)


def number(value: float | None) -> str:
    """Three significant figures, or a dash."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.4f}"


def times(ratio: float) -> str:
    """A ratio with two significant figures, whole from ten on.

    >>> times(0.354), times(83.4), times(2345.0)
    ('×0.35', '×83', '×2,345')
    """
    return f"×{ratio:.2g}" if ratio < 10 else f"×{ratio:,.0f}"


WIDTH = 34


def table(report: dict[str, Any]) -> str:
    """Every size, every kind, every engine."""
    names = list(report["engines"])
    lines: list[str] = []
    environment = report["environment"]
    for size, results in report["sizes"].items():
        lines.append(
            f"\n{int(size):,} rows · CPU ms p50 (ratio to skep / floor) · load {environment['load_before']}"
            f" → {environment.get('load_after', '?')} on {environment['cores']} cores"
        )
        lines.append(f"{'':22}" + "".join(f"{name:>{WIDTH}}" for name in names))
        kinds = (*SEARCHES, *CHANGES, *WRITES, *FINDS)
        for op in kinds:
            ops = {name: results.get(name, {}).get("ops", {}) for name in names}
            base, floor = (cell(ops.get(name, {}), op) for name in ("skep", "floor"))
            row = f"{op:22}"
            for name in names:
                value = cell(ops[name], op)
                ratios = [times(value / other) if value and other else "–" for other in (base, floor)]
                right = ops[name].get(op, {}).get("recall")
                mark = "" if right is None else f" r{right:.3f}"
                row += f"{number(value) + ' (' + '/'.join(ratios) + ')' + mark:>{WIDTH}}"
            lines.append(row)
        for label, paths in EXTRAS:
            lines.append(
                f"{label:22}"
                + "".join(f"{number(figure(results.get(name, {}), paths)):>{WIDTH}}" for name in names)
            )
    for name in names:
        for size, results in report["sizes"].items():
            entry = results.get(name, {})
            if entry.get("status") not in (None, "ok"):
                lines.append(f"{name} at {size}: {entry['status']}, {entry.get('reason')}")
    return "\n".join(lines)


EXTRAS = (
    ("load CPU s", ("load.cpu_s", "settle.cpu_s")),
    ("load wall s", ("load.wall_s", "settle.wall_s")),
    ("cold CPU s", ("cold.cpu_s",)),
    ("cold wall s", ("cold.wall_s",)),
    ("RSS MB", ("settle.rss.VmRSS",)),
    ("cold RSS MB", ("cold.rss.VmRSS",)),
    ("disk MB", ("settle.disk_mb",)),
)
"""Figures that are no operation: their label and the paths whose values are added."""


def figure(entry: dict[str, Any], paths: tuple[str, ...]) -> float | None:
    """The sum of the values at the paths, or None where one is missing."""
    total = 0.0
    for path in paths:
        value: Any = entry
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if value is None:
            return None
        total += float(value)  # pyright: ignore[reportUnknownArgumentType]
    return total
