"""Maintenance: plan, apply, report. Each step plans events from what it sees; only this module writes them.

Steps look at what changed since they last finished, so a run with nothing new costs next to nothing. Each step's
events and its mark are written after its plan is complete; a crash in between repeats the step, which changes nothing
that was already done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from skep.engine import Engine, Progress
from skep.engine.forgetting import forget
from skep.errors import ConfigError, JudgeError
from skep.lifecycle import ageing, extraction, merging, queue
from skep.lifecycle.extraction import Distil
from skep.lifecycle.judge import Case, Judge
from skep.lifecycle.report import Action, MaintainReport, StepReport
from skep.storage.sqlite import Plan

STEPS = ("embed", "extract", "evidence", "conflicts", "judge", "reflect", "deprecate", "rederive")
DEFAULT_STEPS = tuple(step for step in STEPS if step != "reflect")
"""Reflection replaces episodes by summaries, so it only runs when asked for."""


class MaintainConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How maintenance runs."""

    steps: tuple[str, ...] = DEFAULT_STEPS
    cluster: str = "threshold"
    """`threshold`, or `hdbscan` with the `cluster` extra."""
    smallest_cluster: int = 2
    consolidate: str = "soft"
    """What reflection does with its sources: `soft` supersedes them, `hard` forgets them."""
    gc_days: float | None = None
    """Set aside what is older than this; off unless asked for."""
    decay_per_day: float = 0.01
    max_tokens: int = 100_000
    """The judge is not asked when the batch would cost more than this."""
    max_money: float = 1.0

    def __post_init__(self) -> None:
        unknown = [step for step in self.steps if step not in STEPS]
        if unknown:
            raise ConfigError(f"unknown step {unknown[0]!r}; the steps are {', '.join(STEPS)}")
        if self.cluster not in ("threshold", "hdbscan"):
            raise ConfigError(f"cluster must be threshold or hdbscan, not {self.cluster!r}")
        if self.consolidate not in ("soft", "hard"):
            raise ConfigError(f"consolidate must be soft or hard, not {self.consolidate!r}")


