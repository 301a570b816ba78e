"""Small plots without a library: bars and curves for the terminal, and the same curve as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bars(values: Mapping[str, float], *, width: int = 40, most: float | None = None) -> list[str]:
    """One line per value, as long as its share of the largest.

    >>> bars({"a": 1.0, "b": 0.5}, width=4)
    ['a  ████  1.00', 'b  ██    0.50']
    """
    top = most or max(values.values(), default=1.0) or 1.0
    label = max((len(name) for name in values), default=0)
    lines: list[str] = []
    for name, value in values.items():
        eighths = round(max(0.0, min(1.0, value / top)) * width * 8)
        bar = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
        lines.append(f"{name:<{label}}  {bar:<{width}}  {value:.2f}")
    return lines


def curve(points: Sequence[float], *, height: int = 8, top: float = 1.0) -> list[str]:
    """A curve of values from 0 to `top`, one column per point, with a scale on the left."""
    rows: list[str] = []
    for level in range(height, 0, -1):
        cells = ""
        for value in points:
            filled = value / top * height - (level - 1)
            cells += "█ " if filled >= 1 else ("▄ " if filled >= 0.5 else "  ")
        rows.append(f"{top * level / height:4.2f} │{cells}")
    return [
        *rows,
        "     └" + "─" * (2 * len(points)),
        "      " + " ".join(str((n + 1) % 10) for n in range(len(points))),
    ]


def curve_svg(
    points: Sequence[float], *, title: str, x: str, y: str, width: int = 560, height: int = 300
) -> str:
    """The same curve as an SVG document."""
    left, right, top, bottom = 60, 20, 40, 45
    inner_w, inner_h = width - left - right, height - top - bottom
    steps = max(1, len(points) - 1)

    def place(index: int, value: float) -> tuple[float, float]:
        return left + inner_w * index / steps, top + inner_h * (1 - max(0.0, min(1.0, value)))

    coordinates = [place(index, value) for index, value in enumerate(points)]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in coordinates)
    grid = "".join(
        f'<line x1="{left}" x2="{width - right}" y1="{place(0, share)[1]:.1f}" y2="{place(0, share)[1]:.1f}" '
        f'stroke="#ddd"/><text x="{left - 8}" y="{place(0, share)[1] + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        for share in (0, 0.25, 0.5, 0.75, 1.0)
    )
    ticks = "".join(
        f'<text x="{px:.1f}" y="{height - bottom + 16}" text-anchor="middle">{index + 1}</text>'
        for index, (px, _) in enumerate(coordinates)
        if len(points) <= 20 or index % 5 == 4
    )
    dots = "".join(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="#b8860b"/>' for px, py in coordinates)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>'
        f'<text x="{left}" y="22" font-size="14">{escape(title)}</text>{grid}{ticks}'
        f'<polyline points="{path}" fill="none" stroke="#b8860b" stroke-width="2"/>{dots}'
        f'<text x="{left + inner_w / 2:.0f}" y="{height - 10}" text-anchor="middle">{escape(x)}</text>'
        f'<text x="14" y="{top + inner_h / 2:.0f}" transform="rotate(-90 14 {top + inner_h / 2:.0f})" '
        f'text-anchor="middle">{escape(y)}</text></svg>\n'
    )
