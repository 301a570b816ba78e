"""`python -m benchmarks.quality.everyday WORLD.json … --model FOLDER`: skep and peers on questions of ordinary use.

A world is a JSON file with `memories` (`id`, `text`, `at`, `kind`) in order of time and `questions` (`id`, `text`, `type`,
`answers`, `wrong`), all asked a day after the last memory. skep is asked as a user asks it: each memory is remembered in
its turn, then `Bank.recall`. The peers rank the same texts by their published scoring, without their stores.
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
FIRST, FIVE, WRONG, SILENT = (
    "right first",
    "right among five",
    "wrong above right",
    "silent, with an answer stored",
)
FIGURES = (FIRST, FIVE, WRONG, SILENT)
TITLES = {
    "skep": "skep",
    CHROMA: "Chroma's default (cosine of MiniLM)",
    "mem0": "mem0's scoring, over MiniLM",
    "bm25": "BM25",
    "vectors": "cosine of skep's own transformer",
}
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
    """For every question that has an answer: its type, and which figures it counts for."""
    where = Filter(scope=EVERYWHERE, min_confidence=0.0, now=world.asked_at)
    for raw in world.questions:
        if raw["type"] == "none":
            continue
        question = Question(
            raw["id"], raw["text"], where, world.asked_at, {}, raw["type"], exclude=None, answerable=True
        )
        got, right, wrong = list(answers(question)), set(raw["answers"]), set(raw.get("wrong") or ())
        places = [place for place, each in enumerate(got) if each in right]
        misleading = [place for place, each in enumerate(got) if each in wrong]
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
            "questions": len(found),
            **{figure: mean(found, figure) for figure in FIGURES},
            "by type": {
                kind: {figure: mean([row for row in found if row[0] == kind], figure) for figure in FIGURES}
                for kind in sorted({kind for kind, _ in found})
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


def table(found: dict[str, Any]) -> str:
    """The figures as Markdown, the best of a row in bold."""
    names = [name for name in TITLES if name in found]
    lines = ["| | " + " | ".join(TITLES[name] for name in names) + " |", "|---|" + "---:|" * len(names)]
    rows = [(figure, {n: found[n][figure] for n in names}) for figure in FIGURES]
    rows += [
        (f"{kind}: {FIRST}", {n: found[n]["by type"][kind][FIRST] for n in names})
        for kind in found["skep"]["by type"]
    ]
    for title, values in rows:
        best = (min if title in (WRONG, SILENT) else max)(values.values())
        cells = [f"**{short(v)}**" if v == best else short(v) for v in values.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
    print(table(results["rankers"]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
