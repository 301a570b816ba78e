"""The gateway: what becomes of a memory that an agent wants to share.

`assess` measures how much a text says. `HivePolicy` holds every threshold of a hive. `PromotionPolicy` decides, and
may be subclassed or replaced by any object with its `decide` method. `Gateway` gathers what is known about a memory
(quality, trust, rate, contradictions with confirmed memories) and asks the policy. A doubtful memory is stored as
`quarantined`: out of every recall until somebody approves or dismisses it. Called by `agent_bank` and `orchestrator`;
writes nothing.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from skep.errors import ConfigError
from skep.model import Conflict, Memory
from skep.retrieval.recall_config import SIGNALS
from skep.text.gibberish import GIBBERISH, chance_of_gibberish
from skep.text.terms import STOP, terms

if TYPE_CHECKING:
    from skep.hive.trust import Trust


WEIGHTS = {"length": 0.3, "specificity": 0.3, "structure": 0.2, "concept": 0.2}
PROMOTE_AT = 0.3
SAYS_LITTLE = 0.5
"""Quality below which a text that reads like gibberish is refused."""
FULL_LENGTH = 6
"""Terms of meaning from which a text is long enough."""
TOO_LONG = 200
"""Terms from which a text is rather a document than a memory."""

_VAGUE_WORDS = """
anything everything good it nice ok okay okey fine sure yes no nope something somehow stuff thing things
this that these those maybe perhaps whatever etc lol hmm now thanks thank please hello hi great cool
anyhow anyway anyways blah dunno er eh guess haha hey huh idk idc imo kinda lmao meh mhm nah nvm omg oops
probably really someone something sometime sometimes somewhat somewhere sorta tbh thingy uh uhm um umm
well whatnot whenever wherever whichever wow yadda yay yea yeah yep yup
"""
_VAGUE = frozenset(_VAGUE_WORDS.split())
_VAGUE_TERMS = _VAGUE | frozenset(terms(_VAGUE_WORDS))
_word = re.compile(r"\w[\w'’./:@#-]*")
_specific = re.compile(r"\d|[_/@#]|\w\.\w|[a-z][A-Z]|^[A-Z]{2,}$")
_repeat = re.compile(r"(.)\1{4,}")


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of a text, by measure and in total."""

    length: float
    specificity: float
    structure: float
    concept: float

    @property
    def score(self) -> float:
        """The weighted sum, in [0, 1]."""
        return sum(weight * getattr(self, name) for name, weight in WEIGHTS.items())

    def why(self) -> str:
        """In one readable line."""
        parts = ", ".join(f"{name} {getattr(self, name):.2f}" for name in WEIGHTS)
        return f"quality {self.score:.2f} = {parts}"


def assess(text: str, *, title: str | None = None, domain: str | None = None) -> Quality:
    """Measure a text.

    >>> assess("ok").score < PROMOTE_AT <= assess("The staging database listens on port 5433.").score
    True
    """
    words = _word.findall(text)
    content = [term for term in terms(text) if term not in STOP and term not in _VAGUE_TERMS]
    return Quality(
        length=_length(len(content)),
        specificity=_specificity(words),
        structure=_structure(text, words) * (1.0 if len(content) >= 2 else 0.2),
        concept=_concept(set(content), named=bool(title or domain)),
    )


def _length(count: int) -> float:
    if count > TOO_LONG:
        return max(0.3, TOO_LONG / count)
    return min(1.0, max(0, count - 1) / (FULL_LENGTH - 1))


def _specificity(words: list[str]) -> float:
    """Names, numbers and identifiers count; words that could mean anything count against."""
    if not words:
        return 0.0
    named = sum(1 for i, word in enumerate(words) if _specific.search(word) or (i > 0 and word[:1].isupper()))
    content = [word for word in words if word.lower() not in STOP and word.lower() not in _VAGUE]
    return min(1.0, named / 2 * 0.7 + len(content) / len(words) * 0.6) if content else 0.0


def _structure(text: str, words: list[str]) -> float:
    """A statement: mostly letters, no runs of one character, brackets closed, not a question."""
    if not words:
        return 0.0
    visible = [c for c in text if not c.isspace()]
    lettered = sum(c.isalnum() for c in visible) / len(visible)
    distinct = len({word.lower() for word in words}) / len(words)
    checks = (
        lettered >= 0.6,
        not _repeat.search(text),
        all(text.count(a) == text.count(b) for a, b in ("()", "[]", "{}")),
        not text.rstrip().endswith("?"),
        distinct >= 0.5,
    )
    return sum(checks) / len(checks)


