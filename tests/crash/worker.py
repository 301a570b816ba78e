"""A process that does one kind of work until it is killed, and says on standard output what is done for good.

A line is a JSON list: a word and what it is about. `kept ID TEXT` is a memory that must be there from now on, whatever
became of it; `gone ID TEXT` one that must not.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.hive.hive import Hive
from skep.hub.shared_bank import SharedBank
from skep.integrations.importers.registry import import_items, read
from skep.lifecycle.maintain import MaintainConfig
from skep.model import Memory
from skep.storage.task_queue import TaskQueue

EMBEDDER = HashingEmbedder(64)
AGENTS = ("ana", "bob", "cy")
Say = Callable[..., None]


def say(*words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def text_of(name: str, number: int) -> str:
    return f"worker {name} note {number} about topic{number % 7} and thing{number}"


def opened(path: Path, hours: int = 0) -> Bank:
    """The bank, some hours from now."""
    return Bank.open(path, embedder=EMBEDDER, now=lambda: time.time() + 3600 * hours)


def kept(memory: Memory) -> None:
    say("kept", memory.id, memory.text)


def write(path: Path, name: str) -> None:
    with opened(path) as bank:
        for number in range(10**6):
            memory = bank.remember(text_of(name, number), on_conflict="ignore").memory
            kept(memory)
            if number % 5 == 4:
                bank.revise(memory.id, importance=0.9)


def bulk(path: Path, name: str) -> None:
    with opened(path) as bank:
        for number in range(0, 10**6, 200):
            for one in bank.remember_many(text_of(name, number + n) for n in range(200)):
                kept(one.memory)


def maintain(path: Path, name: str) -> None:
    with opened(path, hours=int(name[1:])) as bank:  # the lease of the killed run has ended
        for number in range(10**6):
            said = [f"Backup of {name} to nas{number % 3} failed, attempt {n}" for n in range(4)]
            said += [f"The port of {name}{number % 5} is {8000 + number}", f"The port of {name} is {number}!"]
            for one in bank.remember_many({"text": text, "kind": "episode"} for text in said):
                kept(one.memory)
            bank.maintain(MaintainConfig(steps=("merge", "extract", "evidence", "reflect")))
            say("done")


def forget(path: Path, name: str) -> None:
    with opened(path) as bank:
        for number in range(10**6):
            stays, goes = bank.remember_many(
                [text_of(name, number), f"secret{name}x{number}x of the {number}th day"], on_conflict="ignore"
            )
            kept(stays.memory)
            bank.forget(goes.memory.id)
            say("gone", goes.memory.id, goes.memory.text)


def merge(path: Path, name: str) -> None:
    with opened(path) as bank:
        for number in range(10**6):
            texts = [text_of(name, number), f"again {text_of(name, number)}"]
            one, two = bank.remember_many(texts, on_conflict="ignore")
            kept(one.memory)
            kept(two.memory)
            bank.merge(two.memory.id, one.memory.id)
            say("merged", two.memory.id, one.memory.id)


def hub(path: Path, name: str) -> None:
    with Bank.open(f"file://{path.parent}/hub#name={name[:1]}", embedder=EMBEDDER) as bank:
        assert isinstance(bank, SharedBank)
        for number in range(10**6):
            memory = bank.remember(text_of(name, number), on_conflict="ignore").memory
            bank.replica.sync()
            kept(memory)


def imports(path: Path, name: str) -> None:
    notes = path.with_name(f"{name}.md")
    notes.write_text("".join(f"# Note {n} of {name}\n\n{text_of(name, n)}\n\n" for n in range(120)))
    with opened(path) as bank:
        say("began", str(notes))
        _, found = read(notes)
        import_items(bank, found)
        say("imported", str(notes))
        time.sleep(60)


def hive(path: Path, name: str) -> None:
    with Hive.federated(
        {"one": AGENTS[:2], "two": AGENTS[2:]}, store=path.parent / "hive", embedder=EMBEDDER
    ) as made:
        for number in range(10**6):
            agent = AGENTS[number % 3]
            kept(made.agent(agent).remember(text_of(name, number), on_conflict="ignore").memory)


def queue(path: Path, name: str) -> None:
    tasks = TaskQueue(path.with_name("tasks"), time.time)
    for number in range(10**6):
        put = tasks.put("note", {"text": text_of(name, number)}, key=f"{name}/{number}")
        say("put", put.id, text_of(name, number))
        taken = tasks.take(name, 0.0)
        if taken is not None and tasks.finish(taken, name, {"answer": taken.body["text"]}):
            say("finished", taken.id, taken.body["text"])


KINDS: dict[str, Callable[[Path, str], None]] = {
    "write": write,
    "bulk": bulk,
    "maintain": maintain,
    "forget": forget,
    "merge": merge,
    "hub": hub,
    "import": imports,
    "hive": hive,
    "queue": queue,
}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]), sys.argv[3])
