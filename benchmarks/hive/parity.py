"""Does spreading memories over agents cost answers? Recall@10 against one bank that holds everything.

python -m benchmarks.hive.parity DATA_FOLDER --out benchmarks/hive/parity.json
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

from benchmarks.hive.data import build, fill, read

SETS = ("amplihack_hive", "amplihack_long", "locomo_obs")
AGENTS = (1, 5, 20, 100)
LIMIT = 10


def answerable(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Queries with at least one document that answers them."""
    return [q for q in data["queries"] if any(g > 0 for g in data["qrels"].get(q["id"], {}).values())]


def measure(data: dict[str, Any], kind: str, agents: int) -> dict[str, Any]:
    """Recall@10 and processor time of one set-up, each query asked by a random agent."""
    rng = random.Random(1)
    with build(kind, agents) as hive:
        documents = fill(hive, data["corpus"], agents)
        found: list[float] = []
        times: list[float] = []
        lists: list[list[str]] = []
        completeness = 1.0
        for query in answerable(data):
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
        "queries": len(found),
        "recall_at_10": round(sum(found) / len(found), 4),
        "cpu_ms_p50": round(sorted(times)[len(times) // 2] * 1000, 2),
        "completeness": completeness,
        "lists": lists,
    }


def compare(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Every set-up beside one bank holding everything."""
    base = measure(data, "single", 1)
    rows = [base]
    for agents in AGENTS:
        for kind in ("federated", "sharded"):
            rows.append(measure(data, kind, agents))
    for row in rows:
        pairs = zip(row["lists"], base["lists"], strict=True)
        row["same_lists"] = round(sum(a == b for a, b in pairs) / len(base["lists"]), 4)
        row["points"] = round(100 * (row["recall_at_10"] - base["recall_at_10"]), 2)
    for row in rows:
        del row["lists"]
    return rows


def main() -> None:
    """Measure all sets and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    report: dict[str, Any] = {}
    for name in arguments.sets:
        report[name] = compare(read(arguments.data, name))
        for row in report[name]:
            print(name, row, flush=True)
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
