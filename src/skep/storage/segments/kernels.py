"""The compiled loops of the package `skep-native`, where it is installed; numpy does the same without it."""

from __future__ import annotations

from typing import Any

from skep.compiled import found

native: Any = found()
