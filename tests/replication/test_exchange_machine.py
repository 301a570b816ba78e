"""A state machine: replicas write, split, meet, repeat and reorder; whoever saw the same events shows the
same.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.conftest import SEARCH

from skep.bank.bank import Bank
from skep.errors import SkepError
from skep.model import Event
from skep.replication.exchange import seen, sync, take

from .conftest import EMBEDDER

COUNT = 3
WHO = st.integers(0, COUNT - 1)
PICK = st.integers(0, 50)


class Replicas(RuleBasedStateMachine):
    """Three banks with clocks of their own."""

    @initialize()
    def open(self) -> None:
        self.time = 1_750_000_000.0
        skew = (0.0, 40.0, -3000.0)
        self.banks = [
            Bank.open(":memory:", embedder=EMBEDDER, now=lambda late=late: self.time + late) for late in skew
        ]
        self.ids: list[str] = []
        self.forgotten: set[str] = set()
        self.cut: set[frozenset[int]] = set()
        self.seen_on_wire: list[Event] = []

    def teardown(self) -> None:
        for bank in getattr(self, "banks", ()):
            bank.close()

    def change(self, who: int, action: Any) -> None:
        """Try a change; a replica that does not know the memory refuses, which is right."""
        self.time += 1
        try:
            action(self.banks[who])
        except SkepError:
            return

    @rule(who=WHO, number=PICK)
    def remember(self, who: int, number: int) -> None:
        self.time += 1
        self.ids.append(
            self.banks[who].remember(f"Fact number {number} is here.", on_conflict="ignore").memory.id
        )

    @rule(who=WHO, pick=PICK, number=PICK)
    def revise(self, who: int, pick: int, number: int) -> None:
        if self.ids:
            target = self.ids[pick % len(self.ids)]
            self.change(
                who, lambda bank: bank.revise(target, text=f"Fact {number} was revised.", importance=0.7)
            )

    @rule(who=WHO, pick=PICK, verb=st.sampled_from(["retract", "restore", "confirm", "expire", "activate"]))
    def mark(self, who: int, pick: int, verb: str) -> None:
        if not self.ids:
            return
        target = self.ids[pick % len(self.ids)]
        actions: dict[str, Any] = {
            "retract": lambda bank: bank.retract(target),
            "restore": lambda bank: bank.restore(target),
            "confirm": lambda bank: bank.confirm(target),
            "expire": lambda bank: bank.mark(target, "expired"),
            "activate": lambda bank: bank.mark(target, "active"),
        }
        self.change(who, actions[verb])

    @rule(who=WHO, old=PICK, new=PICK, verb=st.sampled_from(["supersede", "merge", "link"]))
    def relate(self, who: int, old: int, new: int, verb: str) -> None:
        if len(self.ids) > 1:
            a, b = self.ids[old % len(self.ids)], self.ids[new % len(self.ids)]
            self.change(who, lambda bank: getattr(bank, verb)(a, b))

    @rule(who=WHO, pick=PICK)
    def forget(self, who: int, pick: int) -> None:
        if not self.ids:
            return
        target = self.ids[pick % len(self.ids)]

        def erase(bank: Bank) -> None:
            bank.forget(target)
            self.forgotten.add(target)

        self.change(who, erase)

    @rule(a=WHO, b=WHO)
    def toggle_partition(self, a: int, b: int) -> None:
        if a != b:
            self.cut ^= {frozenset((a, b))}

    @rule(a=WHO, b=WHO)
    def meet(self, a: int, b: int) -> None:
        if a != b and frozenset((a, b)) not in self.cut:
            sync(self.banks[a], self.banks[b])

    @rule(a=WHO, b=WHO, rng=st.randoms(use_true_random=False))
    def deliver_some_twice_and_shuffled(self, a: int, b: int, rng: Any) -> None:
        events = list(self.banks[a].events())
        self.seen_on_wire += events
        picked = [event for event in self.seen_on_wire[-200:] if rng.random() < 0.4]
        rng.shuffle(picked)
        take(self.banks[b], picked + picked[:3])

    @invariant()
    def same_events_same_state(self) -> None:
        banks = getattr(self, "banks", [])
        for index, a in enumerate(banks):
            for b in banks[index + 1 :]:
                if seen(a) == seen(b):
                    assert state(a) == state(b)

    @invariant()
    def nothing_forgotten_comes_back(self) -> None:
        for bank in getattr(self, "banks", []):
            if bank.versions():
                known = {
                    name
                    for event in bank.events()
                    if event.kind == "forget"
                    for name in event.body["memories"]
                }
                assert not known & set(state(bank))

    @rule()
    def everybody_meets(self) -> None:
        for _ in range(2):
            for a in range(COUNT):
                for b in range(a + 1, COUNT):
                    sync(self.banks[a], self.banks[b])
        first = state(self.banks[0])
        assert all(state(bank) == first for bank in self.banks)
        assert not self.forgotten & set(first)


def state(bank: Bank) -> dict[str, Any]:
    memories = {
        memory.id: msgspec.structs.replace(memory, uses=0, last_used_at=None)
        for memory in bank.find(status=None, limit=10_000)
    }
    links = sorted((link.src, link.dst, link.rel) for link in bank.engine.store.all_links())
    return {**memories, "": links}


Replicas.TestCase.settings = settings(max_examples=25 * max(1, SEARCH), stateful_step_count=25, deadline=None)
TestReplicas = Replicas.TestCase
