"""Whom to believe: trust per agent, where a memory came from, and who may confirm it.

Trust is a replicated register in [0, 2] under `trust/<agent>`; 1 until somebody says otherwise. What is
derived from others is trusted no more than the least trusted of them, however many steps away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from skep.errors import NotFoundError, OutOfRangeError
from skep.hive.policy import TRUST_DEFAULT, TRUST_MAX

if TYPE_CHECKING:
    from skep.model import Event, Memory

DEPTH = 32
"""How many steps of derivation are followed."""


class Settings(Protocol):
    """The part of a bank that keeps registers."""

    def setting(self, key: str) -> Any:
        """The value, or None."""
        ...

    def settings(self, prefix: str = "") -> dict[str, Any]:
        """Every value under a prefix."""
        ...

    def set_setting(self, key: str, value: Any) -> Event:
        """Write a value."""
        ...


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Where a memory came from."""

    memory: str
    author: str | None
    actor: str
    """The bank that wrote it."""
    path: tuple[str, ...] = ()
    """The members it passed through on its way here."""
    signed: bool = False
    sources: tuple[str, ...] = ()
    """The memories it was derived from."""
    trust: float = TRUST_DEFAULT


class Trust:
    """The trust registers of one hive."""

    def __init__(self, registers: Settings) -> None:
        self._registers = registers

    def of(self, agent: str | None) -> float:
        """How far an agent is trusted, 0 to 2."""
        value = None if agent is None else self._registers.setting(f"trust/{agent}")
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value:  # noqa: PLR0124
            return TRUST_DEFAULT
        return min(TRUST_MAX, max(0.0, float(value)))

    def set(self, agent: str, value: float) -> None:
        """Say how far an agent is trusted; replicas agree on the latest word."""
        if not 0 <= value <= TRUST_MAX:
            raise OutOfRangeError(f"trust lies between 0 and {TRUST_MAX:g}, got {value!r}", field="trust")
        self._registers.set_setting(f"trust/{agent}", float(value))

    def all(self) -> dict[str, float]:
        """Every agent somebody has said something about."""
        names = (key.removeprefix("trust/") for key in self._registers.settings("trust/"))
        return {name: self.of(name) for name in names}

    def of_memory(self, memory: Memory, get: Callable[[str], Memory | None]) -> float:
        """The trust a memory deserves: its author's, or the lowest among what it was derived from."""
        authors = {memory.agent} | {source.agent for source in lineage(memory, get)}
        return min(self.of(author) for author in authors)

    def independent(self, memory: Memory, by: str, get: Callable[[str], Memory | None]) -> str | None:
        """Why a confirmation by somebody does not count; None when it does."""
        if by == memory.agent:
            return f"{by} wrote it"
        if any(source.agent == by for source in lineage(memory, get)):
            return f"it was derived from what {by} wrote"
        if self.of(by) <= 0:
            return f"{by} is not trusted"
        return None


def lineage(memory: Memory, get: Callable[[str], Memory | None]) -> list[Memory]:
    """Every memory it was derived from, near ones first; rings and missing ones do no harm."""
    found: dict[str, Memory] = {}
    frontier: list[str] = list(memory.evidence)
    for _ in range(DEPTH):
        following: list[str] = []
        for name in frontier:
            if name == memory.id or name in found:
                continue
            source = get(name)
            if source is not None:
                found[name] = source
                following += source.evidence
        if not following:
            break
        frontier = following
    return list(found.values())


class Readable(Protocol):
    """A bank that knows a memory's history."""

    def get(self, memory_id: str) -> Memory:
        """One memory."""
        ...

    def history(self, memory_id: str | None = None, *, limit: int = 100) -> list[Event]:
        """Its events."""
        ...


def provenance(
    bank: Readable,
    memory_id: str,
    *,
    trust: Trust,
    path: Iterable[str] = (),
    get: Callable[[str], Memory | None] | None = None,
) -> Provenance:
    """Where a memory of a bank came from."""
    memory = bank.get(memory_id)
    first = next((event for event in bank.history(memory_id) if event.id == memory_id), None)
    return Provenance(
        memory=memory_id,
        author=memory.agent,
        actor=memory_id.rpartition("-")[0],
        path=tuple(path),
        signed=first is not None and first.signature is not None,
        sources=memory.evidence,
        trust=trust.of_memory(memory, get or getter(bank)),
    )


def getter(bank: Readable) -> Callable[[str], Memory | None]:
    """`bank.get` that answers None for what is not there."""

    def get(memory_id: str) -> Memory | None:
        try:
            return bank.get(memory_id)
        except NotFoundError:
            return None

    return get
