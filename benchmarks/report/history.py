"""What earlier runs measured of skep, kept small: the figures before and after something was mended.

`python -m benchmarks.report --keep results.json` adds a run to `results/history.json`.
"""

from __future__ import annotations

import re
from typing import Any

from benchmarks.report.figures import OPERATIONS, TITLES, Report, sizes, value
from benchmarks.speed.show import figure, number, times

OTHERS = {
    "bulk load and index, CPU s": ("load.cpu_s", "settle.cpu_s"),
    "process start to first answer, CPU s": ("cold.cpu_s",),
    "memory after load, MB": ("settle.rss.VmRSS",),
    "disk, MB": ("settle.disk_mb",),
}
Digest = dict[str, Any]


def digest(report: Report) -> Digest:
    """The figures of skep and of the floor beside it, by size."""
    kept: dict[str, dict[str, list[float | None]]] = {}
    for size in sizes(report):
        found: dict[str, list[float | None]] = {}
        for op, _ in OPERATIONS:
            pair = [value(report, size, name, op) for name in ("skep", "floor")]
            if pair[0] is not None:
                found[op] = pair
        for title, paths in OTHERS.items():
            entries = report["sizes"][str(size)]
            pair = [figure(entries.get(name, {}), paths) for name in ("skep", "floor")]
            if pair[0] is not None:
                found[title] = [None if each is None else round(each, 4) for each in pair]
        kept[str(size)] = found
    environment = report["environment"]
    return {
        "started": report["started"],
        "commit": environment["commit"],
        "processor": environment["processor"],
        "load": [environment["load_before"], environment.get("load_after")],
        "rounds": report["plan"]["rounds"],
        "sizes": kept,
    }


def keep(history: list[Digest], report: Report) -> list[Digest]:
    """The history with this run in it, oldest first; the same run is there once."""
    new = digest(report)
    return sorted(
        [each for each in history if each["started"] != new["started"]] + [new],
        key=lambda each: each["started"],
    )


def rows(history: list[Digest], size: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows: skep's figures run by run, each with its ratio to the floor in the same run."""
    there = [each for each in history if str(size) in each["sizes"]]
    header = [
        f"{size:,} memories",
        *(f"`{each['commit'][:7]}`, {each['started'][11:16]}, {maker(each['processor'])}" for each in there),
    ]
    names = list(dict.fromkeys(name for each in there for name in each["sizes"][str(size)]))
    order = [*(op for op, _ in OPERATIONS if op in names), *(name for name in OTHERS if name in names)]
    return header, [
        [TITLES.get(name, name), *(_cell(each["sizes"][str(size)].get(name)) for each in there)]
        for name in order
    ]


def maker(processor: str) -> str:
    """Whose processor it is, which is what tells machines apart here.

    >>> maker("Intel(R) Xeon(R) Processor"), maker("AMD EPYC")
    ('Intel', 'AMD')
    """
    return re.split(r"\W", processor, maxsplit=1)[0]


def _cell(pair: list[float | None] | None) -> str:
    if pair is None or pair[0] is None:
        return "–"
    return number(pair[0]) + (f" ({times(pair[0] / pair[1])})" if pair[1] else "")
