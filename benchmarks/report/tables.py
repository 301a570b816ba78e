"""The results as Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.report.figures import (
    NEAR,
    OPERATIONS,
    RESOURCES,
    TITLES,
    Report,
    Verdict,
    beside,
    broke_down,
    exponents,
    resources,
    right,
    sizes,
    typical,
    value,
    verdicts,
)
from benchmarks.speed.show import figure, number, times

OTHERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("bulk load and index, CPU s", ("load.cpu_s", "settle.cpu_s")),
    ("bulk load until searchable, wall s", ("load.wall_s", "settle.wall_s")),
    ("of that, building indexes, CPU s", ("settle.cpu_s",)),
    ("process start to first answer, CPU s", ("cold.cpu_s",)),
    ("process start to first answer, wall s", ("cold.wall_s",)),
    ("memory after load, MB", ("settle.rss.VmRSS",)),
    ("memory after load, not backed by files, MB", ("settle.rss.RssAnon",)),
    ("most memory while loading, MB", ("settle.rss.VmHWM",)),
    ("memory of a fresh process after one answer, MB", ("cold.rss.VmRSS",)),
    ("disk, MB", ("settle.disk_mb",)),
)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, its first column to the left and the others to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _names(report: Report) -> list[str]:
    return list(report["engines"])


def _header(report: Report, first: str) -> list[str]:
    return [first, *(report["engines"][name]["title"] for name in _names(report))]


def _cell(report: Report, size: int, name: str, op: str) -> str:
    time = value(report, size, name, op)
    if time is None:
        return "failed" if broke_down(report, size, name, op) else "–"
    own = value(report, size, "skep", op)
    text = number(time)
    if own and name != "skep":
        text += f" ({times(time / own)})"
    recall = value(report, size, name, op, "recall")
    if recall is not None and recall < 0.9995:
        text += f" r {recall:.3f}"
    return text if right(report, size, name, op) else text + " †"


def speed(report: Report, size: int) -> str:
    """CPU milliseconds at one size; the fastest engine with right answers is bold."""
    rows: list[list[str]] = []
    for op, title in OPERATIONS:
        names = _names(report)
        times = {
            name: time
            for name in names
            if (time := value(report, size, name, op)) is not None and right(report, size, name, op)
        }
        best = min(times, key=lambda name: times[name]) if len(times) > 1 else None
        cells = [_cell(report, size, name, op) for name in names]
        rows.append([title, *(f"**{c}**" if n == best else c for n, c in zip(names, cells, strict=True))])
    return markdown(_header(report, "CPU ms, p50"), rows)


def walls(report: Report, size: int) -> str:
    """Wall milliseconds, p50 and p95."""
    rows: list[list[str]] = []
    for op, title in OPERATIONS:
        cells: list[str] = []
        for name in _names(report):
            half, tail = (value(report, size, name, op, f"wall_{p}") for p in ("p50", "p95"))
            cells.append("–" if half is None else f"{number(half)} / {number(tail)}")
        rows.append([title, *cells])
    return markdown(_header(report, "wall ms, p50 / p95"), rows)


def others(report: Report, size: int) -> str:
    """Load, start, memory and disk."""
    rows: list[list[str]] = []
    for title, paths in OTHERS:
        entries = report["sizes"][str(size)]
        rows.append([title, *(number(figure(entries.get(name, {}), paths)) for name in _names(report))])
    rates: list[str] = []
    for name in _names(report):
        entry = report["sizes"][str(size)].get(name, {})
        wall, count = entry.get("load", {}).get("wall_s"), entry.get("load", {}).get("loaded")
        whole = entry.get("load", {}).get("complete", True)
        rates.append(
            "–" if not wall else f"{count / wall:,.0f}" + ("" if whole else f" (stopped at {count:,})")
        )
    rows.insert(0, ["bulk load, rows per wall second (before indexing)", *rates])
    found: list[str] = []
    for name in _names(report):
        share = value(report, size, name, "write_find", "found")
        found.append("–" if share is None else f"{share:.0%}")
    rows.append(["written rows found at once", *found])
    return markdown(_header(report, ""), rows)


def grow(report: Report) -> str:
    """Growth exponents."""
    found = exponents(report)
    rows = [
        [title, *(f"{found[op][name]:.2f}" if name in found.get(op, {}) else "–" for name in _names(report))]
        for op, title in OPERATIONS
        if op in found
    ]
    return markdown(_header(report, "time ∝ size^e"), rows)


def safety(report: Report) -> str:
    """What SIGKILL left, and how often the disk was asked to be sure."""
    rows: list[list[str]] = []
    for name in _names(report):
        kill = report.get("kills", {}).get(name)
        if kill is None:
            continue
        missing = kill["missing"]
        words = missing["keyword"] if kill.get("keyword_offered", True) else "–"
        syncs = kill.get("syncs_per_write")
        rows.append(
            [
                report["engines"][name]["title"],
                str(kill["kills"]),
                str(kill["acknowledged"]),
                f"{missing['stored']} / {words} / {missing['vector']}",
                "–" if syncs is None else f"{syncs:.1f}",
                "ok" if kill["status"] == "ok" else f"failed: {kill['reason']}",
            ]
        )
    head = [
        "engine",
        "kills",
        "acknowledged",
        "missing: rows / by word / by vector",
        "syncs per write",
        "after",
    ]
    return markdown(head, rows)


def imports(report: Report) -> str:
    """Import times."""
    rows: list[list[str]] = []
    for name in _names(report):
        got = report.get("imports", {}).get(name, {})
        cpu, wall = got.get("cpu_s"), got.get("wall_s")
        rows.append(
            [
                report["engines"][name]["title"],
                "–" if cpu is None else f"{1000 * cpu:.0f}",
                "–" if wall is None else f"{1000 * wall:.0f}",
            ]
        )
    return markdown(["engine", "import, CPU ms", "import, wall ms"], rows)


def _counted(found: Sequence[Verdict]) -> tuple[int, int, int]:
    """In how many skep is ahead, level and behind."""
    lost = sum(v.lost for v in found)
    even = sum(not v.lost and v.ratio > 1 / NEAR for v in found)
    return len(found) - lost - even, even, lost


def _tally(found: Sequence[Verdict], what: str) -> str:
    ahead, even, lost = _counted(found)
    return (
        f"{what}: of {len(found)} comparisons skep is ahead in {ahead}, level in {even} and behind in {lost}."
    )


def by_engine(report: Report) -> str:
    """One line for every other engine: in how much skep is ahead of it, level with it and behind it, and how far."""
    known = sizes(report)[::-1]
    rows: list[list[str]] = []
    for rival in _names(report):
        alone = beside(report, rival)
        found = verdicts(alone), resources(alone)
        cells = [_standing([v for v in kind if v.size == size]) for size in known for kind in found]
        if any(cell != "–" for cell in cells):
            rows.append([report["engines"][rival]["title"], *cells])
    header = [f"{kind} at {size:,}" for size in known for kind in ("operations", "needs")]
    return markdown(["ahead / level / behind", *header], rows)


def _standing(found: Sequence[Verdict]) -> str:
    if not found:
        return "–"
    return f"{' / '.join(map(str, _counted(found)))} ({times(typical(found))})"


def losses(report: Report) -> str:
    """Every operation and resource in which another engine was better, the worst first; and how many were not."""
    found = verdicts(report)
    need = resources(report)
    lines = [
        f"- {TITLES[v.op]} at {v.size:,}: {report['engines'][v.rival]['title']} is {v.ratio:.2g} times as fast"
        f" ({number(value(report, v.size, v.rival, v.op))} against {number(value(report, v.size, 'skep', v.op))} ms)."
        for v in sorted(found, key=lambda v: -v.ratio)
        if v.lost
    ]
    more = [
        f"- {v.op} at {v.size:,}: {report['engines'][v.rival]['title']} needs {number(_need(report, v, v.rival))}"
        f" against {number(_need(report, v, 'skep'))} {_unit(v)} ({times(v.ratio)})."
        for v in sorted(need, key=lambda v: -v.ratio)
        if v.lost
    ]
    tallies = [
        _tally(found, "CPU time"),
        _tally(verdicts(report, "wall_p50"), "Wall time"),
        _tally(need, "Loading, starting, memory and disk"),
    ]
    return "\n\n".join(part for part in (" ".join(tallies), "\n".join(lines), "\n".join(more)) if part)


def _need(report: Report, verdict: Verdict, name: str) -> float | None:
    paths = next(paths for title, paths, _ in RESOURCES if title == verdict.op)
    return figure(report["sizes"][str(verdict.size)][name], paths)


def _unit(verdict: Verdict) -> str:
    return next(unit for title, _, unit in RESOURCES if title == verdict.op)


def absent(report: Report) -> str:
    """Engines and operations that are missing, and why."""
    lines: list[str] = []
    for name, entry in report["engines"].items():
        if entry["status"] != "ok":
            lines.append(f"- {entry['title']}: {entry['status']}: {entry['reason']}")
        for size in sizes(report):
            got = report["sizes"][str(size)].get(name)
            if got and got.get("status") != "ok":
                lines.append(f"- {entry['title']} at {size:,}: {got['status']}: {got['reason']}")
        reasons: dict[str, list[str]] = {}
        for size in sizes(report):
            for op, result in report["sizes"][str(size)].get(name, {}).get("ops", {}).items():
                if result.get("status") == "not offered" and op not in reasons.setdefault(
                    result["reason"], []
                ):
                    reasons[result["reason"]].append(op)
        lines += [f"- {entry['title']}: {', '.join(ops)}: {why}" for why, ops in reasons.items()]
    return "\n".join(lines) or "Nothing is missing."
