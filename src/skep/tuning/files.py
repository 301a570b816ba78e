"""Reading and writing the files of a workspace: bounded, inside the folder, and all or nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, cast

from skep.tuning.findings import Finding, RefusedError
from skep.tuning.schemas import NAME

MAX_JSON_BYTES = 8 * 1024 * 1024
MAX_DEPTH = 32


class _DuplicateKeyError(ValueError):
    """An object states a key twice."""


def read_json(root: Path, relative: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """The JSON object in a file, or findings that say why there is none."""

    def failed(code: str, what: str, fix: str) -> tuple[None, list[Finding]]:
        return None, [Finding(code=code, file=relative, what=what, fix=fix)]

    file = root / relative
    try:
        if not inside(root, file):
            return failed(
                "outside-workspace", "it links to a place outside the workspace", "copy the file in"
            )
        size = file.stat().st_size
        if size > MAX_JSON_BYTES:
            limit = MAX_JSON_BYTES // 1024 // 1024
            return failed("too-large", f"it has {size:,} bytes", f"keep it under {limit} MiB; split it")
        text = file.read_bytes().decode("utf-8-sig")
        value: object = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except OSError as error:
        return failed(
            "unreadable", f"it cannot be read ({error.strerror or error})", "check that it is a file"
        )
    except UnicodeDecodeError as error:
        return failed("not-utf8", f"byte {error.start} is not UTF-8", "save it as UTF-8")
    except _DuplicateKeyError as error:
        return failed("duplicate-key", str(error), "keep one of them")
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        return failed("malformed-json", f"{error.msg.lower()} at {place}", "correct the JSON there")
    except RecursionError:
        return failed("too-deep", "it is nested too deeply", f"nest at most {MAX_DEPTH} levels")
    except ValueError as error:
        return failed("malformed-json", str(error), "use plain JSON numbers")
    if not isinstance(value, dict):
        return failed("wrong-type", "it holds no JSON object", "put the keys between { and }")
    found = cast("dict[str, Any]", value)
    if _depth(found) > MAX_DEPTH:
        return failed("too-deep", "it is nested too deeply", f"nest at most {MAX_DEPTH} levels")
    return found, []


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file so that readers see the old one or the new one."""
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(file: Path, text: str) -> None:
    """As `write_json`, for text."""
    write_bytes(file, text.encode("utf-8"))


def write_bytes(file: Path, data: bytes) -> None:
    """As `write_json`, for bytes; a failure is a finding and leaves the old file as it was."""
    temporary = ""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        what = f"it cannot be written ({error.strerror or error})"
        fix = "check the folder's permissions and the free space"
        raise RefusedError([Finding(code="write-failed", file=str(file.name), what=what, fix=fix)]) from error


def inside(root: Path, file: Path) -> bool:
    """Whether `file`, links followed, lies within `root`."""
    try:
        return file.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return False


def is_name(text: str) -> bool:
    """Whether `text` may name a config, a collection or an eval set.

    >>> is_name("v1-naive"), is_name("../v1"), is_name("")
    (True, False, False)
    """
    return len(text) <= 64 and re.fullmatch(NAME, text) is not None


def is_document_path(text: str) -> bool:
    """Whether `text` is a path that stays below `documents/`.

    >>> is_document_path("api/jobs.md"), is_document_path("../x.md"), is_document_path("/etc/hosts")
    (True, False, False)
    """
    if not text or "\\" in text or "\0" in text or ":" in text.partition("/")[0]:
        return False
    path = PurePosixPath(text)
    return not path.is_absolute() and ".." not in path.parts and str(path) == text


def walk(root: Path, below: str) -> Iterator[tuple[str, Finding | None]]:
    """Every file below a folder, relative to it. Links to folders are reported and not followed."""
    base = root / below
    for folder, names, files in os.walk(base, followlinks=False):
        here = Path(folder)
        kept: list[str] = []
        for name in sorted(names):
            child = here / name
            relative = child.relative_to(root).as_posix()
            if child.is_symlink():
                yield relative, _link(root, child, relative)
            elif not name.startswith("."):
                kept.append(name)
        names[:] = kept
        for name in sorted(files):
            if name.startswith("."):
                continue
            file = here / name
            relative = file.relative_to(root).as_posix()
            if file.is_symlink() and not inside(root, file):
                what, fix = "it links to a place outside the workspace", "copy the file in"
                yield relative, Finding(code="outside-workspace", file=relative, what=what, fix=fix)
            else:
                yield file.relative_to(base).as_posix(), None


def _link(root: Path, child: Path, relative: str) -> Finding:
    try:
        target = child.resolve()
        cyclic = child.parent.resolve().is_relative_to(target)
    except (OSError, RuntimeError):
        target, cyclic = root, True
    if cyclic:
        what, fix = "the link leads back to one of its own parents", "remove the link"
        return Finding(code="cyclic-link", file=relative, what=what, fix=fix)
    if not target.is_relative_to(root.resolve()):
        what, fix = "the link leads outside the workspace", "copy the folder in"
        return Finding(code="outside-workspace", file=relative, what=what, fix=fix)
    what, fix = "links to folders are not followed", "copy the folder, or remove the link"
    return Finding(code="linked-folder", file=relative, what=what, fix=fix, severity="warning")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _DuplicateKeyError(f"the key {key[:80]!r} is stated twice in one object")
        made[key] = value
    return made


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _depth(value: object) -> int:
    deepest, level = 0, [value]
    while level:
        deepest += 1
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(cast("dict[str, object]", item).values())
            elif isinstance(item, list):
                inner.extend(cast("list[object]", item))
        level = inner
    return deepest
