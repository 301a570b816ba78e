"""`python -m benchmarks.quality.everyday WORLD.json … --model FOLDER`: skep and peers on questions of ordinary use.

A world is a JSON file with `memories` (`id`, `text`, `at`, `kind`) in order of time and `questions` (`id`, `text`,
`type`, `answers`, `wrong`), all asked a day after the last memory. skep is asked as a user asks it: each memory is
remembered in its turn, then `Bank.recall`. The peers rank the same texts by their published scoring, without stores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.given import place
from benchmarks.quality.rankers import CHROMA, prepare
from benchmarks.quality.sets import EVERYWHERE, EvalSet, Question
from benchmarks.speed import machine
from skep import Bank
from skep.filters import Filter
from skep.model import Memory

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results" / "everyday.json"
DAY = 86_400.0
LIMIT = 5
FIRST, FIVE = "right memory first", "right memory among five"
WRONG = "outdated or look-alike above the right one"
SILENT, SILENT_RIGHTLY = "silent though there is an answer", "silent where there is none"
FIGURES = (FIRST, FIVE, WRONG, SILENT, SILENT_RIGHTLY)
LESS_IS_BETTER = (WRONG, SILENT)
TITLES = {
    "skep": "skep",
    CHROMA: "Chroma's default",
    "mem0": "mem0's scoring",
    "bm25": "BM25",
    "vectors": "cosine of skep's transformer",
}
PAGES = {ROOT / "README.md": False, ROOT / "docs" / "explanation" / "benchmarks.md": True}
"""The pages with a table, and whether it has the kinds of questions."""
START, END = (
    "<!-- everyday: written by `python -m benchmarks.quality.everyday` -->",
    "<!-- end of everyday -->",
)
Answers = Callable[[Question], Sequence[str]]


class World(NamedTuple):
    """One world: what is remembered, when it is asked, and the questions."""

    name: str
    memories: list[Memory]
    questions: list[dict[str, Any]]

    @property
    def asked_at(self) -> float:
        """A day after the last memory."""
        return self.memories[-1].created_at + DAY


def load(path: Path) -> World:
    """The world in a file."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    memories: list[Memory] = []
    for each in raw["memories"]:
        at = datetime.fromisoformat(each["at"].replace("Z", "+00:00")).timestamp()
        memories.append(
            Memory(
                id=each["id"],
                kind=each.get("kind", "fact"),
                text=each["text"],
                created_at=at,
                last_evidence_at=at,
                confidence=1.0,
            )
        )
    return World(raw["world"], memories, raw["questions"])


def through_a_bank(world: World, folder: Path) -> Answers:
    """What a user gets who told these memories one after another."""
    clock = [world.memories[0].created_at]
    bank = Bank.open(folder / f"{world.name}.skep", now=lambda: clock[0])
    names: dict[str, str] = {}
    for memory in world.memories:
        clock[0] = memory.created_at
        names[bank.remember(memory.text, kind=memory.kind).memory.id] = memory.id
    clock[0] = world.asked_at
    return lambda question: [names[hit.memory.id] for hit in bank.recall(question.text, limit=LIMIT)]


def by_peers(world: World, model: Path | None) -> dict[str, Answers]:
    """The rankings of the peers over the same texts; MiniLM's where `model` names its folder."""
    data = EvalSet(world.name, world.memories, [])
    rankers = prepare(data, ["bm25", "vectors"])
    if model is not None:
        rankers |= prepare(data, ["mem0", CHROMA], model, embedder=f"minilm-onnx:{model}")
    return {
        name: lambda question, rank=rank: rank(question, LIMIT).ids[:LIMIT] for name, rank in rankers.items()
    }


