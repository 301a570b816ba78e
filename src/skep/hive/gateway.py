"""The gateway: what an agent learns passes here before the hive has it.

It gathers what is known about a memory (quality, trust, rate, contradictions) and asks the promotion
policy. What is doubtful is stored as `quarantined`: out of every recall until somebody approves or
dismisses it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from skep.hive.policy import Decision, HivePolicy, RateLimit, Standing
from skep.hive.quality import assess
from skep.model import Conflict, Memory

if TYPE_CHECKING:
    from skep.hive.trust import Trust

KEPT = 1000
"""Decisions remembered for `status`."""
SURE = 0.5
"""Confidence from which a contradiction counts."""


class Decides(Protocol):
    """A promotion policy; `PromotionPolicy` is one."""

    def decide(self, memory: Memory, standing: Standing) -> Decision:
        """Rejected, quarantined or promoted."""
        ...


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of the gateway."""

    agent: str
    text: str
    decision: Decision
    at: float


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that waits for review."""

    memory: Memory
    reasons: str
    member: str


class Gateway:
    """Decides what the hive takes from its agents."""

    def __init__(
        self,
        policy: HivePolicy,
        rules: Decides,
        trust: Trust,
        *,
        now: Callable[[], float],
        get: Callable[[str], Memory | None],
    ) -> None:
        self.policy = policy
        self.rules = rules
        self.trust = trust
        self._now = now
        self._get = get
        self._limit = RateLimit(policy)
        self._lock = threading.Lock()
        self._judged: deque[Judged] = deque(maxlen=KEPT)
        self._counts: dict[str, int] = {}

    def judge(self, memory: Memory, conflicts: Iterable[Conflict] = ()) -> Decision:
        """Decide about a memory that an agent wants to share."""
        agent = memory.agent or ""
        trust = self.trust.of_memory(memory, self._get)
        opposed = tuple(
            c
            for c in conflicts
            if c.kind != "duplicate" and c.confidence >= SURE and self._stands(c.existing, memory)
        )
        with self._lock:
            standing = Standing(
                trust=trust,
                within_rate=self._limit.allows(agent, trust, self._now()),
                quality=assess(memory.text, title=memory.title, domain=memory.domain),
                conflicts=opposed,
            )
            decision = self.rules.decide(memory, standing)
            self._judged.append(
                Judged(agent=agent, text=memory.text[:200], decision=decision, at=self._now())
            )
            self._counts[decision.verdict] = self._counts.get(decision.verdict, 0) + 1
        return decision

    @staticmethod
    def _stands(existing: Memory, memory: Memory) -> bool:
        """Only what others confirmed, or are surer of, can hold a memory back; authors may correct
        themselves.
        """
        if existing.agent == memory.agent:
            return False
        return existing.confirmations > 0 or existing.confidence >= memory.confidence

    def counts(self) -> dict[str, int]:
        """How many were promoted, quarantined and rejected."""
        with self._lock:
            return dict(self._counts)

    def judged(self, verdict: str | None = None) -> list[Judged]:
        """The latest decisions, newest first."""
        with self._lock:
            found = list(self._judged)[::-1]
        return [one for one in found if verdict is None or one.decision.verdict == verdict]
