"""Items to import, and the helpers by which every importer reads and cleans its file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from skep.errors import InvalidInputError
from skep.private_parts import without_private
from skep.validation import BAD

TEXT_LIMIT: Final = 60_000
"""Characters of one memory; longer texts are split."""
LABEL_LIMIT: Final = 200
TITLE_LIMIT: Final = 500
TAGS_LIMIT: Final = 60
MILLISECONDS: Final = 1e11
"""Numbers above this cannot be seconds of this era."""
YEAR_1, YEAR_10000 = -62_135_596_800.0, 253_402_300_800.0
_EPOCH = re.compile(r"\d{9,13}(?:\.\d+)?")


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One memory to be, and what it is linked to."""

    fields: dict[str, Any]
    """Arguments of `remember`, the text and the source among them."""
    key: str
    """Unique within the file; links name it."""
    links: tuple[tuple[str, str], ...] = ()
    """Relation and key of each target."""

    @property
    def text(self) -> str:
        """The text to remember."""
        return str(self.fields["text"])


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of file that can be read."""

    name: str
    title: str
    sniff: Callable[[Path], bool]
    read: Callable[[Path], Iterator[Item]]


def item(
    text: str,
    *,
    origin: str,
    key: str,
    links: tuple[tuple[str, str], ...] = (),
    tags: tuple[str, ...] = (),
    **fields: Any,
) -> Item | None:
    """An item cleaned of what a bank would refuse; None when no text is left.

    Args:
        text: What to remember.
        origin: The program it comes from; becomes the tag `from:<origin>`.
        key: What identifies it there; with `origin` it becomes the source.
        links: Relation and key of each target.
        tags: Labels besides the origin's.
        fields: Further arguments of `remember`.
    """
    clean = tidy(text).strip()
    if not clean:
        return None
    kept = {name: value for name, value in fields.items() if value is not None}
    if "title" in kept:
        kept["title"] = tidy(str(kept["title"])).strip()[:TITLE_LIMIT] or None
    for name in ("domain", "agent"):
        if name in kept:
            kept[name] = tidy(str(kept[name])).strip()[:LABEL_LIMIT] or None
    labels = dict.fromkeys((f"from:{origin}", *(label for tag in tags if (label := label_of(tag)))))
    kept |= {"text": clean, "source": source_of(origin, key), "tags": list(labels)[:TAGS_LIMIT]}
    return Item(
        fields={name: value for name, value in kept.items() if value is not None}, key=key, links=links
    )


def in_pieces(one: Item) -> Iterator[Item]:
    """An item as it is, or as several where its text is longer than a memory may be; the first has its links."""
    origin, text = one.fields["source"].partition(":")[0], one.text
    if len(text) <= TEXT_LIMIT:
        yield one
        return
    start, number = 0, 1
    while start < len(text):
        end = start + TEXT_LIMIT
        if end < len(text):
            end = max(text.rfind(" ", start, end), start + TEXT_LIMIT // 2)
        piece = text[start:end].strip()
        start = end
        if piece and number == 1:
            yield renamed(one, one.key, origin, text=piece)
        elif piece:
            yield renamed(one, f"{one.key}#{number}", origin, text=piece, links=())
        number += bool(piece)


def renamed(
    one: Item,
    key: str,
    origin: str,
    *,
    text: str | None = None,
    links: tuple[tuple[str, str], ...] | None = None,
) -> Item:
    """An item under another key, and what else is to be another."""
    fields = one.fields | {"source": source_of(origin, key), "text": one.text if text is None else text}
    return Item(fields=fields, key=key, links=one.links if links is None else links)


def tidy(text: str) -> str:
    """Text without control characters, broken code points and what is marked as private."""
    mended = without_private(text).encode("utf-8", "replace").decode("utf-8")
    return BAD.sub("", mended.replace("\r\n", "\n").replace("\r", "\n").replace("\x85", "\n"))


def label_of(value: object) -> str:
    """A tag from whatever another program calls one."""
    return re.sub(r"\s+", " ", tidy(str(value))).strip().lstrip("#")[:LABEL_LIMIT]


def source_of(origin: str, key: str) -> str:
    """The source of an item, short enough to be kept, and the same every time."""
    plain = origin + ":" + " ".join(tidy(key).split())
    if len(plain) <= LABEL_LIMIT:
        return plain
    return plain[: LABEL_LIMIT - 17] + "#" + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]


def moment(value: object) -> float | None:
    """Seconds since the epoch, from seconds, milliseconds or an ISO text; None for anything else.

    >>> moment("1735689600"), moment(1735689600000), moment("2025-01-01"), moment(10**400)
    (1735689600.0, 1735689600.0, 1735689600.0, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and _EPOCH.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, int | float):
        seconds = value / 1000 if MILLISECONDS < abs(value) < 1000 * MILLISECONDS else value
        return float(seconds) if 0 < seconds < MILLISECONDS else None
    try:
        parsed = datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    seconds = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    return seconds if YEAR_1 <= seconds < YEAR_10000 else None


def decoded(data: bytes | str) -> Any:
    """The value of some JSON; halves of pairs are taken as they are, as Python writes them, and so is NaN.

    Raises:
        ValueError: It is no JSON, or nested deeper than can be read; the message says where.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("it is nested too deep") from None


def load_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InvalidInputError: It cannot be read; the message names the file.
    """
    try:
        return decoded(path.read_bytes())
    except ValueError as error:
        raise InvalidInputError(f"{path} is not valid JSON: {error}") from error


def read_text(path: Path) -> str:
    """A text file, with broken bytes replaced.

    Raises:
        InvalidInputError: It is not text at all.
    """
    data = path.read_bytes()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        raise InvalidInputError(
            f"{path} is not a text file; name what it is with --from, or convert it first"
        )
    return data.decode("utf-8-sig", "replace")


def head(path: Path, size: int = 65_536) -> str:
    """The beginning of a file as text, for guessing what it is."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return file.read(size).decode("utf-8-sig", "replace")
