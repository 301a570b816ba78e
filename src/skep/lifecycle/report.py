"""What maintenance plans and what it did."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from skep.storage.sqlite import Plan


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
    """What a step wants to do, and in words why that is not all; the next run then looks at the same again."""

    actions: list[Action]
    problem: str = ""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one step looked at and did."""

    step: str
    looked_at: int = 0
    actions: tuple[str, ...] = ()
    """In words, one per action."""
    note: str = ""


class MaintainReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of maintenance did, or with `dry_run` would do."""

    steps: tuple[StepReport, ...]
    dry_run: bool = False
    events: int = 0
    queued: int = 0
    """Pairs that wait for a judge."""
    spent_tokens: int = 0
    spent_money: float = 0.0

    @property
    def changed(self) -> int:
        """How many actions there were."""
        return sum(len(step.actions) for step in self.steps)


def counted(number: int, what: str) -> str:
    """A number of things in words.

    >>> counted(1, "episode"), counted(2, "episode")
    ('1 episode', '2 episodes')
    """
    return f"1 {what}" if number == 1 else f"{number} {what}s"
