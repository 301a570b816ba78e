"""Write dist/skep.cdx.json: what an installed skep consists of, as CycloneDX 1.6 (`make sbom`).

Read from the metadata of what is installed here: skep, the libraries that it needs, and theirs; `--extra NAME`
adds what an extra needs. Data of others inside the package (weights, word lists) are components as well;
NOTICE tells about them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OUT = Path(__file__).resolve().parents[1] / "dist" / "skep.cdx.json"
DATA: tuple[dict[str, Any], ...] = (
    {
        "type": "machine-learning-model",
        "bom-ref": "data:all-MiniLM-L6-v2",
        "name": "sentence-transformers/all-MiniLM-L6-v2",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
        "description": "Weights and vocabulary, changed: skep/embedding/data and skep/semantics/data/reader.bin",
    },
    {
        "type": "data",
        "bom-ref": "data:wordnet",
        "name": "WordNet",
        "version": "3.0",
        "licenses": [{"license": {"name": "WordNet 3.0 licence"}}],
        "description": "Opposites in skep/semantics/data/opposites.txt",
    },
)


def needed(name: str, extras: Sequence[str]) -> list[str]:
    """The names of what a package needs on this machine, with these extras."""
    found: list[str] = []
    for line in metadata.requires(name) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.append(canonicalize_name(requirement.name))
    return found


def component(name: str) -> dict[str, Any]:
    """One installed package."""
    about = metadata.metadata(name)
    licence = about.get("License-Expression") or about.get("License") or "see the package"
    purl = f"pkg:pypi/{canonicalize_name(about['Name'])}@{about['Version']}"
    known: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": about["Name"],
        "version": about["Version"],
        "purl": purl,
    }
    if about.get("License-Expression"):
        return known | {"licenses": [{"expression": licence}]}
    return known | {"licenses": [{"license": {"name": licence.splitlines()[0][:200]}}]}


def bill(extras: Sequence[str]) -> dict[str, Any]:
    """The bill of materials of skep as it is installed here."""
    parts: dict[str, dict[str, Any]] = {}
    edges: dict[str, list[str]] = {}
    waiting = ["skep"]
    while waiting:
        name = waiting.pop()
        if name in edges:
            continue
        parts[name] = component(name)
        edges[name] = needed(name, extras if name == "skep" else ())
        waiting += edges[name]
    refs = {name: part["bom-ref"] for name, part in parts.items()}
    graph = [
        {"ref": refs[name], "dependsOn": sorted(refs[each] for each in edges[name])} for name in sorted(edges)
    ]
    graph[[each["ref"] for each in graph].index(refs["skep"])]["dependsOn"] += [
        part["bom-ref"] for part in DATA
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": parts.pop("skep") | {"type": "library"}},
        "components": [*(parts[name] for name in sorted(parts)), *DATA],
        "dependencies": graph,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the file and name it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--extra", action="append", default=[], help="with what this extra needs; may come again"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    try:
        made = bill(given.extra)
    except metadata.PackageNotFoundError as missing:
        raise SystemExit(
            f"{missing.name} is not installed here: pip install '.[{','.join(given.extra)}]'"
        ) from missing
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(given.out, f"({len(made['components'])} components)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
