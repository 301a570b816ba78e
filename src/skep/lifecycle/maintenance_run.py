"""One run of maintenance: planned actions, the lease that keeps others out, transactions, and the report.

A lease in the bank's file beats while the run is alive. `Run` is the only part of this room that writes for a step.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import msgspec

from skep.engine.engine import Engine
from skep.errors import BusyError, LeaseHeldError, MovedError
from skep.storage.sqlite_store import Lease, Plan


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing a step wants to do: the events that do it, and why."""

    step: str
    why: str
    memories: tuple[str, ...] = ()
    plans: tuple[Any, ...] = ()

    def events(self) -> tuple[Plan, ...]:
        """The events to write."""
        return self.plans


class Planned(NamedTuple):
    """The plan of a step, and in words why it is not complete; the next run then looks at the same again."""

    actions: list[Action]
    problem: str = ""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one step."""

    step: str
    looked_at: int = 0
    actions: tuple[str, ...] = ()
    """In words, one per action."""
    note: str = ""


class MaintainReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a maintenance run, or with `dry_run` its plan."""

    steps: tuple[StepReport, ...]
    dry_run: bool = False
    events: int = 0
    queued: int = 0
    """Pairs that wait for a judge."""
    spent_tokens: int = 0
    spent_money: float = 0.0
    stopped: str = ""
    """The step at which the run stopped because its time was over; the next run goes on there."""

    @property
    def changed(self) -> int:
        """The number of actions."""
        return sum(len(step.actions) for step in self.steps)


