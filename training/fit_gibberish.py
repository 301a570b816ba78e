"""Fit the model of `skep.text.gibberish`: `python -m training.fit_gibberish DATA`.

Real texts come from the corpora of the data folder, at most `EACH` of each; what tells nothing is written here, by
eight writers. The report leaves one writer or a fifth of the corpora out at a time: how much of what it has not seen is
found, and how many real texts of corpora it has not seen are refused. It goes to `training/GIBBERISH.md`, the weights
into the package.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np

from skep.text import gibberish
from skep.text.gibberish import BUCKETS, SCALE, features

EACH = 300
WRITTEN = 800
"""Texts of each writer."""
ROUNDS, RATE, DECAY = 120, 0.5, 1e-5
FOLDS = 5
"""Corpora are left out in so many groups."""
REFUSED = 0.004
"""The share of real texts that may be refused, from which the bias follows."""
UNSEEN_REFUSED = 0.008
"""The same of corpora that were left out, from which a margin follows that the model keeps."""
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm", "1234567890")
VAGUE = [
    "stuff",
    "thing",
    "things",
    "idk",
    "maybe",
    "whatever",
    "something",
    "somehow",
    "anything",
    "everything",
    "kinda",
    "sorta",
    "like",
    "yeah",
    "ok",
    "okay",
    "so",
    "well",
    "um",
    "uh",
    "hmm",
    "lol",
    "etc",
    "anyway",
    "i",
    "guess",
    "dunno",
    "meh",
    "some",
    "any",
    "just",
    "really",
    "basically",
    "you",
    "know",
    "i",
    "mean",
    "or",
    "not",
    "blah",
    "that",
    "this",
    "it",
    "is",
    "and",
    "then",
    "nothing",
    "much",
    "nvm",
    "fine",
    "sure",
    "cool",
    "nice",
    "hm",
]
SYLLABLES = [
    "bla",
    "blah",
    "la",
    "na",
    "da",
    "ya",
    "yada",
    "foo",
    "bar",
    "baz",
    "qux",
    "test",
    "xx",
    "abc",
    "lol",
    "ha",
    "hah",
    "he",
    "wow",
    "uh",
    "mm",
    "tra",
    "lorem",
    "ipsum",
    "dolor",
]


def keyboard(rng: Random, _real: Sequence[str]) -> str:
    """Fingers rolling over a row of keys."""
    words = []
    for _ in range(rng.randrange(1, 7)):
        row = rng.choice(ROWS[:3])
        at, size = rng.randrange(len(row) - 2), rng.randrange(3, 8)
        word = (row[at : at + rng.randrange(2, 6)] * 4)[:size]
        words.append(word if rng.random() < 0.7 else word[::-1])
    return " ".join(words if rng.random() < 0.6 else [words[0]] * len(words))


def letters(rng: Random, _real: Sequence[str]) -> str:
    """Letters by chance."""
    return " ".join(
        "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 11)))
        for _ in range(rng.randrange(1, 8))
    )


def consonants(rng: Random, _real: Sequence[str]) -> str:
    """No vowel anywhere."""
    return " ".join(
        "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=rng.randrange(3, 9)))
        for _ in range(rng.randrange(1, 7))
    )


def syllables(rng: Random, _real: Sequence[str]) -> str:
    """Sounds over and over."""
    chosen = rng.sample(SYLLABLES, rng.randrange(1, 3))
    return " ".join(rng.choice(chosen) * rng.choice((1, 1, 2, 3)) for _ in range(rng.randrange(2, 9)))


def vague(rng: Random, _real: Sequence[str]) -> str:
    """Words that could mean anything."""
    return " ".join(rng.choices(VAGUE, k=rng.randrange(3, 10))) + rng.choice(("", "...", "?", "!"))


def runs(rng: Random, _real: Sequence[str]) -> str:
    """One character, held down."""
    return " ".join(rng.choice("abcdehimoxz!?.") * rng.randrange(3, 15) for _ in range(rng.randrange(1, 6)))


def shuffled(rng: Random, real: Sequence[str]) -> str:
    """The letters of each word of a real text, in any order."""
    words = rng.choice(real).split()[:10]
    return (
        " ".join("".join(rng.sample(word.lower(), len(word))) for word in words if word.isalpha()) or "xq zt"
    )


def chained(rng: Random, real: Sequence[str]) -> str:
    """Each letter one that may follow the one before."""
    text = " ".join(rng.choice(real) for _ in range(4)).lower()
    follows: dict[str, str] = {}
    for one, two in pairwise(text):
        follows[one] = follows.get(one, "") + two
    out = rng.choice("abcdefgst")
    while len(out) < 40:
        out += rng.choice(follows.get(out[-1], " "))
    return " ".join(word for word in out.split() if word.isalpha()) or "eth ino"


WRITERS: dict[str, Callable[[Random, Sequence[str]], str]] = {
    each.__name__: each for each in (keyboard, letters, consonants, syllables, vague, runs, shuffled, chained)
}


def vector(text: str) -> np.ndarray:
    """The mean of the buckets of a text."""
    found = np.fromiter(features(text), np.int64)
    return np.bincount(found, minlength=BUCKETS).astype(np.float32) / len(found)


def fitted(rows: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and bias by logistic regression, both kinds weighing the same."""
    weights, bias = np.zeros(BUCKETS, np.float32), 0.0
    first, second, moved, spread = np.zeros(BUCKETS), np.zeros(BUCKETS), 0.0, 0.0
    share = np.where(wrong, 0.5 / max(1, wrong.sum()), 0.5 / max(1, (~wrong).sum())).astype(np.float32)
    for step in range(1, ROUNDS + 1):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights + bias, -30, 30)))
        error = share * (chance - wrong)
        slope, push = rows.T @ error + DECAY * weights, float(error.sum())
        first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
        moved, spread = 0.9 * moved + 0.1 * push, 0.99 * spread + 0.01 * push**2
        even, wide = 1 - 0.9**step, 1 - 0.99**step
        weights = weights - RATE * (first / even) / (np.sqrt(second / wide) + 1e-8)
        weights = np.clip(weights, -SCALE, SCALE).astype(np.float32)
        bias -= RATE * (moved / even) / ((spread / wide) ** 0.5 + 1e-8)
    weights = np.rint(weights * 127 / SCALE) * SCALE / 127
    real = np.sort(rows[~wrong] @ weights)[::-1]
    return weights, -float(real[int(REFUSED * len(real))]) - 1e-3


