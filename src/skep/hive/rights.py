"""Rights in a hive: who may change what others wrote, and whose word counts.

One rule for every verb and every way in. A memory belongs to the agent that wrote it. Others change it by right
(stewards, grants), by agreement (`AgentBank.propose`, then `Hive.approve`), or not at all. Any trusted agent may
confirm, dispute, support, report outcomes and link from a memory of its own: that counts once per agent, weighed by
trust. Members put `checked` before every write of an agent; `Review` puts `outside` before events of others. Grants are
registers of the hive (`rights/<agent>`). It writes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from skep.confidence import independent
from skep.errors import AccessError, InvalidInputError
from skep.hive.trust import witness
from skep.model import ANY, Event, Memory
from skep.replication.signatures import author_of

if TYPE_CHECKING:
    from skep.hive.gateway import HivePolicy
    from skep.hive.trust import Trust
    from skep.storage.store import Plan

OWNED = {
    "revise": ("memory",),
    "retract": ("memory",),
    "restore": ("memory",),
    "mark": ("memory",),
    "supersede": ("old",),
    "merge": ("loser", "winner"),
    "link": ("src",),
    "unlink": ("src",),
    "forget": ("memories",),
    "undo": ("mentions",),
}
"""Changes, and where their bodies name the memories that only an owner changes."""
SAID = {"confirm": ("memory",), "dispute": ("memory",), "evidence": ("memory",), "outcome": ("used",)}
"""What anybody trusted may say of a memory."""
LEADS = ("forget", "undo", "merge", "restore", "outcome")
"""Verbs that write more than their own event; what goes along is not asked for again."""
VERBS = (*OWNED, ANY)
GRANTS = "rights/"


class Rights:
    """The rights of agents in one hive."""

    def __init__(self, trust: Trust, policy: HivePolicy) -> None:
        self.trust = trust
        self._policy = policy
        self._registers = trust.registers

    # Grants

    def of(self, agent: str) -> tuple[str, ...]:
        """The rights of an agent: verbs, each with the owner it is good for after a colon, or `*`."""
        stewards = self._policy.stewards
        if agent in stewards or ANY in stewards:
            return (ANY,)
        held: Any = self._registers.setting(f"{GRANTS}{agent}")
        return tuple(map(str, cast("list[Any]", held))) if isinstance(held, list) else ()

    def grant(self, agent: str, verb: str = ANY, *, of: str = ANY) -> None:
        """Let an agent (or a bank, by its actor) change what others wrote.

        Args:
            agent: Who gets the right.
            verb: One of `VERBS`; `*` for all, which makes a steward.
            of: Whose memories; `*` for everybody's.
        """
        if verb not in VERBS:
            raise InvalidInputError(
                f"there is no right {verb!r}; choose from {', '.join(VERBS)}", field="verb"
            )
        right = verb if of == ANY else f"{verb}:{of}"
        self._registers.set_setting(f"{GRANTS}{agent}", sorted({*self.of(agent), right}))

    def revoke(self, agent: str) -> None:
        """Take all granted rights back; what the agent did with them stays."""
        self._registers.set_setting(f"{GRANTS}{agent}", None)

    def allows(self, agent: str | None, verb: str, owner: str | None) -> bool:
        """True if an agent may do something to a memory of an owner; what has no owner is everybody's."""
        if owner is None or agent == owner:
            return True
        held = () if agent is None else self.of(agent)
        return any(right in held for right in (ANY, verb, f"{ANY}:{owner}", f"{verb}:{owner}"))

    # What an agent writes

    def checked(
        self,
        plans: Iterable[Plan],
        by: str,
        get: Callable[[str], Memory | None],
        event: Callable[[str], Event | None],
    ) -> list[Plan]:
        """The plans of an agent's write, what it says weighed by the trust in it; or `AccessError`."""
        listed = list(plans)
        lead = next((kind for kind in LEADS if any(kind == other for other, _ in listed)), None)

        def one(kind: str, body: dict[str, Any]) -> dict[str, Any]:
            why = self._why_not(kind, body, by, get, event)
            if why is not None:
                raise AccessError(why)
            return self._weighed(kind, body, by, get) if kind in SAID else body

        found: list[Plan] = []
        for at, (kind, body) in enumerate(listed):
            if (lead is not None and kind != lead) or (kind == "undo" and at > 0):
                found.append((kind, body))
            elif callable(body):
                found.append((kind, lambda ids, kind=kind, make=body: one(kind, make(ids))))
            else:
                found.append((kind, one(kind, body)))
        return found

    def _why_not(
        self,
        kind: str,
        body: Mapping[str, Any],
        by: str,
        get: Callable[[str], Memory | None],
        event: Callable[[str], Event | None],
    ) -> str | None:
        """Why an agent may not write an event; None if it may."""
        undone = event(body["event"]) if kind == "undo" else None
        own = undone is not None and author_of(undone) == by
        for memory in filter(None, map(get, _named(kind, body))):
            others = memory.agent not in (None, by)
            if others and self.trust.of(by) < self._policy.min_trust:
                return f"{by} is trusted less than {self._policy.min_trust:g}, so what others wrote stays as it is"
            if kind in SAID:
                continue
            if self.allows(by, kind, None if others is False or own else memory.agent):
                if ANY not in self.of(by) and (why := _bypass(kind, body, memory)):
                    return why
                continue
            return (
                f"{by} may not {kind} {memory.id}, which {memory.agent} wrote; ask with"
                f" `propose({kind!r}, ...)`, remember what holds instead, or let the hive grant it the right"
            )
        return None

    def _weighed(
        self, kind: str, body: dict[str, Any], by: str, get: Callable[[str], Memory | None]
    ) -> dict[str, Any]:
        """What an agent says of a memory, with its name and the trust in it; of copies one counts."""
        if kind == "evidence":
            memory = get(body["memory"])
            known = () if memory is None else (memory.id, *memory.evidence)
            return {**body, "counts": independent(body["sources"], known, get, witness)}
        named = {"agent": by} if kind == "dispute" else {"by": by}
        weight = min(1.0, self.trust.of(by))
        return {**body, **named} | ({"weight": weight} if weight < 1.0 else {})

    # What comes from outside

    def outside(
        self,
        event: Event,
        get: Callable[[str], Memory | None],
        *,
        ours: Callable[[str], bool],
        proven: bool,
        came: Callable[[str], bool],
    ) -> bool:
        """True if an event from outside this hive may change the memories it names.

        Args:
            event: As it arrived.
            get: Memories of this hive.
            ours: Whether a bank (an actor) belongs to this hive.
            proven: Whether a signature proves whose doing it is.
            came: Whether a memory came here the way the event comes now.
        """
        if event.kind not in OWNED and event.kind not in SAID:
            return True
        by = author_of(event) if proven or author_of(event) is None else None
        source = by or event.actor
        undone = (event.body["event"],) if event.kind == "undo" else ()
        for name in (*undone, *_named(event.kind, event.body)):
            writer = name.rpartition("-")[0]
            memory = get(name)
            if writer == event.actor and not ours(writer):
                continue  # a bank speaks for what it wrote
            if memory is None:
                if ours(writer):
                    return False
                continue
            if event.kind in SAID:
                weight = event.body.get("weight", 1.0)
                if (proven and weight <= self.trust.of(by) >= self._policy.min_trust) or came(name):
                    continue
            elif (
                (proven and by == memory.agent)
                or came(name)
                or ANY in self.of(source)
                or self.allows(source, event.kind, memory.agent or ANY)
            ):
                continue
            return False
        return True


def _named(kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    """The memories that a change, or what is said, is about."""
    for key in OWNED.get(kind) or SAID.get(kind, ()):
        value = body.get(key)
        yield from (value,) if isinstance(value, str) else value or ()


def _bypass(kind: str, body: Mapping[str, Any], memory: Memory) -> str | None:
    """Why even its owner may not change a memory so: it would pass by the review or by what others said of it."""
    if memory.status == "quarantined" and kind not in ("retract", "forget"):
        return f"{memory.id} waits for review; `approve` or `dismiss` decides about it"
    changed: dict[str, Any] = body.get("changes", {}) if kind == "revise" else {}
    if memory.confirmations and not {"text", "title"}.isdisjoint(changed):
        return f"others confirmed what {memory.id} says; remember the new text, so that they can look at it"
    if memory.disputes and changed.get("confidence", 0.0) > memory.confidence:
        return f"others dispute {memory.id}; its confidence rises by what others confirm"
    return None
