"""Build the site of the documentation into build/site (`make site`), by Zensical and mkdocs.yml.

Pages in `BESIDE` become pages of the site. A link to any other file outside docs/ leads to its place in the repository
on the web. The site fetches nothing from elsewhere when it is read; a page that does is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = ROOT / "build" / "pages"
SITE = ROOT / "build" / "site"
REPOSITORY = "https://github.com/skep-memory/skep"
BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)")
FETCHED = re.compile(
    rb"""<(?:script|img|iframe)[^>]+src=["']?(?:https?:)?//[^"' >]+"""
    rb"""|<link[^>]+rel=["']?(?:stylesheet|preconnect|icon)[^>]+(?:https?:)?//[^"' >]+"""
    rb"""|url\(["']?(?:https?:)?//[^)]+"""
)


def page_on_the_site(source: Path, at: str) -> str:
    """The text of a page, its links turned to where they lead on the site."""

    def turned(match: re.Match[str]) -> str:
        target = (source.parent / match[2]).resolve()
        name = target.relative_to(ROOT).as_posix()
        if name in BESIDE:
            inside = BESIDE[name]
        elif target.is_relative_to(DOCS):
            inside = (target / "README.md" if target.is_dir() else target).relative_to(DOCS).as_posix()
        else:
            return f"{match[1]}{REPOSITORY}/{'tree' if target.is_dir() else 'blob'}/main/{name}"
        return match[1] + Path(os.path.relpath(inside, Path(at).parent)).as_posix()

    return LINK.sub(turned, source.read_text(encoding="utf-8"))


def pages() -> dict[str, Path]:
    """Every page of the site, and the file it is made of."""
    inside = {path.relative_to(DOCS).as_posix(): path for path in sorted(DOCS.rglob("*.md"))}
    return inside | {at: ROOT / name for name, at in BESIDE.items()}


def main() -> int:
    """Lay out the pages, build the site, look for what it would fetch."""
    for folder in (PAGES, SITE):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, PAGES)
    for at, source in pages().items():
        (PAGES / at).write_text(page_on_the_site(source, at), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(ROOT / "mkdocs.yml")],
        check=False,
    )
    if done.returncode:
        return done.returncode
    for path in sorted([*SITE.rglob("*.html"), *SITE.rglob("*.css")]):
        if found := FETCHED.search(path.read_bytes()):
            raise SystemExit(f"{path} would fetch {found[0].decode()}")
    print(f"python -m http.server --directory {SITE.relative_to(ROOT)} shows it")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
