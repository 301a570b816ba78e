"""Settings of an open bank, and the place of a bank: a given path, `SKEP_BANK`, the project's folder or the user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from skep.errors import ConfigError
from skep.model import Memory, OnConflict

if TYPE_CHECKING:
    from pathlib import Path


BANK_NAME = "bank.skep"
PROJECT_FOLDER = ".skep"
HIVE = "hive://"
"""Begins the address of an agent's bank: `hive://hive.yaml#ana`."""


POLICY = "conflict/policy"
"""The setting of a bank that says what `remember` does with a conflict where neither the call nor `Settings` does."""
POLICIES: tuple[str, ...] = ("ignore", "warn", "supersede", "raise")
_NAMES = f"{POLICY} recall/config recall/updates recall/contradicts redact/kinds review/ask settings/from"
SETTINGS: tuple[str, ...] = tuple(_NAMES.split())
"""The settings that skep reads, by name."""
FAMILIES = frozenset(name.partition("/")[0] for name in SETTINGS)
"""The first parts of their names."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and defaults of one open bank."""

    text_limit: int = 65_536
    """Characters in one memory; longer texts belong in several (see `skep tune index` for documents)."""
    title_limit: int = 500
    label_limit: int = 200
    """Characters in a tag, domain, agent, source or part of a scope."""
    tags_limit: int = 64
    evidence_limit: int = 10_000
    """Memories that may support one, as given in one call."""
    metadata_limit: int = 65_536
    """Bytes of metadata as JSON."""
    busy_seconds: float = 60.0
    """Seconds that a write waits for other processes before `BusyError`."""
    max_drift_seconds: float = 3600.0
    """Events of other replicas stamped further ahead than this are held back until their time comes."""
    held_limit: int = 5_000
    """Events of other replicas that are kept while they wait for one before them, or for their time; the rest is asked
    for again."""
    flush_uses_every: int = 64
    """Use counters are written to the log once per this many recalls, and on close."""
    pure_reads: bool = False
    """True: reading leaves the file as it is, to the byte; use counters, and the space of a new embedder, wait for
    the next write. What waits to be embedded is embedded in the background all the same."""
    embed_when_read: bool = True
    """True: a bank that is only read embeds waiting memories, too. Writing always begins it."""
    close_seconds: float = 5.0
    """Seconds that closing waits for the batch that is being embedded; what is not done by then stays queued."""
    conflict_candidates: int = 8
    """Near memories that are compared with a new one."""
    cache_entries: int = 256
    cache_seconds: float = 60.0
    on_conflict: OnConflict | None = None
    """What `remember` does with a conflict where the call does not say; without it, the bank's setting
    `conflict/policy`, and without that, `warn` (`ignore` for `remember_many`)."""
    contradiction_fn: Callable[[Memory, Memory], bool] | None = None
    """Asked about pairs on which the rules say nothing, by `remember` and `find_conflicts`, where a call names none."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise ConfigError(f"setting {name} must be above 0, got {value!r}")
        if self.on_conflict not in (None, *POLICIES):
            raise ConfigError(
                f"setting on_conflict must be one of {', '.join(POLICIES)}, not {self.on_conflict!r}"
            )
        if self.contradiction_fn is not None and not callable(self.contradiction_fn):
            raise ConfigError("setting contradiction_fn must be a function of two memories")


def bank_url(path: object, environ: Mapping[str, str]) -> str | None:
    """The address of the hub that a bank lies at, if one is meant: the path given, or `SKEP_BANK`; else None.

    >>> bank_url("postgresql://db/team", {}), bank_url("notes.skep", {"SKEP_BANK": "file:///x"})
    ('postgresql://db/team', None)
    """
    named = environ.get("SKEP_BANK") if path is None else path
    return named if isinstance(named, str) and "://" in named else None


def find_bank(path: str | os.PathLike[str] | None, environ: Mapping[str, str], start: Path) -> Path:
    """The path of the bank: the path given, `SKEP_BANK`, the project's `.skep` folder, or the user's own.

    Args:
        path: What the caller asked for, if anything.
        environ: The environment; passed in, so that only entry points read it.
        start: Where to begin looking upward for a project folder.
    """
    from pathlib import Path

    return Path(bank_file(path, environ, start))


def bank_file(
    path: str | os.PathLike[str] | None, environ: Mapping[str, str], start: str | os.PathLike[str]
) -> str:
    """The same as a string, without loading `pathlib`."""
    if path is not None:
        named = os.fspath(path)
        if not named.strip():
            raise ConfigError("the path of the bank is empty; give a file, or leave it out for the default")
        return _expanded(named)
    if environ.get("SKEP_BANK"):
        return _expanded(environ["SKEP_BANK"])
    folder, above = "", os.fspath(start)
    while folder != above:
        folder, above = above, os.path.dirname(above)
        if os.path.isdir(os.path.join(folder, PROJECT_FOLDER)):
            return os.path.join(folder, PROJECT_FOLDER, BANK_NAME)
    return os.path.join(user_data(environ), BANK_NAME)


def _expanded(path: str) -> str:
    """A path with the user's folder in place of `~`, written as `pathlib` would."""
    if "://" in path:
        raise ConfigError(
            f"{path.partition('://')[0]}://… is the address of a hub, and this works on a file; give the path of a file"
        )
    if path.startswith("~"):
        home = os.path.expanduser(path)
        if home.startswith("~"):
            raise ConfigError(f"{path} cannot be resolved (there is no such home); write the path in full")
        path = home
    if os.name != "posix":
        from pathlib import Path

        return str(Path(path))
    root = "/" if path.startswith("/") else ""
    return root + "/".join(part for part in path.split("/") if part not in ("", ".")) or "."


def user_data(environ: Mapping[str, str]) -> str:
    """The user's data folder by the conventions of the platform."""
    home = _expanded(environ.get("HOME") or environ.get("USERPROFILE") or "~")
    if sys.platform == "win32":
        return os.path.join(environ.get("LOCALAPPDATA") or os.path.join(home, "AppData", "Local"), "skep")
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Application Support", "skep")
    return os.path.join(environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share"), "skep")
