"""A bank as Claude's memory tool: the files that the model writes under `/memories` are memories.

A program that calls `client.beta.messages.run_tools` gives it `MemoryTool` or `AsyncMemoryTool`. What they do is in
`memory_files`; a file that the model forgot about is still found by `recall`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from skep.errors import MissingExtraError

try:
    from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool

    from skep.adapters.memory_files import MemoryFiles
except ImportError as error:
    raise MissingExtraError("MemoryTool", "anthropic") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.model import ScopeLike


class MemoryTool(MemoryFiles, BetaAbstractMemoryTool):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Claude's memory tool over a bank."""

    def __init__(self, bank: MemoryBank, *, scope: ScopeLike = ("memories",), **options: Any) -> None:
        BetaAbstractMemoryTool.__init__(self, **options)
        MemoryFiles.__init__(self, bank, scope)


class AsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The same, awaited; the bank works in a thread."""

    def __init__(self, bank: MemoryBank, *, scope: ScopeLike = ("memories",), **options: Any) -> None:
        super().__init__(**options)
        self.files = MemoryFiles(bank, scope)

    async def view(self, command: Any) -> str:
        """See `MemoryFiles.view`."""
        return await asyncio.to_thread(self.files.view, command)

    async def create(self, command: Any) -> str:
        """See `MemoryFiles.create`."""
        return await asyncio.to_thread(self.files.create, command)

    async def str_replace(self, command: Any) -> str:
        """See `MemoryFiles.str_replace`."""
        return await asyncio.to_thread(self.files.str_replace, command)

    async def insert(self, command: Any) -> str:
        """See `MemoryFiles.insert`."""
        return await asyncio.to_thread(self.files.insert, command)

    async def delete(self, command: Any) -> str:
        """See `MemoryFiles.delete`."""
        return await asyncio.to_thread(self.files.delete, command)

    async def rename(self, command: Any) -> str:
        """See `MemoryFiles.rename`."""
        return await asyncio.to_thread(self.files.rename, command)

    async def clear_all_memory(self) -> str:
        """See `MemoryFiles.clear_all_memory`."""
        return await asyncio.to_thread(self.files.clear_all_memory)
