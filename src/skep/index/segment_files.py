"""Segment files: named arrays in one file that is whole or absent, and the manifest of a folder of them.

::

    magic (8) | header length (4) | header checksum (4) | header, JSON | arrays, each at a multiple of 64

The header names every array with its type, shape, place and checksum, and the size of the whole file. It is checked
when the file is opened; the arrays are only mapped, and checked by `verify`. Arrays with the same content stand
there once. The manifest says which files belong to an index; a lock says who may write. `catch_up` uses both.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import struct
import sys
import time
import zlib
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]
    Arrays = Mapping[str, Array]

MAGIC = b"skepseg1"
VERSION = 4
ALIGN = 64
FILE_MODE = 0o600
PIECE = 1 << 16
"""Bytes written at a time. Linux keeps what was written at once in one piece of memory, up to two megabytes, and
whoever then touches a byte of the mapped file has all of it in memory; small pieces also take less time to write."""
_PREFIX = struct.Struct("<8sII")


class BadFileError(Exception):
    """The file is damaged, truncated or not ours. It never leaves this package: the index is built again."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """The place of one array."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    checksum: int


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a file."""

    version: int
    kind: str
    owner: str
    """Identity, fingerprint and dimension of the bank it was made from."""
    size: int
    arrays: tuple[Entry, ...]


class MappedFile:
    """A file of arrays, mapped. Arrays are views; nothing is read until it is touched."""

    def __init__(self, path: str, header: Header, data: mmap.mmap) -> None:
        self.path = path
        self.header = header
        self._data = data

    def arrays(self) -> dict[str, Array]:
        """Every array of the file, as read-only views."""
        return {entry.name: self._view(entry) for entry in self.header.arrays}

    @property
    def whole(self) -> bool:
        """True if the file still has all of its bytes. Reading one that was cut off would end the process (SIGBUS)."""
        return self._data.size() >= self.header.size

    def verify(self, names: Collection[str] | None = None) -> None:
        """Read every byte, or those of some arrays, and compare with the checksums.

        Raises:
            BadFileError: The file is not as it was written.
        """
        if not self.whole:
            raise BadFileError(f"{os.path.basename(self.path)}: cut off")
        for entry in self.header.arrays:
            if (names is None or entry.name in names) and zlib.crc32(
                _bytes(self._view(entry))
            ) != entry.checksum:
                raise BadFileError(f"{os.path.basename(self.path)}: {entry.name} is damaged")

    def _view(self, entry: Entry) -> Array:
        count = math.prod(entry.shape)
        flat = np.frombuffer(self._data, dtype=np.dtype(entry.dtype), count=count, offset=entry.offset)
        return flat.reshape(entry.shape)


def write_file(path: str, kind: str, owner: str, arrays: Arrays) -> int:
    """Write the arrays beside `path`, make them durable, and rename. Returns the size in bytes."""
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    header, places = _layout(kind, owner, solid)
    with replacing(path) as descriptor:
        _write_all(descriptor, header)
        position = len(header)
        for place, array in zip(places, solid.values(), strict=True):
            if place < position:
                continue  # it stands there already
            _write_all(descriptor, b"\0" * (place - position))
            _write_all(descriptor, _bytes(array))
            position = place + array.nbytes
    return position


def open_file(path: str, kind: str, owner: str) -> MappedFile:
    """Map a file after checking that it is whole, of this version, kind and owner.

    Raises:
        BadFileError: It is anything else, or not there.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            header = _read_header(file.read(_PREFIX.size), file.read)
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise BadFileError(f"{os.path.basename(path)}: {error}") from error
    if (header.version, header.kind, header.owner, header.size) != (
        VERSION,
        kind,
        owner,
        size,
    ):
        raise BadFileError(f"{os.path.basename(path)}: of another version, bank or size")
    if any(entry.offset + _nbytes(entry) > size for entry in header.arrays):
        raise BadFileError(f"{os.path.basename(path)}: an array lies outside the file")
    return MappedFile(path, header, data)


class replacing:
    """A descriptor to a new private file that takes the place of `path` when the block ends well."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._folder, name = os.path.split(path)
        self._beside = os.path.join(self._folder, f".{name}.{os.getpid()}.tmp")
        self._descriptor = -1

    def __enter__(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(self._beside, flags, FILE_MODE)
        return self._descriptor

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                os.fsync(self._descriptor)
        finally:
            os.close(self._descriptor)
            if kind is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self._beside)
        if kind is None:
            os.replace(self._beside, self._path)
            sync_folder(self._folder)


def sync_folder(folder: str) -> None:
    """Make renames in a folder durable, where the system can."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _nbytes(entry: Entry) -> int:
    return math.prod(entry.shape) * np.dtype(entry.dtype).itemsize


def _layout(kind: str, owner: str, arrays: Arrays) -> tuple[bytes, list[int]]:
    """The header, padded, and the place of every array."""
    checksums = [zlib.crc32(_bytes(array)) for array in arrays.values()]
    room = 256 + len(owner) * 6 + 160 * len(arrays)
    start = -(-(_PREFIX.size + room) // ALIGN) * ALIGN
    places: list[int] = []
    known: dict[tuple[int, int], tuple[int, memoryview]] = {}
    position = start
    for array, checksum in zip(arrays.values(), checksums, strict=True):
        place, same = known.get((checksum, array.nbytes), (0, None))
        if same is None or not array.nbytes or same != _bytes(array):
            place = position = -(-position // ALIGN) * ALIGN
            known[checksum, array.nbytes] = place, _bytes(array)
            position += array.nbytes
        places.append(place)
    entries = tuple(
        Entry(name, array.dtype.str, array.shape, place, checksum)
        for (name, array), place, checksum in zip(arrays.items(), places, checksums, strict=True)
    )
    header = Header(
        version=VERSION,
        kind=kind,
        owner=owner,
        size=max(position, start),
        arrays=entries,
    )
    body = msgspec.json.encode(header).ljust(start - _PREFIX.size)
    return _PREFIX.pack(MAGIC, len(body), zlib.crc32(body)) + body, places


def _read_header(prefix: bytes, read: Any) -> Header:
    if len(prefix) < _PREFIX.size:
        raise ValueError("too short")
    magic, length, checksum = _PREFIX.unpack(prefix)
    if magic != MAGIC or length > 1 << 20:
        raise ValueError("not an index file")
    body: bytes = read(length)
    if len(body) != length or zlib.crc32(body) != checksum:
        raise ValueError("damaged header")
    try:
        raw: Any = msgspec.json.decode(body)  # untyped: preparing for a type takes a millisecond
        raw["arrays"] = tuple(
            Entry(n, dtype, tuple(shape), *rest) for n, dtype, shape, *rest in raw["arrays"]
        )
        return Header(**raw)
    except (msgspec.MsgspecError, TypeError, KeyError) as error:
        raise ValueError("unreadable header") from error


def _write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view[:PIECE]) :]


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
    """The files of an index. Replaced as a whole, never changed."""

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
