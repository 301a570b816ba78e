"""Work out the prices in `skep/text/terms.py` with a real tokenizer (needs `rs-bpe` and folders of text and code).

    python scripts/fit_tokens.py FILE_OR_FOLDER...

Each path is a set of its own and weighs as much as any other. Prints the prices, and how far off each set is when the
prices come from the others alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from functools import cache
from pathlib import Path

from rs_bpe import openai  # pyright: ignore

from skep.text.terms import LONGEST, PIECES, kind_of

tokenizer = openai.o200k_base()  # pyright: ignore
Totals = tuple[Counter[str], Counter[str]]
"""Per kind of piece: how many units there are, and how many tokens they take."""


@cache
def tokens_of(piece: str) -> int:
    """What the tokenizer makes of one piece."""
    return len(tokenizer.encode(piece))  # pyright: ignore


def totals(text: str) -> Totals:
    """The pieces of a text, counted by kind."""
    units, tokens = Counter[str](), Counter[str]()
    for piece in PIECES.findall(text):
        kind, size = kind_of(piece)
        units[kind] += size
        tokens[kind] += tokens_of(piece)
    return units, tokens


def prices(sets: list[Totals]) -> dict[str, float]:
    """Tokens per unit of each kind; every set weighs the same, and a longer word never costs less."""
    units, tokens = Counter[str](), Counter[str]()
    for counted, taken in sets:
        whole = sum(counted.values())
        for kind in counted:
            units[kind] += counted[kind] / whole  # pyright: ignore
            tokens[kind] += taken[kind] / whole  # pyright: ignore
    found = {kind: tokens[kind] / units[kind] for kind in units}
    for row in sorted({kind[:2] for kind in found if kind[2:].isdigit()}):
        kinds = [f"{row}{size:02d}" for size in range(1, LONGEST)]
        blocks: list[
            list[float]
        ] = []  # mean, weight, how many kinds: neighbours in the wrong order are pooled
        for kind in kinds:
            blocks.append([found.get(kind, 1.0), units.get(kind, 0) + 1e-9, 1])
            while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
                mean, weight, count = blocks.pop()
                before = blocks[-1]
                whole = before[1] + weight
                blocks[-1] = [(before[0] * before[1] + mean * weight) / whole, whole, before[2] + count]
        found.update(zip(kinds, (block[0] for block in blocks for _ in range(int(block[2]))), strict=True))
    return found


def read(path: Path) -> str:
    """A file, or every file below a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return "\n".join(file.read_text(errors="ignore") for file in files if file.is_file())


def main() -> None:
    """Work the prices out, and print them with the errors."""
    texts = {name: read(Path(name)) for name in sys.argv[1:]}
    sets = {name: totals(text) for name, text in texts.items()}
    found = prices(list(sets.values()))
    for row in sorted({kind[:2] for kind in found if kind[2:].isdigit()}):
        print(
            f'    "{row}": ('
            + ", ".join(f"{found[f'{row}{size:02d}']:.2f}" for size in range(1, LONGEST + 1))
            + "),"
        )
    print({kind: round(price, 2) for kind, price in sorted(found.items()) if not kind[2:].isdigit()})
    for name, text in texts.items():
        others = prices([one for other, one in sets.items() if other != name])
        guess = sum(others.get(kind, 1.0) * size for kind, size in sets[name][0].items())
        print(f"{name}: {guess / len(tokenizer.encode(text)) - 1:+.1%}")  # pyright: ignore


if __name__ == "__main__":
    main()
