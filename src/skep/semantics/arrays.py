"""The arrays of a file that `numpy.savez_compressed` wrote.

`numpy.load` reads them through `zipfile`, which takes longer to import than a small file to read.
"""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_END = struct.Struct("<4s4xHHII2x")
_ENTRY = struct.Struct("<4s6xH4xIII3H8xI")
_LOCAL = struct.Struct("<26xHH")
STORED, DEFLATED = 0, 8


def read_arrays(path: str) -> dict[str, NDArray[Any]]:
    """Every array of the file, by name.

    Raises:
        ValueError: It is damaged, or no such file.
    """
    from numpy.lib.format import read_array

    with open(path, "rb") as file:
        data = file.read()
    try:
        return {
            name.removesuffix(".npy"): read_array(BytesIO(raw), allow_pickle=False)
            for name, raw in _members(data)
        }
    except (struct.error, zlib.error) as error:
        raise ValueError(f"{path} is damaged ({error})") from error


def _members(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The names and contents of a zip archive without comment, encryption or more than four gigabytes."""
    magic, _, count, _, at = _END.unpack(data[-_END.size :])
    if magic != b"PK\5\6":
        raise ValueError("not an archive of arrays, or one cut short")
    for _ in range(count):
        magic, method, checksum, size, _whole, named, extra, noted, local = _ENTRY.unpack_from(data, at)
        name = data[at + _ENTRY.size : at + _ENTRY.size + named].decode()
        start = local + _LOCAL.size + sum(_LOCAL.unpack_from(data, local))
        raw = data[start : start + size]
        if method == DEFLATED:
            raw = zlib.decompress(raw, -zlib.MAX_WBITS)
        if magic != b"PK\1\2" or method not in (STORED, DEFLATED) or zlib.crc32(raw) != checksum:
            raise ValueError(f"{name} is damaged, or packed in a way that is not known here")
        yield name, raw
        at += _ENTRY.size + named + extra + noted
