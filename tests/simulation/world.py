"""A small world: one virtual clock, a network that misbehaves, and every random choice from one seed.

Nothing here knows of banks. `replicas` puts real ones into it; `history` lets them live through faults.
"""

from __future__ import annotations

import heapq
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from itertools import count
from pathlib import Path
from random import Random

from skep.storage import sqlite_file

BEGIN = 1_750_000_000.0
"""The moment every history begins."""
TMPFS = Path("/dev/shm")


class Network:
    """Carries bytes between names: late, twice, out of order, or not at all."""

    def __init__(self, world: World) -> None:
        self._world = world
        rng = world.rng
        self.loss = rng.choice((0.0, 0.05, 0.3))
        self.twice = rng.choice((0.0, 0.1))
        self.slowest = rng.choice((0.5, 10.0, 60.0))
        self.cut: set[frozenset[str]] = set()
        self.deliver: Callable[[str, bytes], None] = lambda name, data: None

    def send(self, sender: str, to: str, data: bytes) -> None:
        """Hand over a message; what becomes of it is chance."""
        rng, world = self._world.rng, self._world
        if frozenset((sender, to)) in self.cut:
            world.sometimes("a partition swallowed a message")
            return
        if rng.random() < self.loss:
            world.sometimes("a message was lost")
            return
        copies = 2 if rng.random() < self.twice else 1
        if copies == 2:
            world.sometimes("a message came twice")
        for _ in range(copies):
            delay = 0.01 * (self.slowest / 0.01) ** rng.random()
            world.after(delay, lambda: self._arrive(sender, to, data))

    def _arrive(self, sender: str, to: str, data: bytes) -> None:
        if frozenset((sender, to)) not in self.cut:
            self.deliver(to, data)

    def part(self, left: set[str], right: set[str]) -> None:
        """No message passes between the two sides."""
        self.cut |= {frozenset((a, b)) for a in left for b in right}

    def heal(self) -> None:
        """Every message passes again, soon, once."""
        self.cut.clear()
        self.loss = self.twice = 0.0
        self.slowest = 0.5


class World:
    """The clock, what is due when, and the one source of chance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.time = BEGIN
        self.seen: Counter[str] = Counter()
        """How often each thing that has to happen sometimes did happen."""
        self.told: list[str] = []
        """The story of this world, one line per choice."""
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.network = Network(self)

    def sometimes(self, what: str) -> None:
        """Note that something happened which a set of seeds must have met."""
        self.seen[what] += 1

    def tell(self, line: str) -> None:
        """Add a line to the story."""
        self.told.append(f"{self.time - BEGIN:10.3f}  {line}")

    def digest(self) -> str:
        """A fingerprint of the story: equal for equal seeds."""
        return blake2b("\n".join(self.told).encode(), digest_size=12).hexdigest()

    def after(self, delay: float, action: Callable[[], None]) -> None:
        """Let something happen later."""
        heapq.heappush(self._due, (self.time + delay, next(self._numbers), action))

    def every(self, mean: float, action: Callable[[], None]) -> None:
        """Let something happen again and again, at random moments."""

        def again() -> None:
            action()
            self.after(self.rng.expovariate(1 / mean), again)

        self.after(self.rng.expovariate(1 / mean), again)

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        end = self.time + seconds
        while self._due and self._due[0][0] <= end:
            self.time, _, action = heapq.heappop(self._due)
            action()
        self.time = end

    def stop(self) -> None:
        """Drop whatever is due."""
        self._due.clear()

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """A folder for files, in memory where the machine has such; names drawn meanwhile come from the seed."""
        drawn, names = os.urandom, Random(self.seed ^ 0x5EED)
        where = TMPFS if TMPFS.is_dir() and os.access(TMPFS, os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="skep-world-", dir=where) as folder:
            os.urandom = names.randbytes
            try:
                assert sqlite_file.new_actor() != sqlite_file.new_actor()
                yield Path(folder)
            finally:
                os.urandom = drawn
