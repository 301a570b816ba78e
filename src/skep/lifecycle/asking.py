"""Asking the judge: one batch within the limits, once more for what it left out, and both memories kept otherwise."""

from __future__ import annotations

from skep.errors import JudgeError
from skep.lifecycle import queue
from skep.lifecycle.judge import Case, Judge, fitting
from skep.lifecycle.report import Action
from skep.lifecycle.running import Run

TRIES = 2


def ask(run: Run, judge: Judge | None, kept: queue.Kept, *, max_tokens: int, max_money: float) -> None:
    """Decide what waits, as far as the limits go, surest pairs first."""
    run.queued = len(kept.waiting())
    if judge is None or not run.queued or run.dry:
        run.note("judge", looked_at=run.queued, note=f"{run.queued} wait for a judge" if run.queued else "")
        return
    cases = kept.pending()
    cases.sort(key=lambda case: (-case.confidence, case.key))
    asked = cases[: _affordable(run, judge, cases, max_tokens, max_money)]
    decisions: dict[str, str] = {}
    problem = ""
    for _ in range(TRIES):
        waiting = [case for case in asked if case.key not in decisions]
        waiting = waiting[: _affordable(run, judge, waiting, max_tokens, max_money)]
        if not waiting:
            break
        try:
            answer = judge.decide(waiting)
        except JudgeError as error:
            problem = str(error)
            continue
        run.tokens += answer.tokens
        run.money += answer.money
        given = zip(waiting, answer.decisions, strict=False)
        decisions |= {case.key: decision for case, decision in given if decision is not None}
    missing = len(asked) - len(decisions)
    if missing and not problem:
        undecided = "1 pair was" if missing == 1 else f"{missing} pairs were"
        problem = f"{undecided} not decided; both memories are kept, and the judge is asked again next time"
    if len(asked) < len(cases):
        limit = f"the limits allow asking about {len(asked)} of {len(cases)} pairs; the others wait"
        problem = f"{problem}; {limit}" if problem else limit
    actions = [
        _decided(run, case, decisions[case.key], judge.name) for case in asked if case.key in decisions
    ]
    run.finish("judge", actions, looked_at=len(cases), note=problem)
    run.queued = None  # a decision may have settled other pairs, too


def _affordable(run: Run, judge: Judge, cases: list[Case], max_tokens: int, max_money: float) -> int:
    """How many of the first cases what is left to spend is expected to be enough for."""
    if getattr(judge, "free", False):
        return len(cases)
    if run.money > 0 and run.money >= max_money:
        return 0
    return fitting(
        cases,
        tokens=max_tokens - run.tokens,
        money=max_money - run.money,
        price_per_million=float(getattr(judge, "price_per_million", 0.0)),
    )


def _decided(run: Run, case: Case, decision: str, by: str) -> Action:
    plans = queue.decided_plans(run.engine, case, decision, by)  # type: ignore[arg-type]
    return Action(
        step="judge",
        why=f"{decision}: {case.older.text!r} and {case.newer.text!r}",
        memories=(case.older.id, case.newer.id),
        plans=tuple(plans),
    )
