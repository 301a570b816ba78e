"""Convert the public LoCoMo file (`locomo10.json`) to the common form of the evaluation sets.

`python -m benchmarks.convert_locomo locomo10.json OUT` writes `OUT/conv/locomo_turns` and `OUT/conv/locomo_obs`:
`corpus.jsonl.gz`, `queries.jsonl.gz`, `qrels.tsv.gz` and `META.json`. The data is CC BY-NC 4.0 and stays out of
this repository.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}
TURN = re.compile(r"D\d+:\d+")
SESSION = re.compile(r"session_(\d+)")
SOURCE = "snap-research/locomo, data/locomo10.json"


@dataclass
class Set:
    """One evaluation set: documents, questions, and graded labels (-1: a labelled distractor)."""

    name: str
    note: str
    corpus: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    queries: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    qrels: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])


def turns_in(evidence: Any) -> list[str]:
    """The turns an annotation names, however it is written: a list, one string, or several in one string.

    >>> turns_in(["D8:6; D9:17", "D1:3"]), turns_in("D2:1")
    (['D8:6', 'D9:17', 'D1:3'], ['D2:1'])
    """
    parts: Sequence[Any] = [evidence] if isinstance(evidence, str) else list(evidence or [])
    return list(dict.fromkeys(turn for part in parts for turn in TURN.findall(str(part))))


def sessions(conversation: dict[str, Any]) -> Iterator[tuple[int, str, list[dict[str, Any]]]]:
    """Number, date and turns of each session, in order."""
    numbers = sorted(int(m[1]) for key in conversation if (m := SESSION.fullmatch(key)))
    for number in numbers:
        yield number, conversation.get(f"session_{number}_date_time", ""), conversation[f"session_{number}"]


def turns(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every turn as a document; the speaker's name stays in the text, a picture as its caption."""
    scope = str(sample["sample_id"])
    for number, date, said in sessions(sample["conversation"]):
        for turn in said:
            caption = turn.get("blip_caption")
            text = f"{turn['speaker']}: {turn.get('text', '')}" + (
                f" [shares a photo: {caption}]" if caption else ""
            )
            yield {
                "id": f"{scope}:{turn['dia_id']}",
                "text": text,
                "meta": {"scope": scope, "session": number, "date": date, "speaker": turn["speaker"]},
            }


def _fact(raw: Any) -> tuple[str, Any]:
    """An observation is a text with its evidence, or a bare text."""
    return (str(raw), []) if isinstance(raw, str) else (str(raw[0]), raw[1])


def observations(sample: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The data set's own short facts as documents, each with the turns it comes from."""
    scope = str(sample["sample_id"])
    dates = {number: date for number, date, _ in sessions(sample["conversation"])}
    for key, by_speaker in sample.get("observation", {}).items():
        match = SESSION.match(key)
        number = int(match[1]) if match else 0
        for speaker, facts in by_speaker.items():
            for i, fact in enumerate(facts):
                text, evidence = _fact(fact)
                yield {
                    "id": f"{scope}:O{number}:{speaker}:{i}",
                    "text": text,
                    "meta": {
                        "scope": scope,
                        "session": number,
                        "date": dates.get(number, ""),
                        "speaker": speaker,
                        "source_turns": turns_in(evidence),
                    },
                }


def question(sample: dict[str, Any], number: int) -> dict[str, Any]:
    """Question `number` of a conversation."""
    scope, raw = str(sample["sample_id"]), sample["qa"][number]
    adversarial = raw["category"] == 5
    answer = raw.get("adversarial_answer") if adversarial else raw.get("answer")
    return {
        "id": f"{scope}:q{number}",
        "text": raw["question"],
        "meta": {
            "scope": scope,
            "category": CATEGORIES[raw["category"]],
            "answer": str(answer if answer is not None else ""),
            "answerable": not adversarial,
        },
    }


def convert(samples: list[dict[str, Any]]) -> tuple[Set, Set]:
    """Turns and observations, with the questions that have a label in each.

    The evidence of an adversarial question is a labelled distractor: it looks like an answer and is none.
    """
    raw = Set("locomo_turns", "meta.scope on documents and questions; search within the scope")
    facts = Set("locomo_obs", "documents are the data set's own short observations, linked to turns")
    for sample in samples:
        said, noted = list(turns(sample)), list(observations(sample))
        raw.corpus += said
        facts.corpus += noted
        known = {doc["id"] for doc in said}
        for number in range(len(sample["qa"])):
            query = question(sample, number)
            scope, grade = query["meta"]["scope"], 1 if query["meta"]["answerable"] else -1
            evidence = turns_in(sample["qa"][number].get("evidence"))
            raw.queries.append(query)
            raw.qrels += [(query["id"], f"{scope}:{t}", grade) for t in evidence if f"{scope}:{t}" in known]
            linked = [doc["id"] for doc in noted if set(evidence) & set(doc["meta"]["source_turns"])]
            if linked:
                facts.queries.append(query)
                facts.qrels += [(query["id"], doc, grade) for doc in linked]
    return raw, facts


def write(each: Set, root: Path) -> Path:
    """Write a set under `root/conv`; the same input gives the same bytes."""
    folder = root / "conv" / each.name
    folder.mkdir(parents=True, exist_ok=True)
    lines = {
        "corpus.jsonl.gz": [json.dumps(doc, ensure_ascii=False) for doc in each.corpus],
        "queries.jsonl.gz": [json.dumps(query, ensure_ascii=False) for query in each.queries],
        "qrels.tsv.gz": [f"{query}\t{doc}\t{grade}" for query, doc, grade in each.qrels],
    }
    for name, rows in lines.items():
        body = "".join(row + "\n" for row in rows).encode()
        (folder / name).write_bytes(gzip.compress(body, mtime=0))
    meta = {
        "name": each.name,
        "licence": "CC BY-NC 4.0",
        "source": SOURCE,
        "scoped": True,
        "note": each.note,
        "n_corpus": len(each.corpus),
        "n_queries": len(each.queries),
        "n_qrels": len(each.qrels),
        "n_pos": sum(grade > 0 for _, _, grade in each.qrels),
        "n_distractor": sum(grade < 0 for _, _, grade in each.qrels),
    }
    (folder / "META.json").write_text(json.dumps(meta, indent=1) + "\n")
    return folder


def main(arguments: list[str] | None = None) -> None:
    """Parse, convert, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convert_locomo", description=__doc__)
    parser.add_argument("file", type=Path, help="locomo10.json as published")
    parser.add_argument("out", type=Path, help="folder to write to")
    options = parser.parse_args(arguments)
    try:
        converted = convert(json.loads(options.file.read_text(encoding="utf-8")))
    except OSError as error:
        raise SystemExit(f"cannot read {options.file}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SystemExit(
            f"{options.file} is not locomo10.json as published, a list of samples with sample_id, conversation and qa "
            f"({type(error).__name__}: {error})"
        ) from error
    if not converted[0].queries:
        raise SystemExit(f"{options.file} holds no conversation with a question; nothing was written")
    for each in converted:
        try:
            folder = write(each, options.out)
        except OSError as error:
            raise SystemExit(f"cannot write to {options.out}: {error.strerror}") from error
        print(
            f"{folder}: {len(each.corpus)} documents, {len(each.queries)} questions, {len(each.qrels)} labels"
        )


if __name__ == "__main__":
    main()
