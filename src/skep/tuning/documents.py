"""Reading one document: Markdown, plain text, HTML, or PDF with the extra. Front matter becomes fields."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import cast

import msgspec

from skep.errors import ConfigError, MissingExtraError
from skep.private import without_private
from skep.tuning.chunking import blocks, lines_of

SUFFIXES = (".md", ".txt", ".html", ".htm", ".pdf")
MAX_DOCUMENT_BYTES = 8 * 1024 * 1024
_KEY = re.compile(r"^([A-Za-z_][\w-]*)\s*:\s*(.*)$")
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


def front_matter(text: str) -> tuple[dict[str, FieldValue], str]:
    """Split the `key: value` lines between two `---` from the text below them.

    Values are plain or quoted words, `[a, b]`, or a list of `- item` lines. Nothing else is read, nothing
    is guessed.

    >>> front_matter("---\\ncategory: faq\\n---\\nHello")
    ({'category': 'faq'}, 'Hello')
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        return {}, text
    end = next((at for at, line in enumerate(lines[1:], start=1) if line.rstrip() in ("---", "...")), None)
    if end is None:
        raise FrontMatterError(1, "the front matter is opened with '---' and never closed")
    fields: dict[str, FieldValue] = {}
    key = ""
    for number, line in enumerate(lines[1:end], start=2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        item = re.match(r"^\s*-\s+(.*)$", line)
        found = _KEY.match(line)
        if item and key:
            earlier = fields[key]
            fields[key] = (
                *((earlier,) if isinstance(earlier, str) and earlier else tuple(earlier)),
                _plain(item[1]),
            )
        elif found:
            key = found[1]
            if key in fields:
                raise FrontMatterError(number, f"the key {key!r} is stated twice")
            fields[key] = _value(found[2].strip())
        else:
            raise FrontMatterError(number, f"{line.strip()[:60]!r} is neither 'key: value' nor '- item'")
    return fields, "\n".join(lines[end + 1 :]).lstrip("\n")


def _value(raw: str) -> FieldValue:
    if raw.startswith("[") and raw.endswith("]"):
        return tuple(_plain(part) for part in raw[1:-1].split(",") if part.strip())
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
