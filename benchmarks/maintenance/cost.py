"""What a run costs: a thousand new memories beside embedding and indexing them, nothing new, and a turn of the stream.

Processor time of this process, not wall time. Texts are short ones of nine kinds from the data folder; without it, made
sentences, of which a bank holds many that are alike. One bank is measured in rounds: each writes, embeds and indexes a
thousand memories that it has not seen, and maintains it. What the index does only now and then (the rows in memory
become a segment) falls into the rounds in which it happens; the bank, and what waits for a judge, grow with each. The
first round warms up and is kept apart.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.maintenance.planted import planted
from skep import runtime
from skep.bank.bank import Bank
from skep.semantics.pair_judge import judge

CORPORA = (
    "msc_personas", "locomo_obs", "so_titles", "hotpot_distractor", "commits", "debian", "wordnet", "rules", "realmem",
)  # fmt: skip
SHARE = 20_000
"""Texts of each corpus at most."""
LONGEST = 300
STEPS = ("extract", "evidence", "merge", "conflicts")
ROUNDS = 7
GOAL = 3.0
"""How many times as much maintenance may take as embedding and indexing what is new."""


def texts(root: Path | None, count: int, seed: int = 0) -> list[str]:
    """Distinct short texts in random order."""
    rng = random.Random(seed)
    if root is None:
        found = {each.text for each in planted(count, seed)}
    else:
        found = set[str]()
        for name in CORPORA:
            with gzip.open(root / "conv" / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
                here = [json.loads(line)["text"].strip()[:LONGEST] for line in lines]
            rng.shuffle(here)
            found.update(here[:SHARE])
    every = sorted(text for text in found if text)
    rng.shuffle(every)
    return every[:count]


def measure(root: Path | None, size: int, new: int, rounds: int = ROUNDS, turns: int = 20) -> dict[str, Any]:
    """A bank of one size in a file: maintained with nothing new, and in rounds with some new memories."""
    judge("warm", "the weights are loaded once per process", 0.5)
    load = round(os.getloadavg()[0], 1)
    every = texts(root, size + (rounds + 1) * new)
    there = len(every) - (rounds + 1) * new
    old, fresh = every[:there], [every[at : at + new] for at in range(there, len(every), new)]
    with tempfile.TemporaryDirectory() as folder, Bank.open(Path(folder) / "bank.skep") as bank:
        for start in range(0, len(old), 5000):
            bank.remember_many(old[start : start + 5000])
        bank.engine.index.refresh()
        head = bank.engine.store.head()
        for step in STEPS:  # the old memories count as maintained: comparing them all is not what is measured
            bank.engine.store.set_mark(step, head)
        bank.maintain()
        nothing = [_spent(bank.maintain) for _ in range(3)]
        warm_up, *found = [_round(bank, some) for some in fresh]
        after = [_spent(bank.maintain) for _ in range(3)]
        stream = _stream(bank, fresh[-1][:turns])
    summed_up = {name: _spread([each[name] for each in found]) for name in found[0]}
    return {
        "memories": len(old),
        "new": new,
        "processor": processor(),
        "load": load,
        "nothing_new_s": round(min(nothing), 4),
        **summed_up,
        "rounds_within_3x": sum(each["ratio"] <= GOAL for each in found),
        "warm_up": warm_up,
        "rounds": found,
        "nothing_new_after_s": round(min(after), 4),
        "stream": stream,
    }


def processor() -> dict[str, Any]:
    """What the compiled loops find here: whether they are used, and for which generation of processors."""
    if runtime.native is None:
        return {"compiled": False}
    return {"compiled": True, "neighbours": runtime.native.generations()[-1]}


def _round(bank: Bank, fresh: list[str]) -> dict[str, float]:
    """Some new memories: what it takes to write, embed and index them, and to maintain the bank then."""
    base = _spent(lambda: _embed_and_index(bank, fresh))
    cost = _spent(bank.maintain)
    return {"embed_and_index_s": round(base, 4), "maintain_s": round(cost, 4), "ratio": round(cost / base, 2)}


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 4), "lowest": min(values), "highest": max(values)}


def _embed_and_index(bank: Bank, fresh: list[str]) -> None:
    bank.remember_many(fresh)
    bank.engine.index.refresh()


def _spent(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _stream(bank: Bank, turns: list[str]) -> dict[str, float]:
    """What a turn of the passive stream takes of the caller's thread, and of the whole process, in ms (median)."""
    stream = bank.stream()
    stream.observe("warm up")
    stream.wait(60)
    mine: list[float] = []
    whole: list[float] = []
    for turn in turns:
        process, thread = time.process_time(), time.thread_time()
        stream.observe(turn)
        stream.context()
        mine.append(1000 * (time.thread_time() - thread))
        stream.wait(60)
        whole.append(1000 * (time.process_time() - process))
    stream.close()
    return {
        "caller_ms": round(statistics.median(mine), 3),
        "process_ms": round(statistics.median(whole), 2),
    }
