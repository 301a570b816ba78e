"""The layouts of a hive: which member an agent writes to, who keeps copies of a memory, who answers for it.

`Shared` (single and flat), `Sharded` and `Federated` are a `Layout`. Shards are placed by rendezvous hashing: every
member scores every key, and the members with the highest scores own it. Nobody keeps a table, all members agree, and
when one leaves only its own keys move, each to the next in its own order. Pure; called by everything in the hive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b

from skep.errors import InvalidInputError, NotFoundError, OutOfRangeError
from skep.text.terms import query_terms, terms

REPLICATION = 3
MANY = 50
"""Members from which each sends only its share of the candidates."""


def score(key: str, member: str) -> float:
    """The strength of a member's claim to a key."""
    digest = blake2b(key.encode(), digest_size=8, person=_person(member)).digest()
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2.0**64
    return -1.0 / math.log(uniform)


def owners(key: str, members: Iterable[str], *, replication: int = REPLICATION) -> tuple[str, ...]:
    """The members that keep a key, the first one first.

    >>> keep = owners("m-1", ["a", "b", "c", "d"], replication=2)
    >>> keep == owners("m-1", ["d", "c", "b", "a"], replication=2), len(keep)
    (True, 2)
    """
    if replication < 1:
        raise OutOfRangeError("replication must be at least 1", field="replication")
    ranked = sorted(members, key=lambda m: (-score(key, m), m))
    return tuple(ranked[:replication])


class Ring:
    """The owners of keys among a fixed set of members, remembered per key."""

    def __init__(self, members: Iterable[str], *, replication: int = REPLICATION) -> None:
        self.members = tuple(sorted(set(members)))
        self.replication = replication
        self._owners = lru_cache(maxsize=200_000)(self._compute)

    def _compute(self, key: str) -> tuple[str, ...]:
        return owners(key, self.members, replication=self.replication)

    def owners(self, key: str) -> tuple[str, ...]:
        """The members that keep a key, the first one first."""
        return self._owners(key)

    def first(self, key: str, *, without: Iterable[str] = ()) -> str | None:
        """The first owner that is not among `without`; None when no owner is left."""
        absent = set(without)
        return next((member for member in self.owners(key) if member not in absent), None)


def share(wanted: int, members: int, copies: int = REPLICATION) -> int:
    """The number of candidates that each of many members looks at so that the best of all are surely among them.

    Hashing deals memories out evenly, so one member holds about `copies / members` of them, and what its agent wrote
    beside; six deviations and sixteen more leave no room for chance. Few members look at everything that is wanted.

    >>> share(200, 100), share(200, 10)
    (41, 200)
    """
    if members < MANY:
        return wanted
    mean = wanted * (copies + 1) / members
    return min(wanted, math.ceil(mean + 6 * math.sqrt(mean) + 16))


def all_missing(missing: int, total: int, replicas: int) -> float:
    """The share of memories all of whose copies are with missing members.

    >>> all_missing(1, 10, 3), round(all_missing(3, 10, 3), 4)
    (0.0, 0.0083)
    """
    share = 1.0
    for step in range(min(replicas, total)):
        share *= max(0, missing - step) / (total - step)
    return share


@lru_cache(maxsize=100_000)
def _person(member: str) -> bytes:
    return blake2b(member.encode(), digest_size=16).digest()


ROOT = "root"


class Layout:
    """A topology: who writes where, who keeps copies, who answers. The usual answers are those of one bank for all."""

    kind: str
    """single, flat, federated or sharded."""
    members: tuple[str, ...]
    registers: str
    """The member that writes the hive's own registers, such as trust."""

    def home(self, agent: str) -> str:
        """The member an agent writes to."""
        raise NotImplementedError

    def agents_of(self, member: str) -> tuple[str, ...]:
        """The agents that write to a member."""
        raise NotImplementedError

    def owner(self, memory_id: str) -> str | None:
        """The member that answers for a memory first; None where that is whoever has it."""
        raise NotImplementedError

    def first_for(self, member: str, memory_id: str, missing: tuple[str, ...]) -> bool:
        """True if a member answers for a memory while some are missing."""
        raise NotImplementedError

    def keeps(self, member: str, memory_id: str) -> bool:  # noqa: ARG002
        """True if a member should hold a copy of a memory."""
        return True

    def copies(self, home: str, memory_id: str, *, broadcast: bool) -> tuple[str, ...]:  # noqa: ARG002
        """The members a new memory is copied to."""
        return ()

    def path(self, home: str, member: str) -> tuple[str, ...]:
        """The way a copy takes."""
        return (home, member)

    def lost(self, missing: int, total: int) -> float:
        """The share of memories that nobody can answer for when so many are missing, after asking around."""
        return missing / total

    def fitting(self, query: str) -> tuple[str, ...]:  # noqa: ARG002
        """Members whose domains fit a query."""
        return ()

    def joined(self, member: str, actor: str) -> None:
        """Note the name under which a member's bank writes."""

    def admit(self, agent: str, group: str | None = None) -> None:
        """Count an agent in that joins while the hive runs; where each is a member, `replaced` does."""

    def dismiss(self, agent: str) -> None:
        """Count an agent out; what it wrote stays."""


