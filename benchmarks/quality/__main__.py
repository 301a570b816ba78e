"""`python -m benchmarks.quality`: every preset and peer ranker on labelled sets, as JSON and Markdown."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.given import place
from benchmarks.given import results as stored
from benchmarks.quality import sets
from benchmarks.quality.evaluate import evaluate
from benchmarks.quality.rankers import CHROMA, WITH_TABLE, prepare
from benchmarks.quality.report import markdown, summary
from benchmarks.quality.through_bank import prepare_bank
from benchmarks.speed import machine
from skep.errors import EmbedderUnavailableError
from skep.retrieval.recall_config import PRESETS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results"
PART = Path(__file__).parent / "results-part"
"""Where a run of some sets or rankers goes, so that it does not take the place of a whole one."""
ALL = ("bm25", "vectors", "mem0", *PRESETS, WITH_TABLE)


def main(arguments: list[str] | None = None) -> int:
    """Run; a model that is not there is said in words."""
    try:
        return measure(arguments)
    except EmbedderUnavailableError as error:
        raise SystemExit(str(error)) from error


def measure(arguments: list[str] | None) -> int:
    """Run, print the overview, write the results."""
    given = _parser().parse_args(arguments)
    root = Path(given.data) if given.data else None
    known = ["own", *(sets.names(root) if root is not None else ())]
    if root is not None and len(known) == 1:
        raise SystemExit(
            f"there are no sets under {root}: each is a folder in its `conv` with queries.jsonl.gz"
        )
    chosen: list[str] = given.sets or known
    unknown = [name for name in chosen if name not in known]
    if unknown and root is not None:
        raise SystemExit(f"no set {unknown[0]!r} under {root}; there are {', '.join(known)}")
    whole = not given.presets and not given.bank and _published() <= set(chosen)
    out = Path(given.out or (RESULTS if whole or given.merge else PART))
    page = out / "quality.json"
    kept: dict[str, Any] = stored(page, "quality", "sets", "commit") if given.merge else {"sets": {}}
    place(page)
    commit = _commit()
    wanted = given.presets or ((*ALL, CHROMA) if given.model else ALL)
    refused = [name for name in wanted if given.bank and given.presets and name not in PRESETS]
    if refused:
        raise SystemExit(f"a bank has no preset {refused[0]!r}; there are {', '.join(PRESETS)}")
    results: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit,
        "environment": machine.describe() | machine.commit(ROOT, "benchmarks/quality"),
        "how": "through a bank" if given.bank else "in one process, without a store",
        "sets": _dated(kept),
    }
    for name in chosen:
        data = _loaded(root, name)
        rankers = (
            prepare_bank(data, given.presets)
            if given.bank
            else prepare(data, wanted, Path(given.model) if given.model else None)
        )
        for title, asked in _variants(data, root, federated=given.federated):
            found = evaluate(asked, rankers)
            for each in found.values():
                each["commit"] = commit
            results["sets"][title] = results["sets"].get(title, {}) | found
            for ranker, each in found.items():
                print(_line(title, ranker, each), flush=True)
        _write(results, out)  # after every set: a long run that is stopped keeps what it has
    print(f"written to {out}; `python -m benchmarks.report` takes what is in {RESULTS.name}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--data", help="folder of the sets (its `conv/` holds one folder per set)")
    parser.add_argument("--sets", nargs="*", help="which sets; `own` is the project's own; all by default")
    parser.add_argument("--presets", nargs="*", help=f"which rankers, of {', '.join(ALL)}; all by default")
    parser.add_argument(
        "--model",
        help=f"folder of the published MiniLM (see scripts/build_minilm_int8.py); adds {CHROMA}",
    )
    parser.add_argument("--bank", action="store_true", help="ask a real bank, not the in-process index")
    parser.add_argument("--federated", action="store_true", help="also without scopes, where a set has them")
    parser.add_argument("--merge", action="store_true", help="keep what is there of other sets and rankers")
    parser.add_argument(
        "--out",
        help="where quality.json, quality.md and summary.md go; for a part of a whole run `results-part` by default",
    )
    return parser


def _write(results: dict[str, Any], out: Path) -> None:
    """The figures, and the pages made of them."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "quality.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (out / "quality.md").write_text(markdown(results), encoding="utf-8")
    (out / "summary.md").write_text(summary(results), encoding="utf-8")


def _published() -> set[str]:
    """The sets in the committed results."""
    there = RESULTS / "quality.json"
    titles: list[str] = list(json.loads(there.read_text())["sets"]) if there.exists() else ["own"]
    return {title.removesuffix(" (federated)") for title in titles}


def _variants(
    data: sets.EvalSet, root: Path | None, *, federated: bool
) -> Iterator[tuple[str, sets.EvalSet]]:
    """The set as it is, and without its scopes where it has any: the memories are the same, the questions ask more."""
    yield data.name, data
    if federated and data.scoped:
        name = data.name
        yield f"{name} (federated)", _loaded(root, name, federated=True)


def _dated(kept: dict[str, Any]) -> dict[str, Any]:
    """What is kept of earlier runs, each figure with the commit it was taken at."""
    for found in kept["sets"].values():
        for each in found.values():
            each.setdefault("commit", kept["commit"])
    return kept["sets"]


def _loaded(root: Path | None, name: str, *, federated: bool = False) -> sets.EvalSet:
    if name == "own":
        return sets.load_own(federated=federated)
    if root is None:
        raise SystemExit("these sets need --data, the folder they lie in")
    try:
        return sets.load(root, name, federated=federated)
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise SystemExit(
            f"the set {name!r} under {root} cannot be read ({type(error).__name__}: {error})"
        ) from error


def _line(title: str, ranker: str, each: dict[str, Any]) -> str:
    keys = ("recall@5", "recall@10", "recall@20", "ndcg@10", "mrr", "nudcg@10", "misled")
    figures = " ".join(f"{key} {each[key]:.3f}" for key in keys if key in each)
    quiet = f" quiet {each['abstained where right']:.2f}" if "abstained where right" in each else ""
    return f"{title:28s} {ranker:9s} {figures}{quiet} {each['ms']} ms"


def _commit() -> str:
    """The commit in short, with a mark where what is measured or measures differs from it."""
    found = machine.commit(ROOT, "benchmarks/quality")
    return (found["commit"][:7] or "unknown") + ("+" if found["dirty"] else "")


if __name__ == "__main__":
    sys.exit(main())
