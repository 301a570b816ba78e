"""Looking at what the gateway held back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from skep.errors import NotFoundError
from skep.hive.about import subjects_of
from skep.hive.calls import Listed
from skep.hive.finding import of_members
from skep.hive.frames import Frame, ShardFetch, ShardFetched
from skep.hive.gateway import Quarantined
from skep.hive.member import Member
from skep.hive.placing import Placing
from skep.hive.replica import Transfer
from skep.hive.signing import Refused, author_of
from skep.hive.versions import Versions
from skep.model import Event, Memory

if TYPE_CHECKING:
    from skep.hive.gateway import Gateway
    from skep.hive.trust import Trust


class Reviewing(Placing):
    """The part of a hive that looks at what others bring, and that people use to review."""

    gateway: Gateway
    trust: Trust
    declined: dict[str, Versions]
    """Per agent that is not trusted: events of others that were not taken."""

    def admit(self, events: Iterable[Event], *, via: tuple[str, ...] = ()) -> Transfer:
        """Take what others tell, except what was written or derived from agents this hive does not trust.

        What is declined counts as seen, so that nobody sends it again until the agent is trusted.
        """
        listed = list(events)
        unwanted: dict[str, str] = {}
        for event in listed:
            about = [unwanted[name] for name in subjects_of(event) if name in unwanted]
            author = about[0] if about else self._distrusted(event)
            if author is not None:
                unwanted[event.id] = author
                known = self.declined.get(author, Versions())
                self.declined[author] = known.with_dot(event.actor, event.counter)
        taken = self.apply_via([e for e in listed if e.id not in unwanted], via or ("sync",))
        refused = tuple(Refused(event=name, fault="not trusted") for name in unwanted)
        return msgspec.structs.replace(taken, refused=(*taken.refused, *refused))

    def _distrusted(self, event: Event) -> str | None:
        """The agent for whose sake a memory is not taken."""
        if event.kind != "remember":
            return None
        evidence: Any = event.body.get("evidence") or ()
        sources = self.get_many([name for name in evidence if isinstance(name, str)]) if evidence else {}
        authors = [author_of(event), *(source.agent for source in sources.values())]
        least = self.policy.min_trust
        return next((a for a in authors if a is not None and self.trust.of(a) < least), None)

    def _seen(self) -> Versions:
        whole = super()._seen()
        for author, versions in self.declined.items():
            if self.trust.of(author) < self.policy.min_trust:
                whole = whole.merged(versions)
        return whole

    def quarantine(self, memory_id: str, reason: str) -> Memory | None:
        """Set a memory aside until somebody has looked, in every copy of this hive; others are not told."""
        holder = self.holder(memory_id)
        if holder is None:
            return None
        announced, self.announce = self.announce, False
        try:
            return self.changed_at(holder, lambda bank: bank.mark(memory_id, "quarantined", reason))
        finally:
            self.announce = announced

    def review(self) -> Listed[Quarantined]:
        """What waits for somebody to look at it, oldest first, and (as `missing`) who could not be asked."""
        listed = of_members(self, ("quarantined",))
        holders: dict[str, tuple[str, Memory]] = {}
        for name, memory in listed:
            holders.setdefault(memory.id, (name, memory))
        wanted: dict[str, list[str]] = {}
        for name, memory in holders.values():
            wanted.setdefault(name, []).append(memory.id)
        frames: dict[str, Frame] = {n: ShardFetch(ids=tuple(ids), events=True) for n, ids in wanted.items()}
        reasons: dict[str, str] = {}
        for part in self.calls.ask_each(frames, ShardFetched).answers.values():
            for event in part.events:
                if event.kind == "mark":
                    reasons[str(event.body.get("memory"))] = str(event.body.get("reason", ""))
        found = [
            Quarantined(memory=memory, reasons=reasons.get(memory.id, ""), member=name)
            for name, memory in holders.values()
        ]
        found.sort(key=lambda one: (one.memory.created_at, one.memory.id))
        return Listed(found, asked=listed.asked, missing=listed.missing)

    def approve(self, memory_id: str) -> Memory:
        """Let a quarantined memory into the hive."""
        holder = self._reviewed(memory_id)
        memory = self.changed_at(holder, lambda bank: bank.mark(memory_id, "active", "approved"))
        sure = memory.confidence >= self.policy.broadcast_at
        self.promote(holder, [memory], broadcast={memory.id} if sure else set())
        return memory

    def dismiss(self, memory_id: str, reason: str = "dismissed in review") -> Memory:
        """Refuse a quarantined memory for good; it stays in history."""
        holder = self._reviewed(memory_id)
        return self.changed_at(holder, lambda bank: bank.retract(memory_id, reason))

    def _reviewed(self, memory_id: str) -> Member:
        for member in self.members.values():
            memory = member.get(memory_id)
            if memory is not None and memory.status == "quarantined":
                return member
        holder = self.holder(memory_id)
        memory = None if holder is None else holder.get(memory_id)
        if holder is not None and memory is not None and memory.status == "quarantined":
            return holder
        raise NotFoundError(f"{memory_id!r} does not wait for review; `review` lists what does")
