"""Write `semantics/data/*.stems`: the stems of the lists of opposites and of synonyms.

    python scripts/build_stems.py

To be run whenever a list of words, or how words are stemmed, changes; a test says so.
"""

from __future__ import annotations

from pathlib import Path

from skep.semantics import lexicon as lx


def write(name: str) -> None:
    """Write the stems of one list, each pair once."""
    pairs = sorted({(min(pair), max(pair)) for pair in lx.listed(name)})
    head = "# Stems of WordNet 3.0, Copyright 2006 by Princeton University, and of our own lists; see NOTICE."
    lines = [head, *(f"{a} {b}" for a, b in pairs)]
    (Path(lx.DATA) / f"{name}.stems").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in ("antonyms", "synonyms"):
        write(name)
