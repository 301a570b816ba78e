"""A short memory of embedders that did not answer, so that not every question waits for one that is down."""

from __future__ import annotations

from skep.clock import Now

OUTAGE_SECONDS = 30.0
"""For how long an embedder that failed is not asked again by a question."""


class Outages:
    """What went wrong with each embedder, by fingerprint. Single assignments: safe to share between threads."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._until: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def note(self, name: str, error: str, *, lasting: bool = True) -> None:
        """An embedder failed. Where that was the fault of one text, it is not lasting and the next may ask."""
        self._said[name] = error
        if lasting:
            self._until[name] = self._now() + OUTAGE_SECONDS

    def over(self, name: str) -> None:
        """It answered."""
        if self._said:
            self._said.pop(name, None)
            self._until.pop(name, None)

    def now(self, name: str) -> str | None:
        """What it said when it failed, while it need not be asked again."""
        until = self._until.get(name)
        if until is None:
            return None
        if not until - OUTAGE_SECONDS <= self._now() < until:  # a clock set back does not prolong it
            self._until.pop(name, None)
            return None
        return self._said.get(name)

    def last(self) -> str | None:
        """What the last one to fail said, until it answers again."""
        said = list(self._said.values())
        return said[-1] if said else None
