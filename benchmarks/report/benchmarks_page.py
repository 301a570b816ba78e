"""The table of speed on the page of benchmarks, from the same results as the report."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report.figures import Report, broke_down, right, value
from benchmarks.report.tables import markdown
from benchmarks.speed.show import figure

START, END = "<!-- speed: written by `python -m benchmarks.report` -->", "<!-- end of speed -->"
SIZE = 100_000
ENGINES = ("skep", "sqlitevec", "chroma", "lancedb", "qdrant", "zvec")
OPERATIONS = (
    ("words, 10 texts", "keyword"),
    ("words and vectors, 10 texts", "hybrid"),
    ("the same as `recall` does it, all signals", "default"),
    ("vectors, 1 % of the memories admitted", "filtered_1"),
    ("synced write", "write"),
    ("the same as `remember` does it, conflicts looked for", "write_checked"),
    ("write that is not synced (skep has none)", "write_unsynced"),
    ("write, then find it by words and vectors", "write_find"),
    ("update a field", "update"),
)
RESOURCES = (
    ("fresh process to first answer", ("cold.cpu_s",), 1000.0),
    ("bulk load and index, CPU s", ("load.cpu_s", "settle.cpu_s"), 1.0),
    ("memory after load, MB", ("settle.rss.VmRSS",), 1.0),
)
FIXED = (
    ("several processes at once", "yes", "yes", "stale readers¹", "stale readers¹", "no", "no"),
    ("history, undo, conflicts, replicas", "yes", *("–" for _ in ENGINES[1:])),
)


def short(number: float) -> str:
    """Two significant figures, whole numbers from ten on.

    >>> short(0.2109), short(2.43), short(57.3), short(1470.4)
    ('0.21', '2.4', '57', '1,470')
    """
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"


def _operation(report: Report, op: str) -> list[str]:
    times = {name: value(report, SIZE, name, op) for name in ENGINES}
    sound = {n: t for n, t in times.items() if t is not None and right(report, SIZE, n, op)}
    best = min(sound, key=lambda name: sound[name]) if len(sound) > 1 else None
    cells: list[str] = []
    for name, time in times.items():
        if time is None:
            cells.append("failed" if broke_down(report, SIZE, name, op) else "–")
            continue
        recall = value(report, SIZE, name, op, "recall")
        text = f"**{short(time)}**" if name == best else short(time)
        mark = "r " if name == "skep" else ""
        near = f"{recall:.2f}".removeprefix("0") if recall is not None and recall < 0.995 else None
        cells.append(text if near is None else f"{text} ({mark}{near})")
    return cells


def _resource(report: Report, paths: tuple[str, ...], scale: float) -> list[str]:
    needs = {name: figure(report["sizes"][str(SIZE)].get(name, {}), paths) for name in ENGINES}
    least = min((need for need in needs.values() if need is not None), default=None)
    return [
        "–" if need is None else f"**{short(need * scale)}**" if need == least else short(need * scale)
        for need in needs.values()
    ]


def table(report: Report) -> str:
    """The table, without its marks."""
    rows = [[title, *_operation(report, op)] for title, op in OPERATIONS]
    rows += [[title, *_resource(report, paths, scale)] for title, paths, scale in RESOURCES]
    rows += [list(row) for row in FIXED]
    titles = [report["engines"].get(name, {"title": name})["title"] for name in ENGINES]
    return markdown(["", *titles], rows)


def put(text: str, report: Report) -> str:
    """A page with its table renewed; as it was where it has no marks or the results have no such size."""
    if START not in text or END not in text or str(SIZE) not in report["sizes"]:
        return text
    before, rest = text.split(START, 1)
    return f"{before}{START}\n{table(report)}\n{END}{rest.split(END, 1)[1]}"


def renew(path: Path, report: Report) -> None:
    """Write the table into the page."""
    path.write_text(put(path.read_text(), report))
