"""Reads and checks the topic files of `training/data`: memories, questions and pairs of memories, one item a line.

    m3 | 2026-02-11 | fact | The gate code is 4471. | replaces m1
    q paraphrase | how do I get through the entrance? | m3 | m7 m9
    p updates | The gate code is 1190. | Since Monday the gate opens with 4471.

`python -m training.topics FILE …` prints what is wrong with each file and the counts of all.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

QUESTION_TYPES = ("direct", "paraphrase", "current", "past", "lookalike", "none")
PAIR_LABELS = ("same", "updates", "contradicts", "both")
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True)
class Note:
    """One memory of a topic; `replaces` names the notes that it makes outdated."""

    id: str
    at: str
    kind: str
    text: str
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True)
class Question:
    """A question; `answers` are the notes that answer it, `near` those that look alike and do not."""

    type: str
    text: str
    answers: tuple[str, ...]
    near: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Two texts, the earlier first, and what the later one does to it."""

    label: str
    earlier: str
    later: str


@dataclass
class Topic:
    """One file: a subject, its writer, and what was written about it."""

    path: Path
    notes: list[Note] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def writer(self) -> str:
        return self.path.parent.name

    @property
    def name(self) -> str:
        return self.path.stem


def read_topic(path: Path) -> Topic:
    """Read one file; lines that do not fit the format are listed in `faults`."""
    topic = Topic(path)
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        try:
            if line.startswith("m"):
                identity, at, kind, text, *rest = parts
                datetime.fromisoformat(at)
                replaces = tuple(rest[0].removeprefix("replaces").split()) if rest else ()
                if kind not in ("fact", "episode", "procedure"):
                    raise ValueError(f"kind {kind!r}")
                topic.notes.append(Note(identity, at, kind, text, replaces))
            elif line.startswith("q "):
                head, text, answers, near = parts
                kind = head[2:].strip()
                if kind not in QUESTION_TYPES:
                    raise ValueError(f"question type {kind!r}")
                topic.questions.append(Question(kind, text, _ids(answers), _ids(near)))
            elif line.startswith("p "):
                head, earlier, later = parts
                label = head[2:].strip()
                if label not in PAIR_LABELS:
                    raise ValueError(f"label {label!r}")
                topic.pairs.append(Pair(label, earlier, later))
            else:
                raise ValueError("starts with none of m, q, p, #")
        except ValueError as why:
            topic.faults.append(f"{path.name}:{number}: {why}")
    _check_references(topic)
    return topic


def read_topics(root: Path = DATA) -> list[Topic]:
    """Read every topic under a folder, in the order of their paths."""
    return [read_topic(path) for path in sorted(root.rglob("*.txt"))]


def _ids(text: str) -> tuple[str, ...]:
    return () if text in ("", "-") else tuple(text.split())


def _check_references(topic: Topic) -> None:
    known = {note.id for note in topic.notes}
    for note, named in _references(topic):
        for missing in sorted(set(named) - known):
            topic.faults.append(f"{topic.path.name}: {note} names {missing}, which is not there")
    for question in topic.questions:
        if (question.type == "none") != (not question.answers):
            topic.faults.append(
                f"{topic.path.name}: {question.text!r}: only a question of type none has no answer"
            )
    if len(known) != len(topic.notes):
        topic.faults.append(f"{topic.path.name}: two memories have one id")


def _references(topic: Topic) -> Iterator[tuple[str, tuple[str, ...]]]:
    for note in topic.notes:
        yield note.id, note.replaces
    for question in topic.questions:
        yield repr(question.text), (*question.answers, *question.near)


def main(arguments: list[str]) -> int:
    """Print faults and counts; 1 where a file has faults."""
    topics = [read_topic(Path(name)) for name in arguments] if arguments else read_topics()
    for topic in topics:
        for fault in topic.faults:
            print(fault)
    print(
        f"{len(topics)} topics, {sum(len(t.notes) for t in topics)} memories, "
        f"{sum(len(t.questions) for t in topics)} questions, {sum(len(t.pairs) for t in topics)} pairs"
    )
    print("questions", dict(Counter(q.type for t in topics for q in t.questions)))
    print("pairs", dict(Counter(p.label for t in topics for p in t.pairs)))
    return int(any(topic.faults for topic in topics))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
