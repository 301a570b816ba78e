"""Evaluation sets as memories, and hives that hold them. The data stays outside of the repository."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.speed import machine
from skep.embedding.embedder import default_embedder
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive

POLICY = HivePolicy(deadline=60.0, hedge_after=30.0)
"""The default gateway; only the time for an answer is long, so that a busy machine loses none."""


FILES = ("META.json", "corpus.jsonl.gz", "queries.jsonl.gz", "qrels.tsv.gz")
"""Of a set."""


def environment() -> dict[str, Any]:
    """The machine, its load, and the commit that was measured."""
    return {**machine.describe(), **machine.commit(Path(__file__).resolve().parents[2], "benchmarks/hive")}


def read(folder: Path, name: str) -> dict[str, Any]:
    """One set: corpus, queries, and grades per query and document."""
    home = folder / "conv" / name
    found: dict[str, Any] = {"meta": json.loads((home / "META.json").read_text())}
    for part in ("corpus", "queries"):
        with gzip.open(home / f"{part}.jsonl.gz", "rt", encoding="utf-8") as file:
            found[part] = [json.loads(line) for line in file]
    found["qrels"] = {}
    with gzip.open(home / "qrels.tsv.gz", "rt", encoding="utf-8") as file:
        for line in file:
            query, document, grade = line.rstrip("\n").split("\t")
            found["qrels"].setdefault(query, {})[document] = int(grade)
    return found


def memories(corpus: list[dict[str, Any]], now: float) -> Iterator[dict[str, Any]]:
    """The documents as arguments of `remember`, a second apart in the order of the set."""
    start = now - 10 * len(corpus) - 86_400
    for number, document in enumerate(corpus):
        scope = document.get("meta", {}).get("scope")
        yield {
            "text": document["text"],
            "title": document.get("title") or None,
            "scope": {"project": str(scope)} if scope else None,
            "metadata": {"doc": document["id"]},
            "created_at": start + number,
        }


def build(kind: str, agents: int) -> Hive:
    """An empty hive of a kind."""
    names = [f"agent-{n:03}" for n in range(agents)]
    options: dict[str, Any] = {"policy": POLICY, "embedder": default_embedder()}
    if kind == "single":
        return Hive.single(names[0], **options)
    if kind == "flat":
        return Hive.flat(names, **options)
    if kind == "sharded":
        return Hive.sharded(names, **options)
    groups = max(1, agents // 5)
    return Hive.federated({f"group-{g:02}": names[g::groups] for g in range(groups)}, **options)


def fill(hive: Hive, corpus: list[dict[str, Any]], agents: int, deal: str = "parts") -> dict[str, str]:
    """Give each document to one agent; the document of each memory id.

    `parts` gives every agent one stretch of the set, as agents that learn parts of a story; `turns` deals the
    documents out in turn, which tears every conversation apart.
    """
    dealt: dict[str, list[dict[str, Any]]] = {}
    for number, item in enumerate(memories(corpus, time.time())):
        who = number * agents // len(corpus) if deal == "parts" else number % agents
        dealt.setdefault(f"agent-{who:03}", []).append(item)
    found: dict[str, str] = {}
    for name, items in dealt.items():
        for one in hive.agent(name).remember_many(items):
            found[one.memory.id] = one.memory.metadata["doc"]
    return found
