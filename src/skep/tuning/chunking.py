"""From one document to its chunks: by heading, by paragraph, or by length.

A chunk's id is the document's path and the slug of its heading, so that it survives edits elsewhere in the
file. Fenced code is never read as headings. Nothing is lost: every line of text is in exactly one chunk.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Strategy = Literal["by_heading", "by_paragraph", "fixed"]
CHARS_PER_TOKEN = 4
"""Within a few per cent of what tokenizers count on prose."""

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(.+?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
_NOT_SLUG = re.compile(r"[^\w]+")


class Chunking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the documents of a collection are cut."""

    strategy: Strategy = "by_heading"
    max_tokens: int = 512
    heading_level: int = 2
    """`by_heading` cuts at headings of this level and above (1 is the highest)."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a document, with the headings it stands under."""

    id: str
    document: str
    headings: tuple[str, ...]
    text: str


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A heading (level 1 to 6) or a run of text (level 0)."""

    level: int
    text: str


def token_count(text: str) -> int:
    """About how many tokens `text` has.

    >>> token_count("four"), token_count("fours")
    (1, 2)
    """
    return -(-len(text) // CHARS_PER_TOKEN)


def slug(heading: str) -> str:
    """A heading as it stands in an id.

    >>> slug("Rate limits & quotas")
    'rate-limits-quotas'
    """
    plain = unicodedata.normalize("NFKC", heading).casefold()
    return _NOT_SLUG.sub("-", plain).strip("-")[:80] or "section"


def chunk(document: str, text: str, how: Chunking) -> list[Chunk]:
    """The chunks of a document, in order.

    Args:
        document: Its path, the first part of every chunk id.
        text: Its text, as Markdown or plain.
        how: The collection's chunking.
    """
    if how.strategy == "by_heading":
        pieces = _by_heading(text, how)
    elif how.strategy == "by_paragraph":
        pieces = ((headings, part) for headings, run in _sections(text, 6) for part in paragraphs(run))
        pieces = ((headings, part) for headings, whole in pieces for part in pack([whole], how.max_tokens))
    else:
        pieces = (((), part) for part in pack([text], how.max_tokens))
    return list(_named(document, pieces))


def blocks(text: str) -> Iterator[Block]:
    """Headings and the text between them; `#` inside fenced code is text."""
    pending: list[str] = []
    for line, code in lines_of(text):
        heading = None if code else _HEADING.match(line)
        under = None if code else _UNDERLINE.match(line)
        if heading:
            yield from _text_block(pending)
            yield Block(level=len(heading[1]), text=heading[2])
            pending = []
        elif under and pending and _is_title(pending):
            title = pending.pop().strip()
            yield from _text_block(pending)
            yield Block(level=1 if under[1][0] == "=" else 2, text=title)
            pending = []
        else:
            pending.append(line)
    yield from _text_block(pending)


def paragraphs(text: str) -> list[str]:
    """Runs of lines between blank lines; fenced code stays whole."""
    found: list[list[str]] = [[]]
    for line, code in lines_of(text):
        if line.strip() or code:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return ["\n".join(run) for run in found if run]


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Every line, and whether it belongs to fenced code."""
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
            yield line, True
        elif mark and mark[1][0] == fence[0] and len(mark[1]) >= len(fence):
            fence = ""
            yield line, True
        else:
            yield line, bool(fence)


def pack(parts: Iterable[str], max_tokens: int) -> list[str]:
    """Join parts while they fit into `max_tokens`, and cut what does not fit alone at words.

    >>> pack(["one two", "three", "four"], 4)
    ['one two\\n\\nthree', 'four']
    """
    limit = max_tokens * CHARS_PER_TOKEN
    packed: list[str] = []
    for part in parts:
        for piece in _fit(part.strip(), limit):
            if packed and len(packed[-1]) + 2 + len(piece) <= limit and len(part) <= limit:
                packed[-1] += "\n\n" + piece
            else:
                packed.append(piece)
    return packed


def _by_heading(text: str, how: Chunking) -> Iterator[tuple[tuple[str, ...], str]]:
    for headings, run in _sections(text, how.heading_level):
        for part in pack(paragraphs(run), how.max_tokens):
            yield headings, part


def _sections(text: str, level: int) -> Iterator[tuple[tuple[str, ...], str]]:
    """Text under each heading of at most `level`; lower headings stay in the text as lines of their own."""
    trail: list[tuple[int, str]] = []
    pending: list[str] = []
    for block in blocks(text):
        if 0 < block.level <= level:
            yield from _section(trail, pending)
            trail = [(depth, title) for depth, title in trail if depth < block.level]
            trail.append((block.level, block.text))
            pending = []
        else:
            pending.append(block.text)
    yield from _section(trail, pending)


def _section(trail: list[tuple[int, str]], pending: list[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    if pending:
        yield tuple(title for _, title in trail), "\n\n".join(pending)


def _named(document: str, pieces: Iterable[tuple[tuple[str, ...], str]]) -> Iterator[Chunk]:
    taken: set[str] = set()
    for headings, text in pieces:
        name = f"{document}#{slug(headings[-1])}" if headings else document
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name}-{number}" if headings else f"{name}#{number}"
        taken.add(unique)
        yield Chunk(id=unique, document=document, headings=headings, text=text)


def _text_block(lines: list[str]) -> Iterator[Block]:
    text = "\n".join(lines).strip("\n")
    if text.strip():
        yield Block(level=0, text=text)


def _is_title(pending: list[str]) -> bool:
    """Whether the last line stands alone and reads as a title that `===` or `---` may underline."""
    last = pending[-1].strip()
    return bool(last) and last[0] not in "-*+|>#`~" and (len(pending) == 1 or not pending[-2].strip())


def _fit(text: str, limit: int) -> Iterator[str]:
    """Cut at the last white space before `limit`; a longer word is cut where it must be."""
    while len(text) > limit:
        at = max(text.rfind(" ", 0, limit + 1), text.rfind("\n", 0, limit + 1))
        at = at if at > 0 else limit
        yield text[:at].rstrip()
        text = text[at:].lstrip()
    if text:
        yield text
