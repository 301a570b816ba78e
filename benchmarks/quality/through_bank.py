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
from skep.retrieval.recall_config import PRESETS

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters a bank refuses, which some public texts hold."""


def prepare_bank(data: EvalSet, wanted: Sequence[str] | None) -> dict[str, Ranker]:
    """The presets, each through `Bank.recall`, over one bank in a folder of its own."""
    times = [data.questions[0].now if data.questions else 0.0]
    folder = tempfile.TemporaryDirectory(prefix="quality-")
    bank = Bank.open(Path(folder.name) / "set.skep", now=lambda: times[0])
    weakref.finalize(bank, folder.cleanup)
    stored = bank.remember_many(
        [
            {
                "text": _CONTROL.sub(" ", memory.text),
                "title": memory.title,
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
    own = {name: each for each, name in names.items()}
    for memory in data.memories:
        if memory.superseded_by is not None:
            bank.supersede(own[memory.id], own[memory.superseded_by])

    def ranker(preset: str) -> Ranker:
        def rank(question: Question, limit: int) -> Answer:
            if not question.text.strip():  # a bank refuses it, and says so
                return Answer([], 0)
            times[0] = question.now
            found = bank.recall(
                _CONTROL.sub(" ", question.text),
                limit=limit,
                scope=question.where.scope,
                tags=question.where.tags,
                until=question.where.until,
                min_confidence=0.0,
                preset=preset,
            )
            ids = [names[hit.memory.id] for hit in found.hits]
            kept = [each for each in ids if each != question.exclude]
            return Answer(kept, sum(len(hit.memory.text) for hit in found.hits[:10]) // 4)

        return rank

    return {name: ranker(name) for name in wanted or PRESETS}
