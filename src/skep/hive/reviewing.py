"""Looking at what the gateway held back."""

from __future__ import annotations

from skep.hive.gateway import Quarantined
from skep.hive.layout import known
from skep.hive.member import Member
from skep.hive.placing import Placing
from skep.model import Memory


class Reviewing(Placing):
    """The part of a hive that people use to review."""

    def review(self) -> list[Quarantined]:
        """What waits for somebody to look at it, oldest first."""
        found: list[Quarantined] = []
        for member in self.members.values():
            for memory in member.bank.find(status="quarantined", limit=1000):
                if not any(memory.id == one.memory.id for one in found):
                    marks = [e for e in member.bank.history(memory.id) if e.kind == "mark"]
                    reasons = str(marks[-1].body.get("reason", "")) if marks else ""
                    found.append(Quarantined(memory=memory, reasons=reasons, member=member.name))
        return sorted(found, key=lambda one: (one.memory.created_at, one.memory.id))

    def approve(self, memory_id: str) -> Memory:
        """Let a quarantined memory into the hive."""
        holder = self._holder(memory_id)
        memory = self.changed_at(holder, lambda bank: bank.mark(memory_id, "active", "approved"))
        self.promote(holder, [memory], broadcast=set())
        return memory

    def dismiss(self, memory_id: str, reason: str = "dismissed in review") -> Memory:
        """Refuse a quarantined memory for good; it stays in history."""
        holder = self._holder(memory_id)
        return self.changed_at(holder, lambda bank: bank.retract(memory_id, reason))

    def _holder(self, memory_id: str) -> Member:
        waiting = {one.memory.id: one.member for one in self.review()}
        known(memory_id, tuple(waiting))
        return self.members[waiting[memory_id]]
