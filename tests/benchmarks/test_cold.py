"""The process of a cold start: what it is handed, and what it loads before the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from array import array
from pathlib import Path

from benchmarks.speed import cold
from benchmarks.speed.engines.values import Query
from benchmarks.speed.environments import ROOT
from benchmarks.speed.process import COLD

LOADED = """
import sys
bare = set(sys.modules)
sys.path.insert(0, sys.argv[1])
import benchmarks.speed.cold
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - bare}))
"""


def test_a_question_is_handed_over_as_it_is(tmp_path: Path) -> None:
    query = Query("q1", "größer tables", "which größer tables?", array("f", [0.1, -2.5, 3e-8]), "t 1", "p")
    read = cold.read(cold.written(query, str(tmp_path)), 3)

    assert [getattr(read, name) for name in Query.__slots__] == [
        getattr(query, name) for name in Query.__slots__
    ]


def test_nothing_is_loaded_before_the_engine_that_only_the_harness_needs() -> None:
    script = [sys.executable, "-I", "-S", "-c", LOADED, str(ROOT)]
    done = subprocess.run(script, capture_output=True, text=True, check=True)

    assert not {"json", "re", "typing", "enum", "numpy", "skep", "runpy"} & set(done.stdout.split()), (
        done.stdout
    )


def test_it_answers_from_a_store_and_does_not_import_from_beside_itself(tmp_path: Path) -> None:
    from benchmarks.speed.engines.floor import Floor
    from benchmarks.speed.engines.values import Row

    engine = Floor()
    engine.open(str(tmp_path), 2)
    engine.load([Row("r1", "red harbour", array("f", [1.0, 0.0]), "t", "p")])
    engine.close()
    question = cold.written(
        Query("q", "harbour", "harbour?", array("f", [1.0, 0.0]), "t", "p"), str(tmp_path)
    )
    done = subprocess.run(
        [sys.executable, *COLD, "floor", "2", str(tmp_path), question],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))},
    )

    assert '"answer": ["r1"]' in done.stdout
    assert COLD[0] == "-P"
