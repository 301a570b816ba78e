"""Whatever comes in at a door: no traceback, no hang, no write from reads. `make fuzz N=1000000` tries many more."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fuzz.doors import Doors

from skep.errors import SkepError
from skep.hive.hive_manifest import parse
from skep.integrations.audit import junk_of
from skep.integrations.config_files import parse_toml
from skep.integrations.importers.registry import read
from skep.lifecycle.judge import Case, prompt_for
from skep.model import Memory
from skep.recall.memory_stream import as_text
from skep.retrieval.query import understand
from skep.semantics.evidence import told, worth_keeping
from skep.text.model_instructions import addresses_model

EACH = 15
"""Inputs for each door in this short run."""
NAMES = ("cli", "mcp", "importers", "manifests", "events", "recall", "hooks", "http", "mcp_http")


@pytest.mark.parametrize("door", NAMES)
def test_a_door_answers_in_words_whatever_comes_in(tmp_path: Path, door: str) -> None:
    doors = Doors(tmp_path)
    assert set(doors.doors) == set(NAMES)
    for seed in range(EACH):
        doors.run(door, seed)
    doors.close()


def judged(text: str) -> None:
    memory = Memory(id="a-1", kind="fact", text=text)
    prompt_for([Case(older=memory, newer=memory, kind="update", similarity=0.5, confidence=0.5)])


def imported(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
    list(read(path)[1])


LOOKS: dict[str, Callable[[str, Path], object]] = {
    "query": lambda text, _: understand(text, 1.7e9),
    "told": lambda text, _: told(text),
    "worth keeping": lambda text, _: worth_keeping(text),
    "judge": lambda text, _: judged(text),
    "message": lambda text, _: as_text(text, "m"),
    "toml": lambda text, _: parse_toml(text),
    "manifest": lambda text, _: parse(text, {}),
    "audit": lambda text, _: junk_of(text),
    "instructions": lambda text, _: addresses_model(text),
    "markdown": lambda text, folder: imported(text, folder / "a.md"),
    "vault": lambda text, folder: imported("[[x]]\n" + text, folder / "b.md"),
}
PIECES = (
    "x",
    "1",
    "-",
    ".",
    " ",
    "\n",
    "\t",
    "[[",
    "[[a",
    "a|",
    "#",
    "[",
    "(",
    "a(",
    ":1",
    "at a(:",
    "Ab ",
    "Ab Cd ",
    "in May ",
    "before ",
    "2025-01-01 00:00:00 ",
    "traceback ",
    "ignore all ",
    "never tell ",
    "if you are an ai ",
    "the 1 ",
    "- ",
    "> ",
    "|a",
    "```",
    "\n\n",
)
SHORT, TIMES = 3000, 4


def seconds(look: Callable[[str, Path], object], text: str, folder: Path) -> float:
    best = 1e9
    for attempt in range(3):
        started = time.process_time()
        with contextlib.suppress(SkepError):
            look(text + "!" * attempt, folder)
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOKS)
def test_time_grows_with_the_length_and_no_faster(name: str, tmp_path: Path) -> None:
    look = LOOKS[name]
    seconds(look, "warm up 1.2", tmp_path)
    for piece in PIECES:
        short, long = ((piece * (size // len(piece))) for size in (SHORT, SHORT * TIMES))
        assert seconds(look, long, tmp_path) < 2.5 * TIMES * seconds(look, short, tmp_path) + 0.15, piece
