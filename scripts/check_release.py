"""Refuse a release whose tag, version and changelog do not agree: python scripts/check_release.py v0.1.0

The version stands in one place, `src/skep/__init__.py`. `CHANGELOG.md` has a chapter for each release, such as
`## 0.1.0 (2026-12-01)`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def findings(tag: str, package: str, changelog: str) -> list[str]:
    """What does not agree, and what to do about it."""
    version = re.search(r'^__version__ = "(.+)"$', package, re.MULTILINE)
    if version is None:
        return ["src/skep/__init__.py has no __version__"]
    wrong: list[str] = []
    if tag != f"v{version[1]}":
        wrong.append(
            f"the tag is {tag}, __version__ is {version[1]}: mend src/skep/__init__.py, or tag v{version[1]}"
        )
    first = re.search(r"^## (.+)$", changelog, re.MULTILINE)
    if first is None or not re.fullmatch(rf"{re.escape(version[1])} \(\d{{4}}-\d\d-\d\d\)", first[1]):
        wrong.append(f"the first chapter of CHANGELOG.md has to be `## {version[1]} (YYYY-MM-DD)`")
    return wrong


if __name__ == "__main__":
    found = findings(
        sys.argv[1],
        (ROOT / "src" / "skep" / "__init__.py").read_text(encoding="utf-8"),
        (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    )
    if found:
        raise SystemExit("\n".join(found))
