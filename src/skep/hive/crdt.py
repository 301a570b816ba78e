"""Values that merge without a coordinator.

Each type is a join semilattice: `merge` is commutative, associative and idempotent, and never loses what
was known. Every change returns a *delta*, a small value of the same type; merging deltas in any order, any
number of times, gives the same result as merging whole states. All operations hold the instance's lock;
`merge` copies the other side first, so that two threads merging both ways cannot block each other.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Self

import msgspec

from skep.clock import tick
from skep.errors import OutOfRangeError, SyncError
from skep.hive.version_vectors import Ranges, holds, insert, union

Dot = tuple[str, int]
"""One event of one actor: (actor, counter)."""


class GSetState(msgspec.Struct, frozen=True, tag="gset"):
    """A grow-only set, as it travels."""

    items: tuple[str, ...] = ()


class ORSetState(msgspec.Struct, frozen=True, tag="orset"):
    """An observed-remove set, as it travels: live dots per element, and every dot ever seen as ranges."""

    entries: dict[str, tuple[Dot, ...]] = msgspec.field(default_factory=dict[str, tuple[Dot, ...]])
    context: dict[str, Ranges] = msgspec.field(default_factory=dict[str, Ranges])


class LWWState(msgspec.Struct, frozen=True, tag="lww"):
    """A register, as it travels. A stamp of 0 means: never written."""

    value: Any = None
    stamp: int = 0
    actor: str = ""


class PNState(msgspec.Struct, frozen=True, tag="pn"):
    """A counter, as it travels: per actor, what was added and what was taken away."""

    counts: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict[str, tuple[int, int]])


State = GSetState | ORSetState | LWWState | PNState
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


class _Lattice(ABC):
    """What the four types share: a lock, equality and order by state, and a byte form."""

    _state_type: type[State]

    def __init__(self) -> None:
        self._lock = threading.RLock()

    @abstractmethod
    def state(self) -> State:
        """An immutable copy of the whole value."""

    @abstractmethod
    def join(self, state: Any) -> None:
        """Merge a state that came from elsewhere."""

    def merge(self, other: Self) -> Self:
        """Take in everything `other` knows; returns self."""
        self.join(other.state())
        return self

    def copy(self) -> Self:
        """An independent value with the same state."""
        return type(self).from_state(self.state())

    @classmethod
    def from_state(cls, state: State) -> Self:
        """The value with exactly this state."""
        made = cls()
        made.join(state)
        return made

    def to_bytes(self) -> bytes:
        """The state as bytes; equal states give equal bytes."""
        return _ENCODER.encode(self.state())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what `to_bytes` wrote."""
        try:
            return cls.from_state(msgspec.msgpack.decode(data, type=cls._state_type))
        except msgspec.DecodeError as error:
            raise SyncError(f"not a {cls.__name__}: {error}; ask the peer to send it again") from error

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.state() == other.state()  # type: ignore[attr-defined]

    def __le__(self, other: Self) -> bool:
        """Whether `other` already knows everything this one knows."""
        return other.copy().merge(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.state()!r})"


class GSet(_Lattice):
    """A set that only grows."""

    _state_type = GSetState

    def __init__(self, items: Iterable[str] = ()) -> None:
        super().__init__()
        self._items: set[str] = set(items)

    def add(self, item: str) -> GSet:
        """Add one item; returns the delta."""
        with self._lock:
            self._items.add(item)
        return GSet((item,))

    def state(self) -> GSetState:
        """An immutable copy of the whole value."""
        with self._lock:
            return GSetState(tuple(sorted(self._items)))

    def join(self, state: GSetState) -> None:
        """Merge a state that came from elsewhere: set union."""
        with self._lock:
            self._items.update(state.items)

    def __contains__(self, item: str) -> bool:
        with self._lock:
            return item in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.state().items)

    def __len__(self) -> int:
        with self._lock:
            return len(self._items)


