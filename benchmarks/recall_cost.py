"""`python -m benchmarks.recall_cost --model FOLDER`: processor time of a recall with a transformer, beside peers.

Every engine encodes the question itself, searches the same memories and gives ten texts. They take turns in one
process; the time is user and system time of all its threads. The memories' vectors are those of the word table,
mapped to the transformer's space: what a vector costs to search does not depend on how good it is. The peers:

- Chroma with skep's encoder: a collection on disk, its own index, the question encoded as skep does.
- Chroma's default: the same collection, with Chroma's own function around the published MiniLM in `--model` (int8).
- mem0's scoring: its published formula over the exact cosine of all memories and BM25, in memory, skep's encoder.

Chroma takes part where `chromadb` and `tokenizers` can be imported.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from training.topics import read_topics

from benchmarks.given import number, place
from benchmarks.machine import texts
from benchmarks.quality.rankers import prepare
from benchmarks.quality.sets import EVERYWHERE, EvalSet, Question
from benchmarks.speed import machine
from skep import Bank
from skep.embedding.minilm import MiniLMEmbedder
from skep.filters import Filter
from skep.model import Memory

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).parent / "results" / "recall-cost.json"
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
START, END = "<!-- cpu per recall -->", "<!-- end of cpu per recall -->"
SIZES = (1_000, 100_000)
LIMIT = 10
WARM = 10
"""Questions that are asked before the clock counts."""
PAUSE = 0.05
"""Seconds before the clock counts: threads of onnxruntime go on for a while, at the cost of whoever comes next."""
BATCH = 2_000
NOW = 1_760_000_000.0
Ask = Callable[[str], Sequence[str]]


class Rough(MiniLMEmbedder):
    """The transformer for questions; rough vectors in next to no time while it is `instant`, as it is at first."""

    instant = True

    def embed(self, texts: Sequence[str]) -> Any:
        """Rough rows while loading."""
        return self.draft(texts) if self.instant else super().embed(texts)


class Told(NamedTuple):
    """What is remembered, and what is asked."""

    memories: list[str]
    questions: list[str]


def told(size: int, asked: int) -> Told:
    """The notes and questions of people in `training/data`, filled up with made-up sentences."""
    topics = read_topics()
    random.Random(7).shuffle(topics)
    notes, used = dict[str, None](), 0
    while used < len(topics) and len(notes) < size:
        notes |= {note.text: None for note in topics[used].notes}
        used += 1
    questions = [question.text for topic in topics[:used] for question in topic.questions]
    stored = list(notes)[:size]
    return Told([*stored, *texts(size - len(stored), 3)], random.Random(7).sample(questions, asked))


def skep(stored: Sequence[str], folder: Path) -> Ask:
    """`Bank.recall` as it is by default."""
    encoder = Rough()
    with Bank.open(folder / "bank.skep", embedder=encoder, now=lambda: NOW) as loading:
        loading.remember_many(stored, on_conflict="ignore")
    encoder.instant = False
    bank = Bank.open(folder / "bank.skep", embedder=encoder, now=lambda: NOW)
    return lambda question: [hit.memory.text for hit in bank.recall(question, limit=LIMIT)]


def mem0(stored: Sequence[str]) -> Ask:
    """mem0's formula."""
    memories = [
        Memory(id=f"{at:07}", kind="fact", text=text, created_at=NOW, last_evidence_at=NOW, confidence=1.0)
        for at, text in enumerate(stored)
    ]
    encoder = Rough()
    rank = prepare(EvalSet("cost", memories, []), ["mem0"], embedder=encoder)["mem0"]
    encoder.instant = False
    where = Filter(scope=EVERYWHERE, min_confidence=0.0, now=NOW)

    def ask(question: str) -> list[str]:
        asked = Question("q", question, where, NOW, {}, "direct", exclude=None, answerable=True)
        return [stored[int(id)] for id in rank(asked, LIMIT).ids]

    return ask


