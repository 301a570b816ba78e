"""Does spreading memories over agents cost answers? Recall@10 beside banks that hold everything.

    python -m benchmarks.hive.parity DATA_FOLDER --out benchmarks/hive/parity.json

There are two banks to compare with, and they answer different questions. *Same authors* is one shared bank
(a flat hive) with exactly the same memories, each under the agent that learnt it: what differs from it is
the doing of the topology. *One author* is the bank of a single agent that learnt everything: what differs
from it is also the doing of authorship.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.given import folder_of_sets, number, to_write
from benchmarks.hive.data import FILES, build, environment, fill, read
from skep.bank.read import every

SETS = ("amplihack_forget", "factcon_6k", "amplihack_hive", "amplihack_long", "locomo_obs")
AGENTS = (1, 5, 20, 100)
LIMIT = 10


def answerable(data: dict[str, Any], most: int | None = None) -> list[dict[str, Any]]:
    """Queries with at least one document that answers them; a fixed sample of `most` of them."""
    good = [q for q in data["queries"] if any(g > 0 for g in data["qrels"].get(q["id"], {}).values())]
    return good if most is None or most >= len(good) else random.Random(7).sample(good, most)


def measure(data: dict[str, Any], kind: str, agents: int, deal: str) -> dict[str, Any]:
    """Recall@10 and processor time of one set-up, each query asked by a random agent."""
    rng = random.Random(1)
    with build(kind, agents) as hive:
        documents = fill(hive, data["corpus"], agents, deal)
        found: list[float] = []
        times: list[float] = []
        lists: list[list[str]] = []
        completeness = 1.0
        gateway = {status: _count(hive, status) for status in ("active", "quarantined")}
        for query in data["asked"]:
            good = {d for d, grade in data["qrels"][query["id"]].items() if grade > 0}
            scope = query.get("meta", {}).get("scope") if data["meta"].get("scoped") else None
            bank = hive.agent(f"agent-{rng.randrange(agents):03}")
            started = time.process_time()
            answer = bank.recall(query["text"], limit=LIMIT, scope={"project": str(scope)} if scope else None)
            times.append(time.process_time() - started)
            shown = [hit.memory.id for hit in answer]
            same = [i for ids in getattr(answer, "same", {}).values() for i in ids]
            completeness = min(completeness, getattr(answer, "completeness", 1.0))
            lists.append([documents[i] for i in shown])
            found.append(len(good & {documents[i] for i in (*shown, *same)}) / len(good))
    return {
        "topology": kind,
        "agents": agents,
        "deal": deal,
        "queries": len(found),
        "recall_at_10": round(sum(found) / len(found), 4),
        "cpu_ms_p50": round(median(times) * 1000, 2),
        "completeness": completeness,
        "gateway": gateway,
        "lists": lists,
    }


def _count(hive: Any, status: str) -> int:
    """The memories of a hive with a status, each once."""
    return sum(1 for _memory in every(hive.agent("agent-000"), status=status))


def compare(data: dict[str, Any], sizes: Sequence[int] = AGENTS) -> list[dict[str, Any]]:
    """Every set-up beside both kinds of one bank."""
    one_author = measure(data, "single", 1, "parts")
    rows = [_beside(one_author, one_author, one_author)]
    for deal in ("parts", "turns"):
        for agents in sizes:
            same_authors = measure(data, "flat", agents, deal)
            rows.append(_beside(same_authors, same_authors, one_author))
            for kind in ("federated", "sharded"):
                rows.append(_beside(measure(data, kind, agents, deal), same_authors, one_author))
    for row in rows:
        row.pop("lists", None)
    return rows


def _beside(row: dict[str, Any], same_authors: dict[str, Any], one_author: dict[str, Any]) -> dict[str, Any]:
    pairs = list(zip(row["lists"], same_authors["lists"], strict=True))
    return {
        **row,
        "points_same_authors": round(100 * (row["recall_at_10"] - same_authors["recall_at_10"]), 2),
        "points_one_author": round(100 * (row["recall_at_10"] - one_author["recall_at_10"]), 2),
        "identical_answers": round(sum(a == b for a, b in pairs) / len(pairs), 4),
    }


def main(given: list[str] | None = None) -> None:
    """Measure all sets and write the report."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hive.parity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", type=Path, help="The folder of the evaluation sets.")
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--agents", nargs="+", type=number(1), default=AGENTS)
    parser.add_argument("--queries", type=number(1), help="Ask only a sample of so many.")
    parser.add_argument("--out", type=to_write)
    arguments = parser.parse_args(given)
    folder_of_sets(arguments.data, arguments.sets, *FILES)
    report: dict[str, Any] = {"environment": environment(), "sets": {}}
    for name in arguments.sets:
        data = read(arguments.data, name)
        data["asked"] = answerable(data, arguments.queries)
        report["sets"][name] = compare(data, arguments.agents)
        for row in report["sets"][name]:
            print(name, row, flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
