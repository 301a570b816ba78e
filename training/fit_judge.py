"""Fit the comparer of memories (`skep.semantics.pair_judge`) on the topic files, and measure it on writers left out.

Two kinds of rows: labelled pairs, and every note of a topic with its nearest earlier notes, where `replaces` tells the
true updates. The two come with different shares of updates, so columns that say "this is a labelled pair" take part
in the fit of the link and are left out afterwards. Needs scikit-learn.

The bundled encoder was tuned on these topics, so its similarities are too good here. `--published` names the folder of the
published weights for the similarity of verdicts.

    python -m training.fit_judge                            # writes src/skep/semantics/data/judge.npy
    python -m training.fit_judge --left-out 3               # figures, three groups of writers left out in turn
    python -m training.fit_judge --vectors a.npy --published published    # in the order of `texts_of`
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skep.embedding.minilm import MiniLMEmbedder
from skep.semantics import pair_judge
from training.templates import template_pairs
from training.topics import Topic, read_topics

NEAREST = 10
"""Earlier notes that a note is paired with."""
LINK_STRENGTH, VERDICT_STRENGTH = 0.1, 1.0
"""The inverse of the penalty on weights."""
NOTE_WEIGHT, TEMPLATE_WEIGHT = 0.3, 2.0
"""What a pair of notes, and one of the templates, counts in the fit of verdicts; a labelled pair counts 1."""
WORDS = 320
WRITERS = 5
"""A word has a weight of its own if so many writers use it."""
OUT = Path(pair_judge.__file__).parent / "data"
Array = Any


class Row(NamedTuple):
    """One pair of texts, the earlier first."""

    earlier: str
    later: str
    label: str
    writer: str
    source: str
    """`notes`, `pairs` or `templates`."""
    about: str
    """The later note, for rankings per note."""


def texts_of(topics: Sequence[Topic]) -> list[str]:
    """Every text that takes part, each once, in a fixed order."""
    found = [note.text for topic in topics for note in topic.notes]
    found += [text for topic in topics for pair in topic.pairs for text in (pair.earlier, pair.later)]
    found += [text for pair in template_pairs() for text in (pair.earlier, pair.later)]
    return list(dict.fromkeys(found))


def rows_of(topics: Sequence[Topic], vectors: dict[str, Array]) -> list[Row]:
    """The labelled pairs, and each note with those near to it."""
    rows: list[Row] = []
    for topic in topics:
        replaced: dict[str, set[str]] = {}
        at = {note.id: number for number, note in enumerate(topic.notes)}
        made = np.array([vectors[note.text] for note in topic.notes])
        for number, note in enumerate(topic.notes):
            mine = set(note.replaces)
            for each in note.replaces:
                mine |= replaced.get(each, set())
            replaced[note.id] = mine
            near = set(np.argsort(-(made[:number] @ made[number]))[:NEAREST].tolist())
            for other in sorted(near | {at[each] for each in mine}):
                earlier = topic.notes[other]
                label = "updates" if earlier.id in mine else "both"
                rows.append(
                    Row(earlier.text, note.text, label, topic.writer, "notes", f"{topic.path}{note.id}")
                )
        rows += [Row(p.earlier, p.later, p.label, topic.writer, "pairs", "") for p in topic.pairs]
    rows += [Row(p.earlier, p.later, p.label, p.writer, "templates", "") for p in template_pairs()]
    return rows


def vocabulary(rows: Sequence[Row]) -> list[str]:
    """The most frequent words of many writers that later texts have and earlier ones have not."""
    count: Counter[str] = Counter()
    writers: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.source == "templates":
            continue
        earlier, later = (set(pair_judge.words_of(text)) for text in (row.earlier, row.later))
        for word in later - earlier:
            if not any(map(str.isdigit, word)):
                count[word] += 1
                writers[word].add(row.writer)
    return [word for word, _ in count.most_common() if len(writers[word]) >= WRITERS][:WORDS]


class Columns(NamedTuple):
    """The features of all rows."""

    words: Array
    near: Array
    """Of the similarity on the common scale."""
    vectors: Array
    source: Array
    """Columns that tell labelled pairs and templates from notes; they take part in the fit of the link alone."""


def columns_of(
    rows: Sequence[Row],
    vectors: dict[str, Array],
    plain: dict[str, Array],
    calibrate: Callable[[float], float],
) -> Columns:
    """The features of rows; the similarity of verdicts is that of the `plain` vectors."""
    words: list[Array] = []
    for start in range(0, len(rows), pair_judge.BATCH):
        part = rows[start : start + pair_judge.BATCH]
        words.append(pair_judge.word_columns([r.earlier for r in part], [r.later for r in part]))
    one = np.array([vectors[row.earlier] for row in rows])
    other = np.array([vectors[row.later] for row in rows])
    cosine = np.einsum("ij,ij->i", one, other)
    similarity = np.array(
        [calibrate(float(plain[row.earlier] @ plain[row.later])) for row in rows], np.float32
    )
    raw = pair_judge.cosine_features(cosine)
    sources: list[Array] = []
    for name in ("pairs", "templates"):
        told = np.array([[row.source == name] for row in rows], np.float32)
        sources += [told, told * raw]
    return Columns(
        np.concatenate(words),
        pair_judge.cosine_features(similarity),
        pair_judge.vector_features(one, other),
        np.concatenate(sources, 1),
    )


def fit(x: Array, y: Array, weight: Array, strength: float) -> Array:
    """Weights of a logistic regression, one row per class (one row for two classes), the bias last."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, max_iter=400, tol=1e-3).fit(x, y, sample_weight=weight)
    return np.concatenate([model.coef_, model.intercept_[:, None]], 1).astype(np.float32)


