"""Does the current value of an updated fact come first, before maintenance and after it?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from benchmarks.quality.sets import EvalSet, Question, load
from skep.bank.bank import Bank
from skep.lifecycle.judge import RulesJudge

PRESETS = ("default", "semantic")
"""What ships, which reads dates itself; and meaning alone, which shows what maintenance does."""
LIMIT = 20


def measure(
    root: Path, name: str, *, kind: str | None = None, judge: RulesJudge | None = None
) -> dict[str, Any]:
    """One set, with its memories as the set has them or all of one kind."""
    data = load(root, name)
    asked = [q for q in data.questions if {grade > 0 for grade in q.labels.values()} == {True, False}]
    times = [max(question.now for question in data.questions)]
    with Bank.open(":memory:", now=lambda: times[0]) as bank:
        names = _fill(bank, data, kind)
        before = {preset: _first(bank, asked, names, preset) for preset in PRESETS}
        report = bank.maintain(judge=judge)
        for memory in bank.find(limit=10_000):
            if (
                memory.id not in names and memory.evidence
            ):  # a distilled fact says what one of its episodes says
                said = [i for i in memory.evidence if i in names and memory.text in bank.get(i).text]
                names[memory.id] = names[(said or memory.evidence)[-1]]
        after = {preset: _first(bank, asked, names, preset) for preset in PRESETS}
        replaced = [names[memory.id] for memory in bank.find(status=("superseded",), limit=10_000)]
    return {
        "memories": len(data.memories),
        "as": kind or "in the set",
        "questions": len(asked),
        "before": before,
        "after": after,
        "judge": judge.name if judge is not None else None,
        "superseded": len(replaced),
        "superseded_though_current": len(set(replaced) & _current(root, name)),
        "queued": report.queued,
        "actions": {step.step: len(step.actions) for step in report.steps if step.actions},
    }


def _current(root: Path, name: str) -> set[str]:
    """The documents that a set says are still true; none where it does not say."""
    with gzip.open(root / "conv" / name / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return {row["id"] for row in map(json.loads, lines) if row["meta"].get("current") is True}


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


def _first(bank: Bank, questions: list[Question], names: dict[str, str], preset: str) -> dict[str, float]:
    """The share of questions whose first labelled answer is the current value; and in which it is found at all."""
    first = found = 0
    for question in questions:
        project = question.where.scope.project if question.where.scope is not None else None
        scope = {"project": project} if project not in (None, "*") else None
        hits = bank.recall(question.text, limit=LIMIT, scope=scope, min_confidence=0.0, preset=preset)
        grades = [question.labels.get(names.get(hit.memory.id, ""), 0) for hit in hits]
        told = [grade for grade in grades if grade]
        first += bool(told) and told[0] > 0
        found += any(grade > 0 for grade in grades)
    return {"current_first": round(first / len(questions), 4), "found": round(found / len(questions), 4)}
