"""Silence is measured both ways, and a set on which nobody is silent is shown, not left out."""

from __future__ import annotations

from benchmarks.quality import sets
from benchmarks.quality.evaluate import evaluate
from benchmarks.quality.rankers import Answer
from benchmarks.quality.report import summary


def test_accuracy_of_silence_counts_answers_and_silences() -> None:
    own = sets.load_own()
    some = own.memories[0].id

    found = evaluate(own, {"never": lambda *_: Answer([some], 1), "always": lambda *_: Answer([], 0)})

    unanswerable = found["never"]["unanswerable"]
    total = unanswerable + found["never"]["questions"]
    assert found["never"]["abstention accuracy"] == round(1 - unanswerable / total, 4)
    assert found["always"]["abstention accuracy"] == round(unanswerable / total, 4)
    assert (found["never"]["abstained where right"], found["always"]["abstained where right"]) == (0.0, 1.0)


def test_a_set_on_which_no_ranker_is_silent_is_shown_and_nothing_in_it_is_best() -> None:
    quiet = {"questions": 0, "unanswerable": 9, "abstained where right": 0.0, "tokens@10": 0}

    text = summary(
        {"when": "now", "how": "so", "commit": "c", "sets": {"hard": {"bm25": quiet, "default": quiet}}}
    )

    assert "| hard | 9 | 0.000 | 0.000 |" in text
    assert text.count("| hard |") == 1  # no recall, no tokens: it has no question with an answer
