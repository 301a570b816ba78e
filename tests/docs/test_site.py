"""The site of the documentation: every page has its place, every link leads somewhere, nothing is fetched."""

from __future__ import annotations

import importlib.util
import re
import runpy
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "build_site.py"), run_name="site")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
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


def test_nothing_is_configured_that_asks_others_when_a_page_is_read() -> None:
    config = configured()
    assert "repo_url" not in config, "the theme would ask the host of the repository for stars and releases"
    assert config["plugins"] == ["search"], (
        "the plugin `offline` fetches a shim for files that are opened from disk"
    )
    assert config["theme"]["font"] is False


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="needs the extra `site`")
def test_the_site_builds_and_whoever_reads_it_asks_nobody_else() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/build_site.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = ROOT / "build" / "site"
    pages = [at.replace("README.md", "index.md").replace(".md", ".html") for at in SITE["pages"]()]
    assert [page for page in pages if not (made / page).exists()] == []
    if CHROMIUM is None or importlib.util.find_spec("playwright") is None:
        return  # the static check of `build_site.py` has looked at every page

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(made))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asked = asked_by_a_reader(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith(("http://127.0.0.1:", "data:", "blob:"))] == []


def asked_by_a_reader(site: str) -> list[str]:
    """The addresses that a browser asks for, whose reader opens the site and searches for a page."""
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{site}/index.html")
        page.keyboard.press("Control+k")
        page.keyboard.type("glossary", delay=20)
        page.get_by_role("link", name="Glossary").first.wait_for()
        browser.close()
    return asked
