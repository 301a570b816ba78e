"""Promises about the levels of hits, on notes and questions that people wrote."""

from __future__ import annotations

from datetime import datetime

from training.topics import read_topics

from skep import Bank


def test_a_strong_hit_is_right_and_the_outdated_value_is_never_strong() -> None:
    topic = read_topics()[0]
    replaced = {old for note in topic.notes for old in note.replaces}
    clock = [0.0]
    with Bank.open(":memory:", now=lambda: clock[0]) as bank:
        names: dict[str, str] = {}
        for number, note in enumerate(topic.notes):
            clock[0] = datetime.fromisoformat(note.at).timestamp() + number
            names[bank.remember(note.text, kind=note.kind).memory.id] = note.id
        clock[0] += 86_400
        strong = [
            (question, names[hit.memory.id])
            for question in topic.questions
            for hit in bank.recall(question.text, limit=5).hits
            if hit.level == "strong"
        ]
    right = [note in question.answers for question, note in strong]
    assert len(right) >= 5
    assert sum(right) >= 0.85 * len(right)
    assert not [note for question, note in strong if question.type == "current" and note in replaced]
