"""Documents as text and fields, and their chunks: by heading, by paragraph, or by length.

Markdown, plain text, HTML, and PDF with the extra `pdf`; front matter becomes fields. A chunk's id is the
document's path and the slug of its heading, so it survives edits elsewhere in the file. Fenced code is never read
as headings. Every line of text is in exactly one chunk. Called by `document_index`, `validate` and the importers of
notes; reads the file it is given and nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Annotated, Literal, cast

import msgspec
from msgspec import Meta

from skep.errors import ConfigError, MissingExtraError
from skep.private_parts import without_private

Strategy = Literal["by_heading", "by_paragraph", "fixed"]
CHARS_PER_TOKEN = 4
"""Within a few per cent of what tokenizers count on prose."""

_HEADING = re.compile(r"^ {0,3}(#{1,6})[ \t]+(\S.*)$")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r"^ {0,3}(=+|-+)[ \t]*$")
_NOT_SLUG = re.compile(r"[^\w]+")


class Chunking(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cutting of a collection's documents."""

    strategy: Annotated[Strategy, Meta(description="Where documents are cut.")] = "by_heading"
    max_tokens: Annotated[
        int, Meta(ge=16, le=8192, description="No chunk is longer than about this many tokens.")
    ] = 512
    heading_level: Annotated[
        int, Meta(ge=1, le=6, description="by_heading cuts at headings of this level and above.")
    ] = 2


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
            title = heading[2].rstrip()
            yield Block(level=len(heading[1]), text=title.rstrip("#").rstrip() or title)
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
    """True if the last line stands alone and reads as a title that `===` or `---` may underline."""
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


SUFFIXES = (".md", ".txt", ".html", ".htm", ".pdf")
MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
_KEY = re.compile(r"^([A-Za-z_][\w-]*)\s*:\s*(.*)$")
_DASHED = re.compile(r"^\s*-\s+(.*)$")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")

FieldValue = str | tuple[str, ...]


class FrontMatterError(ConfigError):
    """The lines between the two `---` of a document are not `key: value`."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(message)


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One file as text, with what its front matter says."""

    path: str
    title: str
    text: str
    fields: dict[str, FieldValue]


def read_document(path: str, file: Path) -> Document:
    """Read `file`, whose place below `documents/` is `path`.

    Raises:
        OSError: It cannot be read.
        UnicodeDecodeError: It is not UTF-8.
        FrontMatterError: Its front matter cannot be read.
        MissingExtraError: It is a PDF and the extra is not installed.
    """
    suffix = file.suffix.lower()
    if suffix == ".pdf":
        text, fields = _pdf(file)
        text = without_private(text)
    else:
        raw = file.read_bytes().decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
        raw = without_private(raw)  # before it is cut into chunks, which would part a mark from its end
        if suffix in (".html", ".htm"):
            text, fields = _html(raw)
        else:
            fields, text = front_matter(raw)
    text = _CONTROL.sub(" ", text)
    title = fields.pop("title", "") or _first_heading(text) or file.stem
    return Document(
        path=path, title=title if isinstance(title, str) else ", ".join(title), text=text, fields=fields
    )