def _concept(content: set[str], *, named: bool) -> float:
    """True if it is about something: distinct terms that carry meaning; a title or a domain helps."""
    found = sum(len(term) > 1 for term in content)
    return min(1.0, (0.5 if named else 0.0) + found / 5) if found else 0.0


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
    """The fate of a memory that contradicts a confirmed one of the hive."""
    fanout: int = 2
    gossip_top: int = 10
    over_fetch: int = 10
    over_fetch_min: int = 200
    domain_boost: int = 3
    """A group whose domain fits the query may send so many times the candidates."""
    replication: int = 3
    deadline: float = 1.0
    """Seconds an answer may take, hedged retries included."""
    hedge_after: float = 0.1
    """Seconds after which members that have not answered are asked around."""
    stewards: tuple[str, ...] = ()
    """Agents that may change what others wrote; `*` for all. See `hive.rights` for narrower rights."""
    ttl: float | None = None
    """Seconds a memory lives in the hive unless refreshed; None keeps it."""
    decay_per_hour: float = 0.0
    """Rate at which confidence fades when it is read: c * exp(-rate * hours). 0: age alone costs nothing."""
    weights: dict[str, float] = msgspec.field(default_factory=dict[str, float])
    """Weights that the default ranking takes on, such as `{trust: 0.2, confirmations: 0.3}`."""

    def __post_init__(self) -> None:
        problems = tuple(_problems(self))
        if problems:
            raise ConfigError("; ".join(problems))

    def budget(self, limit: int) -> int:
        """The number of candidates a group may send for an answer of `limit`."""
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
    for name, weight in policy.weights.items():
        if name not in SIGNALS or not 0 <= weight < math.inf:
            found.append(
                f"weights takes signals ({', '.join(SIGNALS)}) with 0 or more, got {name}: {weight!r}"
            )
    if policy.ttl is not None and not policy.ttl > 0:
        found.append(f"ttl must be above 0 seconds, got {policy.ttl!r}")
    return found


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a memory by which its promotion is decided."""

    trust: float = TRUST_DEFAULT
    """The trust of its author, or the lowest of its sources if that is less."""
    within_rate: bool = True
    quality: Quality
    conflicts: tuple[Conflict, ...] = ()
    """Contradictions with what the hive holds."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a memory, and the reasons."""

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
        chance = chance_of_gibberish(memory.text)
        if chance >= GIBBERISH and standing.quality.score < SAYS_LITTLE:
            found.append(f"it reads like gibberish ({chance:.0%})")
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
        """True if every group should have a copy: sure enough, and by an author who is trusted."""
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
        """True if one more is within the limit; counts it if so."""
        full = self._policy.burst * min(1.0, trust)
        left, at = self._left.get(agent, (full, now))
        left = min(full, left + max(0.0, now - at) / 60 * self._policy.rate * trust)
        allowed = left >= 1
        self._left[agent] = (left - 1 if allowed else left, max(at, now))
        return allowed


SURE = 0.5
"""Confidence from which a contradiction counts."""


class Decides(Protocol):
    """A promotion policy; `PromotionPolicy` is one."""

    def decide(self, memory: Memory, standing: Standing) -> Decision:
        """Rejected, quarantined or promoted."""
        ...


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that waits for review, or a change to one that somebody asks for."""

    memory: Memory
    reasons: str
    member: str
    proposal: str = ""
    """The event of the change that is asked for: approve or dismiss that."""


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

    def judge(self, memory: Memory, conflicts: Iterable[Conflict] = (), *, limited: bool = True) -> Decision:
        """Decide about a memory that somebody wants to share; bulk from outside is not `limited` by rate."""
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
                within_rate=not limited or self._limit.allows(agent, trust, self._now()),
                quality=assess(memory.text, title=memory.title, domain=memory.domain),
                conflicts=opposed,
            )
            return self.rules.decide(memory, standing)

    @staticmethod
    def _stands(existing: Memory, memory: Memory) -> bool:
        """Only a memory that an independent source confirmed can hold another back: an update of what nobody confirmed
        passes, whoever wrote it, and authors may correct themselves.
        """
        return existing.agent != memory.agent and existing.confirmations > 0