class Shared(Layout):
    """Single and flat: everybody writes to and reads from one bank."""

    registers = "hive"
    members = ("hive",)

    def __init__(self, kind: str, agents: Iterable[str]) -> None:
        self.kind = kind
        self.agents = unique(agents)

    def home(self, agent: str) -> str:
        """The one member."""
        known(agent, self.agents)
        return "hive"

    def admit(self, agent: str, group: str | None = None) -> None:  # noqa: ARG002
        """Count an agent in; only a flat hive takes another one."""
        if self.kind == "single":
            raise InvalidInputError(
                "a single hive has one agent; make it flat with `skep hive apply --migrate`"
            )
        self.agents = unique((*self.agents, agent))

    def dismiss(self, agent: str) -> None:
        """Count an agent out; what it wrote stays."""
        self.agents = unique(name for name in self.agents if name != known(agent, self.agents))

    def agents_of(self, member: str) -> tuple[str, ...]:  # noqa: ARG002
        """All of them."""
        return self.agents

    def owner(self, memory_id: str) -> str | None:  # noqa: ARG002
        """The one member."""
        return "hive"

    def first_for(self, member: str, memory_id: str, missing: tuple[str, ...]) -> bool:  # noqa: ARG002
        """Always."""
        return not missing


class Sharded(Layout):
    """Every agent is a member; rendezvous hashing says which of them keep a memory."""

    kind = "sharded"

    def __init__(self, agents: Iterable[str], *, replication: int) -> None:
        self.ring = Ring(unique(agents), replication=replication)
        self.members = self.ring.members
        self.registers = self.members[0]
        self.unplaced: dict[str, str] = {}
        """Memories whose owners could not all be reached, and the member that answers for them meanwhile."""

    def home(self, agent: str) -> str:
        """Its own member."""
        return known(agent, self.members)

    def agents_of(self, member: str) -> tuple[str, ...]:
        """Each agent is a member."""
        return (member,)

    def owner(self, memory_id: str) -> str | None:
        """The first owner, or whoever answers until it has it."""
        return self.unplaced.get(memory_id) or self.ring.first(memory_id)

    def first_for(self, member: str, memory_id: str, missing: tuple[str, ...]) -> bool:
        """True if it is the first owner that is there."""
        return self.ring.first(memory_id, without=missing) == member or self.unplaced.get(memory_id) == member

    def keeps(self, member: str, memory_id: str) -> bool:
        """True if it is an owner."""
        return member in self.ring.owners(memory_id)

    def copies(self, home: str, memory_id: str, *, broadcast: bool) -> tuple[str, ...]:  # noqa: ARG002
        """The owners."""
        return tuple(member for member in self.ring.owners(memory_id) if member != home)

    def lost(self, missing: int, total: int) -> float:
        """The share of memories that have all their owners among the missing."""
        return all_missing(missing, total, self.ring.replication)

    def replaced(self, members: Iterable[str]) -> Sharded:
        """The same with other members."""
        fresh = Sharded(members, replication=self.ring.replication)
        fresh.unplaced = self.unplaced
        return fresh


