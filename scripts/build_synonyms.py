"""Write `semantics/data/synonyms.txt`: pairs of words that WordNet puts together and that are used alike.

    python scripts/build_synonyms.py --data FOLDER

WordNet joins words in any of their senses ("save" and "write" share one). A pair is kept where the vectors of the
bundled table say that the common senses meet, or, with a lower bar, where one of the words has no other sense. FOLDER
holds the evaluation sets (conv/wordnet).
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import combinations
from pathlib import Path

from conflict_pairs import read

from skep.semantics import lexicon as lx
from skep.semantics import pair_model

OUT = Path(__file__).resolve().parent.parent / "src/skep/semantics/data/synonyms.txt"
NEAR, NEAR_IF_SINGLE = 0.45, 0.30
"""The least cosine of two words, and of two of which one has a single sense."""
LONGER = 3
"""A word that contains another and is so much longer is another word ("start", "startle")."""
APART = """king queen; human man; hour minute; days years; best better; learn teach; non not; old older; late later;
need want; now today; raise rise; deny refuse; boy son; daughter girl; baby child; keep prevent; black dark; dark night;
young youth; dice die; tom tomcat; always ever; person someone; individual someone; person somebody; age years; century
hundred; couple pair; double twice; male man; earlier earliest; ball baseball; bank deposit; back rear; below under;
king queen; mount mountain; cap capital; hit shoot; burn fire; fly wing; rail train; clock time; love passion; except
exclude; still yet; just only; merely only; just exactly; any whatever; back backward; back backwards; beginning first;
end last; final last; finally last; first foremost; future next; adjacent next; ahead before; before earlier; gift give;
ally friend; acquaintance friend; mate partner; partner spouse; couple mates; chair chairman; deputy lieutenant; judge
justice; patrol police; officer policeman; congressman representative; congresswoman representative; purple violet; red
crimson; gray white; autumn fall; min minute; bike cycle; bicycle cycle; bicycle wheel; cycle motorbike; class course;
class grade; chance probability; chance luck; bargain buy; buy steal; execution murder; city metropolis; single
unmarried; alone single; sell trade; bring take; come get; condition status; drive ride; decrease reduction; fresh new;
earth world; earth ground; forest wood; home household; family household; house household; operation surgery; insurance
policy; class classify; maybe possibly; likely probably; may might; deprecate depreciate; breast chest; injury wound;
temp temporary; week workweek; number numeral; second secondment; march marchland; glad gladiolus; hash hashish"""
"""Pairs that pass the bars and are not the same in a sentence."""


def pairs(root: Path) -> list[tuple[str, str]]:
    """The pairs to keep, sorted."""
    _, words = pair_model.load()
    together: Counter[tuple[str, str, str]] = Counter()
    senses: Counter[tuple[str, str]] = Counter()
    for row in read(root, "wordnet", "corpus"):
        part = row["id"].rstrip("0123456789")
        listed = sorted(
            {w for w in (w.strip() for w in row["text"].split(":", 1)[0].split(",")) if _plain(w)}
        )
        senses.update((part, word) for word in listed)
        together.update((part, a, b) for a, b in combinations(listed, 2))
    apart = {tuple(sorted(entry.split())) for entry in APART.replace("\n", " ").split(";")}
    groups = lx.exclusive_groups()
    kept: set[tuple[str, str]] = set()
    for (part, a, b), shared in together.items():
        stems = lx.stem(a), lx.stem(b)
        known = words.known(stems[0]) or words.known(stems[1])
        if not known or stems[0] == stems[1] or (a, b) in apart or lx.opposed(*stems):
            continue
        if (a in b or b in a) and abs(len(a) - len(b)) >= LONGER:
            continue
        if groups.get(stems[0]) is not None and groups.get(stems[1]) is not None:
            continue
        if not lx.NUMBER_WORDS.keys().isdisjoint((a, b)) or not lx.STOP.isdisjoint((a, b)):
            continue
        left, right = words.rows([a, b])
        single = shared >= min(senses[part, a], senses[part, b])
        if float(left @ right) >= (NEAR_IF_SINGLE if single else NEAR):
            kept.add((a, b))
    return sorted(kept)


def _plain(word: str) -> bool:
    return word.isalpha() and word.islower() and len(word) > 2


def main() -> None:
    """Select and write."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--data", type=Path, required=True)
    found = pairs(options.parse_args().data)
    head = "# Synonyms from WordNet 3.0, Copyright 2006 by Princeton University; see NOTICE. One pair per line.\n"
    OUT.write_text(head + "".join(f"{a} {b}\n" for a, b in found), encoding="utf-8")
    print(f"{OUT.name}: {len(found)} pairs, {OUT.stat().st_size / 1024:.0f} KB")


if __name__ == "__main__":
    main()
