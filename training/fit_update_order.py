"""Fit `skep.recall.update_order` and the tense of `skep.retrieval.query` on the topic files, and measure them on writers left out.

Banks of three topics of one writer (sixty memories) are asked all their questions through the ordinary pipeline. A pair
of an older and a newer hit counts where one of them answers and the other does not. Encoder, comparer, reader, words
and weights are all without the writer whose questions are measured. Needs scikit-learn; minutes on a processor.

    python -m training.train_embedder --left-out --vectors left_out.npz --base base16.npz --vocab vocab.txt
    python -m training.train_reader --left-out readings.npz --published published
    python -m training.fit_update_order --vectors left_out.npz --readings readings.npz
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from skep.embedding.minilm import MiniLMEmbedder
from skep.filters import Filter
from skep.model import Memory, Scope
from skep.recall import update_order
from skep.retrieval.pipeline import Call, Candidates, run
from skep.retrieval.query import BIAS, WORDS, Tense, Weights, words_of
from skep.retrieval.recall_config import preset
from skep.retrieval.sources import InMemorySources
from skep.semantics import pair_judge
from skep.semantics.pair_reader import LIKELY
from training.fit_judge import columns_of, fit_heads, rows_of, texts_of
from training.topics import Question, Topic, read_topics

FOLDS = 4
TOPICS = 3
FREQUENT, WRITERS = 12, 5
"""Questions and writers that a word needs for a weight of its own."""
EVERYWHERE = Scope(user="*", project="*", session="*")
Array = Any


class Known:
    """An encoder whose vectors have been made; a question that the pipeline shortens goes to the bundled one."""

    instant = False

    def __init__(self, vectors: Mapping[str, Array]) -> None:
        self._bundled = bundled = MiniLMEmbedder()
        self._vectors = vectors
        self.dim, self.fingerprint = bundled.dim, bundled.fingerprint
        self.calibration, self.calibrate = bundled.calibration, bundled.calibrate

    def embed(self, texts: Sequence[str]) -> Array:
        return np.array(
            [
                self._vectors[text] if text in self._vectors else self._bundled.embed([text])[0]
                for text in texts
            ]
        )


class Asked(NamedTuple):
    """One question on a bank: its best hits before any order of updates, and the pairs among them."""

    writer: str
    kind: str
    former: bool
    right: Array
    wrong: Array
    pairs: update_order.Pairs
    features: Array
    stays: Array
    """Pairs that keep their places because the question names the older one."""
    tense: Tense


def banks(topics: Sequence[Topic]) -> Iterator[list[Topic]]:
    """Three topics of one writer at a time."""
    by_writer: defaultdict[str, list[Topic]] = defaultdict(list)
    for topic in topics:
        by_writer[topic.writer].append(topic)
    for each in by_writer.values():
        for start in range(0, len(each), TOPICS):
            yield each[start : start + TOPICS]


def links(topics: Sequence[Topic], vectors: dict[str, Array]) -> dict[str, Array]:
    """The link weights of the comparer for each writer, fitted without that writer."""
    rows = rows_of(topics, vectors)
    columns = columns_of(rows, vectors, vectors, MiniLMEmbedder().calibrate)
    writers = sorted({topic.writer for topic in topics})
    of_row = np.array([row.writer for row in rows])
    found: dict[str, Array] = {}
    for fold in (writers[start::FOLDS] for start in range(FOLDS)):
        head = fit_heads(columns, rows, ~np.isin(of_row, fold)).link[0]
        found |= dict.fromkeys(fold, head)
    return found


def ask(
    bank: Sequence[Topic],
    embedder: Known,
    vectors: dict[str, Array],
    link: Array,
    read: Mapping[tuple[str, str], float],
    words: Weights,
) -> Iterator[Asked]:
    """Every question of a bank that has an answer."""
    memories: list[Memory] = []
    for number, topic in enumerate(bank):
        for note in topic.notes:
            at = datetime.fromisoformat(note.at).timestamp() + len(memories)
            memories.append(
                Memory(
                    id=f"{number}.{note.id}", kind=note.kind, text=note.text, created_at=at, last_evidence_at=at
                )
            )  # fmt: skip
    sources = InMemorySources(memories, embedder)
    now = max(memory.created_at for memory in memories) + 86_400
    texts = [memory.text for memory in memories]
    made = np.array([vectors[text] for text in texts])
    at = np.array([memory.created_at for memory in memories])
    older, newer = np.nonzero(at[:, None] < at[None, :])
    columns = pair_judge.word_columns([texts[i] for i in older], [texts[j] for j in newer])
    columns = np.concatenate([columns, pair_judge.vector_features(made[older], made[newer])], 1)
    odds = np.full((len(memories), len(memories)), -np.inf)
    odds[older, newer] = columns @ link[:-1] + link[-1]
    for i, j in zip(*np.nonzero(odds > LIKELY), strict=True):
        told = read.get((texts[i], texts[j]))
        if told is not None:
            odds[i, j] = (odds[i, j] + told) / 2
    config = preset("default", model=True)
    for number, topic in enumerate(bank):
        for question in topic.questions:
            if question.answers:
                yield _asked(question, number, topic.writer, sources, odds, now, config, words)


def _asked(
    question: Question,
    number: int,
    writer: str,
    sources: InMemorySources,
    odds: Array,
    now: float,
    config: Any,
    words: Weights,
) -> Asked:
    seen: list[Asked] = []

    def note(found: Candidates, call: Call) -> Candidates:
        pool = found.first(update_order.POOL)
        shown = call.texts(pool.rows)
        tense, former = call.asked.tense(shown[: update_order.HEAD], words)
        pairs = update_order.best_pairs(odds[np.ix_(pool.rows, pool.rows)], pool.rows)
        ids = [memory.id.split(".", 1) for memory in call.memories(pool.rows)]
        texts = [memory.text for memory in call.memories(pool.rows)]
        mine = [each if owner == str(number) else "" for owner, each in ids]
        seen.append(
            Asked(
                writer, question.type, former,
                np.array([each in question.answers for each in mine]),
                np.array([each in question.near for each in mine]),
                pairs, update_order.pair_features(pool, pairs, shown, question.text, tense),
                np.array(update_order.names_apart(question.text, [
                    (texts[one], texts[other]) for one, other in zip(pairs.older, pairs.newer, strict=True)
                ]), bool),
                tense,
            )
        )  # fmt: skip
        return found

    where = Filter(scope=EVERYWHERE, min_confidence=0.0, now=now)
    run(question.text, config, sources, now, where=where, updates=note)
    return seen[0]


def fitted(asked: Sequence[Asked]) -> tuple[Array, float]:
    """Weights and bias of a logistic regression over the pairs of questions about the present."""
    from sklearn.linear_model import LogisticRegression

    x, y = [], []
    for each in asked:
        for older, newer, row in zip(each.pairs.older, each.pairs.newer, each.features, strict=True):
            if not each.former and each.right[older] != each.right[newer]:
                x.append(row)
                y.append(each.right[newer])
    model = LogisticRegression(C=10, max_iter=2000).fit(np.array(x), np.array(y))
    return model.coef_[0], float(model.intercept_[0])


def figures(asked: Sequence[Asked], weights: dict[str, tuple[Array, float]], likely: float) -> str:
    """First right / among five / outdated or look-alike above the answer, by kind of question."""
    found: defaultdict[str, list[tuple[bool, bool, bool | None]]] = defaultdict(list)
    for each in asked:
        coefficients, bias = weights[each.writer]
        chance = 1 / (1 + np.exp(-(each.features @ coefficients + bias)))
        sure = each.pairs.odds >= update_order.LINKED if each.former else chance >= likely
        sure = sure & ~each.stays & (likely <= 1)
        order = update_order.placed(
            each.pairs.older[sure].tolist(),
            each.pairs.newer[sure].tolist(),
            len(each.right),
            former=each.former,
        )
        right, wrong = each.right[order], each.wrong[order]
        above = bool(wrong[: int(right.argmax()) if right.any() else 5].any()) if each.wrong.any() else None
        for kind in ("all", each.kind):
            found[kind].append((bool(right[0]), bool(right[:5].any()), above))
    return "  ".join(
        f"{kind} {np.mean([a for a, _, _ in got]):.3f}/{np.mean([b for _, b, _ in got]):.3f}"
        f"/{np.mean([c for _, _, c in got if c is not None]):.2f}"
        for kind, got in sorted(found.items())
    )


def question_words(topics: Sequence[Topic]) -> Weights:
    """The weights of the words that tell the tense of a question: sparse logistic regressions over frequent words."""
    from sklearn.linear_model import LogisticRegression

    asked = [(topic.writer, question) for topic in topics for question in topic.questions if question.answers]
    writers: defaultdict[str, set[str]] = defaultdict(set)
    count: Counter[str] = Counter()
    for writer, question in asked:
        for word in words_of(question.text):
            writers[word].add(writer)
            count[word] += 1
    words = sorted(word for word in count if count[word] >= FREQUENT and len(writers[word]) >= WRITERS)
    column = {word: at for at, word in enumerate(words)}
    held = np.zeros((len(asked), len(words)))
    for row, (_writer, question) in enumerate(asked):
        held[row, [column[word] for word in words_of(question.text) if word in column]] = 1
    found: list[Array] = []
    for kind in ("current", "past"):
        model = LogisticRegression(C=0.4, penalty="l1", solver="liblinear", random_state=0)
        model.fit(held, [question.type == kind for _writer, question in asked])
        found.append(np.append(model.coef_[0], model.intercept_))
    now, before = (each.round(2).tolist() for each in found)
    weights = {BIAS: (now[-1], before[-1])}
    return weights | {word: (now[at], before[at]) for at, word in enumerate(words) if now[at] or before[at]}


def main() -> None:
    """Print weights, and figures with each writer left out; `--write` writes the words."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=Path, required=True, help="by encoders that had not seen a writer")
    parser.add_argument("--readings", type=Path, help="by readers that had not seen a writer")
    parser.add_argument("--write", action="store_true", help="write the words of questions")
    args = parser.parse_args()
    topics = read_topics()
    told = np.load(args.vectors)
    vectors: dict[str, Array] = dict(
        zip(told["texts"].tolist(), told["vectors"].astype(np.float32), strict=True)
    )
    missing = [text for text in texts_of(topics) if text not in vectors]  # those of the templates
    vectors |= dict(zip(missing, MiniLMEmbedder().embed(missing), strict=True))
    link, embedder = links(topics, vectors), Known(vectors)
    read: dict[tuple[str, str], float] = {}
    if args.readings is not None:
        told = np.load(args.readings, allow_pickle=True)
        read = dict(zip(zip(told["older"], told["newer"], strict=True), told["odds"].tolist(), strict=True))
    writers = sorted({topic.writer for topic in topics})
    folds = [writers[start::FOLDS] for start in range(FOLDS)]
    words: dict[str, Weights] = {}
    for fold in folds:
        words |= dict.fromkeys(fold, question_words([topic for topic in topics if topic.writer not in fold]))
    asked = [
        each
        for bank in banks(topics)
        for each in ask(bank, embedder, vectors, link[bank[0].writer], read, words[bank[0].writer])
    ]
    coefficients, bias = fitted(asked)
    print("weights", coefficients.round(3).tolist(), "bias", round(bias, 3))
    left_out: dict[str, tuple[Array, float]] = {}
    for fold in folds:
        left_out |= dict.fromkeys(fold, fitted([each for each in asked if each.writer not in fold]))
    shipped = dict.fromkeys(writers, (np.array(update_order.WEIGHTS), update_order.BIAS))
    print("without", figures(asked, left_out, 2.0))
    for likely in (0.4, 0.45, 0.5, 0.55):
        print(likely, figures(asked, left_out, likely), "\n  shipped", figures(asked, shipped, likely))
    if args.write:
        lines = [f"{word} {now:.2f} {before:.2f}" for word, (now, before) in question_words(topics).items()]
        Path(WORDS).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
