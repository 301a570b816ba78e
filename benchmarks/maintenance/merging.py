"""How many planted copies maintenance merges, what it merges wrongly, and what it does with labelled pairs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.maintenance.planted import Planted, planted
from skep.bank.bank import Bank
from skep.semantics.find_conflicts import same_words


def planted_copies(originals: int, seed: int, *, edits: int = 1) -> dict[str, Any]:
    """Maintain a made bank, and count which texts ended up as one."""
    items = planted(originals, seed, edits=edits)
    with Bank.open(":memory:") as bank:
        ids = [each.memory.id for each in bank.remember_many([item.text for item in items])]
        bank.maintain()
        merged = {i: memory.merged_into for i in ids if (memory := bank.get(i)).merged_into is not None}
    return count(items, ids, merged) | {"originals": originals, "seed": seed, "edits": edits}


def count(items: Sequence[Planted], ids: Sequence[str], merged: dict[str, str]) -> dict[str, Any]:
    """Copies that were merged with their original, by kind of copy; and merges of different statements."""
    item_of = dict(zip(ids, items, strict=True))
    kept = {i: _end(i, merged) for i in ids}
    groups: dict[int, set[str]] = {}
    for i, item in item_of.items():
        groups.setdefault(item.origin, set()).add(kept[i])
    planted_in, found = Counter[str](), Counter[str]()
    for item in items:
        if item.edit != "original" and not item.edit.startswith("not: "):
            planted_in[item.edit] += 1
            found[item.edit] += len(groups[item.origin]) == 1
    wrong = [
        (item_of[i].text, item_of[kept[i]].text)
        for i in merged
        if item_of[i].origin != item_of[kept[i]].origin
    ]
    total, right = sum(planted_in.values()), sum(found.values())
    return {
        "copies": total,
        "merged": round(right / total, 4) if total else None,
        "merges": len(merged),
        "wrong": len(wrong),
        "wrong_share": round(len(wrong) / len(merged), 4) if merged else 0.0,
        "near_misses": sum(item.edit.startswith("not: ") for item in items),
        "by_edit": {kind: [found[kind], planted_in[kind]] for kind in sorted(planted_in)},
        "wrong_pairs": wrong[:20],
    }


def _end(memory_id: str, merged: dict[str, str]) -> str:
    while memory_id in merged:
        memory_id = merged[memory_id]
    return memory_id


def labelled_pairs(root: Path) -> dict[str, Any]:
    """Precision and recall of merging without asking, per source of the mixed set."""
    with gzip.open(root / "conv" / "pairmix3" / "pairs.jsonl.gz", "rt", encoding="utf-8") as lines:
        pairs = [json.loads(line) for line in lines]
    tally: dict[str, Counter[str]] = {}
    for pair in pairs:
        merged = same_words(pair["a"], pair["b"])
        here = tally.setdefault(pair["source"], Counter())
        here["pairs"] += 1
        here["duplicates"] += pair["label"] == "duplicate"
        here["merged"] += merged
        here["right"] += merged and pair["label"] == "duplicate"
    tally["all"] = sum(tally.values(), Counter[str]())
    return {
        source: {
            "pairs": c["pairs"],
            "duplicates": c["duplicates"],
            "merged": c["merged"],
            "precision": round(c["right"] / c["merged"], 4) if c["merged"] else None,
            "recall": round(c["right"] / c["duplicates"], 4) if c["duplicates"] else None,
        }
        for source, c in sorted(tally.items())
    }
