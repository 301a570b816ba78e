"""The page in a real browser: each page's task as a person does it, against a real server and bank."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")
pytest.importorskip("playwright", reason="Playwright is not installed")

from http_server import Running
from playwright.sync_api import sync_playwright

from skep import Bank
from skep.hive.gossip import Gossip
from skep.model import Scope
from skep.server.http_api import KINDS
from skep.server.sample_bank import fill

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no Chromium is installed", allow_module_level=True)

NOW = 1_790_000_000.0
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PAGES = ("search", "timeline", "review", "usage", "banks", "tuning")
PATIENCE = 30_000


def until(page: Any, holds: str) -> None:
    """Wait for an expression; asked from outside, because the page lets nobody evaluate strings in it."""
    for _ in range(PATIENCE // 50):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never true: {holds}")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with sync_playwright() as started:
            opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            yield opened
            opened.close()


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sample") / "sample.skep"
    fill(str(made), NOW)
    return made


@pytest.fixture
def server(tmp_path: Path, sample: Path) -> Iterator[Running]:
    shutil.copy(sample, tmp_path / "team.skep")
    with Running(tmp_path) as running:
        yield running


@pytest.fixture
def visit(browser: Any, server: Running) -> Iterator[Callable[..., Any]]:
    """Open the page at a hash; whatever goes wrong in it fails the test."""
    problems: list[str] = []
    contexts: list[Any] = []

    def open_page(to: str = "search", token: str = "", **options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda told: problems.append(told.text) if told.type == "error" else None)
        page.goto(f"{server.url}/#token={token or server.owner}")
        page.wait_for_selector("#query")
        page.goto(f"{server.url}/#/{to}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def test_a_question_is_answered_and_each_answer_says_why(visit: Callable[..., Any]) -> None:
    page = visit()
    page.fill("#query", "which postgres version is on staging?")
    first = page.locator("ol.list > .card").first
    until(page, "document.querySelector('ol.list .card')?.textContent.includes('PostgreSQL 16')")
    first.locator("summary").first.click()

    assert "PostgreSQL 16" in first.inner_text()
    assert {"meaning", "words"} <= set(first.locator(".bars").inner_text().split("\n"))


def test_where_nothing_answers_the_page_says_so_and_shows_the_nearest_alone(
    visit: Callable[..., Any],
) -> None:
    page = visit("search?q=favourite+colour+of+the+pope")
    page.get_by_text("Probably nothing here answers this").wait_for()
    assert page.locator("ol.list > .card:visible").count() == 3
    page.get_by_text("more that are near").click()
    until(page, "document.querySelectorAll('ol.list > .card').length > 3")
    assert page.locator("ol.list > .card:visible").count() > 3


def test_no_id_stands_for_a_memory_that_was_replaced(visit: Callable[..., Any]) -> None:
    page = visit("search?q=PostgreSQL+14+on+staging")
    page.get_by_text("stands for: The staging database runs PostgreSQL 14").first.wait_for()


def test_what_gave_its_place_to_what_is_shown(visit: Callable[..., Any], server: Running) -> None:
    page = visit("search?q=checkout+page+times+out")
    page.locator("#replaced").check()
    page.get_by_text("gave its place to").first.wait_for()


def test_a_memory_is_changed_undone_taken_back_and_restored(
    visit: Callable[..., Any], server: Running
) -> None:
    made = server.verb("find", text="Sunday")[1]["memories"][0]["id"]
    page = visit(f"memory/{made}")
    page.get_by_role("button", name="Change", exact=True).click()
    page.fill("dialog textarea", "The search index is rebuilt every Monday")
    page.get_by_role("button", name="Save").click()
    page.locator("#text", has_text="Monday").wait_for()
    assert server.verb("get", memory_id=made)[1]["text"] == "The search index is rebuilt every Monday"

    page.get_by_role("button", name=re.compile("^Undo: revised")).click()
    page.locator("#text", has_text="Sunday").wait_for()
    page.get_by_role("button", name="Take back").click()
    page.get_by_role("button", name="Restore").click()
    page.get_by_role("button", name="Take back").wait_for()
    assert server.verb("get", memory_id=made)[1]["status"] == "active"


def test_the_lineage_of_a_memory_leads_from_the_first_to_the_last(
    visit: Callable[..., Any], server: Running
) -> None:
    old = server.verb("find", text="PostgreSQL", status="superseded")[1]["memories"][0]["id"]
    newest = server.verb("remember", text="Staging runs PostgreSQL 17 since today", on_conflict="ignore")[1][
        "memory"
    ]["id"]
    middle = server.verb("find", text="upgraded PostgreSQL")[1]["memories"][0]["id"]
    server.verb("supersede", old=middle, new=newest)
    page = visit(f"memory/{old}")
    page.locator("#lineage").wait_for()
    told = page.locator("#lineage").inner_text()

    assert told.index("PostgreSQL 14") < told.index("PostgreSQL 16") < told.index("PostgreSQL 17")


def test_a_memory_is_erased_and_the_receipt_says_what_went(
    visit: Callable[..., Any], server: Running
) -> None:
    made = server.verb("find", text="Frankfurt")[1]["memories"][0]["id"]
    page = visit(f"memory/{made}")
    page.get_by_role("button", name="Erase…").click()
    page.get_by_role("button", name="Cancel").click()
    assert server.verb("get", memory_id=made)[0] == 200

    page.get_by_role("button", name="Erase…").click()
    page.get_by_role("button", name="Erase for good").click()
    receipt = page.locator("#receipt")
    receipt.wait_for()

    assert "rows" in receipt.inner_text()
    assert server.verb("get", memory_id=made)[0] == 410


def test_the_timeline_shows_what_was_believed_then_and_what_changed_it(visit: Callable[..., Any]) -> None:
    page = visit("timeline")
    page.get_by_text("What is believed now").wait_for()
    assert "PostgreSQL 14" not in page.locator("section").first.inner_text()

    page.locator("#moment").focus()
    for _ in range(4):
        page.keyboard.press("PageDown")
    page.locator("#moment").evaluate(
        "moment => { moment.value = 300; moment.dispatchEvent(new Event('change')) }"
    )
    page.get_by_text("1 changed since").wait_for()

    then = page.locator("section").first.inner_text()
    assert "PostgreSQL 14" in then
    assert "superseded since" in then


def test_what_waits_is_decided_with_one_key(visit: Callable[..., Any], server: Running) -> None:
    waiting = server.verb("pending_judgements")[1]
    page = visit("review")
    page.locator(".card.chosen").wait_for()
    page.keyboard.press("b")
    until(page, f"document.querySelectorAll('main .list > .card').length === {len(waiting)}")
    assert len(server.verb("pending_judgements")[1]) == len(waiting) - 1

    for _ in range(len(waiting)):
        page.keyboard.press("j")
    page.keyboard.press("a")
    until(page, f"document.querySelectorAll('main .list > .card').length === {len(waiting) - 1}")
    assert server.verb("find", status="quarantined")[1]["memories"] == []
    settings = [event["body"] for event in server.verb("history", limit=50)[1] if event["kind"] == "setting"]
    assert next(one["value"]["by"] for one in settings if one["key"].startswith("judgement/")) == "owner"


def test_a_conflict_that_was_looked_for_is_settled(visit: Callable[..., Any], server: Running) -> None:
    server.verb("remember", text="Use tabs for indentation", on_conflict="ignore")
    newer = server.verb("remember", text="Never use tabs for indentation", on_conflict="ignore")[1]["memory"][
        "id"
    ]
    page = visit("review")
    page.get_by_role("button", name="Look for conflicts").click()
    row = page.locator("#conflicts .card", has_text="Never use tabs")
    row.get_by_role("button", name="The newer replaces the older").click()
    row.wait_for(state="detached")

    assert [m["id"] for m in server.verb("find", text="tabs indentation")[1]["memories"]] == [newer]


def test_the_banks_of_a_hive_show_what_has_spread_by_gossip(browser: Any, tmp_path: Path) -> None:
    names = ("ana", "bob", "cy")
    banks = {name: Bank.open(tmp_path / f"{name}.skep", embedder="static") for name in names}
    for name, bank in banks.items():
        bank.remember(f"{name} looks after the {name} service", agent=name)
    Gossip({name: banks[name] for name in ("ana", "bob")}).run()
    for bank in banks.values():
        bank.close()
    with Running(tmp_path, names, open=True) as running:
        page = browser.new_page()
        page.goto(f"{running.url}/#/banks")
        page.get_by_text("What has spread").wait_for()
        rows = [row.split("\t") for row in page.locator("#gossip tbody").inner_text().split("\n")]
        page.close()

    assert sorted((*row[0].split()[1:], *row[2:]) for row in rows) == [
        ("ana", "all", "all", "0, lacks 1"),
        ("bob", "all", "all", "0, lacks 1"),
        ("cy", "0, lacks 1", "0, lacks 1", "all"),
    ]


def test_who_is_no_person_may_look_and_not_decide(visit: Callable[..., Any], server: Running) -> None:
    token, _ = server.tokens.add("agent", rights=("read", "write"))
    page = visit("review", token)
    page.locator(".card.chosen").wait_for()

    assert page.get_by_role("button", name=re.compile("merge")).count() == 0
    page.keyboard.press("m")
    page.get_by_text("Deciding takes a person's token").wait_for()
    assert len(server.verb("pending_judgements")[1]) > 0


def test_a_token_with_a_scope_sees_its_scope_on_every_page(
    visit: Callable[..., Any], server: Running
) -> None:
    server.verb("remember", text="Hidden from Ana", scope={"user": "ben"})
    server.verb("remember", text="Ana likes mint tea", scope={"user": "ana"})
    token, _ = server.tokens.add("ana", rights=("read", "write"), scope=Scope(user="ana"))
    page = visit("search", token)
    page.get_by_text("Ana likes mint tea").wait_for()
    for one in PAGES:
        page.goto(f"{server.url}/#/{one}")
        page.locator("main h1").first.wait_for(state="attached")
        page.wait_for_timeout(150)
        assert "Hidden from Ana" not in page.content()
        assert page.locator(".error").count() == 0, one


@pytest.mark.parametrize("name", PAGES)
def test_every_page_shows_no_error_and_fits_a_phone_in_the_dark(visit: Callable[..., Any], name: str) -> None:
    page = visit(name, viewport={"width": 360, "height": 740}, color_scheme="dark")
    until(page, "document.querySelector('main h1, main h2') && !document.querySelector('main > p.quiet')")
    page.wait_for_timeout(200)

    assert page.locator(".error").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    for nothing in ("undefined", "[object", "NaN"):
        assert nothing not in page.inner_text("main")
    assert not re.search(r"\bnull\b", page.inner_text("main"))


@pytest.mark.parametrize("name", PAGES)
def test_an_empty_bank_teaches_instead_of_failing(browser: Any, tmp_path: Path, name: str) -> None:
    with Running(tmp_path, open=True) as running:
        page = browser.new_page()
        page.goto(f"{running.url}/#/{name}")
        page.wait_for_selector(".empty")
        assert page.locator(".error").count() == 0
        assert not re.search(r"\b(null|undefined|NaN)\b", page.inner_text("main"))
        page.close()


def test_what_a_memory_says_is_shown_and_never_run(visit: Callable[..., Any], server: Running) -> None:
    evil = '<img src=x onerror="window.owned=1"><script>window.owned=1</script> "><svg onload=window.owned=1> a:x'
    made = server.verb("remember", text=evil, title="<b onmouseover=window.owned=1>t</b>", tags=["<i>x</i>"],
                       domain="<u>d", metadata={"<script>": "</pre><script>window.owned=1</script>"},
                       source="javascript:window.owned=1")[1]["memory"]["id"]  # fmt: skip
    server.verb(
        "link", src=made, dst=server.verb("find", text="Sunday")[1]["memories"][0]["id"], rel="<script>"
    )
    page = visit(f"memory/{made}")
    page.locator("svg.graph").wait_for()
    assert page.locator("#text").inner_text().strip() == evil
    for one in (*PAGES, "search?q=onerror+script"):
        page.goto(f"{server.url}/#/{one}")
        page.wait_for_timeout(250)
        assert page.evaluate("window.owned") is None
        assert page.locator("main img, main script, main b[onmouseover]").count() == 0


def test_without_a_token_the_page_asks_for_one_and_a_wrong_one_is_told(browser: Any, server: Running) -> None:
    page = browser.new_page()
    page.goto(server.url)
    page.fill("#token", "skep_wrong")
    page.get_by_role("button", name="Open").click()
    page.locator(".error").wait_for()
    page.fill("#token", server.owner)
    page.get_by_role("button", name="Open").click()
    page.wait_for_selector(".card")

    assert server.owner not in page.url
    assert page.context.cookies() == []
    page.close()


def test_a_change_made_elsewhere_appears_by_itself(visit: Callable[..., Any], server: Running) -> None:
    page = visit()
    page.wait_for_selector(".card")
    with Bank.open(server.banks.places["team"]) as other:
        other.remember("Written by another process meanwhile")
    page.get_by_text("Written by another process meanwhile").wait_for()


def test_the_keyboard_alone_reaches_an_answer(visit: Callable[..., Any]) -> None:
    page = visit("usage")
    page.get_by_text("Handed out most").wait_for()
    page.keyboard.press("/")
    page.wait_for_selector("#query:focus")
    page.keyboard.type("when can I deploy")
    until(page, "location.hash.includes('deploy') && document.querySelector('ol.list .card')")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    until(page, "location.hash.startsWith('#/memory/')")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(visit: Callable[..., Any], name: str, theme: str) -> None:
    axe = os.environ.get("SKEP_AXE")
    if not axe:
        pytest.skip("SKEP_AXE does not name a copy of axe.min.js (`npm pack axe-core`)")
    page = visit(name, color_scheme=theme)
    page.wait_for_timeout(600)
    page.evaluate(Path(axe).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run().then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))")
    assert found == []


def test_the_page_is_small_and_asks_nobody_else(visit: Callable[..., Any], server: Running) -> None:
    import gzip

    folder = Path(__file__).parents[2] / "src" / "skep" / "server" / "assets"
    files = [one for one in folder.iterdir() if one.suffix[1:] in KINDS]
    assert sum(len(gzip.compress(one.read_bytes())) for one in files) < 40_000
    asked: list[str] = []
    page = visit()
    page.on("request", lambda request: asked.append(request.url))
    for one in PAGES:
        page.goto(f"{server.url}/#/{one}")
        page.wait_for_timeout(150)
    assert asked
    assert all(url.startswith(server.url) for url in asked)
