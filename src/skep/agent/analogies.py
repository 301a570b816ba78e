"""Links between procedures of different domains that are alike: found when something was learnt, not only made by hand.

`recommend` follows such links, so what works in one field is offered in another, with the record it has there. The loop
calls this after a success.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.model import Memory

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

ANALOGY = "analogy"
LOOKED_AT = 10
MOST = 3
"""Links from one procedure."""


def link_analogies(bank: MemoryBank, procedure: Memory) -> tuple[str, ...]:
    """Link a procedure to those of other domains that are like it and worked; the ids of what was linked."""
    if procedure.domain is None:
        return ()
    known = {end for link in bank.neighbors(procedure.id, ANALOGY).links for end in (link.src, link.dst)}
    found: list[str] = []
    for hit in bank.recall(procedure.text, kind="procedure", limit=LOOKED_AT):
        other = hit.memory
        if (
            other.domain in (None, procedure.domain)
            or other.scope != procedure.scope
            or other.id == procedure.id
        ):
            continue
        if hit.level == "weak" or other.successes <= other.failures or other.id in known:
            continue
        bank.link(procedure.id, other.id, ANALOGY, round(min(1.0, max(0.0, hit.score)), 3))
        found.append(other.id)
        if len(found) == MOST:
            break
    return tuple(found)
