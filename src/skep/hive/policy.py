"""The rules of a hive, as values: every threshold in one place, and who may be promoted.

Subclass `PromotionPolicy`, or pass any object with its `decide` method.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from skep.errors import ConfigError
from skep.hive.quality import Quality
from skep.model import Conflict, Memory

Verdict = Literal["promoted", "quarantined", "rejected"]

TRUST_DEFAULT = 1.0
TRUST_MAX = 2.0


class HivePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every threshold and limit of a hive."""

    promote_at: float = 0.3
    """Confidence from which a memory leaves its agent."""
    quality_at: float = 0.3
    """Quality (see `quality`) from which it may."""
    broadcast_at: float = 0.9
    """Confidence, weighed by trust, from which it is copied to every group."""
    gossip_at: float = 0.3
    min_trust: float = 0.3
    """Below this trust an agent's memories are quarantined."""
    rate: float = 300.0
    """Promotions per minute and unit of trust; beyond that they are quarantined."""
    burst: int = 1000
    """Promotions an agent may save up."""
    contradiction: Literal["allow", "quarantine", "reject"] = "quarantine"
    """What becomes of a memory that contradicts a confirmed one of the hive."""
    fanout: int = 2
    gossip_top: int = 10
    over_fetch: int = 10
    over_fetch_min: int = 200
    domain_boost: int = 3
    """How many times the candidates a group whose domain fits the query may send."""
    replication: int = 3
    deadline: float = 1.0
    """Seconds an answer may take, hedged retries included."""
    hedge_after: float = 0.1
    """Seconds after which members that have not answered are asked around."""
    ttl: float | None = None
    """Seconds a memory lives in the hive unless refreshed; None keeps it."""
    decay_per_hour: float = 0.01
    """With a ttl: how fast confidence fades when it is read."""

    def __post_init__(self) -> None:
        problems = tuple(_problems(self))
        if problems:
            raise ConfigError("; ".join(problems))

    def budget(self, limit: int) -> int:
        """How many candidates a group may send for an answer of `limit`."""
        return max(self.over_fetch * limit, self.over_fetch_min)


_RANGES: dict[str, tuple[float, float]] = {
    "promote_at": (0, 1),
    "quality_at": (0, 1),
    "broadcast_at": (0, 1),
    "gossip_at": (0, 1),
    "min_trust": (0, TRUST_MAX),
    "rate": (0, math.inf),
    "burst": (1, math.inf),
    "fanout": (1, math.inf),
    "gossip_top": (1, math.inf),
    "over_fetch": (1, math.inf),
    "over_fetch_min": (1, math.inf),
    "domain_boost": (1, math.inf),
    "replication": (1, math.inf),
    "deadline": (0.001, math.inf),
    "hedge_after": (0, math.inf),
    "decay_per_hour": (0, math.inf),
}


def _problems(policy: HivePolicy) -> list[str]:
    found: list[str] = []
    for name, (low, high) in _RANGES.items():
        value = getattr(policy, name)
        if not low <= value <= high:
            found.append(f"{name} must lie between {low:g} and {high:g}, got {value!r}")
    if policy.ttl is not None and not policy.ttl > 0:
        found.append(f"ttl must be above 0 seconds, got {policy.ttl!r}")
    return found


def policy_problems(raw: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every value of a raw policy that cannot work, as (field, what is wrong)."""
    found: list[tuple[str, str]] = []
    for name, value in raw.items():
        if name not in HivePolicy.__struct_fields__:
            continue
        try:
            msgspec.convert({name: value}, HivePolicy)
        except (msgspec.ValidationError, ConfigError) as error:
            found.append((name, str(error).partition(" - at")[0]))
    return found


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a memory when its promotion is decided."""

    trust: float = TRUST_DEFAULT
    """The trust of its author, or the lowest of its sources if that is less."""
    within_rate: bool = True
    quality: Quality
    conflicts: tuple[Conflict, ...] = ()
    """Contradictions with what the hive holds."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a memory, and why."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    broadcast: bool = False

    def why(self) -> str:
        """In one readable line."""
        return f"{self.verdict}: {'; '.join(self.reasons)}" if self.reasons else self.verdict


class PromotionPolicy:
    """The default rules. Override `decide`, or one of the three questions it asks."""

    def __init__(self, policy: HivePolicy | None = None) -> None:
        self.policy = policy or HivePolicy()

    def decide(self, memory: Memory, standing: Standing) -> Decision:
        """Rejected, quarantined for review, or promoted; every reason is given, not only the first."""
        refused = self.reject(memory, standing)
        if refused:
            return Decision(verdict="rejected", reasons=tuple(refused))
        doubtful = self.doubt(memory, standing)
        if doubtful:
            return Decision(verdict="quarantined", reasons=tuple(doubtful))
        return Decision(verdict="promoted", broadcast=self.broadcast(memory, standing))

    def reject(self, memory: Memory, standing: Standing) -> list[str]:
        """Reasons to keep it out for good."""
        found: list[str] = []
        if memory.confidence < self.policy.promote_at:
            found.append(f"confidence {memory.confidence:.2f} is below {self.policy.promote_at:g}")
        if standing.quality.score < self.policy.quality_at:
            found.append(f"{standing.quality.why()} is below {self.policy.quality_at:g}")
        if standing.trust <= 0:
            found.append("its author is not trusted at all")
        if self.policy.contradiction == "reject":
            found += _contradictions(standing)
        return found

    def doubt(self, memory: Memory, standing: Standing) -> list[str]:  # noqa: ARG002 - for subclasses
        """Reasons to hold it back until somebody has looked."""
        found: list[str] = []
        if standing.trust < self.policy.min_trust:
            found.append(f"trust {standing.trust:.2f} is below {self.policy.min_trust:g}")
        if not standing.within_rate:
            found.append("its author promotes faster than its trust allows")
        if self.policy.contradiction == "quarantine":
            found += _contradictions(standing)
        return found

    def broadcast(self, memory: Memory, standing: Standing) -> bool:
        """Whether every group should have a copy: sure enough, and by an author who is trusted."""
        return memory.confidence * min(1.0, standing.trust) >= self.policy.broadcast_at


def _contradictions(standing: Standing) -> list[str]:
    return [
        f"{conflict.kind} ({conflict.reason}) with {conflict.existing.id}" for conflict in standing.conflicts
    ]


class RateLimit:
    """A bucket per agent: `rate` per minute and unit of trust, saved up to `burst`."""

    def __init__(self, policy: HivePolicy) -> None:
        self._policy = policy
        self._left: dict[str, tuple[float, float]] = {}

    def allows(self, agent: str, trust: float, now: float) -> bool:
        """Whether one more is within the limit; counts it if so."""
        full = self._policy.burst * min(1.0, trust)
        left, at = self._left.get(agent, (full, now))
        left = min(full, left + max(0.0, now - at) / 60 * self._policy.rate * trust)
        allowed = left >= 1
        self._left[agent] = (left - 1 if allowed else left, max(at, now))
        return allowed
