"""A memory for AI agents, in one file.

>>> from skep import Bank
>>> with Bank.open(":memory:") as bank:
...     _ = bank.remember("The staging database runs PostgreSQL 16")
...     print(bank.recall("which postgres version is on staging?")[0].memory.text)
The staging database runs PostgreSQL 16
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.aio import AsyncBank
    from skep.bank import Bank, BankStatus, Page
    from skep.config import Settings
    from skep.embedding.base import Embedder
    from skep.errors import ConflictError, InvalidInputError, NotFoundError, SkepError, StorageError
    from skep.model import (
        Conflict,
        Event,
        Graph,
        Hit,
        Link,
        Memory,
        Outcome,
        Ranked,
        Recalled,
        Receipt,
        Remembered,
        Scope,
    )
    from skep.recall.budget import build_context
    from skep.retrieval.config import RecallConfig

__version__ = "0.1.0"

_HOMES = {
    "AsyncBank": "aio",
    "Bank": "bank",
    "BankStatus": "bank",
    "Conflict": "model",
    "ConflictError": "errors",
    "Embedder": "embedding.base",
    "Event": "model",
    "Graph": "model",
    "Hit": "model",
    "InvalidInputError": "errors",
    "Link": "model",
    "Memory": "model",
    "NotFoundError": "errors",
    "Outcome": "model",
    "Page": "bank",
    "Ranked": "model",
    "RecallConfig": "retrieval.config",
    "Recalled": "model",
    "Receipt": "model",
    "Remembered": "model",
    "Scope": "model",
    "Settings": "config",
    "SkepError": "errors",
    "StorageError": "errors",
    "build_context": "recall.budget",
}

__all__ = [
    "AsyncBank",
    "Bank",
    "BankStatus",
    "Conflict",
    "ConflictError",
    "Embedder",
    "Event",
    "Graph",
    "Hit",
    "InvalidInputError",
    "Link",
    "Memory",
    "NotFoundError",
    "Outcome",
    "Page",
    "Ranked",
    "RecallConfig",
    "Recalled",
    "Receipt",
    "Remembered",
    "Scope",
    "Settings",
    "SkepError",
    "StorageError",
    "build_context",
]


def __getattr__(name: str) -> Any:
    """Names are imported when first used, so that `import skep` costs next to nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'skep' has no attribute {name!r}")
    import importlib

    from skep.loading import undisturbed

    with undisturbed():
        value = getattr(importlib.import_module(f"skep.{home}"), name)
    globals()[name] = value
    return value
