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
    from skep.bank.async_bank import AsyncBank
    from skep.bank.bank import Bank
    from skep.bank.bank_file import BankStatus
    from skep.bank.memory_bank import MemoryBank
    from skep.bank.read import Page
    from skep.client.client import AsyncClient, Client
    from skep.config import Settings
    from skep.embedding.embedder import Embedder
    from skep.errors import (
        ConflictError,
        InvalidInputError,
        NotFoundError,
        SkepError,
        StorageError,
        VersionError,
    )
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
    from skep.recall.context_budget import build_context
    from skep.retrieval.recall_config import RecallConfig


__version__ = "0.1.0"

_HOMES = {
    "AsyncBank": "bank.async_bank",
    "AsyncClient": "client.client",
    "Bank": "bank.bank",
    "BankStatus": "bank.bank_file",
    "Client": "client.client",
    "Conflict": "model",
    "ConflictError": "errors",
    "Embedder": "embedding.embedder",
    "Event": "model",
    "Graph": "model",
    "Hit": "model",
    "InvalidInputError": "errors",
    "Link": "model",
    "Memory": "model",
    "MemoryBank": "bank.memory_bank",
    "NotFoundError": "errors",
    "Outcome": "model",
    "Page": "bank.read",
    "Ranked": "model",
    "RecallConfig": "retrieval.recall_config",
    "Recalled": "model",
    "Receipt": "model",
    "Remembered": "model",
    "Scope": "model",
    "Settings": "config",
    "SkepError": "errors",
    "StorageError": "errors",
    "VersionError": "errors",
    "build_context": "recall.context_budget",
}

__all__ = [
    "AsyncBank",
    "AsyncClient",
    "Bank",
    "BankStatus",
    "Client",
    "Conflict",
    "ConflictError",
    "Embedder",
    "Event",
    "Graph",
    "Hit",
    "InvalidInputError",
    "Link",
    "Memory",
    "MemoryBank",
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
    "VersionError",
    "build_context",
]


def __getattr__(name: str) -> Any:
    """Names are imported when first used, so that `import skep` costs next to nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'skep' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"skep.{home}"), name)
    globals()[name] = value
    return value
