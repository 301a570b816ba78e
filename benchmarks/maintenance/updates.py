"""Does the current value of an updated fact come first, before maintenance and after it?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.quality.sets import EvalSet, Question, load
from skep.bank import Bank

SETS = ("factcon_32k", "beam_100k")
LIMIT = 20


def measure(root: Path, name: str, *, kind: str | None = None) -> dict[str, Any]:
    """One set, with its memories as the set has them or all of one kind."""
    data = load(root, name)
    asked = [q for q in data.questions if {grade > 0 for grade in q.labels.values()} == {True, False}]
    times = [max(question.now for question in data.questions)]
    with Bank.open(":memory:", now=lambda: times[0]) as bank:
        names = _fill(bank, data, kind)
        before = _first(bank, asked, names)
        report = bank.maintain()
        for memory in bank.find(limit=10_000):
            if memory.id not in names and memory.evidence:
                names[memory.id] = names.get(memory.evidence[-1], memory.evidence[-1])
        after = _first(bank, asked, names)
        superseded = sum(1 for _ in bank.find(status=("superseded",), limit=10_000))
    return {
        "memories": len(data.memories),
        "as": kind or "in the set",
        "questions": len(asked),
        "before": before,
        "after": after,
        "superseded": superseded,
        "queued": report.queued,
        "actions": {step.step: len(step.actions) for step in report.steps if step.actions},
    }


def _fill(bank: Bank, data: EvalSet, kind: str | None) -> dict[str, str]:
    stored = bank.remember_many(
        [
            {
                "text": memory.text,
                "kind": kind or memory.kind,
                "agent": memory.agent,
                "scope": {"project": memory.scope.project} if memory.scope.project else None,
                "created_at": memory.created_at,
                "confidence": 1.0,
            }
            for memory in data.memories
        ]
    )
    return {each.memory.id: memory.id for each, memory in zip(stored, data.memories, strict=True)}


def _first(bank: Bank, questions: list[Question], names: dict[str, str]) -> dict[str, float]:
    """The share of questions whose first labelled answer is the current value; and in which it is found at all."""
    first = found = 0
    for question in questions:
        project = question.where.scope.project if question.where.scope is not None else None
        scope = {"project": project} if project not in (None, "*") else None
        hits = bank.recall(question.text, limit=LIMIT, scope=scope, min_confidence=0.0)
        grades = [question.labels.get(names.get(hit.memory.id, ""), 0) for hit in hits]
        told = [grade for grade in grades if grade]
        first += bool(told) and told[0] > 0
        found += any(grade > 0 for grade in grades)
    return {"current_first": round(first / len(questions), 4), "found": round(found / len(questions), 4)}