def targets(rows: Sequence[Row]) -> tuple[Array, Array]:
    """For the link 0, 1 or -1 (takes no part), and the number of the label."""
    link = np.array([-1 if row.label == "contradicts" else row.label == "updates" for row in rows], int)
    return link, np.array([pair_judge.KINDS.index(row.label) for row in rows])


class Heads(NamedTuple):
    """Weights without the columns of the source: link and verdict, each with and without vectors."""

    link: Array
    verdict: Array
    link_words: Array
    verdict_words: Array


def fit_heads(columns: Columns, rows: Sequence[Row], chosen: Array) -> Heads:
    """Fit all heads on some rows."""
    link, label = targets(rows)
    linked = chosen & (link >= 0)
    source = np.array([row.source for row in rows])
    of_link = np.where(source == "templates", 0.5, 1.0).astype(np.float32)
    of_verdict = np.ones(len(rows), np.float32)
    of_verdict[source == "notes"], of_verdict[source == "templates"] = NOTE_WEIGHT, TEMPLATE_WEIGHT
    extra = columns.source.shape[1]

    def without(found: Array, columns: int) -> Array:
        return np.concatenate([found[:, : -columns - 1], found[:, -1:]], 1)

    told = np.concatenate([columns.words, columns.vectors, columns.source], 1)
    told_words = np.concatenate([columns.words, columns.source[:, [0, extra // 2]]], 1)
    near = np.concatenate([columns.words, columns.near], 1)
    return Heads(
        without(fit(told[linked], link[linked], of_link[linked], LINK_STRENGTH), extra),
        fit(near[chosen], label[chosen], of_verdict[chosen], VERDICT_STRENGTH),
        without(fit(told_words[linked], link[linked], of_link[linked], LINK_STRENGTH), 2),
        fit(columns.words[chosen], label[chosen], of_verdict[chosen], VERDICT_STRENGTH),
    )


def saved(heads: Heads, columns: Columns) -> Array:
    """The weights as `pair_judge` reads them: the columns of words, of the vectors, the bias."""
    size = columns.words.shape[1] + columns.vectors.shape[1]

    def wide(found: Array) -> Array:
        gap = np.zeros((len(found), size + 1 - found.shape[1]), np.float32)
        return np.concatenate([found[:, :-1], gap, found[:, -1:]], 1)

    return np.concatenate([wide(head) for head in heads]).astype(np.float16)


def main() -> None:
    """Fit and write, or measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, help="of the bundled encoder, if they have been made")
    parser.add_argument(
        "--published", type=Path, help="folder of the published encoder, which has not seen the topics"
    )
    parser.add_argument(
        "--left-out", type=int, default=0, metavar="FOLDS", help="measure on writers left out"
    )
    parser.add_argument("--seed", type=int, default=1, help="which writers are left out together")
    args = parser.parse_args()
    topics = read_topics()
    texts = texts_of(topics)
    embedder = MiniLMEmbedder()
    made = embedder.embed(texts) if args.vectors is None else np.load(args.vectors)
    vectors = dict(zip(texts, made, strict=True))
    published = None if args.published is None else MiniLMEmbedder(args.published).embed(texts)
    plain = vectors if published is None else dict(zip(texts, published, strict=True))
    rows = rows_of(topics, vectors)
    if args.left_out:
        from training.measure_judge import report

        report(rows, columns_of(rows, vectors, plain, embedder.calibrate), args.left_out, args.seed)
        return
    (OUT / "judge_words.txt").write_text("\n".join(vocabulary(rows)) + "\n", encoding="utf-8")
    columns = columns_of(rows, vectors, plain, embedder.calibrate)
    np.save(OUT / "judge.npy", saved(fit_heads(columns, rows, np.ones(len(rows), bool)), columns))


if __name__ == "__main__":
    main()