def counted(number: int, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "episode"), counted(2, "episode")
    ('1 episode', '2 episodes')
    """
    return f"1 {what}" if number == 1 else f"{number} {what}s"


JOB = "maintain"
SECONDS = 60.0
"""How long a lease holds without a beat; a run that crashed blocks the next one for this long."""


class Held:
    """The lease of one run; a context manager.

    Raises:
        LeaseHeldError: Another run is at work.
    """

    def __init__(self, engine: Engine, *, seconds: float = SECONDS) -> None:
        self._engine = engine
        self._seconds = seconds
        self.owner = f"{os.getpid()}@{socket.gethostname()}/{secrets.token_hex(4)}"
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Held:
        held = self._claim()
        if held is not None:
            ends = max(0.0, held.until - self._engine.now())
            raise LeaseHeldError(
                f"another run ({held.owner.split('/')[0]}) is maintaining this bank; nothing was done. Wait for it;"
                f" if it crashed, its lease ends in {ends:.0f} s",
                owner=held.owner,
                ends_in=ends,
            )
        if self._engine.file is not None:
            self._thread = threading.Thread(target=self._beat, name="skep-lease", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        self._engine.leases.release(JOB, self.owner)

    def check(self) -> None:
        """Refuse to write once another run has taken over. Call inside the transaction that writes."""
        if not self._engine.leases.owned(JOB, self.owner):
            raise LeaseHeldError(
                "this run stood still for so long that another one took over; what it had not written yet was dropped"
            )

    def _claim(self) -> Lease | None:
        return self._engine.leases.claim(JOB, self.owner, now=self._engine.now(), seconds=self._seconds)

    def _beat(self) -> None:
        while not self._done.wait(self._seconds / 3):
            try:
                if self._claim() is not None:
                    return  # taken over: the next write finds out
            except BusyError:
                continue  # somebody else is writing; there are two more beats before the lease ends
            except MovedError:
                return  # the file has gone: the next write finds out


BATCH = 256
"""Events per transaction, or one action, if that alone has more."""

SEEN = ("evidence",)
"""Steps that look at what later steps of a run write, too, but only at what facts say."""


class Run:
    """The state of a run: plans, writes and costs so far.

    `lease` is None in a dry run, which writes nothing.
    """

    def __init__(self, engine: Engine, lease: Held | None) -> None:
        self.engine = engine
        self.lease = lease
        self.reports: list[StepReport] = []
        self.events = 0
        self.tokens = 0
        self.money = 0.0
        self.queued: int | None = None
        """Pairs that wait for a judge, once that is known."""
        self._position: int | None = None

    @property
    def dry(self) -> bool:
        """True if nothing is written."""
        return self.lease is None

    def head(self) -> int:
        """The head of the log; a step that begins here has everything up to it in view."""
        self._position = self.engine.head()
        return self._position

    def note(self, step: str, *, looked_at: int = 0, note: str = "") -> None:
        """Report a step that plans no actions."""
        self.reports.append(StepReport(step=step, looked_at=looked_at, note=note))

    def annotate(self, note: str) -> None:
        """Say more about the step that was reported last."""
        self.reports[-1] = msgspec.structs.replace(self.reports[-1], note=note)

    def finish(
        self,
        step: str,
        actions: Sequence[Action],
        *,
        looked_at: int,
        head: int | None = None,
        note: str = "",
        marks: Sequence[str] = (),
        written: Sequence[Action] = (),
        says: bool = False,
    ) -> None:
        """Write what a step planned, remember how far it came, and report.

        With `head`, the step need not look again at anything up to there; nor at what this run itself changed since,
        unless somebody else wrote in between. `marks` names the steps of which that is true, if not this one alone.
        `written` are actions of the step that were written before. `says` is true of a step that changes what facts
        say.
        """
        self.write_marked(actions, marks or (step,), head, says=says)
        self.report(step, (*written, *actions), looked_at=looked_at, note=note)

    def write_marked(
        self, actions: Sequence[Action], marks: Sequence[str], head: int | None, *, says: bool = False
    ) -> None:
        """Write actions, and with `head` how far these steps have come; see `finish`."""
        if actions or (head is not None and any(self.engine.mark(name) != head for name in marks)):
            self.write(actions, None if head is None else lambda: self._mark(marks, head), says=says)

    def report(self, step: str, actions: Sequence[Action], *, looked_at: int, note: str = "") -> None:
        """Report a step whose actions are written."""
        why = tuple(action.why for action in actions)
        self.reports.append(StepReport(step=step, looked_at=looked_at, actions=why, note=note))

    def write(
        self, actions: Sequence[Action], last: Callable[[], None] | None = None, *, says: bool = False
    ) -> None:
        """Write the events of actions, many per transaction; `last` runs inside the last one.

        A step that had seen everything need not look at what is written here, unless it changes what facts say.
        """
        if self.lease is None:
            return
        parts = _parts(actions) or ([[]] if last else [])
        for number, part in enumerate(parts, 1):
            with self.engine.writing():
                self.lease.check()
                if part:
                    here = self.engine.head()
                    seen = [] if says else [step for step in SEEN if self.engine.mark(step) == here]
                    written, _ = self.engine.write(_joined(part))
                    self._position = self.engine.head() if here == self._position else None
                    for step in seen:
                        self.engine.set_mark(step, self.engine.head())
                    self.events += len(written)
                if last is not None and number == len(parts):
                    last()

    def settle(self, actions: Sequence[Action]) -> int:
        """Write actions and embed what they wrote, so that it can be found; where the bank stood before."""
        before = self.engine.head()
        self.write(actions)
        alone = self.engine.head() == self._position
        self.engine.embeddings.drain()
        self.engine.index.refresh()
        if alone:  # making vectors is no change by somebody else
            self._position = self.engine.head()
        return before

    def mark(self, reached: Mapping[str, int]) -> None:
        """Remember how far steps have come that are not done. Call inside the transaction that writes."""
        for step, change in reached.items():
            self.engine.set_mark(step, change)

    def _mark(self, steps: Sequence[str], head: int) -> None:
        here = self.engine.head()
        for step in steps:
            self.engine.set_mark(step, here if self._position == here else head)


def _parts(actions: Sequence[Action]) -> list[list[Action]]:
    """Actions in their order, in parts of at most `BATCH` events."""
    parts: list[list[Action]] = []
    size = BATCH
    for action in actions:
        if size + len(action.plans) > BATCH:
            parts.append([])
            size = 0
        parts[-1].append(action)
        size += len(action.plans)
    return parts


def _joined(actions: Sequence[Action]) -> list[Plan]:
    """The events of several actions as one list; what refers to ids of its own action still does."""
    plans: list[Plan] = []
    for action in actions:
        start = len(plans)
        for kind, body in action.events():
            plans.append((kind, _after(body, start) if callable(body) else body))
    return plans


def _after(
    body: Callable[[Sequence[str]], dict[str, Any]], start: int
) -> Callable[[Sequence[str]], dict[str, Any]]:
    return lambda ids: body(ids[start:])