class _Run:
    """One run: what was planned, written and spent so far."""

    def __init__(self, engine: Engine, config: MaintainConfig, *, dry_run: bool) -> None:
        self.engine = engine
        self.config = config
        self.dry_run = dry_run
        self.reports: list[StepReport] = []
        self.events = 0
        self.tokens = 0
        self.money = 0.0

    def finish(
        self, step: str, actions: Sequence[Action], *, looked_at: int, head: int | None = None, note: str = ""
    ) -> None:
        """Write what a step planned, remember how far it came, and report."""
        if not self.dry_run:
            for action in actions:
                written, _ = self.engine.write(list(action.events()))
                self.events += len(written)
            if head is not None:
                self.engine.store.set_mark(step, head)
        self.reports.append(
            StepReport(step=step, looked_at=looked_at, actions=tuple(a.why for a in actions), note=note)
        )


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
        progress: Called with the steps done and their number, and while comparing.
    """
    run = _Run(engine, config or MaintainConfig(), dry_run=dry_run)
    handlers: dict[str, Callable[[], None]] = {
        "embed": lambda: _embed(run),
        "extract": lambda: _extract(run, distil),
        "evidence": lambda: _evidence(run),
        "conflicts": lambda: _conflicts(run, progress),
        "judge": lambda: _judge(run, judge),
        "reflect": lambda: _reflect(run, distil),
        "deprecate": lambda: _deprecate(run),
        "rederive": lambda: _rederive(run),
    }
    chosen = [step for step in STEPS if step in run.config.steps]
    for number, step in enumerate(chosen, 1):
        engine.index.refresh()
        handlers[step]()
        if progress is not None:
            progress(number, len(chosen))
    return MaintainReport(
        steps=tuple(run.reports),
        dry_run=dry_run,
        events=run.events,
        queued=len(queue.pending(engine)),
        spent_tokens=run.tokens,
        spent_money=run.money,
    )


def _embed(run: _Run) -> None:
    waiting = run.engine.embeddings.backlog()
    done = 0 if run.dry_run else run.engine.embeddings.drain()
    note = f"embedded {done}" if not run.dry_run else f"would embed {waiting}"
    run.reports.append(StepReport(step="embed", looked_at=waiting, note=note if waiting or done else ""))


def _extract(run: _Run, distil: Distil | None) -> None:
    head = run.engine.store.head()
    episodes = run.engine.store.changed_memories(run.engine.store.mark("extract"), ("episode",))
    episodes = [episode for episode in episodes if episode.level == 0]
    actions = extraction.extract(
        run.engine,
        episodes,
        smallest=run.config.smallest_cluster,
        cluster=run.config.cluster,
        distil=distil,
    )
    run.finish("extract", actions, looked_at=len(episodes), head=head)


def _evidence(run: _Run) -> None:
    head = run.engine.store.head()
    episodes = run.engine.store.changed_memories(run.engine.store.mark("evidence"), ("episode",))
    run.finish("evidence", extraction.support(run.engine, episodes), looked_at=len(episodes), head=head)


def _conflicts(run: _Run, progress: Progress | None) -> None:
    head = run.engine.store.head()
    memories = run.engine.store.changed_memories(run.engine.store.mark("conflicts"), ("fact", "procedure"))
    decided = queue.known_pairs(run.engine)
    found = merging.sort_conflicts(run.engine, memories, decided, progress)
    merges = merging.merge(run.engine, found.duplicates)
    gone = {
        i for action in merges for kind, body in action.plans if kind == "merge" for i in (body["loser"],)
    }
    clear = merging.resolve_clear(found.clear, gone)
    gone |= {body["old"] for action in clear for kind, body in action.plans if kind == "supersede"}
    unclear = merging.queue_unclear(found.unclear, gone)
    run.finish("conflicts", [*merges, *clear, *unclear], looked_at=len(memories), head=head)


def _judge(run: _Run, judge: Judge | None) -> None:
    cases = queue.pending(run.engine)
    if judge is None or not cases or run.dry_run:
        note = f"{len(cases)} wait for a judge" if cases else ""
        run.reports.append(StepReport(step="judge", looked_at=len(cases), note=note))
        return
    cost = sum(len(case.older.text) + len(case.newer.text) for case in cases) // 4 + 60 * len(cases)
    if cost > run.config.max_tokens:
        note = f"asking about {len(cases)} pairs would take about {cost} tokens, over the limit; they wait"
        run.reports.append(StepReport(step="judge", looked_at=len(cases), note=note))
        return
    decisions, note = _ask(run, judge, cases)
    decided = [
        (case, decision) for case, decision in zip(cases, decisions, strict=True) if decision is not None
    ]
    actions = [
        Action(
            step="judge",
            why=f"{decision}: {case.older.text!r} and {case.newer.text!r}",
            memories=(case.older.id, case.newer.id),
            plans=tuple(queue.decided_plans(case, decision, judge.name)),  # type: ignore[arg-type]
        )
        for case, decision in decided
    ]
    run.finish("judge", actions, looked_at=len(cases), note=note)


def _ask(run: _Run, judge: Judge, cases: list[Case]) -> tuple[list[str | None], str]:
    """One decision per case. What is not decided after a second try waits on, with both memories kept."""
    decisions: list[str | None] = [None] * len(cases)
    problem = ""
    for _ in range(2):
        open_ = [i for i, decision in enumerate(decisions) if decision is None]
        if not open_ or run.money >= run.config.max_money:
            break
        try:
            answer = judge.decide([cases[i] for i in open_])
        except JudgeError as error:
            problem = str(error)
            continue
        run.tokens += answer.tokens
        run.money += answer.money
        for place, decision in zip(open_, answer.decisions, strict=False):
            decisions[place] = decision
    missing = sum(decision is None for decision in decisions)
    if missing:
        problem = problem or f"{missing} pairs were not decided; both memories are kept, and they wait"
    return decisions, problem


def _reflect(run: _Run, summarise: Distil | None) -> None:
    head = run.engine.store.head()
    episodes = run.engine.store.changed_memories(run.engine.store.mark("reflect"), ("episode",))
    episodes = [episode for episode in episodes if not episode.pinned]
    actions, hard = ageing.reflect(
        run.engine, episodes, consolidate=run.config.consolidate, summarise=summarise
    )
    run.finish("reflect", actions, looked_at=len(episodes), head=head)
    if hard and not run.dry_run:
        run.engine.write(ageing.repointed(run.engine, hard))
        forget(run.engine, hard)


def _deprecate(run: _Run) -> None:
    now = run.engine.now()
    actions = ageing.expire(run.engine, now)
    gone = {action.memories[0] for action in actions}
    faded = ageing.deprecate(run.engine, now, decay_per_day=run.config.decay_per_day)
    if run.config.gc_days is not None:
        faded += ageing.collect(run.engine, now, run.config.gc_days)
    for action in faded:
        if action.memories[0] not in gone:
            gone.add(action.memories[0])
            actions.append(action)
    run.finish("deprecate", actions, looked_at=len(actions))


def _rederive(run: _Run) -> None:
    actions = ageing.rederive(run.engine)
    run.finish("rederive", actions, looked_at=len(actions))
    if not run.dry_run and actions:
        run.engine.embeddings.drain()


def plans_of(actions: Sequence[Action]) -> list[Plan]:
    """Every event that actions would write, in order."""
    return [plan for action in actions for plan in action.plans]


Options = dict[str, Any]
