"""Write, show and take back a client's configuration. What was there stays, and is backed up first."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import msgspec

from skep.errors import ConfigError
from skep.integrations import jsonc, tomltext
from skep.integrations.clients import HOOK_COMMAND, Edit


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file before and after."""

    file: Path
    before: str | None
    """None when there was no such file."""
    after: str
    backup: Path | None = None

    @property
    def changed(self) -> bool:
        """Whether anything is different."""
        return (self.before or "") != self.after


def plan_install(edits: Iterable[Edit]) -> list[Change]:
    """What the files will be; nothing is written.

    Raises:
        ConfigError: A file cannot be read or edited safely.
    """
    return _plan(edits, _apply)


def plan_uninstall(edits: Iterable[Edit]) -> list[Change]:
    """What the files will be without us; nothing is written."""
    return [change for change in _plan(edits, _revert) if change.before is not None]


def write(changes: Iterable[Change], now: float) -> list[Change]:
    """Write what changed, whole or not at all per file, each with a backup beside it."""
    done: list[Change] = []
    for change in changes:
        if not change.changed:
            done.append(change)
            continue
        file = Path(os.path.realpath(change.file))
        backup = None
        if change.before is not None:
            backup = _unused(file, time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)))
            _replace(backup, change.before, like=file)
        file.parent.mkdir(parents=True, exist_ok=True)
        _replace(file, change.after, like=file)
        done.append(msgspec.structs.replace(change, backup=backup))
    return done


def _unused(file: Path, stamp: str) -> Path:
    """A name for a backup that no earlier backup has, however soon after it this one is."""
    names = (f"{file.name}.skep-{stamp}{suffix}.bak" for suffix in ("", *(f"-{n}" for n in range(1, 1000))))
    return next(found for name in names if not (found := file.with_name(name)).exists())


def show(edits: Iterable[Edit], home: Path) -> str:
    """The lines to add by hand, per file."""
    per_file: dict[tuple[Path, str], str] = {}
    for edit in edits:
        key = (edit.file, edit.format)
        per_file[key] = _apply(per_file.get(key, ""), edit)
    blocks = [f"# {_short(file, home)}\n{text.rstrip()}" for (file, _), text in per_file.items()]
    return "\n\n".join(blocks) + "\n"


def _short(file: Path, home: Path) -> str:
    with contextlib.suppress(ValueError):
        return "~/" + file.relative_to(home).as_posix()
    return str(file)


def _plan(edits: Iterable[Edit], step: Any) -> list[Change]:
    before: dict[Path, str | None] = {}
    after: dict[Path, str] = {}
    for edit in edits:
        if edit.file not in before:
            before[edit.file] = _read(edit.file)
        try:
            after[edit.file] = step(after.get(edit.file, before[edit.file] or ""), edit)
        except ConfigError as error:
            raise ConfigError(f"{edit.file}: {error}") from error
    return [Change(file=file, before=before[file], after=after[file]) for file in before]


def _apply(text: str, edit: Edit) -> str:
    name = ".".join(edit.path)
    if edit.format == "toml":
        return tomltext.put_table(text, name, edit.value)
    if edit.how == "append":
        return jsonc.append(_drop_other_hooks(text, edit), edit.path, edit.value)
    return jsonc.put(text, edit.path, edit.value)


def _drop_other_hooks(text: str, edit: Edit) -> str:
    """An older line of ours, with another command or timeout, makes way for the new one."""
    if not text.strip():
        return text
    return jsonc.remove_items(text, edit.path, lambda item: _ours(item) and item != edit.value)


def _revert(text: str, edit: Edit) -> str:
    if not text.strip():
        return text
    if edit.format == "toml":
        return tomltext.remove_table(text, ".".join(edit.path))
    if edit.how == "append":
        return jsonc.remove_items(text, edit.path, _ours)
    return jsonc.remove(text, edit.path)


def _ours(group: Any) -> bool:
    """Whether a group of hooks runs nothing but our command."""
    handlers: Any = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
    commands = [
        str(cast("dict[str, Any]", one).get("command", ""))
        for one in cast("list[Any]", handlers or [])
        if isinstance(one, dict)
    ]
    return bool(commands) and all(HOOK_COMMAND.search(command) for command in commands)


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text; nothing was changed") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; nothing was changed") from error


def _replace(file: Path, text: str, *, like: Path) -> None:
    """Write beside, then rename, with the permissions of the file it stands in for."""
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(name, mode)
        os.replace(name, file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