class Federated(Layout):
    """A tree of groups. Agents of a group share its bank; what is sure enough is copied to all groups."""

    kind = "federated"
    registers = ROOT

    def __init__(
        self,
        groups: Mapping[str, Sequence[str]],
        *,
        parents: Mapping[str, str] | None = None,
        domains: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        unique(groups, what="group", needed=False)
        listed = [agent for agents in groups.values() for agent in agents]
        unique(dict.fromkeys(listed), needed=False, within="groups")
        if len(set(listed)) < len(listed):
            raise InvalidInputError(
                "an agent belongs to one group only; some are listed twice", field="groups"
            )
        self.agents = {agent: group for group, agents in groups.items() for agent in agents}
        self.parents = {group: (parents or {}).get(group, ROOT) for group in groups if group != ROOT}
        self.members = (ROOT, *sorted(self.parents))
        for group, parent in self.parents.items():
            known(parent, self.members)
            if group in self._above(group):
                raise InvalidInputError(
                    f"group {group!r} is above itself; groups form a tree", field="parents"
                )
        self._domains = {
            group: {term for domain in names for term in terms(domain)}
            for group, names in (domains or {}).items()
        }
        self._homes: dict[str, str] = {}

    def home(self, agent: str) -> str:
        """The bank of its group."""
        return self.agents[known(agent, tuple(self.agents))]

    def admit(self, agent: str, group: str | None = None) -> None:
        """Count an agent in, in one of the groups."""
        unique((*self.agents, agent))
        if group is None:
            raise InvalidInputError(f"say in which group: {', '.join(self.members)}", field="group")
        self.agents[agent] = known(group, self.members)

    def dismiss(self, agent: str) -> None:
        """Count an agent out; what it wrote stays with its group."""
        del self.agents[known(agent, tuple(self.agents))]

    def joined(self, member: str, actor: str) -> None:
        """Memories are told apart by who wrote them."""
        self._homes[actor] = member

    def agents_of(self, member: str) -> tuple[str, ...]:
        """The agents of a group."""
        return tuple(agent for agent, group in self.agents.items() if group == member)

    def owner(self, memory_id: str) -> str | None:
        """The group that wrote it."""
        return self._homes.get(memory_id.rpartition("-")[0])

    def first_for(self, member: str, memory_id: str, missing: tuple[str, ...]) -> bool:
        """The group that wrote it; if that is missing or unknown, whoever has a copy."""
        home = self._homes.get(memory_id.rpartition("-")[0])
        return home is None or home == member or home in missing

    def keeps(self, member: str, memory_id: str) -> bool:  # noqa: ARG002
        """Copies are made when something is broadcast, not by rule."""
        return False

    def copies(self, home: str, memory_id: str, *, broadcast: bool) -> tuple[str, ...]:  # noqa: ARG002
        """Every other group, if it is sure enough; never the one it came from."""
        return tuple(member for member in self.members if member != home) if broadcast else ()

    def path(self, home: str, member: str) -> tuple[str, ...]:
        """Up the tree to where the ways meet, and down again."""
        up, down = self._ancestors(home), self._ancestors(member)
        meeting = next(name for name in up if name in down)
        return (*up[: up.index(meeting) + 1], *reversed(down[: down.index(meeting)]))

    def _ancestors(self, member: str) -> list[str]:
        return [member, *self._above(member)]

    def _above(self, member: str) -> list[str]:
        """The groups above one, nearest first; a ring is walked once."""
        found: list[str] = []
        while member != ROOT and (member := self.parents[member]) not in found:
            found.append(member)
        return found

    def within(self, group: str) -> tuple[str, ...]:
        """A group and every group below it."""
        known(group, self.members)
        return tuple(member for member in self.members if group in self._ancestors(member))

    def fitting(self, query: str) -> tuple[str, ...]:
        """Groups whose domains share a word with the query."""
        asked = set(query_terms(query))
        return tuple(group for group, words in self._domains.items() if words & asked)


def unique(
    names: Iterable[str], *, what: str = "agent", needed: bool = True, within: str | None = None
) -> tuple[str, ...]:
    """The names, or an error that says which one is empty or there twice."""
    listed = list(names)
    field = within or f"{what}s"
    for name in listed:
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError(f"{name!r} is not a name for a {what}", field=field)
    twice = next((name for name, count in Counter(listed).items() if count > 1), None)
    if twice is not None:
        raise InvalidInputError(
            f"two {what}s are called {twice!r}; every {what} needs its own name", field=field
        )
    if needed and not listed:
        raise InvalidInputError(f"a hive needs at least one {what}", field=field)
    return tuple(listed)


def known(name: str, names: Sequence[str]) -> str:
    """The name, if there is one like it."""
    if name not in names:
        shown = ", ".join(sorted(names)[:8]) + (" …" if len(names) > 8 else "")
        raise NotFoundError(f"the hive has no {name!r}; it has {shown}")
    return name
