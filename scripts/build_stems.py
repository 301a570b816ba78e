"""Write `semantics/data/*.stems`: the stems of the lists of opposites and of synonyms.

    python scripts/build_stems.py

To be run whenever a list of words, or how words are stemmed, changes; a test says so.
"""

from __future__ import annotations

from pathlib import Path

from skep.semantics import lexicon as lx


def write(name: str) -> None:
    """Write the stems of one list: each in a line of its own, with those that it is listed with."""
    others: dict[str, set[str]] = {}
    for a, b in lx.listed(name):
        others.setdefault(a, set()).add(b)
        others.setdefault(b, set()).add(a)
    head = "# Stems of WordNet 3.0, Copyright 2006 by Princeton University, and of our own lists; see NOTICE."
    lines = [head, *sorted(" ".join((stem, *sorted(listed))) for stem, listed in others.items())]
    (Path(lx.DATA) / f"{name}.stems").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name in ("antonyms", "synonyms"):
        write(name)