def judged(world: World, answers: Answers) -> Iterator[tuple[str, dict[str, bool]]]:
    """For every question: its type, and which figures it counts for."""
    where = Filter(scope=EVERYWHERE, min_confidence=0.0, now=world.asked_at)
    for raw in world.questions:
        question = Question(
            raw["id"], raw["text"], where, world.asked_at, {}, raw["type"], exclude=None, answerable=True
        )
        got, right, wrong = list(answers(question)), set(raw["answers"]), set(raw.get("wrong") or ())
        places = [place for place, each in enumerate(got) if each in right]
        misleading = [place for place, each in enumerate(got) if each in wrong]
        if raw["type"] == "none":
            yield raw["type"], {SILENT_RIGHTLY: not got}
            continue
        counted = {FIRST: places[:1] == [0], FIVE: bool(places), SILENT: not got}
        if wrong:
            counted[WRONG] = bool(misleading) and (not places or misleading[0] < places[0])
        yield raw["type"], counted


def mean(rows: Sequence[tuple[str, dict[str, bool]]], figure: str) -> float | None:
    """The share of questions for which a figure counts; None where no question can tell."""
    told = [counted[figure] for _, counted in rows if figure in counted]
    return round(sum(told) / len(told), 4) if told else None


def measured(worlds: Sequence[World], model: Path | None) -> dict[str, Any]:
    """Every ranker on every world: the figures together, and by type of question."""
    rows: dict[str, list[tuple[str, dict[str, bool]]]] = {}
    with tempfile.TemporaryDirectory(prefix="everyday-") as folder:
        for world in worlds:
            asked = {"skep": through_a_bank(world, Path(folder))} | by_peers(world, model)
            for name, answers in asked.items():
                rows.setdefault(name, []).extend(judged(world, answers))
    return {
        name: {
            "questions": sum(FIRST in counted for _, counted in found),
            **{figure: mean(found, figure) for figure in FIGURES},
            "by type": {
                kind: {figure: mean([row for row in found if row[0] == kind], figure) for figure in FIGURES}
                for kind in sorted({kind for kind, _ in found} - {"none"})
            },
        }
        for name, found in rows.items()
    }


def short(figure: float | None) -> str:
    """A share as it stands in a table.

    >>> short(0.7512), short(1.0), short(0.0), short(None)
    ('.75', '1.00', '0', '–')
    """
    if figure is None:
        return "–"
    return f"{figure:.2f}".removeprefix("0") if figure else "0"


def table(found: dict[str, Any], *, kinds: bool = True) -> str:
    """The figures as Markdown, the best of a row in bold; by kind of question as well, if wanted."""
    names = [name for name in TITLES if name in found]
    rows = [(figure, {n: found[n][figure] for n in names}) for figure in FIGURES]
    if kinds:
        rows += [
            (f"{FIRST}: {kind}", {n: found[n]["by type"][kind][FIRST] for n in names})
            for kind in found["skep"]["by type"]
        ]
    lines = ["| | " + " | ".join(TITLES[name] for name in names) + " |", "|---|" + "---:|" * len(names)]
    for title, values in rows:
        best = (min if title in LESS_IS_BETTER else max)(values.values())
        cells = [f"**{short(v)}**" if v == best else short(v) for v in values.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put(text: str, made: str) -> str:
    """A page with its table renewed."""
    before, rest = text.split(START, 1)
    return f"{before}{START}\n{made}\n{END}{rest.split(END, 1)[1]}"


def renewed() -> dict[Path, str]:
    """The pages that show the committed figures, with tables of today; the README has fewer rows."""
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    taken = results["environment"]
    changed = " with changes that were not committed" if taken["dirty"] else ""
    when = f"Measured on {results['when']} at commit `{taken['commit'][:7]}`{changed}."
    made: dict[Path, str] = {}
    for page, kinds in PAGES.items():
        rows = table(results["rankers"], kinds=kinds)
        made[page] = put(page.read_text(encoding="utf-8"), f"{rows}\n\n{when}" if kinds else rows)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality.everyday", description=__doc__)
    parser.add_argument("worlds", nargs="+", type=Path)
    parser.add_argument(
        "--model", type=Path, help="folder of the published MiniLM (scripts/build_minilm_int8.py)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    worlds = [load(path) for path in given.worlds]
    place(given.out)
    results: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "environment": machine.commit(ROOT, "benchmarks/quality"),
        "worlds": [world.name for world in worlds],
        "rankers": measured(worlds, given.model),
    }
    given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.out == RESULTS:
        for page, text in renewed().items():
            page.write_text(text, encoding="utf-8")
    print(table(results["rankers"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
