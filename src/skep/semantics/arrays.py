"""A small file of named arrays, packed.

::

    compressed as a whole: header length (8) | header, JSON | arrays, each at a multiple of 8

The header names every array with its type and shape. `numpy.load` would read an archive of arrays through `zipfile`,
which takes longer to import than such a file to read, and what stands before each array as a piece of Python.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

ALIGN = 8


def write_arrays(path: str, arrays: Mapping[str, Array]) -> None:
    """Write arrays, in the order of their names."""
    import numpy as np

    header = msgspec.json.encode([(name, each.dtype.str, each.shape) for name, each in arrays.items()])
    parts = [len(header).to_bytes(ALIGN, "little"), _padded(header)]
    parts += [_padded(np.ascontiguousarray(each).tobytes()) for each in arrays.values()]
    with open(path, "wb") as file:
        file.write(zlib.compress(b"".join(parts), 9))


def read_arrays(path: str) -> dict[str, Array]:
    """Every array of the file, by name; they cannot be written to.

    Raises:
        ValueError: It is damaged, or no such file.
    """
    import numpy as np

    with open(path, "rb") as file:
        packed = file.read()
    found: dict[str, Array] = {}
    try:
        data = zlib.decompress(packed)
        length = int.from_bytes(data[:ALIGN], "little")
        listed: Any = msgspec.json.decode(data[ALIGN : ALIGN + length])
        at = ALIGN + _room(length)
        for name, dtype, shape in listed:
            flat = np.frombuffer(data, dtype=dtype, count=math.prod(shape), offset=at)
            found[name] = flat.reshape(shape)
            at += _room(flat.nbytes)
    except (zlib.error, msgspec.DecodeError, ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error})") from error
    return found


def _room(size: int) -> int:
    """The bytes that so many take with what keeps the next ones aligned."""
    return -(-size // ALIGN) * ALIGN


def _padded(data: bytes) -> bytes:
    return data.ljust(_room(len(data)), b"\0")
