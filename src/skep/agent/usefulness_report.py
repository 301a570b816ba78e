"""What was memory worth? One page from the outcomes of a bank, with what was withheld at random as the comparison.

Recalls that leave one hit out at random (`withhold`) make an experiment: tasks in which all hits were shown against
tasks in which one was missing, compared among tasks with as many hits and the same share. So the page says what one
hit is worth on average, and which memories clearly help or harm. `skep report` prints it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.errors import NotFoundError
from skep.events import voided
from skep.lifecycle.learn import Effect, compared
from skep.model import shortened

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

SHOWN = 10


class Usefulness(msgspec.Struct, frozen=True, kw_only=True):
    """What outcomes say about a memory."""

    tasks: int
    successes: int
    whole: int
    """Tasks in which every hit was shown, among those of the experiment."""
    withheld: int
    """Tasks in which one hit was left out."""
    effect: float | None
    """What one hit is worth: the difference in success, with its 95 % interval; None if nothing can be said."""
    low: float = 0.0
    high: float = 0.0
    helped: tuple[tuple[Effect, str], ...] = ()
    """Memories that clearly help, with their texts."""
    harmed: tuple[tuple[Effect, str], ...] = ()

    def page(self) -> str:
        """The page."""
        if not self.tasks:
            return "No outcomes yet. Report how tasks went with `learn`; see docs/how-to/learning.md."
        lines = [f"{self.successes} of {self.tasks} tasks succeeded ({self.successes / self.tasks:.0%})."]
        if self.effect is None:
            lines.append(
                "What memory was worth cannot be said: nothing was withheld. Recall with withhold=0.05 (an agent:"
                " --withhold 0.05), and report outcomes with recalled=."
            )
        else:
            sure = (
                "clearly helps" if self.low > 0 else "clearly harms" if self.high < 0 else "is not clear yet"
            )
            lines.append(
                f"Leaving one hit out changed success by {-self.effect:+.2f} (95 % interval {-self.high:+.2f} to"
                f" {-self.low:+.2f}; {self.withheld} tasks with one hit left out, {self.whole} with all):"
                f" memory {sure}."
            )
        for title, found in (("These help:", self.helped), ("These harm; look at them:", self.harmed)):
            if found:
                lines += ["", title]
                lines += [
                    f"  {each.effect:+.2f} [{each.low:+.2f}, {each.high:+.2f}] {shortened(text, 70)!r} ({each.memory})"
                    for each, text in found[:SHOWN]
                ]
        return "\n".join(lines)


def usefulness(bank: MemoryBank) -> Usefulness:
    """The page's figures, from a bank or a hive's agent."""
    events = list(bank.events())
    void = voided(events)
    outcomes = [event for event in events if event.kind == "outcome" and event.id not in void]
    groups: dict[tuple[int, float], list[int]] = {}
    for event in outcomes:
        share = event.body.get("withhold")
        if not share:
            continue
        shown, withheld = event.body.get("shown", ()), event.body.get("withheld", ())
        counts = groups.setdefault((len(shown) + len(withheld), share), [0, 0, 0, 0])
        at = 2 if withheld else 0
        counts[at] += 1
        counts[at + 1] += bool(event.body.get("success"))
    told = compared(groups.values())
    clear = [effect for effect in bank.utility() if effect.clear]
    return Usefulness(
        tasks=len(outcomes),
        successes=sum(bool(event.body.get("success")) for event in outcomes),
        whole=sum(counts[0] for counts in groups.values()),
        withheld=sum(counts[2] for counts in groups.values()),
        effect=None if told is None else told[0],
        low=0.0 if told is None else told[1],
        high=0.0 if told is None else told[2],
        helped=tuple((each, _text(bank, each.memory)) for each in clear if each.low > 0),
        harmed=tuple((each, _text(bank, each.memory)) for each in clear if each.high < 0),
    )


def _text(bank: MemoryBank, memory_id: str) -> str:
    try:
        return bank.get(memory_id).text
    except NotFoundError:
        return "(forgotten)"
