"""Learn the weights of the pair comparison and write `semantics/data/conflicts.trees`.

    python scripts/train_conflicts.py --data FOLDER            # measure, then train on everything and write

Needs lightgbm and scikit-learn; what it writes is read with numpy alone. FOLDER holds the evaluation sets (conv/NAME).
Two measurements are printed: five folds in which pairs that share a text stay together, and leaving out one source
(and the sets and made pairs of its family) at a time. The second tells what to expect on texts of a new kind.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lightgbm as lgb
import numpy as np
from conflict_pairs import CORPORA, LONG, Pair, components, labelled, made, read
from sklearn.metrics import f1_score

from skep.embedding.static_table import StaticEmbedder
from skep.semantics.pair_features import NAMES, examine
from skep.semantics.pair_model import CLASSES, LEVELS, WordTable, word_table, write_arrays
from skep.semantics.parse_text import analyse

OUT = Path(__file__).resolve().parent.parent / "src/skep/semantics/data/conflicts.trees"
FAMILIES = {
    "factcon_32k": ("factcon_32k", "factcon_6k"),
    "qqp": ("qqp", "paws_qqp"),
    "paws_qqp": ("qqp", "paws_qqp"),
}
STEMS = 6000
MIX_WEIGHT, EXTRA_WEIGHT, MADE_WEIGHT, MEMORY_WEIGHT = 1.0, 0.5, 0.2, 1.0
RISING = {
    "duplicate": """similarity cover_lo cover_hi soft_lo soft_hi jaccard same_bag weakest_lo prefix suffix""",
    "contradiction": """flipped opposites opposite_share exclusive prefix_negation numbers_differ parity lone_swap
        cover_hi soft_hi cancels_one cancel_cover negated_cover""",
    "neutral": "extra_lo extra_hi numbers_lo",
}
FALLING = {
    "duplicate": """negated_one parity flipped opposites opposite_share numbers_differ exclusive extra_lo extra_hi
        numbers_hi edits cancels_one cancel_cover negated_cover dated_differ""",
    "contradiction": "questions extra_lo unflipped same_bag",
    "neutral": "similarity cover_lo cover_hi soft_lo soft_hi jaccard flipped opposites",
}
"""What a feature may do to a class, all else equal: keeps the trees from learning the habits of one source."""
TREES: dict[str, Any] = {
    "objective": "binary", "learning_rate": 0.05, "num_leaves": 12, "max_depth": 6, "min_data_in_leaf": 30,
    "lambda_l2": 5.0, "feature_fraction_bynode": 0.3, "max_bin": 63, "num_threads": 1, "seed": 0, "verbose": -1,
    "deterministic": True,
}  # fmt: skip
ROUNDS = 220


class Rows(NamedTuple):
    """Feature rows with their labels."""

    x: np.ndarray
    label: np.ndarray
    source: np.ndarray
    weight: np.ndarray


def word_arrays(root: Path) -> dict[str, np.ndarray]:
    """How much each common stem tells, and the mean word vector."""
    rng, counts, total = random.Random(0), Counter[str](), 0
    for name in CORPORA:
        texts = [row["text"][:2000] for row in read(root, name, "corpus")]
        rng.shuffle(texts)
        for text in texts[:15000]:
            counts.update(set(analyse(text).stems))
            total += 1
    common = counts.most_common(STEMS)

    def weight(count: int) -> float:
        return min(1.0, math.log((total + 1) / (count + 1)) / 12)

    rows = StaticEmbedder().embed([s for s, _ in common if s.isalpha()])
    return {
        "stems": np.frombuffer("\n".join(s for s, _ in common).encode(), np.uint8),
        "weights": np.array([round(weight(c) * 255) for _, c in common], np.uint8),
        "rare": np.float32(min(1.0, weight(common[-1][1]) + 0.15)),
        "mean": rows.mean(0).astype(np.float32),
    }


def rows_of(pairs: Sequence[Pair], words: WordTable, made_up: bool) -> Rows:
    """Feature rows of labelled pairs."""
    embedder = StaticEmbedder()
    texts = sorted({t for p in pairs for t in (p.a, p.b)})
    vectors: dict[str, np.ndarray] = {}
    for start in range(0, len(texts), 2000):
        chunk = texts[start : start + 2000]
        vectors.update(zip(chunk, embedder.embed(chunk), strict=True))
    out: list[list[float]] = []
    for pair in pairs:
        a, b = analyse(pair.a), analyse(pair.b)
        similarity = embedder.calibrate(float(vectors[pair.a] @ vectors[pair.b]))
        out.append(examine(a, b, similarity, words).row)
    made_weight = {"memories": MEMORY_WEIGHT}
    weights = [
        made_weight.get(p.source, MADE_WEIGHT) if made_up else MIX_WEIGHT if p.mix else EXTRA_WEIGHT
        for p in pairs
    ]
    return Rows(
        np.array(out, np.float32),
        np.array([p.label for p in pairs]),
        np.array([p.source for p in pairs]),
        np.array(weights),
    )


def take(rows: Rows, keep: np.ndarray) -> Rows:
    """The rows where `keep` holds."""
    return Rows(rows.x[keep], rows.label[keep], rows.source[keep], rows.weight[keep])


def join(a: Rows, b: Rows) -> Rows:
    """Both sets of rows."""
    return Rows(*(np.concatenate(parts) for parts in zip(a, b, strict=True)))


def balanced(rows: Rows) -> np.ndarray:
    """Weights under which classes count alike and no single source dominates its class."""
    weight = rows.weight.copy()
    for source in set(rows.source):
        for label in CLASSES:
            cell = (rows.source == source) & (rows.label == label)
            if cell.any():
                weight[cell] *= weight[cell].sum() ** -0.4
    for label in CLASSES:
        weight[rows.label == label] /= weight[rows.label == label].sum()
    return weight / weight.mean()


def fit(rows: Rows) -> list[lgb.Booster]:
    """One set of trees per class against the rest."""
    weight, models = balanced(rows), []
    for label in CLASSES:
        up, down = RISING[label].split(), FALLING[label].split()
        signs = [(n in up) - (n in down) for n in NAMES]
        data = lgb.Dataset(rows.x, (rows.label == label).astype(int), weight=weight)
        models.append(lgb.train(TREES | {"monotone_constraints": signs}, data, ROUNDS))
    return models


def scores(models: Sequence[lgb.Booster], x: np.ndarray) -> np.ndarray:
    """Raw scores per class; a question contradicts nothing."""
    raw = np.stack([np.asarray(m.predict(x, raw_score=True)) for m in models], 1)
    asks = (x[:, NAMES.index("questions")] > 0) | (x[:, NAMES.index("question_one")] > 0)
    raw[asks, 1] = -9.0
    return raw


def report(title: str, truth: np.ndarray, raw: np.ndarray, source: np.ndarray) -> dict[str, Any]:
    """Print and return macro-F1, F1 per class, and recall per source and class."""
    guess = np.array(CLASSES)[raw.argmax(1)]
    each = dict(
        zip(
            CLASSES, f1_score(truth, guess, average=None, labels=list(CLASSES)).round(4).tolist(), strict=True
        )
    )
    found: dict[str, Any] = {
        "macro_f1": round(float(f1_score(truth, guess, average="macro")), 4), "f1": each, "recall": {},
    }  # fmt: skip
    print(f"{title}: macro-F1 {found['macro_f1']:.3f}  {each}")
    for name in sorted(set(source)):
        cells = {
            label: round(float((guess[k] == label).mean()), 2)
            for label in CLASSES
            if (k := (source == name) & (truth == label)).any()
        }
        found["recall"][name] = cells
        print(f"    {name:18s} {cells}")
    return found


def measure(rows: Rows, mix: np.ndarray, group: np.ndarray, extra: Rows) -> tuple[np.ndarray, dict[str, Any]]:
    """Out-of-fold scores of the mixed set by both methods, printed."""
    fold = np.random.RandomState(0).randint(5, size=group.max() + 1)[group]
    by_pair = np.zeros((len(mix), 3))
    for k in range(5):
        here = (fold == k) & mix
        by_pair[here] = scores(fit(join(take(rows, fold != k), extra)), rows.x[here])
    by_source = np.zeros((len(mix), 3))
    for name in sorted(set(rows.source[mix])):
        family = FAMILIES.get(name, (name,))
        here = mix & (rows.source == name)
        rest = ~np.isin(rows.source, family) & ~np.isin(group, group[here])
        models = fit(join(take(rows, rest), take(extra, ~np.isin(extra.source, family))))
        by_source[here] = scores(models, rows.x[here])
    truth, source = rows.label[mix], rows.source[mix]
    found = {
        "held out by pair": report("held out by pair", truth, by_pair[mix], source),
        "held out by source": report("held out by source", truth, by_source[mix], source),
    }
    return np.stack([by_pair[mix], by_source[mix]]), found


def calibration(raw: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """A map from scores to log-odds, fitted on held-out scores.

    One scale for all classes: it makes the probabilities honest without moving the borders between classes towards
    the shares that the mixed set happens to have. Rows of questions are left out.
    """
    plain = raw[:, 1] > -9.0
    raw, place = raw[plain], np.array([CLASSES.index(t) for t in truth[plain]])

    def loss(scale: float) -> float:
        logits = raw * scale
        top = logits.max(1, keepdims=True)
        return float(
            (np.log(np.exp(logits - top).sum(1)) + top[:, 0] - logits[np.arange(len(raw)), place]).mean()
        )

    best = min(np.arange(0.3, 2.0, 0.01), key=loss)
    return np.vstack([np.eye(3) * best, np.zeros((1, 3))]).astype(np.float32)


class Nodes(NamedTuple):
    """The nodes of all trees. Two children each: where its value is at most the threshold, and where it is more."""

    feature: np.ndarray
    threshold: np.ndarray
    children: np.ndarray
    """Those of a leaf are itself."""
    value: np.ndarray
    roots: np.ndarray


def flatten(models: Sequence[lgb.Booster]) -> dict[str, np.ndarray]:
    """All trees as arrays; a leaf is its own child, so that a fixed number of steps ends in one."""
    feature, threshold, children, value, roots, bounds, depth = [], [], [], [], [], [], 0

    def add(node: dict[str, Any], level: int) -> int:
        nonlocal depth
        depth, place = max(depth, level), len(feature)
        for column, item in ((feature, 0), (threshold, 0.0), (children, [place, place]), (value, 0.0)):
            column.append(item)
        if "leaf_value" in node:
            value[place] = node["leaf_value"]
        else:
            feature[place], threshold[place] = node["split_feature"], node["threshold"]
            children[place] = [add(node["left_child"], level + 1), add(node["right_child"], level + 1)]
        return place

    for model in models:
        bounds.append(len(roots))
        for tree in model.dump_model()["tree_info"]:
            roots.append(add(tree["tree_structure"], 0))
    if depth > LEVELS:
        raise ValueError(f"the conflict model has trees of more than {LEVELS} levels")
    nodes = Nodes(
        np.array(feature, np.uint8),
        np.array(threshold, np.float32),
        np.array(children, np.intp),
        np.array(value, np.float32),
        np.array(roots, np.intp),
    )
    return {
        **ruled(nodes),
        "bounds": np.array(bounds, np.uint16),
        "names": np.frombuffer(" ".join(NAMES).encode(), np.uint8),
        "fingerprint": np.frombuffer(StaticEmbedder().fingerprint.encode(), np.uint8),
    }


def ruled(nodes: Nodes) -> dict[str, np.ndarray]:
    """Trees as they are evaluated: which leaves a condition rules out where it is met.

    Every condition with its feature, threshold and where its nodes end; the tree of each node and a bit for every
    leaf that it leaves; the leaves, sixty-four per tree.
    """
    thresholds = nodes.threshold + np.float32(0)  # of two zeros there is one
    conditions = np.stack([nodes.feature, thresholds], axis=1).astype(np.float64)
    _, first, which = np.unique(conditions, axis=0, return_index=True, return_inverse=True)
    node, asked, trees, stays = nodes.roots, [], [], []
    for level in range(LEVELS):
        below = nodes.children[node]
        real = np.flatnonzero(below[:, 0] != node)
        half = 1 << (LEVELS - 1 - level)
        at = (real % (1 << level)) * 2 * half
        asked.append(which.reshape(-1)[node[real]])
        trees.append(real >> level)
        stays.append(~(np.uint64((1 << half) - 1) << at.astype(np.uint64)))
        node = below.reshape(-1)
    every = np.concatenate(asked)
    order = np.argsort(every, kind="stable")
    return {
        "stays": np.concatenate(stays)[order],
        "leaves": nodes.value[node].reshape(len(nodes.roots), -1),
        "threshold": thresholds[first],
        "tree": np.concatenate(trees)[order].astype(np.uint16),
        "ends": np.cumsum(np.bincount(every, minlength=len(first))).astype(np.uint32),
        "feature": nodes.feature[first],
    }


def main() -> None:
    """Measure, train on everything, write."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--report", type=Path, help="write the measurements here as JSON")
    options.add_argument(
        "--scores", type=Path, help="write held-out scores and rows here, for choosing thresholds"
    )
    args = options.parse_args()
    arrays = word_arrays(args.data)
    words = word_table(arrays)
    pairs = labelled(args.data)
    rows = rows_of(pairs, words, made_up=False)
    common = bytes(arrays["stems"]).decode().split("\n")
    extra = rows_of(made(args.data, common), words, made_up=True)
    print(f"{len(pairs)} labelled pairs, {len(extra.x)} made; sentences cut from {len(LONG)} corpora")
    mix = np.array([p.mix for p in pairs])
    held_out, found = measure(rows, mix, components(pairs), extra)
    truth = np.concatenate([rows.label[mix]] * 2)
    arrays["calibration"] = calibration(np.concatenate(list(held_out)), truth)
    arrays |= flatten(fit(join(rows, extra)))
    OUT.parent.mkdir(exist_ok=True)
    write_arrays(str(OUT), arrays)
    print(f"{OUT.name}: {OUT.stat().st_size / 1024:.0f} KB")
    if args.report:
        args.report.write_text(json.dumps(found, indent=1))
    if args.scores:
        np.savez_compressed(
            args.scores, held_out=held_out, x=rows.x[mix], truth=rows.label[mix], source=rows.source[mix]
        )


if __name__ == "__main__":
    main()
