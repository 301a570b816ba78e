"""The compiled loops of the package `skep-native`, where it is installed; numpy does the same without it."""

from __future__ import annotations

import os
from typing import Any

SWITCH = "SKEP_NATIVE"
"""Set to 0 in the environment, numpy does everything."""
NEEDED = (
    "rank",
    "narrow",
    "weigh",
    "coarse",
    "cosines",
    "vectors",
    "turn",
    "probe",
    "reach",
    "top",
    "best",
    "locate",
    "find",
    "score",
    "gains",
)
"""What searches call. A build that lacks any of it is of another version, and is not used."""


def _found() -> Any:
    if os.environ.get(SWITCH) == "0":
        return None
    try:
        import skep_native  # type: ignore[import-not-found]  # pyright: ignore
    except ImportError:  # not there, or not made for this system
        return None
    loops: Any = skep_native
    return loops if all(hasattr(loops, name) for name in NEEDED) else None


native: Any = _found()
