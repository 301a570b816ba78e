"""Draw docs/pictures/recall.svg: recall@10 of `default` beside BM25 and mem0's scoring, from the committed results."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "benchmarks" / "quality" / "results" / "quality.md"
TARGET = ROOT / "docs" / "pictures" / "recall.svg"
SHOWN = {"bm25": "#b8b2a2", "mem0": "#7d9bbd", "default": "#c9961a"}
NAMES = {"bm25": "BM25", "mem0": "mem0's scoring", "default": "skep default"}
LEFT, RIGHT, TOP, ROW, BAR = 190, 40, 70, 40, 9
WIDTH = 960


def rows(text: str) -> list[tuple[str, int, dict[str, float]]]:
    """Every set of the first table: its name, its questions and recall@10 of the rankers shown."""
    table = text.split("## Recall@10", 1)[1].split("\n## ", 1)[0]
    lines = [
        [c.strip() for c in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"
    ]
    head, found = lines[0], lines[2:]
    return [
        (cells[0], int(cells[1]), {name: float(cells[head.index(name)].strip("*")) for name in SHOWN})
        for cells in found
    ]


def draw(sets: list[tuple[str, int, dict[str, float]]]) -> str:
    """The picture: a group of bars per set, all sets, in the order of the table."""
    height = TOP + ROW * len(sets) + 20
    scale = WIDTH - LEFT - RIGHT
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="12" fill="#222">',
        "<title>Recall@10 by evaluation set</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#fdfbf5"/>',
        '<text x="20" y="30" font-size="15" font-weight="600">Evidence found among the first ten (recall@10)</text>',
    ]
    for n, (name, colour) in enumerate(SHOWN.items()):
        x = 480 + n * 150
        out.append(f'<rect x="{x}" y="20" width="12" height="12" fill="{colour}"/>')
        out.append(f'<text x="{x + 18}" y="30">{NAMES[name]}</text>')
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x = LEFT + tick * scale
        out.append(f'<path d="M{x:g} {TOP - 8}V{height - 16}" stroke="#ddd6c4"/>')
        out.append(f'<text x="{x:g}" y="{TOP - 14}" text-anchor="middle" fill="#666">{tick:g}</text>')
    for n, (name, questions, figures) in enumerate(sets):
        y = TOP + n * ROW
        out.append(f'<text x="{LEFT - 12}" y="{y + 14}" text-anchor="end">{name}</text>')
        out.append(
            f'<text x="{LEFT - 12}" y="{y + 28}" text-anchor="end" fill="#777" font-size="10">'
            f"{questions} questions</text>"
        )
        for k, (ranker, colour) in enumerate(SHOWN.items()):
            width, top = figures[ranker] * scale, y + 2 + k * (BAR + 1)
            out.append(f'<rect x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
        out.append(f'<text x="{LEFT + figures["default"] * scale + 4:.1f}" y="{y + 31}" font-size="10">'
                   f"{figures['default']:.2f}</text>")  # fmt: skip
    return "\n".join([*out, "</svg>", ""])


if __name__ == "__main__":
    TARGET.write_text(draw(rows(SOURCE.read_text(encoding="utf-8"))), encoding="utf-8")