def chroma(stored: Sequence[str], folder: Path, model: Path) -> dict[str, Ask]:
    """A collection of Chroma's, asked with skep's encoder and with Chroma's own function."""
    chromadb: Any = import_module("chromadb")
    config: Any = import_module("chromadb.config")
    client: Any = chromadb.PersistentClient(
        path=str(folder / "chroma"), settings=config.Settings(anonymized_telemetry=False)
    )
    rows: Any = client.create_collection(
        "memory", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    encoder, own = Rough(), own_function(folder, model)
    for start in range(0, len(stored), BATCH):
        part = list(stored[start : start + BATCH])
        rows.add(
            ids=[str(start + at) for at in range(len(part))], documents=part, embeddings=encoder.embed(part)
        )
    encoder.instant = False

    def by(embed: Callable[[list[str]], Any]) -> Ask:
        return lambda question: rows.query(
            query_embeddings=embed([question]), n_results=LIMIT, include=["documents"]
        )["documents"][0]

    return {"Chroma with skep's encoder": by(encoder.embed), "Chroma's default": by(own)}


def own_function(folder: Path, model: Path) -> Callable[[list[str]], Any]:
    """What Chroma embeds with where nothing else is named, around the model at hand in place of a download."""
    function: Any = import_module("chromadb.utils.embedding_functions.onnx_mini_lm_l6_v2").ONNXMiniLM_L6_V2()
    function.DOWNLOAD_PATH = folder
    held = folder / function.EXTRACTED_FOLDER_NAME
    held.mkdir()
    (held / "model.onnx").symlink_to((model / "model.onnx").resolve())
    tokenizers: Any = import_module("tokenizers")
    tokenizers.BertWordPieceTokenizer(str(model / "vocab.txt"), lowercase=True).save(
        str(held / "tokenizer.json")
    )
    session = function.model

    class Asked:
        """The session without the input that this model does not have."""

        @staticmethod
        def run(wanted: Any, inputs: dict[str, Any]) -> Any:
            return session.run(wanted, {each.name: inputs[each.name] for each in session.get_inputs()})

    function.__dict__ |= {"model": Asked, "_download_model_if_not_exists": lambda: None}
    return function


def milliseconds(engines: dict[str, Ask], questions: Sequence[str]) -> dict[str, float]:
    """The median processor time of each engine's answer; they take turns."""
    spent: dict[str, list[float]] = {name: [] for name in engines}
    for question in questions:
        for name, ask in engines.items():
            time.sleep(PAUSE)
            started = time.process_time()
            found = ask(question)
            spent[name].append((time.process_time() - started) * 1000)
            if len(found) != LIMIT:
                raise SystemExit(f"{name} gave {len(found)} texts instead of {LIMIT} for {question!r}")
    return {name: round(statistics.median(each[WARM:]), 2) for name, each in spent.items()}


def measured(size: int, asked: int, model: Path | None) -> dict[str, float]:
    """All engines over so many memories."""
    stored, questions = told(size, WARM + asked)
    with tempfile.TemporaryDirectory(prefix="recall-cost-") as made:
        folder = Path(made)
        engines = {"skep": skep(stored, folder)}
        if model is not None:
            engines |= chroma(stored, folder, model)
        engines["mem0's scoring"] = mem0(stored)
        return milliseconds(engines, questions)


def table(results: dict[str, Any]) -> str:
    """The figures as Markdown, with how many times skep's they are."""
    sizes: dict[str, dict[str, float]] = results["ms"]
    lines = [
        "| CPU ms per recall | " + " | ".join(f"{int(size):,} memories" for size in sizes) + " |",
        "|---|" + "---:|" * len(sizes),
    ]
    for name in next(iter(sizes.values())):
        cells = [f"{found[name]:.1f} ({found[name] / found['skep']:.1f} ×)" for found in sizes.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    taken = results["environment"]
    changed = " with changes that were not committed" if taken["dirty"] else ""
    return "\n".join(lines) + f"\n\nMeasured on {results['when']} at commit `{taken['commit'][:7]}`{changed}."


def renewed() -> str:
    """The page with the committed figures."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(START, 1)
    made = table(json.loads(RESULTS.read_text(encoding="utf-8")))
    return f"{before}{START}\n{made}\n{END}{rest.split(END, 1)[1]}"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recall_cost",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--model", type=Path, help="folder of the published MiniLM (scripts/build_minilm_int8.py), for Chroma"
    )
    parser.add_argument("--sizes", nargs="+", type=number(LIMIT + WARM + 1), default=SIZES)
    parser.add_argument("--questions", type=number(1), default=60)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    if given.model is not None and not find_spec("chromadb"):
        raise SystemExit("chromadb is not installed here; install it with tokenizers, or leave `--model` out")
    if min(given.sizes) < WARM + given.questions:
        raise SystemExit(
            f"{min(given.sizes)} memories are too few for {given.questions} questions; ask fewer"
        )
    place(given.out)
    results: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "environment": machine.commit(ROOT, "benchmarks/recall_cost.py"),
        "questions": given.questions,
        "ms": {str(size): measured(size, given.questions, given.model) for size in given.sizes},
    }
    given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if given.out == RESULTS:
        PAGE.write_text(renewed(), encoding="utf-8")
    print(table(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
