"""A fresh process: open a store, answer one question, say how long each part took, and leave.

Run as a script, with nothing imported before the engine but what handing over a question takes: what is measured is
the interpreter and the engine. The question is a text of five lines and, beside it, a file with its vector.
"""

from __future__ import annotations

import os
import sys
import time
from array import array
from importlib import import_module

from benchmarks.speed.engines.values import Query


def written(query: Query, folder: str) -> str:
    """Write a question down for such a process; the file to name to it."""
    path = os.path.join(folder, "cold.txt")
    with open(path, "w", encoding="utf-8") as lines:
        lines.writelines(
            f"{part}\n" for part in (query.id, query.text, query.question, query.team, query.project)
        )
    with open(f"{path}.f32", "wb") as raw:
        query.vector.tofile(raw)
    return path


def read(path: str, dim: int) -> Query:
    """The question."""
    vector = array("f")
    with open(path, encoding="utf-8") as lines, open(f"{path}.f32", "rb") as raw:
        id, text, question, team, project, _ = lines.read().split("\n")
        vector.fromfile(raw, dim)
    return Query(id, text, question, vector, team, project)


def main(name: str, dim: int, path: str, question: str) -> None:
    """Measure, and only then load what it takes to tell."""
    started = time.process_time(), time.perf_counter()
    query = read(question, dim)
    engine = import_module(f"benchmarks.speed.engines.{name}").ENGINE()
    engine.open(path, dim)
    opened = time.process_time(), time.perf_counter()
    answer = engine.hybrid(query, 10)
    done = time.process_time(), time.perf_counter()

    from benchmarks.speed.worker import resident, say

    say(
        {
            "cpu_before_s": started[0],
            "cpu_open_s": opened[0] - started[0],
            "cpu_answer_s": done[0] - opened[0],
            "cpu_s": done[0],
            "wall_open_s": opened[1] - started[1],
            "wall_answer_s": done[1] - opened[1],
            "answer": [engine.row_id(id) for id, _ in answer],
            "rss": resident(),
        }
    )
    engine.close()


if __name__ == "__main__":
    # Whatever a library prints must not mix with the answer; see `worker.CHANNEL`.
    os.dup2(1, 9)
    os.dup2(2, 1)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
