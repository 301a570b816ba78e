"""Fit the prices in `skep/tokens.py` against a real tokenizer (needs `rs-bpe` and folders of text and code).

    python scripts/fit_tokens.py FILE_OR_FOLDER...

Half of the chunks are fitted, the other half is reported on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rs_bpe import openai  # pyright: ignore

from skep.tokens import PIECES, WORD_PRICES

LIMITS = [most for most, _ in WORD_PRICES]
NAMES = [*(f"word up to {most}" for most in LIMITS), "letters of a long word", "capitals", "number", "break", "blanks",
         "wide", "one mark", "two marks", "marks of more"]  # fmt: skip
CHUNK = 4000


def features(text: str) -> list[float]:
    """How much of each kind of piece there is."""
    counts = [0.0] * len(NAMES)
    for piece in PIECES.findall(text):
        first = piece[0]
        if not first.isascii():
            counts[12] += 1
        elif first.isalpha():
            if len(piece) > 1 and piece.isupper():
                counts[8] += len(piece)
            elif len(piece) <= LIMITS[-1]:
                counts[next(i for i, most in enumerate(LIMITS) if len(piece) <= most)] += 1
            else:
                counts[7] += len(piece)
        elif first.isdigit():
            counts[9] += 1
        elif first in "\n":
            counts[10] += 1
        elif first in " \t":
            counts[11] += 1
        else:
            counts[12 + min(len(piece), 3)] += 1 if len(piece) < 3 else len(piece)
    return counts


def main() -> None:
    """Fit, and print prices and errors."""
    paths = [Path(name) for name in sys.argv[1:]]
    files = [f for p in paths for f in (sorted(p.rglob("*")) if p.is_dir() else [p]) if f.is_file()]
    texts = [f.read_text(errors="ignore") for f in files]
    chunks = [text[i : i + CHUNK] for text in texts for i in range(0, len(text), CHUNK)]
    tokenizer = openai.o200k_base()
    counted = np.array([len(tokenizer.encode(chunk)) for chunk in chunks], dtype=float)
    table = np.array([features(chunk) for chunk in chunks])
    weight = 1 / np.sqrt(np.maximum(counted, 1))
    fitted = np.arange(len(chunks)) % 2 == 0
    left, right = table[fitted] * weight[fitted, None], counted[fitted] * weight[fitted]
    prices = np.clip(np.linalg.solve(left.T @ left + 0.01 * np.eye(len(NAMES)), left.T @ right), 0, None)
    guess, truth = table[~fitted] @ prices, counted[~fitted]
    for name, price in zip(NAMES, prices, strict=True):
        print(f"{name:>24} {price:.3f}")
    print(f"total {guess.sum() / truth.sum() - 1:+.3%}, median {np.median(abs(guess / truth - 1)):.3%}")


if __name__ == "__main__":
    main()
