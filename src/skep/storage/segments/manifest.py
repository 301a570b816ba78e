"""The folder of an index: which files belong to it, who may write, and what to sweep away."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import zlib
from typing import Any

import msgspec

from skep.storage.segments.format import FILE_MODE, replacing

NAME = "manifest.json"
LOCK = "lock"
SUFFIXES = (".seg", ".frame", ".tmp")
PAUSE = 0.02
"""Seconds between two looks at a lock that another process holds."""


class Listed(msgspec.Struct, frozen=True, array_like=True):
    """A segment file, and how large it must be."""

    name: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the folder holds. Replaced as a whole, never changed."""

    owner: str
    """Format, bank, embedder and dimension: all must agree, or everything is built again."""
    generation: str
    """Differs after every change of the folder."""
    position: int
    """The newest event that the segments know."""
    frame: str | None
    segments: tuple[Listed, ...]
    checksum: int = 0


def sealed(manifest: Manifest) -> Manifest:
    """The manifest with its checksum."""
    bare = msgspec.structs.replace(manifest, checksum=0)
    return msgspec.structs.replace(bare, checksum=zlib.crc32(msgspec.json.encode(bare)))


def load_manifest(folder: str, owner: str) -> Manifest | None:
    """The manifest of a folder; None if there is none, or none that can be trusted."""
    try:
        with open(os.path.join(folder, NAME), "rb") as file:
            raw: Any = msgspec.json.decode(file.read())  # untyped: preparing for a type takes a millisecond
        raw["segments"] = tuple(Listed(*each) for each in raw["segments"])
        manifest = Manifest(**raw)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError):
        return None
    if manifest.owner != owner or manifest != sealed(manifest):
        return None
    return manifest


def save_manifest(folder: str, manifest: Manifest) -> None:
    """Put a manifest in place of the one that is there, at once or not at all."""
    with replacing(os.path.join(folder, NAME)) as descriptor:
        os.write(descriptor, msgspec.json.encode(sealed(manifest)))


def sweep(folder: str, manifest: Manifest | None) -> None:
    """Delete the files that no manifest names. Call it with the lock held.

    Other processes may still have them mapped: on POSIX the mapping outlives the name; on Windows the deletion
    fails and the next sweep tries again.
    """
    kept = {listed.name for listed in manifest.segments} | {manifest.frame} if manifest else set[str]()
    for name in os.listdir(folder):
        if name.endswith(SUFFIXES) and name not in kept:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


class Holding:
    """The lock of a folder for the length of a block; `held` says whether it was had in time.

    The system gives it back when the process dies. Without a folder there is nobody to share with.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, patience: float) -> None:
        self._path = None if folder is None else os.path.join(folder, LOCK)
        self._patience = patience
        self._descriptor = -1
        self.held = False

    def __enter__(self) -> Holding:
        if self._path is None:
            self.held = True
            return self
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, FILE_MODE)
        deadline = time.monotonic() + self._patience
        self.held = _lock(self._descriptor)
        while not self.held and time.monotonic() < deadline:
            time.sleep(PAUSE)
            self.held = _lock(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


if sys.platform == "win32":

    def _lock(descriptor: int) -> bool:
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _lock(descriptor: int) -> bool:
        import fcntl

        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
