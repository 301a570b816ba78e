"""Maintenance: plan, apply, report. Each step plans events from what it sees; only a `Run` writes them.

Steps look at what changed since they last finished, so a run with nothing new costs next to nothing. A step's events
are written in transactions of many, its mark in the last of them; a crash in between repeats the step, which changes
nothing that was already done. One run at a time works on a bank: it holds a lease in the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Literal

import msgspec

from skep.confidence import FADING
from skep.engine.embeddings import Progress
from skep.engine.engine import Engine
from skep.errors import ConfigError
from skep.lifecycle import expiry, extract_facts, judgement_queue, resolve_conflicts
from skep.lifecycle import reflect as reflect_module
from skep.lifecycle.judge import Judge
from skep.lifecycle.maintenance_run import Action, Held, MaintainReport, Run, counted
from skep.lifecycle.resolve_conflicts import Sorted
from skep.lifecycle.summarise import Distil, Distiller
from skep.model import Memory
from skep.text.model_instructions import addresses_model

STEPS = (
    "embed", "extract", "evidence", "merge", "conflicts", "judge", "reflect", "expire", "deprecate", "rederive",
    "prune", "reembed",
)  # fmt: skip
DEFAULT_STEPS = tuple(step for step in STEPS if step != "reflect")
"""Reflection replaces episodes by summaries, so it only runs when asked for."""

LOOKED_AT = {
    "extract": ("episode",),
    "evidence": ("episode", "fact"),
    "merge": ("fact", "procedure"),
    "conflicts": ("fact", "procedure", "episode"),
    "reflect": ("episode",),
}
"""The kinds of memories that steps look at as far as they changed."""
SLICE = 10_000
"""Memories whose pairs are compared before what comes of it is written; a run that stops loses one slice at most."""
COMPARED = ("fact", "procedure")
"""Those that are compared with one another; of episodes only what they announce is looked at."""


class MaintainConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a maintenance run."""

    steps: tuple[str, ...] = DEFAULT_STEPS
    cluster: str = "threshold"
    """`threshold`, or `hdbscan` with the `cluster` extra."""
    smallest_cluster: int = 2
    consolidate: str = "soft"
    """What reflection does with its sources: `soft` supersedes them, `hard` forgets them."""
    gc_days: float | None = None
    """`prune` sets aside what is older than this; off unless asked for."""
    decay: Literal["none", "days", "hours"] = "none"
    """Policy by which confidence fades where nothing supports a fact, so that `deprecate` sets it aside below 0.3.

    `none`: age costs nothing. `days`: c * exp(-0.01 * days) (source document 003). `hours`: c * exp(-0.01 * hours),
    for facts with a ttl (source document 000). A dry run names what would be set aside.
    """
    halve: bool = False
    """A clear contradiction halves the confidence of both sides before anybody has decided (source document 003)."""
    max_tokens: int = 100_000
    """The judge is asked about as many pairs as this is expected to be enough for; the rest wait. What a distiller
    has spent counts."""
    max_money: float = 1.0
    """The same in money, for a judge whose price is known."""
    kept_judgements: int = 5_000
    """How many past decisions are remembered."""
    judgement_days: float = 365.0
    """How long they are."""
    seconds: float | None = None
    """Stop after about so long; what was done stays, and the next run goes on where this one stopped."""

    def __post_init__(self) -> None:
        unknown = [step for step in self.steps if step not in STEPS]
        if unknown:
            raise ConfigError(f"unknown step {unknown[0]!r}; the steps are {', '.join(STEPS)}")
        if self.cluster not in ("threshold", "hdbscan"):
            raise ConfigError(f"cluster must be threshold or hdbscan, not {self.cluster!r}")
        if self.consolidate not in ("soft", "hard"):
            raise ConfigError(f"consolidate must be soft or hard, not {self.consolidate!r}")
        if self.gc_days is not None and not 0 < self.gc_days < math.inf:
            raise ConfigError(
                f"gc_days must be more than 0, not {self.gc_days!r}; leave it out to keep what is old"
            )
        if self.decay not in FADING:
            raise ConfigError(f"decay must be one of {', '.join(FADING)}, not {self.decay!r}")
        for name in ("max_tokens", "max_money", "kept_judgements", "judgement_days"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be 0 or more, not {getattr(self, name)!r}")
        if self.seconds is not None and not self.seconds > 0:
            raise ConfigError(f"seconds must be more than 0, not {self.seconds!r}; leave it out to finish")
        if self.smallest_cluster < 1:
            raise ConfigError(f"smallest_cluster must be 1 or more, not {self.smallest_cluster!r}")


def maintain(
    engine: Engine,
    config: MaintainConfig | None = None,
    *,
    dry_run: bool = False,
    judge: Judge | None = None,
    distil: Distil | None = None,
    progress: Progress | None = None,
) -> MaintainReport:
    """Keep a bank clean.

    Args:
        engine: The bank.
        config: Which steps, and how.
        dry_run: Plan and report; write nothing. Later steps are planned as if earlier ones had not run.
        judge: Decides what rules cannot; without one, such pairs wait.
        distil: Turns groups of texts into one text each, in one call; without it the most central sentence stands.
        progress: Called with how much is done and how much there is, in shares of the work; it never goes back.

    Raises:
        LeaseHeldError: Another run is at work on the bank; nothing was done.
    """
    config = config or MaintainConfig()
    with nullcontext() if dry_run else Held(engine) as lease:
        run = Run(engine, lease)
        chosen = [step for step in STEPS if step in config.steps]
        told = _Told(progress, chosen)
        steps = _Steps(run, config, judge, distil, told.within)
        if left := reflect_module.finish(run):
            run.note("reflect", note=f"an earlier run was cut short: {left}")
        for step in chosen:
            if steps.late(step):
                break
            engine.index.refresh()
            handler: Callable[[], None] = getattr(steps, step)
            handler()
            told.next()
        return MaintainReport(
            steps=tuple(run.reports),
            dry_run=dry_run,
            events=run.events,
            queued=run.queued if run.queued is not None else len(judgement_queue.Kept(engine).waiting()),
            spent_tokens=run.tokens,
            spent_money=run.money,
            stopped=steps.stopped,
        )


class _Told:
    """Progress of a run: steps, and the share of a long one. The first that compares takes most of the time."""

    PART = 100
    LONG = 2_000

    def __init__(self, progress: Progress | None, steps: Sequence[str]) -> None:
        compares = next((step for step in steps if step in ("merge", "conflicts")), None)
        self._progress = progress
        self._sizes = [self.LONG if step == compares else self.PART for step in steps]
        self._whole = sum(self._sizes)
        self._done = self._shown = 0

    def next(self) -> None:
        """One more step is done."""
        self._done += self._sizes.pop(0)
        self._tell(self._done)

    def within(self, done: int, total: int) -> None:
        """So much of the step at hand is done."""
        self._tell(self._done + self._sizes[0] * done // max(1, total))

    def _tell(self, reached: int) -> None:
        if self._progress is not None and reached > self._shown:
            self._shown = reached
            self._progress(reached, self._whole)


class _Steps:
    """The steps of one run, one method each, named as in `STEPS`."""

    def __init__(
        self,
        run: Run,
        config: MaintainConfig,
        judge: Judge | None,
        distil: Distil | None,
        progress: Progress,
    ) -> None:
        self.run, self.config, self.engine = run, config, run.engine
        self._judge, self._distil, self._progress = judge, distil, progress
        self._looked_at: int | None = None
        """How many memories `merge` and `conflicts` looked at, once they have."""
        self._compared: dict[str, list[Action]] = {"merge": [], "conflicts": []}
        """What came of it."""
        self._passed_over = 0
        """Unsure pairs that are not queued."""
        self.stopped = ""
        """The step at which the time was over."""
        self._ends = math.inf if config.seconds is None else run.engine.now() + config.seconds
        self._judgements: tuple[int, judgement_queue.Kept] | None = None
        self._read: tuple[tuple[int, int], list[Memory]] | None = None
        self._distilled = _spent(distil)
        self._judged = 0, 0.0
        """Tokens and money that the judge has spent."""
        self._gone: set[str] = set()
        """What this run has merged or marked, or in a dry run would have."""

    def embed(self) -> None:
        waiting = self.engine.embeddings.backlog()
        done = 0 if self.run.dry else self.engine.embeddings.drain()
        note = f"would embed {waiting}" if self.run.dry else f"embedded {done}"
        self.run.note("embed", looked_at=waiting, note=note if waiting or done else "")

    def _changed(self, *steps: str) -> tuple[int, list[Memory]]:
        """The head of the log, and the memories that changed since each step last finished.

        Steps that begin where others began share one reading.
        """
        head, engine = self.run.head(), self.engine
        after = min(engine.mark(step) for step in steps)
        if after == head:
            return head, []
        if self._read is None or self._read[0] != (after, head):
            kinds = {kind for step in self.config.steps for kind in LOOKED_AT.get(step, ())}
            self._read = (after, head), engine.changed_memories(after, sorted(kinds))
        wanted = {kind for step in steps for kind in LOOKED_AT[step]}
        return head, [memory for memory in self._read[1] if memory.kind in wanted]

    def extract(self) -> None:
        self._share()
        head, changed = self._changed("extract")
        episodes = [memory for memory in changed if memory.level == 0 and not addresses_model(memory.text)]
        reworded = extract_facts.reworded(self.engine, episodes)
        self.run.write(reworded)
        planned = extract_facts.extract(
            self.engine,
            episodes,
            smallest=self.config.smallest_cluster,
            cluster=self.config.cluster,
            distil=self._distil,
            ask=not self.run.dry,
        )
        self._pay()
        reached = None if planned.problem else head  # the next run asks again about what is left
        self.run.finish(
            "extract",
            planned.actions,
            looked_at=len(episodes),
            head=reached,
            note=planned.problem,
            written=reworded,
            says=True,
        )
        if planned.actions and not self.run.dry and self.engine.embeddings.backlog():
            self.engine.embeddings.drain()  # the steps after it look at what was extracted

    def evidence(self) -> None:
        head, changed = self._changed("evidence")
        actions = extract_facts.support(self.engine, changed)
        self.run.finish("evidence", actions, looked_at=len(changed), head=head)

    def late(self, step: str) -> bool:
        """True if the run stops before this step. What was compared is reported in any case."""
        if step == "conflicts" and self._looked_at is not None:
            return False
        if not self.stopped and self.engine.now() >= self._ends:
            self.stopped = step
        return bool(self.stopped)

    def merge(self) -> None:
        """Copies become one."""
        self._compare("merge")

    def conflicts(self) -> None:
        """What is in conflict waits for a judge; an update gets a link."""
        self._compare("conflicts")

    def _compare(self, step: str) -> None:
        """Both steps compare at once, slice by slice, and report one after the other."""
        if self._looked_at is None:
            self._looked_at = self._slices(
                [each for each in ("merge", "conflicts") if each in self.config.steps]
            )
        many = (
            f"{counted(self._passed_over, 'unsure pair')} of memories that are like many others passed over"
        )
        note = many if self._passed_over and step == "conflicts" else ""
        self.run.report(step, self._compared[step], looked_at=self._looked_at, note=note)

    def _slices(self, chosen: list[str]) -> int:
        """Compare what is new to either step, and write what comes of it, slice by slice; how many were new."""
        run, engine = self.run, self.engine
        head, new = self._changed(*chosen)
        memories = [memory for memory in new if memory.kind in COMPARED]
        looked_at = len(memories)
        if "merge" in chosen:  # first, so that copies do not take the places of others
            self._write_merges(resolve_conflicts.copies(memories))
            engine.index.refresh()
            memories = [memory for memory in memories if memory.id not in self._gone]
        known = judgement_queue.known_pairs(engine, memories)
        slices = resolve_conflicts.pairs_in_slices(engine, memories, known.pairs, SLICE)
        done, total = 0, sum(len(pairs) for _, pairs in slices)

        def progress(more: int) -> None:
            nonlocal done
            done += more
            self._progress(done, total)

        if "conflicts" in chosen:
            self._opened(known)
        for number, (reached, pairs) in enumerate(slices, 1):
            last = number == len(slices)
            found = resolve_conflicts.sort_conflicts(engine, pairs, total, progress)
            if "merge" in chosen:
                self._write_merges(
                    [(a, b) for a, b in found.duplicates if self._gone.isdisjoint((a.id, b.id))]
                )
            actions = self._settled(found, known) if "conflicts" in chosen else []
            if last:
                run.write_marked(actions, chosen, head)
                break
            marks = {each: reached for each in chosen if engine.mark(each) < reached}
            run.write(actions, lambda marks=marks: run.mark(marks))
            if self.late(chosen[0]):
                break
        return looked_at

    def _write_merges(self, pairs: list[tuple[Memory, Memory]]) -> None:
        merges = resolve_conflicts.merge(self.engine, pairs)
        self._gone |= {body["loser"] for action in merges for kind, body in action.plans if kind == "merge"}
        self._compared["merge"] += merges
        self.run.write(merges)

    def _opened(self, known: judgement_queue.Known) -> None:
        """Judgements that no longer count, and what undecided ones have cost."""
        halve = self.config.halve
        actions = [
            *([] if halve else resolve_conflicts.unpunished(self.engine, self._kept().waiting())),
            *resolve_conflicts.reopened(self.engine, known.outdated),
        ]
        self._compared["conflicts"] += actions
        self.run.write(actions)

    def _settled(self, found: Sorted, known: judgement_queue.Known) -> list[Action]:
        """What is done about the conflicts of one slice."""
        engine = self.engine
        found = resolve_conflicts.undecided(engine, found)
        unclear, passed_over = resolve_conflicts.queue_unclear(found.unclear, self._gone, known.waiting)
        self._passed_over += passed_over
        clear = resolve_conflicts.resolve_clear(engine, found.clear, self._gone, halve=self.config.halve)
        actions = [*clear, *unclear, *resolve_conflicts.looked_for(engine, clear)]
        self._compared["conflicts"] += actions
        return actions

    def judge(self) -> None:
        config = self.config
        tokens, money = self.run.tokens, self.run.money
        judgement_queue.ask(
            self.run,
            self._judge,
            self._kept(),
            max_tokens=config.max_tokens,
            max_money=config.max_money,
        )
        self._judged = self.run.tokens - tokens, self.run.money - money

    def reflect(self) -> None:
        """Level by level: summaries of one round may be worth a summary themselves."""
        self._share()
        head, changed = self._changed("reflect")
        looked_at = len(changed)
        changed = [memory for memory in changed if not addresses_model(memory.text)]
        done: list[Action] = []
        notes: list[str] = []
        problem = ""
        while not problem:
            planned, problem = reflect_module.reflect(
                self.engine,
                changed,
                consolidate=self.config.consolidate,
                summarise=self._distil,
                ask=not self.run.dry,
            )
            done += planned
            if self.run.dry or not planned:
                break
            before = self.run.settle(planned)
            notes.append(reflect_module.finish(self.run))
            changed = self.engine.changed_memories(before, LOOKED_AT["reflect"])
        if self.run.dry and done and self.config.consolidate == "hard":
            forgotten = sum(len(action.memories) for action in done)
            notes.append(f"would forget {forgotten} episodes for good")
        note = "; ".join(filter(None, (*notes, problem)))
        self._pay()
        reached = None if problem else head
        self.run.finish("reflect", (), looked_at=looked_at, head=reached, note=note, written=done)

    def _share(self) -> None:
        """Tell a distiller what the judge has spent: both have one limit."""
        if isinstance(self._distil, Distiller):
            self._distil.beside = self._judged

    def _pay(self) -> None:
        """Count what a distiller has spent since this was last called."""
        before, self._distilled = self._distilled, _spent(self._distil)
        self.run.tokens += self._distilled[0] - before[0]
        self.run.money += self._distilled[1] - before[1]

    def expire(self) -> None:
        self._set_aside("expire", expiry.expire(self.engine, self.engine.now()))

    def deprecate(self) -> None:
        faded = expiry.deprecate(
            self.engine,
            self.engine.now(),
            decay=self.config.decay,
        )
        self._set_aside("deprecate", faded)

    def prune(self) -> None:
        """Sets aside memories that are too old, if asked for, and drops judgements that can no longer matter."""
        config, now = self.config, self.engine.now()
        if config.gc_days is not None:
            self._set_aside("prune", expiry.prune(self.engine, now, config.gc_days))
        else:
            self.run.note("prune")
        kept = self._kept()
        let_go = kept.let_go(now, most=config.kept_judgements, days=config.judgement_days)
        self.run.write([Action(step="prune", why="", plans=tuple(plans)) for plans in let_go])
        self.run.queued = len(kept.waiting())

    def _kept(self) -> judgement_queue.Kept:
        """Every judgement, read again only if something was written since."""
        last = self.engine.last_seq()
        if self._judgements is None or self._judgements[0] != last:
            self._judgements = last, judgement_queue.Kept(self.engine)
        return self._judgements[1]

    def _set_aside(self, step: str, actions: list[Action]) -> None:
        """Marks of one step, less what an earlier one has marked (in a dry run: would have)."""
        actions = [action for action in actions if action.memories[0] not in self._gone]
        self._gone |= {action.memories[0] for action in actions}
        self.run.finish(step, actions, looked_at=len(actions))

    def rederive(self) -> None:
        actions = expiry.rederive(self.engine)
        self.run.finish("rederive", actions, looked_at=len(actions), says=True)

    def reembed(self) -> None:
        """Embeds memories that earlier steps wrote or changed."""
        waiting = self.engine.embeddings.backlog()
        done = self.engine.embeddings.drain() if waiting and not self.run.dry else 0
        note = f"would embed {waiting}" if self.run.dry else f"embedded {done}"
        self.run.note("reembed", looked_at=waiting, note=note if waiting else "")


def _spent(distil: Distil | None) -> tuple[int, float]:
    """The tokens and the money that a distiller says it has spent so far."""
    return getattr(distil, "tokens", 0), getattr(distil, "money", 0.0)
