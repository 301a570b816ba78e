"""Links between procedures of different domains that are alike: found when something was learnt, not only made by hand.

`recommend` follows such links, so what works in one field is offered in another, with the record it has there. The loop
calls this after a success.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from skep.lifecycle.learn import ANALOGY
from skep.model import CURRENT, Memory, Outcome

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

LOOKED_AT = 10
MOST = 3
"""Links from one procedure."""


ALIKE = 0.5
"""The share of steps in common from which two strategies are built alike, whatever words they use."""


def link_analogies(bank: MemoryBank, procedure: Memory) -> tuple[str, ...]:
    """Link a procedure to those of other domains that are like it and worked; the ids of what was linked.

    Alike are those near in words or meaning, and those that were carried out by the same steps. A link is a proposal:
    `learn` makes it stronger where a strategy works in the other domain, and takes it away where it keeps failing.
    """
    if procedure.domain is None:
        return ()
    known = {end for link in bank.neighbors(procedure.id, ANALOGY).links for end in (link.src, link.dst)}
    near = {
        hit.memory.id: min(1.0, max(0.0, hit.score))
        for hit in bank.recall(procedure.text, kind="procedure", limit=LOOKED_AT)
        if hit.level != "weak"
    }
    tools = tools_of(bank.outcomes())
    mine = tools.get(procedure.id, set())
    for other, theirs in tools.items():
        share = len(mine & theirs) / max(1, len(mine | theirs))
        if share >= ALIKE:
            near[other] = max(share, near.get(other, 0.0))
    found: list[str] = []
    for other_id in sorted(near, key=lambda each: (-near[each], each)):
        if other_id in known or other_id == procedure.id or len(found) == MOST:
            continue
        other = bank.get(other_id)
        if other.kind != "procedure" or other.status not in CURRENT or other.successes <= other.failures:
            continue
        if other.domain in (None, procedure.domain) or other.scope != procedure.scope:
            continue
        bank.link(procedure.id, other.id, ANALOGY, round(near[other_id], 3))
        found.append(other.id)
    return tuple(found)


def tools_of(outcomes: Iterable[Outcome]) -> dict[str, set[str]]:
    """By memory, the tools of the steps of the tasks in which it was used with success."""
    found: dict[str, set[str]] = {}
    for outcome in outcomes:
        for memory_id in outcome.used if outcome.success else ():
            found.setdefault(memory_id, set()).update(map(tool_of, outcome.steps))
    return {memory_id: tools for memory_id, tools in found.items() if tools}


def tool_of(step: str) -> str:
    """The tool of a step, or its first words.

    >>> tool_of("run_tests(unit) failed: 3 of 20"), tool_of("wrote the tests first: all of them")
    ('run_tests', 'wrote the tests first')
    """
    return re.split(r"[(:\n]| failed\b", step, maxsplit=1)[0].strip()
