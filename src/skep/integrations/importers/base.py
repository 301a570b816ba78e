"""What every importer gives: items to remember, each with where it came from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from skep.errors import InvalidInputError
from skep.private import without_private

TEXT_LIMIT: Final = 60_000
"""Characters of one memory; longer texts are split before they get here."""
LABEL_LIMIT: Final = 200
TITLE_LIMIT: Final = 500
TAGS_LIMIT: Final = 60
MILLISECONDS: Final = 1e11
"""Numbers above this cannot be seconds of this era."""


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
        """What it says."""
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
    clean = tidy(text)[:TEXT_LIMIT].strip()
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


def tidy(text: str) -> str:
    """Text without control characters, broken code points and what is marked as private."""
    mended = without_private(text).encode("utf-8", "replace").decode("utf-8")
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "", mended.replace("\r\n", "\n").replace("\r", "\n"))


def label_of(value: object) -> str:
    """A tag from whatever another program calls one."""
    return re.sub(r"\s+", " ", tidy(str(value))).strip().lstrip("#")[:LABEL_LIMIT]


def source_of(origin: str, key: str) -> str:
    """Where an item came from, short enough to be kept, and the same every time."""
    plain = origin + ":" + " ".join(tidy(key).split())
    if len(plain) <= LABEL_LIMIT:
        return plain
    return plain[: LABEL_LIMIT - 17] + "#" + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:16]


def moment(value: object) -> float | None:
    """Seconds since the epoch, from seconds, milliseconds or an ISO text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        seconds = float(value) / 1000 if abs(value) > MILLISECONDS else float(value)
        return seconds if 0 < seconds < 1e11 else None
    try:
        parsed = datetime.fromisoformat(str(value).strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def load_json(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InvalidInputError: It cannot be read; the message names the file.
    """
    try:
        return msgspec.json.decode(path.read_bytes())
    except (msgspec.DecodeError, RecursionError) as error:
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
