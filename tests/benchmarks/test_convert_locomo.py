"""The public file becomes the common form, labels and distractors kept apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from benchmarks.convert_locomo import convert, main, turns_in, write
from benchmarks.quality import sets

SAMPLE = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ana",
        "speaker_b": "Ben",
        "session_2_date_time": "2 pm on 9 May, 2023",
        "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a red bridge"}],
        "session_1_date_time": "1 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": "D1:1", "text": "I moved to Oslo."},
            {"speaker": "Ben", "dia_id": "D1:2", "text": "Nice."},
        ],
    },
    "observation": {"session_1_observation": {"Ana": [["Ana moved to Oslo.", "D1:1"]], "Ben": []}},
    "qa": [
        {"question": "Where does Ana live?", "answer": "Oslo", "evidence": ["D1:1"], "category": 4},
        {"question": "What did Ben see?", "answer": "bridge", "evidence": ["D2:1; D1:2"], "category": 1},
        {
            "question": "Where does Ben live?",
            "adversarial_answer": "Oslo",
            "evidence": ["D1:1"],
            "category": 5,
        },
    ],
}


def test_turns_are_documents_in_order_of_their_sessions_with_speaker_and_picture() -> None:
    raw, _ = convert([SAMPLE])

    assert [doc["id"] for doc in raw.corpus] == ["conv-1:D1:1", "conv-1:D1:2", "conv-1:D2:1"]
    assert raw.corpus[2]["text"] == "Ben: Look! [shares a photo: a red bridge]"
    assert raw.corpus[0]["meta"] == {
        "scope": "conv-1",
        "session": 1,
        "date": "1 pm on 8 May, 2023",
        "speaker": "Ana",
    }


def test_evidence_of_an_adversarial_question_is_a_distractor() -> None:
    raw, facts = convert([SAMPLE])

    assert ("conv-1:q2", "conv-1:D1:1", -1) in raw.qrels
    assert ("conv-1:q2", "conv-1:O1:Ana:0", -1) in facts.qrels
    assert raw.queries[2]["meta"] == {
        "scope": "conv-1",
        "category": "adversarial",
        "answer": "Oslo",
        "answerable": False,
    }


def test_several_turns_in_one_string_are_all_found() -> None:
    raw, _ = convert([SAMPLE])

    assert [doc for query, doc, _ in raw.qrels if query == "conv-1:q1"] == ["conv-1:D2:1", "conv-1:D1:2"]
    assert turns_in("D1:2, D1:2") == ["D1:2"]


def test_observations_keep_only_questions_they_can_answer() -> None:
    _, facts = convert([SAMPLE])

    assert [query["id"] for query in facts.queries] == ["conv-1:q0", "conv-1:q2"]


def test_what_is_written_reads_back_and_is_the_same_every_time(tmp_path: Path) -> None:
    raw, _ = convert([SAMPLE])

    first = write(raw, tmp_path / "a")
    second = write(raw, tmp_path / "b")

    for name in ("corpus.jsonl.gz", "queries.jsonl.gz", "qrels.tsv.gz"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    lines = gzip.decompress((first / "corpus.jsonl.gz").read_bytes()).decode().splitlines()
    assert [json.loads(line)["id"] for line in lines] == [doc["id"] for doc in raw.corpus]
    assert json.loads((first / "META.json").read_text())["n_distractor"] == 1


def test_the_public_file_becomes_sets_that_can_be_asked(tmp_path: Path) -> None:
    odd = SAMPLE | {"sample_id": "conv-2", "event_summary": {}, "session_summary": {}}
    odd["conversation"] = SAMPLE["conversation"] | {"session_3_date_time": "9:00 am on 1 June, 2023"}
    odd["qa"] = [
        *SAMPLE["qa"],
        {"question": "Why?", "answer": 2022, "evidence": ["D:9:1", "D"], "category": 3},
    ]
    source = tmp_path / "locomo10.json"
    source.write_text(json.dumps([SAMPLE, odd]))

    main([str(source), str(tmp_path / "out")])

    assert sets.names(tmp_path / "out") == ["locomo_obs", "locomo_turns"]
    turns = sets.load(tmp_path / "out", "locomo_turns")
    assert (len(turns.memories), len(turns.questions), turns.scoped) == (6, 7, True)
    assert {memory.kind for memory in turns.memories} == {"episode"}
    assert [q.answerable for q in turns.questions[:3]] == [True, True, False]
    assert not sets.load(tmp_path / "out", "locomo_turns", federated=True).scoped


@pytest.mark.parametrize("text", ['{"a": 1}', "[{}]", "no JSON", "[1]"])
def test_another_file_is_refused_with_what_was_expected(tmp_path: Path, text: str) -> None:
    source = tmp_path / "other.json"
    source.write_text(text)

    with pytest.raises(SystemExit, match="as published, a list of samples"):
        main([str(source), str(tmp_path / "out")])
    with pytest.raises(SystemExit, match="cannot read"):
        main([str(tmp_path / "none.json"), str(tmp_path / "out")])


@pytest.mark.parametrize("text", ["[]", "{}", '[{"sample_id": 1, "conversation": {}, "qa": []}]'])
def test_a_file_without_a_question_makes_no_empty_sets(tmp_path: Path, text: str) -> None:
    source = tmp_path / "empty.json"
    source.write_text(text)

    with pytest.raises(SystemExit, match="no conversation with a question"):
        main([str(source), str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    source, out = tmp_path / "locomo10.json", tmp_path / "file"
    source.write_text(json.dumps([SAMPLE]))
    out.write_text("")

    with pytest.raises(SystemExit, match="cannot write to"):
        main([str(source), str(out)])