def main(folder: Path) -> None:
    """Fit, report, write."""
    rng = Random(7)
    real: dict[str, list[str]] = {}
    for path in sorted((folder / "conv").glob("*/corpus.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            texts = [json.loads(line)["text"].strip()[:600] for line in lines]
        texts = [text for text in texts if len(text.split()) >= 3]
        real[path.parent.name] = rng.sample(texts, min(EACH, len(texts)))
    every = [text for texts in real.values() for text in texts]
    made = {name: [write(rng, every) for _ in range(WRITTEN)] for name, write in WRITERS.items()}
    good = {name: np.stack([vector(text) for text in texts]) for name, texts in real.items()}
    bad = {name: np.stack([vector(text) for text in texts]) for name, texts in made.items()}

    def fit(without: Sequence[str] = ()) -> tuple[np.ndarray, float]:
        some = [rows for name, rows in good.items() if name not in without]
        others = [rows for name, rows in bad.items() if name not in without]
        rows = np.concatenate([*some, *others])
        wrong = np.arange(len(rows)) >= sum(map(len, some))
        return fitted(rows, wrong)

    told = ["| left out | texts | counted as gibberish |", "|---|---:|---:|"]
    refused = total = 0
    folds = [[name] for name in bad] + [list(good)[start::FOLDS] for start in range(FOLDS)]
    scores: dict[str, np.ndarray] = {}
    for fold in folds:
        weights, bias = fit(fold)
        for name in fold:
            scores[name] = (bad[name] if name in bad else good[name]) @ weights + bias
            print(name, f"{100 * float((scores[name] > 0).mean()):.1f} %", flush=True)
    unseen = np.sort(np.concatenate([scores[name] for name in good]))[::-1]
    margin = max(0.0, float(unseen[int(UNSEEN_REFUSED * len(unseen))]))
    refused, total = int((unseen > margin).sum()), len(unseen)
    told = ["| left out | texts | counted as gibberish |", "|---|---:|---:|"]
    for name, found in scores.items():
        share = 100 * float((found > margin).mean())
        told.append(f"| {'writer' if name in bad else 'corpus'} `{name}` | {len(found):,} | {share:.1f} % |")
    weights, bias = fit()
    bias -= margin
    data = (np.rint(weights * 127 / SCALE).astype(np.int8)).tobytes()
    Path(gibberish._FILE).write_bytes(data + int(bias * 256).to_bytes(4, "big", signed=True))
    share = 100 * refused / total
    summary = f"Real texts of a corpus that was left out: {refused:,} of {total:,} refused ({share:.2f} %)."
    print(summary)
    page = Path(__file__).parent / "GIBBERISH.md"
    page.write_text(f"{HEAD}\n{summary}\n\n" + "\n".join(told) + "\n", encoding="utf-8")


HEAD = """# Gibberish

`python -m training.fit_gibberish DATA` fits the model of `skep.text.gibberish` and writes this page. The texts that
tell nothing come from eight writers in that file, the real ones from public corpora of the data folder, at most 300 of
each. One writer, or a fifth of the corpora, is left out at a time and then counted. The bar is set on the corpora left
out, so their share is a little too good; the writers are not used for it.

What the model cannot see: real words in an order that makes no sense, and confident nonsense. It knows English: a short
sentence in another language, a command or a line of code looks strange to it ("Use ruff" .66, "Ana ist allergisch gegen
Nüsse" .60). So the gateway of a hive refuses from .9 on, and only
what says little by its other measures, too. The table counts from .5 on. Of texts in vague words alone ("stuff idk maybe
whatever", .75) the gateway's measure of quality refuses 79 % (21 % before its list of such words was made longer). Of
36,956 real texts (2,000 of each corpus at most) the gateway as a whole refuses 1.02 % (.97 % before); without `clinc150`,
commands to an assistant that nobody would keep ("maybe", "not sure"), .76 % (.75 %). Most of them are sentences of two or
three short words, such as "Use ruff" or "I like cats" (12.5 % of `msc_personas`): give a reason or a title with those.
"""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
