"""One run of maintenance: writes what steps planned, remembers how far each came, and keeps the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skep.engine import Engine
from skep.lifecycle.lease import Held
from skep.lifecycle.report import Action, StepReport
from skep.storage.sqlite import Plan

BATCH = 256
"""Events per transaction, or one action, if that alone has more."""

SEEN = ("evidence",)
"""Steps that look at what later steps of a run write, too, but only at what facts say."""


class Run:
    """What was planned, written and spent so far.

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
        """Whether nothing is written."""
        return self.lease is None

    def head(self) -> int:
        """Where the bank stands; a step that begins here has everything up to it in view."""
        self._position = self.engine.store.head()
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
        marked = marks or (step,)
        if actions or (head is not None and any(self.engine.store.mark(name) != head for name in marked)):
            self.write(actions, None if head is None else lambda: self._mark(marked, head), says=says)
        self.report(step, (*written, *actions), looked_at=looked_at, note=note)

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
            with self.engine.store.writing():
                self.lease.check()
                if part:
                    here = self.engine.store.head()
                    seen = [] if says else [step for step in SEEN if self.engine.store.mark(step) == here]
                    written, _ = self.engine.write(_joined(part))
                    self._position = self.engine.store.head() if here == self._position else None
                    for step in seen:
                        self.engine.store.set_mark(step, self.engine.store.head())
                    self.events += len(written)
                if last is not None and number == len(parts):
                    last()

    def settle(self, actions: Sequence[Action]) -> int:
        """Write actions and embed what they wrote, so that it can be found; where the bank stood before."""
        before = self.engine.store.head()
        self.write(actions)
        alone = self.engine.store.head() == self._position
        self.engine.embeddings.drain()
        self.engine.index.refresh()
        if alone:  # making vectors is no change by somebody else
            self._position = self.engine.store.head()
        return before

    def _mark(self, steps: Sequence[str], head: int) -> None:
        here = self.engine.store.head()
        for step in steps:
            self.engine.store.set_mark(step, here if self._position == here else head)


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
