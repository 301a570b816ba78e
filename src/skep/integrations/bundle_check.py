"""The checker of bundles: a zip of JSON lines with a manifest, checksums and tombstones (docs/reference/bundle.md).

It needs nothing but Python, so that whoever writes or reads bundles may copy this file: `python bundle_check.py FILE`
prints what is wrong and exits with 1. `skep import` asks it before anything is taken in. Nothing is unpacked to disk.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any, cast

FORMAT = "skep-bundle"
VERSION = 1
MANIFEST = "manifest.json"
MEMORIES, LINKS, TOMBSTONES, EVENTS = "memories.jsonl", "links.jsonl", "tombstones.jsonl", "events.jsonl"
REQUIRED = (MEMORIES, LINKS, TOMBSTONES)
MOST_BYTES = 1 << 30
"""The largest part that is read."""
RATIO, PLAIN_BYTES = 100, 64 << 20
"""How densely a part larger than this may be packed."""
KINDS = ("fact", "episode", "procedure", "document")


class BrokenBundleError(ValueError):
    """A file that is no bundle, or one that cannot be read."""


def is_bundle(path: str) -> bool:
    """True for a zip whose manifest says that it is a bundle."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _manifest(archive).get("format") == FORMAT
    except (BrokenBundleError, OSError, zipfile.BadZipFile):
        return False


def check(path: str) -> list[str]:
    """What is wrong with a bundle, in words; nothing if it is whole.

    Raises:
        BrokenBundleError: It cannot be read as a bundle at all.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            manifest = _manifest(archive)
            if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
                return [f"{MANIFEST}: not a {FORMAT} of version {VERSION}"]
            listed = manifest.get("files")
            if not isinstance(listed, dict):
                return [f"{MANIFEST}: `files` is missing"]
            files = cast("dict[str, Any]", listed)
            wrong = [f"{name}: missing" for name in REQUIRED if name not in files]
            there = {one.filename for one in archive.infolist()}
            wrong += [f"{name}: not in {MANIFEST}" for name in sorted(there - files.keys() - {MANIFEST})]
            for name, told in files.items():
                wrong += [f"{name}: missing"] if name not in there else _part(archive, name, told)
            if not wrong:
                wrong = _contents(archive)
            return wrong
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError, EOFError) as error:
        raise BrokenBundleError(f"{path} cannot be read as a bundle: {error}") from error


def lines(archive: zipfile.ZipFile, name: str) -> Iterator[dict[str, Any]]:
    """The objects of a part, one a line."""
    for number, line in enumerate(_bytes(archive, name).splitlines(), 1):
        try:
            value: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BrokenBundleError(f"{name}, line {number}: no JSON: {error}") from error
        if not isinstance(value, dict):
            raise BrokenBundleError(f"{name}, line {number}: not an object")
        yield cast("dict[str, Any]", value)


def _manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    if MANIFEST not in archive.namelist():
        raise BrokenBundleError(f"there is no {MANIFEST} in it")
    try:
        found: Any = json.loads(_bytes(archive, MANIFEST))
    except (ValueError, RecursionError) as error:
        raise BrokenBundleError(f"{MANIFEST} is no JSON: {error}") from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _bytes(archive: zipfile.ZipFile, name: str) -> bytes:
    about = archive.getinfo(name)
    if about.file_size > MOST_BYTES or about.file_size > max(PLAIN_BYTES, RATIO * about.compress_size):
        raise BrokenBundleError(f"{name} would unpack to {about.file_size:,} bytes, which no bundle does")
    return archive.read(name)


def _part(archive: zipfile.ZipFile, name: str, told: Any) -> list[str]:
    data = _bytes(archive, name)
    about = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    wrong: list[str] = []
    if hashlib.sha256(data).hexdigest() != about.get("sha256"):
        wrong.append(f"{name}: the checksum differs")
    if len(data.splitlines()) != about.get("lines"):
        wrong.append(f"{name}: {len(data.splitlines())} lines, and {about.get('lines')} in {MANIFEST}")
    return wrong


def _contents(archive: zipfile.ZipFile) -> list[str]:
    """What does not hold together: ids twice, unknown kinds, tombstones of what is there."""
    wrong: list[str] = []
    try:
        ids: set[str] = set()
        for number, memory in enumerate(lines(archive, MEMORIES), 1):
            name = memory.get("id")
            required: dict[str, Callable[[Any], bool]] = {
                "id": lambda value: isinstance(value, str) and value not in ids,
                "text": lambda value: isinstance(value, str) and bool(value.strip()),
                "kind": lambda value: value in KINDS,
                "created_at": lambda value: isinstance(value, str) and value[:4].isdigit(),
            }
            bad = [field for field, holds in required.items() if not holds(memory.get(field))]
            wrong += [f"{MEMORIES}, line {number}: {field} is missing, wrong or twice" for field in bad]
            ids.add(str(name))
        dead = {str(one.get("id")) for one in lines(archive, TOMBSTONES)}
        wrong += [f"{TOMBSTONES}: {name} is among the memories" for name in sorted(dead & ids)]
        for number, link in enumerate(lines(archive, LINKS), 1):
            if not all(isinstance(link.get(field), str) for field in ("src", "dst", "rel")):
                wrong.append(f"{LINKS}, line {number}: src, dst and rel are needed")
    except BrokenBundleError as error:
        wrong.append(str(error))
    return wrong


def main(path: str) -> int:
    """Print what is wrong; the exit code."""
    try:
        wrong = check(path)
    except BrokenBundleError as error:
        wrong = [str(error)]
    sys.stdout.write("\n".join(wrong or ["whole"]) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
