"""How much is measured: the profiles and their time boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SEARCHES = (
    "keyword",
    "question",
    "vector",
    "hybrid",
    "default",
    "filtered_1_ids50",
    "filtered_1",
    "filtered_10",
    "keyword_ids50",
    "vector_ids50",
    "keyword_texts50",
    "vector_texts50",
    "index_keyword",
    "index_vector",
    "index_hybrid",
    "index_filtered_1",
)
"""Kinds of search. The `ids50` kinds ask for fifty ids and no text, the `texts50` kinds for fifty ids and texts, the
`index` kinds for what the index knows before the store is asked (fifty ids a signal); the others for ten ids and texts.
An `ids50` kind comes before its `texts50` kind: answers of the latter stay in skep's cache, orders do not. Fifty ids
under a filter come before all that ask with the same filters: skep keeps what those admit, and this line has a goal."""
CHANGES = ("touch", "update")
WRITES = ("write", "write_unsynced", "write_checked")
"""Single writes: synced to disk; merely acknowledged; synced, after a search for what it contradicts."""
FINDS = ("write_find_unsynced", "write_find")
"""A single write and a search for it, timed together. The synced one comes last: it wears some engines out."""
SEED = 7
"""Of the workload, where no other is given."""
ROWS_PER_KILL = 4000
"""More than a fast machine writes before it is killed."""
WARM = 4
"""Questions per kind before the first round."""
TRUTHS = {
    "keyword": ("keyword", 10),
    "question": ("question", 10),
    "vector": ("vector", 10),
    "hybrid": ("hybrid", 10),
    "filtered_1": ("filtered_1", 10),
    "filtered_10": ("filtered_10", 10),
    "keyword_ids50": ("keyword", 50),
    "vector_ids50": ("vector", 50),
    "filtered_1_ids50": ("filtered_1", 50),
    "keyword_texts50": ("keyword", 50),
    "vector_texts50": ("vector", 50),
    "index_keyword": ("keyword", 50),
    "index_vector": ("vector", 50),
    "index_hybrid": ("hybrid", 10),
    "index_filtered_1": ("filtered_1", 50),
}
"""Which exact answer a kind is compared with, and to what depth; `truth.kind_for` says it for each engine."""


@dataclass(frozen=True)
class Plan:
    """One run."""

    profile: str
    sizes: tuple[int, ...]
    rounds: int
    questions: int
    """Per kind and round."""
    changes: int
    """Touches, updates and writes, per round."""
    cold: int
    """Fresh processes per engine: as many that import it, and at every size as many that answer once. Those wait until
    every store is closed, so that they all start within a minute or two, and few of them would hang on that minute."""
    kills: int
    load_box_s: float
    round_box_s: float
    loads: int = 3
    """Times that everything is loaded, by the engines that are quickly done."""

    @property
    def warm_from(self) -> int:
        """Where the questions of the warm-up start: none of them is asked again, lest a cache answers."""
        return self.rounds * self.questions

    @property
    def total_questions(self) -> int:
        """Every round has its own, and so has the warm-up."""
        return self.warm_from + WARM

    @property
    def total_writes(self) -> int:
        """For writes, write-then-find and the kill scenario."""
        return max(3000, ROWS_PER_KILL * self.kills, (len(WRITES) + len(FINDS)) * self.rounds * self.changes)


QUICK = Plan("quick", (1_000, 10_000), 3, 30, 20, 3, 2, 45.0, 3.0)
FULL = Plan("full", (1_000, 10_000, 100_000), 5, 60, 40, 15, 10, 600.0, 15.0)
MILLION = Plan("million", (1_000, 10_000, 100_000, 1_000_000), 3, 40, 30, 3, 10, 2400.0, 30.0)
PROFILES = (QUICK, FULL, MILLION)
OPTIONS = ("rounds", "questions", "changes", "kills", "loads", "load_box_s")
"""What may be given in place of a profile's own, besides sizes and engines."""


def profile_of(plan: Mapping[str, Any]) -> Plan:
    """The profile that a plan was made from, as results hold it: its time box for a round cannot be given by hand."""
    return next((each for each in PROFILES if each.round_box_s == plan.get("round_box_s")), QUICK)


def changed(plan: Mapping[str, Any]) -> dict[str, str]:
    """What was given in place of the profile's own, by the names of the options.

    >>> changed(vars(FULL) | {"questions": 40, "load_box_s": 100.0})
    {'--questions': '40', '--load-box-s': '100'}
    """
    own = vars(profile_of(plan))
    return {
        f"--{name.replace('_', '-')}": f"{plan[name]:g}"
        for name in OPTIONS
        if name in plan and plan[name] != own[name]
    }
