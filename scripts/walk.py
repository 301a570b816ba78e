"""Print the modules that one `remember`, one `recall` and one recall in a hive pass through, in order.

A module counts once, where it is first entered. A jump is a call from one module of skep into another. Everything was
called once before, so that imports, prepared statements and the first build of the index do not count.

    $ make walk
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import skep
from skep import Bank
from skep.embedding.embedder import default_embedder, open_embedder
from skep.hive import Hive

PACKAGE = str(Path(skep.__file__).parent) + "/"
MEMORIES = (
    "The staging database runs PostgreSQL 15",
    "The billing service listens on port 8080",
    "Ana reviews every change to the payment code",
    "We deploy on Tuesdays after the stand-up",
    "The logs of the search service are kept for thirty days",
    "Use ruff for linting and formatting",
    "The office in Lisbon closes at six",
    "Bob prefers short pull requests",
    "Secrets live in the vault, never in the repository",
    "The nightly backup of the billing database takes forty minutes",
)
REMEMBERED = "The staging database runs PostgreSQL 16"
QUESTION = "which postgres version is on staging?"


class Walk(NamedTuple):
    """What one call passed through."""

    modules: dict[str, int]
    """In the order of their first call; how often each was called from another module."""
    jumps: dict[tuple[str, str], int]
    """Calls from a module into another."""

    @property
    def total(self) -> int:
        """All jumps together."""
        return sum(self.jumps.values())


class Recorder:
    """Notes calls between modules in every thread that starts after it."""

    def __init__(self) -> None:
        self._jumps: dict[tuple[str, str], int] | None = None
        self._modules: dict[str, int] = {}
        threading.setprofile(self._note)

    def walk(self, call: Callable[[], Any]) -> Walk:
        """Make a call and return what it passed through."""
        self._modules, self._jumps = {}, {}
        sys.setprofile(self._note)
        try:
            call()
        finally:
            sys.setprofile(None)
            modules, jumps = self._modules, self._jumps
            self._jumps = None
        return Walk(modules, jumps)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        jumps = self._jumps
        if event != "call" or jumps is None:
            return
        entered = module_of(frame)
        if entered is None:
            return
        caller, left = frame.f_back, None
        while caller is not None and (left := module_of(caller)) is None:
            caller = caller.f_back
        if entered != left:
            self._modules[entered] = self._modules.get(entered, 0) + 1
            if left is not None:
                jumps[left, entered] = jumps.get((left, entered), 0) + 1


def module_of(frame: FrameType) -> str | None:
    """The module of skep that a frame runs in; None for any other."""
    path = frame.f_code.co_filename
    return path[len(PACKAGE) : -len(".py")].replace("/", ".") if path.startswith(PACKAGE) else None


def walks(spec: str | None = None) -> dict[str, Walk]:
    """One `remember` and one `recall` of a bank, one `recall` of a hive; `spec` names another embedder.

    The thread that looks every now and then if a text waits for its vector is stopped: it works beside a call.
    """
    embedder = default_embedder() if spec is None else open_embedder(spec)
    recorder = Recorder()
    found: dict[str, Walk] = {}
    try:
        with Bank.open(":memory:", embedder=embedder) as bank:
            bank.remember_many(MEMORIES)
            bank.recall("when do we deploy?")
            bank.remember("The billing service listens on port 9090")
            bank.recall("who reviews payments?")
            bank.engine.embeddings.stop()
            found["remember"] = recorder.walk(lambda: bank.remember(REMEMBERED))
            bank.recall("what is used for linting?")
            found["recall"] = recorder.walk(lambda: bank.recall(QUESTION))
        with Hive.sharded(["ana", "bob", "cy"], embedder=embedder) as hive:
            for number, text in enumerate((*MEMORIES, REMEMBERED)):
                hive.agent(("ana", "bob", "cy")[number % 3]).remember(text)
            agent = hive.agent("ana")
            agent.recall("when do we deploy?")
            agent.recall("who reviews payments?")
            for member in hive.members.values():
                member.bank.engine.embeddings.stop()
            found["hive recall"] = recorder.walk(lambda: agent.recall(QUESTION))
    finally:
        threading.setprofile(None)  # type: ignore[arg-type]  # takes None, as sys.setprofile does
    return found


def main() -> None:
    """Print every walk: number, module, calls into it, and what the module is for."""
    for title, walk in walks().items():
        print(f"{title}: {len(walk.modules)} modules, {walk.total} jumps")
        for number, (name, calls) in enumerate(walk.modules.items(), 1):
            purpose = (import_module(f"skep.{name}").__doc__ or "").split("\n")[0]
            print(f"{number:4} {name:28} {calls:4}  {purpose}")
        print()


if __name__ == "__main__":
    main()