def front_matter(text: str, *, lenient: bool = False) -> tuple[dict[str, FieldValue], str]:
    """Split the `key: value` lines between two `---` from the text below them.

    Values are plain or quoted words, `[a, b]`, or a list of `- item` lines. This is the part of YAML that notes use;
    nothing else is read, nothing is guessed.

    Args:
        text: A whole document.
        lenient: Pass over other lines instead of refusing them, as for notes that other programs wrote.

    Raises:
        FrontMatterError: A line is of another kind, a key stands twice, or the end is missing.

    >>> front_matter("---\\ncategory: faq\\n---\\nHello")
    ({'category': 'faq'}, 'Hello')
    >>> front_matter("---\\ntitle: A: b\\ntags: [x, 'y z']\\naliases:\\n  - one\\n---\\n")[0]
    {'title': 'A: b', 'tags': ('x', 'y z'), 'aliases': ('one',)}
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines[1:], start=1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        if lenient:
            return {}, text
        raise FrontMatterError(1, "the front matter is opened with '---' and never closed")
    fields: dict[str, str | list[str]] = {}
    key = ""
    for number, line in enumerate(lines[1:end], start=2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = _DASHED.match(line)
        found = _KEY.match(line)
        if item and key:
            earlier = fields[key]
            if isinstance(earlier, str):
                earlier = fields[key] = [earlier] if earlier else []
            earlier.append(_plain(item[1]))
        elif found and (lenient or found[1] not in fields):
            key = found[1]
            fields[key] = _value(found[2].strip())
        elif found:
            raise FrontMatterError(number, f"the key {found[1]!r} is stated twice")
        elif not lenient:
            raise FrontMatterError(number, f"{line.strip()[:60]!r} is neither 'key: value' nor '- item'")
    kept = {name: value if isinstance(value, str) else tuple(value) for name, value in fields.items()}
    return kept, "\n".join(lines[end + 1 :]).lstrip("\n")


def _value(raw: str) -> str | list[str]:
    if raw.startswith("[") and raw.endswith("]"):
        return [_plain(part) for part in raw[1:-1].split(",") if part.strip()]
    return _plain(raw)


def _plain(raw: str) -> str:
    raw = raw.strip()
    if len(raw) >= 2 and raw[0] == raw[-1] and raw[0] in "\"'":
        return raw[1:-1]
    return raw


def _first_heading(text: str) -> str:
    return next((block.text for block in blocks(text) if block.level), "")


_SKIPPED = frozenset({"script", "style", "template", "noscript", "nav", "svg"})
_BREAKS = frozenset(
    {"p", "div", "section", "article", "ul", "ol", "table", "tr", "blockquote", "br", "dl", "dt", "dd"}
)
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})


class _Reader(HTMLParser):
    """Turns HTML into the Markdown that chunking understands."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.fields: dict[str, FieldValue] = {}
        self.parts: list[str] = []
        self.title = ""
        self._skip = 0
        self._in_title = False
        self._pre = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skip += 1
        elif tag == "title":
            self._in_title = True
        elif tag == "meta":
            given = dict(attrs)
            name, content = given.get("name"), given.get("content")
            if name and content and _KEY.match(f"{name}: x"):
                self.fields[name] = content
        elif tag in _HEADINGS:
            self.parts.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag == "pre":
            self._pre = True
            self.parts.append("\n\n```\n")
        elif tag == "li":
            self.parts.append("\n- ")
        elif tag in _BREAKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._skip = max(0, self._skip - 1)
        elif tag == "title":
            self._in_title = False
        elif tag == "pre":
            self._pre = False
            self.parts.append("\n```\n\n")
        elif tag in _HEADINGS or tag in _BREAKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._skip:
            self.parts.append(data if self._pre else re.sub(r"\s+", " ", data))


def _html(raw: str) -> tuple[str, dict[str, FieldValue]]:
    reader = _Reader()
    reader.feed(raw)
    reader.close()
    if reader.title.strip():
        reader.fields.setdefault("title", reader.title.strip())
    lines = (line if code else line.strip() for line, code in lines_of("".join(reader.parts)))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip(), reader.fields


def _pdf(file: Path) -> tuple[str, dict[str, FieldValue]]:
    try:
        import pypdf
        from pypdf.errors import PyPdfError
    except ImportError:
        raise MissingExtraError("reading PDF documents", "pdf") from None
    try:
        reader = pypdf.PdfReader(file)
        pages = [page.extract_text() for page in reader.pages]
        title = cast("object", reader.metadata.title if reader.metadata else None)
    except (PyPdfError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise OSError(f"not a readable PDF: {error}") from error
    fields: dict[str, FieldValue] = {"title": title} if isinstance(title, str) and title.strip() else {}
    return "\n\n".join(page.strip() for page in pages if page.strip()), fields