class ORSet(_Lattice):
    """A set where a removal takes away only what it has seen, so that a concurrent add wins.

    Every add is one dot. A removal forgets the dots of the element; the causal context remembers, as ranges,
    that they were seen, so nothing is kept per removed element.
    """

    _state_type = ORSetState

    def __init__(self, actor: str = "") -> None:
        super().__init__()
        self.actor = actor
        self._entries: dict[str, set[Dot]] = {}
        self._owner: dict[Dot, str] = {}
        self._context: dict[str, Ranges] = {}

    def add(self, item: str) -> ORSet:
        """Add an item under a fresh dot; returns the delta."""
        if not self.actor:
            raise OutOfRangeError("an ORSet that is changed needs an actor: ORSet(actor='a')", field="actor")
        with self._lock:
            mine = self._context.get(self.actor, ())
            dot = (self.actor, (mine[-1][1] if mine else 0) + 1)
            seen = (*self._entries.get(item, ()), dot)
            delta = ORSet.from_state(ORSetState({item: (dot,)}, _ranges_of(seen)))
            self.join(delta.state())
        return delta

    def remove(self, item: str) -> ORSet:
        """Remove what is seen of an item, absent or not; returns the delta."""
        with self._lock:
            delta = ORSet.from_state(ORSetState({}, _ranges_of(self._entries.get(item, ()))))
            self.join(delta.state())
        return delta

    def state(self) -> ORSetState:
        """An immutable copy of the whole value."""
        with self._lock:
            entries = {item: tuple(sorted(dots)) for item, dots in self._entries.items()}
            return ORSetState(entries, dict(self._context))

    def join(self, state: ORSetState) -> None:
        """Merge a state that came from elsewhere. The cost follows the smaller side."""
        theirs = {dot: item for item, dots in state.entries.items() for dot in dots}
        with self._lock:
            for dot in self._covered(state.context):
                if dot not in theirs:
                    self._drop(dot)
            for dot, item in theirs.items():
                if dot in self._owner or not holds(self._context.get(dot[0], ()), dot[1]):
                    self._owner[dot] = item
                    self._entries.setdefault(item, set()).add(dot)
            for actor, ranges in state.context.items():
                self._context[actor] = union(self._context.get(actor, ()), ranges)
            for actor, counter in theirs:
                self._context[actor] = insert(self._context.get(actor, ()), counter)

    def _covered(self, context: dict[str, Ranges]) -> list[Dot]:
        """My live dots that a context has seen."""
        size = sum(high - low + 1 for ranges in context.values() for low, high in ranges)
        if size > len(self._owner):
            return [dot for dot in self._owner if holds(context.get(dot[0], ()), dot[1])]
        listed = (
            (actor, counter)
            for actor, ranges in context.items()
            for low, high in ranges
            for counter in range(low, high + 1)
        )
        return [dot for dot in listed if dot in self._owner]

    def _drop(self, dot: Dot) -> None:
        item = self._owner.pop(dot)
        dots = self._entries[item]
        dots.discard(dot)
        if not dots:
            del self._entries[item]

    def __contains__(self, item: str) -> bool:
        with self._lock:
            return item in self._entries

    def __iter__(self) -> Iterator[str]:
        with self._lock:
            return iter(sorted(self._entries))

    def __len__(self) -> int:
        with self._lock:
            return len(self._entries)


class LWWRegister(_Lattice):
    """One value; the latest write wins. Equal stamps are decided by actor, then by the value's bytes."""

    _state_type = LWWState

    def __init__(self, actor: str = "") -> None:
        super().__init__()
        self.actor = actor
        self._held = LWWState()

    @property
    def value(self) -> Any:
        """What was written last; None before the first write."""
        with self._lock:
            return self._held.value

    @property
    def stamp(self) -> int:
        """The hybrid clock of the last write; 0 before the first."""
        with self._lock:
            return self._held.stamp

    def set(self, value: Any, *, at: float) -> LWWRegister:
        """Write a value at wall-clock time `at` (seconds); later than all it has seen. Returns the delta."""
        with self._lock:
            delta = LWWRegister.from_state(LWWState(value, tick(self._held.stamp, at), self.actor))
            self.join(delta.state())
        return delta

    def state(self) -> LWWState:
        """An immutable copy of the whole value."""
        with self._lock:
            return self._held

    def join(self, state: LWWState) -> None:
        """Merge a state that came from elsewhere: the later one stays."""
        with self._lock:
            if _precedence(state) > _precedence(self._held):
                self._held = state


class PNCounter(_Lattice):
    """A count that several actors raise and lower at the same time."""

    _state_type = PNState

    def __init__(self, actor: str = "") -> None:
        super().__init__()
        self.actor = actor
        self._counts: dict[str, tuple[int, int]] = {}

    @property
    def value(self) -> int:
        """What was added, less what was taken away."""
        with self._lock:
            return sum(up - down for up, down in self._counts.values())

    def add(self, amount: int = 1) -> PNCounter:
        """Raise (or, with a negative amount, lower) the count; returns the delta."""
        with self._lock:
            up, down = self._counts.get(self.actor, (0, 0))
            entry = (up + max(amount, 0), down + max(-amount, 0))
            delta = PNCounter.from_state(PNState({self.actor: entry}))
            self.join(delta.state())
        return delta

    def state(self) -> PNState:
        """An immutable copy of the whole value."""
        with self._lock:
            return PNState(dict(self._counts))

    def join(self, state: PNState) -> None:
        """Merge a state that came from elsewhere: the larger of each actor's two counts."""
        with self._lock:
            for actor, (up, down) in state.counts.items():
                mine = self._counts.get(actor, (0, 0))
                self._counts[actor] = (max(mine[0], up), max(mine[1], down))


def _ranges_of(dots: Iterable[Dot]) -> dict[str, Ranges]:
    context: dict[str, Ranges] = {}
    for actor, counter in sorted(dots):
        context[actor] = insert(context.get(actor, ()), counter)
    return context


def _precedence(state: LWWState) -> tuple[int, str, bytes]:
    return state.stamp, state.actor, _ENCODER.encode(state.value)
