"""The same questions asked of a real bank: what a user gets."""

from __future__ import annotations

import re
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

from benchmarks.quality.rankers import Answer, Ranker
from benchmarks.quality.sets import EvalSet, Question
from skep import Bank
from skep.retrieval.presets import PRESETS

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters a bank refuses, which some public texts hold."""


def prepare_bank(data: EvalSet, wanted: Sequence[str] | None) -> dict[str, Ranker]:
    """The presets, each through `Bank.recall`, over one bank in a folder of its own."""
    if any(len(group) > 1 for question in data.questions for group in question.where.tags):
        raise LookupError("its questions admit any of several tags, which only a deployed config can say")
    times = [data.questions[0].now if data.questions else 0.0]
    folder = tempfile.TemporaryDirectory(prefix="quality-")
    bank = Bank.open(Path(folder.name) / "set.skep", now=lambda: times[0])
    weakref.finalize(bank, folder.cleanup)
    stored = bank.remember_many(
        [
            {
                "text": _CONTROL.sub(" ", memory.text),
                "kind": memory.kind,
                "agent": memory.agent,
                "scope": memory.scope,
                "tags": memory.tags,
                "created_at": memory.created_at,
                "confidence": 1.0,
            }
            for memory in data.memories
        ]
    )
    names = {each.memory.id: memory.id for each, memory in zip(stored, data.memories, strict=True)}
    gone = {memory.id for memory in data.memories if memory.status != "active"}
    for own, name in names.items():
        if name in gone:
            bank.retract(own, reason="superseded in the set")

    def ranker(preset: str) -> Ranker:
        def rank(question: Question, limit: int) -> Answer:
            times[0] = question.now
            found = bank.recall(
                _CONTROL.sub(" ", question.text),
                limit=limit,
                scope=question.where.scope,
                tags=tuple(tag for (tag,) in question.where.tags),
                until=question.where.until,
                min_confidence=0.0,
                preset=preset,
            )
            ids = [names[hit.memory.id] for hit in found.hits]
            kept = [each for each in ids if each != question.exclude]
            return Answer(kept, sum(len(hit.memory.text) for hit in found.hits[:10]) // 4)

        return rank

    return {name: ranker(name) for name in wanted or PRESETS}
