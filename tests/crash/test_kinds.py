"""Every kind of work, killed at random moments: what was said to be done for good is so, and the bank is whole.

`python -m tests.crash.test_kinds 300` kills as often as it is told, in turn at every kind of work.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.crash.worker import AGENTS, EMBEDDER, KINDS, opened

from skep.bank.bank import Bank
from skep.errors import ForgottenError
from skep.hive.hive import Hive
from skep.integrations.importers.registry import import_items, read
from skep.model import Memory
from skep.storage.task_queue import TaskQueue

Said = list[Any]


class Holds(Protocol):
    """Something that gives a memory by its id."""

    def get(self, memory_id: str) -> Memory:
        """The memory."""
        ...


def kill(kind: str, path: Path, name: str, rng: random.Random) -> list[Said]:
    """Run a worker, kill it at some moment, and return what it said."""
    worker = Path(__file__).with_name("worker.py")
    process = subprocess.Popen(
        [sys.executable, str(worker), kind, str(path), name],
        stdout=subprocess.PIPE,
        env={**os.environ, "XDG_DATA_HOME": str(path.parent / "data")},
    )
    assert process.stdout is not None
    lines = [
        process.stdout.readline() for _ in range(rng.choice((1, 1, 2, 5, 20)) if kind != "import" else 1)
    ]
    select.select([], [], [], rng.random() * 0.05)  # somewhere between two lines
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()  # of one pipe alone: nothing that is buffered is lost
    assert process.returncode == -signal.SIGKILL
    return [json.loads(line) for line in [*lines, *rest.splitlines(keepends=True)] if line.endswith(b"\n")]


def check(kind: str, path: Path, said: Sequence[Said]) -> None:
    """Raise unless all that was said is so."""
    if kind == "queue":
        check_queue(path, said)
    elif kind == "hive":
        with Hive.federated(
            {"one": AGENTS[:2], "two": AGENTS[2:]}, store=path.parent / "hive", embedder=EMBEDDER
        ) as hive:
            check_kept(hive.agent("ana"), said)
            for member in hive.members.values():
                check_whole(member.bank)
    elif kind == "hub":
        os.environ["XDG_DATA_HOME"] = str(path.parent / f"data{len(said)}")  # a replica that begins anew
        with Bank.open(f"file://{path.parent}/hub#name=new{len(said)}", embedder=EMBEDDER) as bank:
            check_kept(bank, said)
            check_whole(bank)
    else:
        with opened(path) as bank:
            if kind == "import":
                check_imports(bank, said)
            check_kept(bank, said)
            check_whole(bank)
            for _, loser, winner in (one for one in said if one[0] == "merged"):
                assert bank.get(loser).merged_into == winner
            for _, memory_id, text in (one for one in said if one[0] == "gone"):
                with pytest.raises(ForgottenError):
                    bank.get(memory_id)
                assert text.encode() not in path.read_bytes()


def check_kept(bank: Holds, said: Sequence[Said]) -> None:
    for _, memory_id, text in (one for one in said if one[0] == "kept"):
        assert bank.get(memory_id).text == text


def check_whole(bank: Bank) -> None:
    assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []


def check_imports(bank: Bank, said: Sequence[Said]) -> None:
    """An import that was cut off is finished by the next; nothing is there twice."""
    for path in dict.fromkeys(one[1] for one in said if one[0] == "began"):
        _, found = read(Path(path))
        done = import_items(bank, found)
        assert done.new == 0 or ["imported", path] not in said
        name = Path(path).stem
        texts = [memory.text for memory in bank.find(text=f"worker {name}", limit=1000)]
        assert len([text for text in texts if f"worker {name} note" in text]) == 120


def check_queue(path: Path, said: Sequence[Said]) -> None:
    tasks = TaskQueue(path.with_name("tasks"), time.time)
    for _, task, text in (one for one in said if one[0] == "put"):
        found = tasks.get(task)  # what is finished keeps its answer alone
        assert found.body == {"text": text} or found.result == {"answer": text}
    for _, task, text in (one for one in said if one[0] == "finished"):
        assert tasks.get(task).result == {"answer": text}
    tasks.close()


def kill_many(kinds: Sequence[str], folder: Path, times: int, seed: int) -> dict[str, int]:
    """Kill in turn at every kind; how many things were said to be done, by kind."""
    rng = random.Random(seed)
    said: dict[str, list[Said]] = {kind: [] for kind in kinds}
    for number in range(times):
        kind = kinds[number % len(kinds)]
        path = folder / kind / "bank.skep"
        path.parent.mkdir(exist_ok=True)
        said[kind] += kill(kind, path, f"w{number}", rng)
        if rng.random() < 0.3:
            check(kind, path, said[kind])
    for kind in kinds:
        check(kind, folder / kind / "bank.skep", said[kind])
    return {kind: len(lines) for kind, lines in said.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_said_to_be_done_survives_being_killed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    kill_many([kind], tmp_path, 2, seed=3)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as there:
        print(kill_many(list(KINDS), Path(there), int(sys.argv[1]), seed=11))
        print(f"{sys.argv[1]} kills, 0 lost")
