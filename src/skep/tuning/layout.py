"""Laying out a workspace: empty with its schemas, or the example that ships with skep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from skep.tuning.files import write_json, write_text
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.schemas import FILES, config_schema
from skep.tuning.workspace import FOLDERS

STARTERS: dict[str, dict[str, Any]] = {
    "collections/knowledge-base.json": {
        "$schema": "./collection.schema.json",
        "name": "knowledge-base",
        "description": "What these documents are about.",
        "fields": {"title": {"type": "text"}, "category": {"type": "keyword", "filterable": True}},
        "chunking": {"strategy": "by_heading", "max_tokens": 512, "heading_level": 2},
    },
    "configs/naive.json": {
        "$schema": "./config.schema.json",
        "name": "naive",
        "note": "The usual start: words and meaning fused by rank, always ten results.",
        "collection": "knowledge-base",
        "retrieval": {"method": "hybrid", "top_k": 10, "fusion": "rrf", "rrf_k": 60},
        "filters": {},
        "dynamic_k": {"enabled": False, "gap_threshold_factor": 3.0, "min_results": 1, "max_results": 10},
        "distraction_detection": {"enabled": False, "disagreement_threshold": 0.7},
    },
}
IGNORED = "bank.skep*\n"


def init(root: Path, *, example: bool = False) -> list[str]:
    """Lay out a workspace and return the files written. Nothing is written if any of them exists already."""
    wanted: dict[str, str | Mapping[str, Any]] = {".gitignore": IGNORED}
    for folder, (name, schema) in FILES.items():
        wanted[f"{folder}/{name}"] = schema
    wanted |= dict(_example()) if example else STARTERS
    taken = sorted(path for path in wanted if (root / path).exists())
    if taken or (root.exists() and not root.is_dir()):
        what = f"{', '.join(taken[:5]) or root.name} exists already"
        fix = "choose an empty folder"
        raise RefusedError([Finding(code="not-empty", file="", what=what, fix=fix)])
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path, content in wanted.items():
        if isinstance(content, str):
            write_text(root / path, content)
        else:
            write_json(root / path, content)
    return sorted(wanted)


def offer_values(root: Path, values: Mapping[str, Sequence[str]]) -> None:
    """Write the filterable fields and their values into the schema of configs, for editors to complete."""
    name, _ = FILES["configs"]
    write_json(root / "configs" / name, config_schema(values))


def _example() -> Iterator[tuple[str, str]]:
    yield from _below(files("skep.tuning") / "example", "")


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in sorted(folder.iterdir(), key=lambda found: found.name):
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        elif not entry.name.endswith((".py", ".pyc")):
            yield f"{prefix}{entry.name}", entry.read_text(encoding="utf-8")
