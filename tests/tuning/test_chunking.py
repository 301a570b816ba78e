from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.tuning.documents import (
    Chunking,
    FrontMatterError,
    chunk,
    front_matter,
    read_document,
    slug,
    token_count,
)

BY_HEADING = Chunking(strategy="by_heading", max_tokens=512, heading_level=2)
PAGE = """# Jobs

What a job is.

## Create a job

Send a POST.

### Fields

queue and payload

## Cancel a job

Send a DELETE.
"""


def ids(path: str, text: str, how: Chunking = BY_HEADING) -> list[str]:
    return [piece.id for piece in chunk(path, text, how)]


def test_a_chunk_id_is_the_path_and_the_slug_of_the_heading() -> None:
    assert ids("api/jobs.md", PAGE) == [
        "api/jobs.md#jobs",
        "api/jobs.md#create-a-job",
        "api/jobs.md#cancel-a-job",
    ]


def test_lower_headings_stay_inside_the_chunk_above_them() -> None:
    create = chunk("api/jobs.md", PAGE, BY_HEADING)[1]

    assert create.text == "Send a POST.\n\nFields\n\nqueue and payload"
    assert create.headings == ("Jobs", "Create a job")


def test_heading_level_one_keeps_the_page_together() -> None:
    assert ids("a.md", PAGE, Chunking(heading_level=1)) == ["a.md#jobs"]


def test_equal_headings_are_told_apart_without_taking_the_name_of_another() -> None:
    text = "## Notes\n\na\n\n## Notes 2\n\nb\n\n## Notes\n\nc\n\n## Notes\n\nd"

    assert ids("a.md", text) == ["a.md#notes", "a.md#notes-2", "a.md#notes-3", "a.md#notes-4"]


def test_a_hash_inside_fenced_code_is_not_a_heading() -> None:
    text = "## Run\n\n```sh\n# not a heading\nrun\n```\n\n~~~\n## nor this\n~~~\n"

    assert ids("a.md", text) == ["a.md#run"]


def test_underlined_titles_are_headings_and_rules_are_not() -> None:
    assert ids("a.txt", "Title\n=====\n\nx\n\nPart\n----\n\ny\n\n---\n\nz") == ["a.txt#title", "a.txt#part"]


def test_a_long_section_is_cut_at_paragraphs_and_fits() -> None:
    text = "## Long\n\n" + "\n\n".join(f"paragraph {n} " + "word " * 20 for n in range(12))
    pieces = chunk("a.md", text, Chunking(max_tokens=64))

    assert len(pieces) > 1
    assert all(token_count(piece.text) <= 64 for piece in pieces)
    assert [piece.id for piece in pieces][:2] == ["a.md#long", "a.md#long-2"]


def test_a_word_longer_than_a_chunk_is_cut() -> None:
    assert [
        len(piece.text) for piece in chunk("a.txt", "x" * 100, Chunking(strategy="fixed", max_tokens=10))
    ] == [
        40,
        40,
        20,
    ]


def test_by_paragraph_gives_one_chunk_per_paragraph_under_its_heading() -> None:
    text = "## Keys\n\none\n\ntwo\n\n```\na\n\nb\n```"

    assert ids("a.md", text, Chunking(strategy="by_paragraph")) == ["a.md#keys", "a.md#keys-2", "a.md#keys-3"]


def test_text_without_a_heading_is_named_by_its_path_alone() -> None:
    assert ids("a.txt", "plain words") == ["a.txt"]


def test_a_heading_of_signs_alone_still_has_a_slug() -> None:
    assert slug("!!!") == "section"
    assert slug("Über straße") == "über-strasse"


lines = st.lists(
    st.sampled_from(["# A", "## B", "### C", "text one", "more text", "", "```", "- item", "* * *", "~~~"]),
    max_size=30,
)


@given(lines, st.sampled_from(["by_heading", "by_paragraph", "fixed"]), st.integers(1, 40), st.integers(1, 6))
def test_ids_are_unique_sizes_are_kept_and_no_text_is_lost(
    parts: list[str], strategy: str, max_tokens: int, level: int
) -> None:
    text = "\n".join(parts)
    how = Chunking(strategy=strategy, max_tokens=max_tokens, heading_level=level)  # type: ignore[arg-type]
    pieces = chunk("doc.md", text, how)

    assert len({piece.id for piece in pieces}) == len(pieces)
    assert all(piece.text.strip() and token_count(piece.text) <= max_tokens for piece in pieces)
    together = " ".join(" ".join(piece.text.split()) for piece in pieces).replace(" ", "")
    assert together.count("textone") == text.count("text one")


def test_front_matter_becomes_fields(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_text(
        '---\ntitle: "Jobs"\ncategory: api-docs\ntags: [a, b]\nareas:\n  - x\n  - y\n---\n# H\n\nText'
    )
    document = read_document("a.md", file)

    assert document.title == "Jobs"
    assert document.fields == {"category": "api-docs", "tags": ("a", "b"), "areas": ("x", "y")}
    assert document.text == "# H\n\nText"


@pytest.mark.parametrize("text", ["---\nkey: a\n", "---\nkey: a\nkey: b\n---\n", "---\n{not: [yaml\n---\n"])
def test_front_matter_that_cannot_be_read_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(FrontMatterError) as caught:
        front_matter(text)

    assert caught.value.line >= 1


def test_html_is_read_as_headings_text_and_fields(tmp_path: Path) -> None:
    file = tmp_path / "a.html"
    file.write_text(
        "<html><head><title>FAQ</title><meta name='category' content='faqs'><style>p{}</style></head><body>"
        "<nav>menu</nav><h1>Help</h1><p>First &amp; <b>bold</b></p><h2>More</h2><ul><li>one<li>two</ul>"
        "<pre># no heading\n  kept</pre><script>alert(1)</script></body></html>"
    )
    document = read_document("a.html", file)

    assert document.fields == {"category": "faqs"}
    assert document.title == "FAQ"
    assert ids("a.html", document.text) == ["a.html#help", "a.html#more"]
    assert "alert" not in document.text
    assert "menu" not in document.text
    assert "First & bold" in document.text
    assert "\n  kept" in document.text


def test_windows_line_ends_and_a_byte_order_mark_do_not_matter(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_bytes("\ufeff---\r\ncategory: x\r\n---\r\n## A\r\n\r\ntext\r\n".encode())

    assert read_document("a.md", file).fields == {"category": "x"}


def test_a_broken_pdf_is_an_unreadable_file(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    file = tmp_path / "a.pdf"
    file.write_bytes(b"%PDF-1.4 nonsense")

    with pytest.raises(OSError, match="not a readable PDF"):
        read_document("a.pdf", file)
