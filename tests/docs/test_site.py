"""The site of the documentation: every page has its place, every link leads somewhere, nothing is fetched."""

from __future__ import annotations

import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "build_site.py"), run_name="site")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


class Loader(yaml.SafeLoader):
    """YAML as the builder reads it; objects of Python are left out."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def configured() -> dict[str, Any]:
    return yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)


def leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for each in (nav.values() if isinstance(nav, dict) else nav) for leaf in leaves(each)]


def test_every_page_stands_once_in_the_navigation_of_the_site() -> None:
    assert sorted(leaves(configured()["nav"])) == sorted(SITE["pages"]()), "mend `nav` in mkdocs.yml"


def test_links_between_pages_lead_to_pages_of_the_site() -> None:
    there = SITE["pages"]()
    for at, source in there.items():
        for link in LINK.findall(SITE["page_on_the_site"](source, at)):
            target = (ROOT / "docs" / at).parent / link
            name = target.resolve().relative_to(ROOT / "docs").as_posix()
            assert name in there or target.exists(), f"{at} leads to {link}"


def test_a_link_to_code_leads_to_the_repository() -> None:
    at = "explanation/search-index.md"
    text = SITE["page_on_the_site"](ROOT / "docs" / at, at)
    assert f"({SITE['REPOSITORY']}/blob/main/core/bm25.c)" in text


@pytest.mark.parametrize(
    ("html", "refused"),
    [
        (b'<script src="https://cdn.example/x.js">', True),
        (b'<link rel="stylesheet" href="//fonts.example/x.css">', True),
        (b'<a href="https://example.org">', False),
        (b'<script src="../assets/x.js">', False),
    ],
)
def test_a_page_that_would_fetch_something_is_seen(html: bytes, refused: bool) -> None:
    assert bool(SITE["FETCHED"].search(html)) == refused


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra `site`")
def test_the_site_builds() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/build_site.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "build" / "site" / "how-to" / "recall.html").exists()
