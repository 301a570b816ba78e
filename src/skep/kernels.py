"""The compiled loops of the package `skep-native`, where it is installed; Python and numpy do the same without it."""

from __future__ import annotations

import os
import sys
from typing import Any

SWITCH = "SKEP_NATIVE"
"""Set to 0 in the environment, Python and numpy do everything."""
VERSION = 12
"""Of what the functions take and give. A build of another version is not used, and `skep doctor` says so."""


def found() -> Any:
    """The package, or None."""
    if os.environ.get(SWITCH) == "0" or sys.byteorder != "little":  # it reads files as they lie in memory
        return None
    loops = _installed()
    return loops if getattr(loops, "VERSION", None) == VERSION else None


def outdated() -> bool:
    """Whether the package is there and cannot be used, because it was built from another version."""
    loops = _installed()
    return loops is not None and getattr(loops, "VERSION", None) != VERSION


def _installed() -> Any:
    try:
        import skep_native  # type: ignore[import-not-found]  # pyright: ignore
    except ImportError:  # not there, or not made for this system
        return None
    return skep_native  # pyright: ignore[reportUnknownVariableType]


native: Any = found()
