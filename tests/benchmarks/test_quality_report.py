"""Silence is measured both ways, and a set on which nobody is silent is shown, not left out."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.quality import __main__ as command
from benchmarks.quality import sets
from benchmarks.quality.__main__ import main
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


def test_without_scopes_the_own_set_searches_everything() -> None:
    within, without = sets.load_own(), sets.load_own(federated=True)

    assert (within.scoped, without.scoped) == (True, False)
    assert [q.id for q in without.questions] == [q.id for q in within.questions]
    assert all(q.where.scope == sets.EVERYWHERE for q in without.questions)


def test_a_set_without_scopes_has_no_federated_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "conv" / "plain"
    folder.mkdir(parents=True)
    (folder / "META.json").write_text('{"scoped": false}')
    for name, lines in {
        "corpus.jsonl.gz": ['{"id": "a", "text": "The well is deep", "meta": {}}'],
        "queries.jsonl.gz": ['{"id": "q", "text": "How deep is the well?", "meta": {}}'],
        "qrels.tsv.gz": ["q\ta\t1"],
    }.items():
        (folder / name).write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))

    asked = ["--data", str(tmp_path), "--presets", "bm25", "--federated", "--out", str(tmp_path / "out")]
    assert main([*asked, "--sets", "plain", "own"]) == 0

    found = json.loads((tmp_path / "out" / "quality.json").read_text())
    assert list(found["sets"]) == ["plain", "own", "own (federated)"]
    assert found["sets"]["plain"]["bm25"]["recall@10"] == 1.0
    assert found["environment"]["cores"]
    assert found["commit"]
    assert "own (federated)" in capsys.readouterr().out


def test_what_was_not_run_is_named() -> None:
    figures = {"questions": 1, "recall@10": 1.0, "tokens@10": 1}
    both = {"bm25": figures, "chroma": figures}

    text = summary(
        {"when": "now", "how": "so", "commit": "c", "sets": {"a": both, "b": {"bm25": figures}, "c": both}}
    )

    assert "Not run: `chroma` on b." in text


def test_a_part_of_a_run_and_a_mistyped_folder_leave_the_committed_results_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(command, "PART", tmp_path / "part")
    kept = tmp_path / "results" / "quality.json"
    kept.parent.mkdir()
    kept.write_text('{"sets": {"own": {}, "another (federated)": {}}}')

    assert main(["--presets", "bm25"]) == 0
    assert main([]) == 0

    assert (tmp_path / "part" / "quality.json").exists()
    assert "another" in kept.read_text()
    with pytest.raises(SystemExit, match="there are no sets under"):
        main(["--data", str(tmp_path / "typo")])
