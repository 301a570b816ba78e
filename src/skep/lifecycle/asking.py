"""Asking the judge: one batch within the limits, once more for what it left out, and both memories kept otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from skep.errors import JudgeError
from skep.lifecycle import deciding, queue
from skep.lifecycle.judge import Case, Decision, Judge, Verdicts, fitting, known_word
from skep.lifecycle.report import Action, counted
from skep.lifecycle.running import Run

TRIES = 2
_MOVES = {"MERGE": "merge", "SUPERSEDED": "supersede"}
"""The decisions that move a memory, and the event that does it."""


def ask(
    run: Run,
    judge: Judge | None,
    queued: int,
    kept: Callable[[], queue.Kept],
    *,
    max_tokens: int,
    max_money: float,
) -> None:
    """Decide what waits, as far as the limits go, surest pairs first; what is `kept` is read if there is a judge."""
    run.queued = queued
    if judge is None or not run.queued or run.dry:
        run.note("judge", looked_at=run.queued, note=f"{run.queued} wait for a judge" if run.queued else "")
        return
    cases = kept().pending()
    cases.sort(key=lambda case: (-case.confidence, case.key))
    asked = cases[: _affordable(run, judge, cases, max_tokens, max_money)]
    decisions: dict[str, Decision] = {}
    problem = ""
    for _ in range(TRIES):
        waiting = [case for case in asked if case.key not in decisions]
        waiting = waiting[: _affordable(run, judge, waiting, max_tokens, max_money)]
        if not waiting:
            break
        try:
            answer = _answer(judge, waiting)
        except JudgeError as error:
            problem = str(error)
            continue
        problem = answer.problem
        run.tokens += answer.tokens
        run.money += answer.money
        given = zip(waiting, answer.decisions, strict=False)
        decisions |= {case.key: decision for case, decision in given if decision is not None}
    missing = len(asked) - len(decisions)
    note = ""
    if missing:
        note = f"{'1 pair was' if missing == 1 else f'{missing} pairs were'} not decided"
        note += (
            f": {problem}" if problem else "; both memories are kept, and the judge is asked again next time"
        )
    if len(asked) < len(cases):
        limit = f"the limits allow asking about {len(asked)} of {len(cases)} pairs; the others wait"
        note = f"{note}; {limit}" if note else limit
    actions = _carry_out(
        run,
        [case for case in asked if case.key in decisions],
        decisions,
        str(getattr(judge, "name", "judge")),
    )
    run.report("judge", actions, looked_at=len(cases), note=note)
    run.queued = None  # a decision may have settled other pairs, too


def _answer(judge: Judge, cases: list[Case]) -> Verdicts:
    """What a judge says, checked: anybody may have written it."""
    try:
        given = cast("object", judge.decide(cases))
    except JudgeError:
        raise
    except Exception as error:  # whatever it is, the run goes on, and the report says what happened
        raise JudgeError(
            f"the judge failed ({type(error).__name__}: {error}); both memories are kept"
        ) from error
    if not isinstance(given, Verdicts) or not isinstance(given.decisions, tuple | list):  # pyright: ignore
        raise JudgeError(f"the judge gave {given!r:.100}, not verdicts; both memories are kept")
    if len(given.decisions) != len(cases):  # which of them is meant for which pair, nobody can tell
        few = f"the judge gave {counted(len(given.decisions), 'decision')} for {counted(len(cases), 'pair')}"
        given = msgspec.structs.replace(
            given, decisions=(None,) * len(cases), problem=f"{few}; both memories are kept"
        )
    return Verdicts(
        decisions=tuple(known_word(word) for word in given.decisions),
        tokens=int(_amount(given.tokens)),
        money=_amount(given.money),
        problem=given.problem,
    )


def _amount(value: float) -> float:
    """A cost; nothing if it is none."""
    return value if isinstance(value, int | float) and 0 < value < math.inf else 0  # pyright: ignore


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


def _carry_out(run: Run, cases: list[Case], decisions: Mapping[str, Decision], by: str) -> list[Action]:
    """Carry out decisions in rounds: what one has moved, another looks at again before it moves it on."""
    done: list[Action] = []
    while cases:
        moved: set[str] = set()
        later: list[Case] = []
        actions: list[Action] = []
        for case in cases:
            both = {case.older.id, case.newer.id}
            if both & moved:
                later.append(case)
                continue
            if decisions[case.key] in _MOVES:
                moved |= both
            actions.append(_decided(run, case, decisions[case.key], by))
        run.write(actions)
        done += actions
        cases = queue.as_they_are(run.engine, later)
    return done


def _decided(run: Run, case: Case, decision: Decision, by: str) -> Action:
    plans = queue.decided_plans(run.engine, case, decision, by)
    carried_out = deciding.carried_out(case, decision)
    if carried_out != decision:
        word = f"{carried_out} instead of {decision}, as it is pinned"
    elif decision in _MOVES and not any(kind == _MOVES[decision] for kind, _body in plans):
        word = f"settled by another decision ({decision})"
    else:
        word = decision
    return Action(
        step="judge",
        why=f"{word}: {case.older.text!r} and {case.newer.text!r}",
        memories=(case.older.id, case.newer.id),
        plans=tuple(plans),
    )
