"""Figures in the terminal: sparklines, bars made of characters, aligned tables. No dependency, no colour."""

from __future__ import annotations

from collections.abc import Sequence

_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def sparkline(values: Sequence[float]) -> str:
    """Values as a row of blocks, lowest to highest.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▆█'
    """
    if not values:
        return ""
    low, high = min(values), max(values)
    if high <= low:
        return _LEVELS[len(_LEVELS) // 2] * len(values)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round((value - low) / (high - low) * top)] for value in values)


def bar(value: float, largest: float, width: int = 20) -> str:
    """A bar of at most `width` characters.

    >>> bar(1.5, 3, 4)
    '██'
    """
    if largest <= 0 or value <= 0:
        return ""
    eighths = round(min(1.0, value / largest) * width * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def signed_bar(value: float, largest: float, width: int = 10) -> str:
    """A bar to the right of the middle for gains and to the left for losses.

    >>> signed_bar(-1, 1, 3), signed_bar(1, 1, 3)
    ('███|', '   |███')
    """
    length = round(min(1.0, abs(value) / largest) * width) if largest > 0 else 0
    return " " * (width - length) + "█" * length + "|" if value < 0 else " " * width + "|" + "█" * length


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns; columns of figures to the right."""
    widths = [max(len(row[at]) for row in (header, *rows)) for at in range(len(header))]
    right = [bool(rows) and all(_is_figure(row[at]) for row in rows) for at in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (
            text.rjust(width) if push else text.ljust(width)
            for text, width, push in zip(row, widths, right, strict=True)
        )
        return "  ".join(cells).rstrip()

    return "\n".join([line(header), "  ".join("─" * width for width in widths), *(line(row) for row in rows)])


def score_curve(scores: Sequence[float], kept: int, *, width: int = 30) -> str:
    """One bar per result, with a line where the answer was cut."""
    lines: list[str] = []
    for rank, score in enumerate(scores, start=1):
        if rank == kept + 1:
            lines.append("     ┄┄┄ cut ┄┄┄")
        lines.append(f"{rank:>3}  {score:.4f}  {bar(score, scores[0], width)}")
    return "\n".join(lines)


def _is_figure(text: str) -> bool:
    return not text or text[0] in "0123456789+-–."
