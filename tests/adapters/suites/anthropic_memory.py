"""Anthropic's file tools with skep's memory tools in their place; what is in the bank is also put into the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic.lib.tools._beta_builtin_memory_tool as builtin

from skep.adapters.anthropic_tool import AsyncMemoryTool, MemoryTool
from skep.adapters.memory_files import MemoryFiles
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder


def shown(files: MemoryFiles, folder: Path) -> None:
    for path in [*folder.rglob("*")]:
        if path.is_file():
            path.unlink()
    for memory in files._files():
        path = folder / (memory.key or "")[1:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(memory.metadata.get("blank", memory.text))


def opened() -> Bank:
    return Bank.open(":memory:", embedder=HashingEmbedder(32))


class Sync(MemoryTool):
    def __init__(self, base_path: str) -> None:
        super().__init__(opened())
        self.base_path = Path(base_path)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("create", "str_replace", "insert", "delete", "rename"):
            return found

        def call(command: Any) -> Any:
            result = found(command)
            shown(self, self.base_path)
            return result

        return call


class Async(AsyncMemoryTool):
    def __init__(self, base_path: str) -> None:
        super().__init__(opened())
        self.base_path = Path(base_path)

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("create", "str_replace", "insert", "delete", "rename"):
            return found

        async def call(command: Any) -> Any:
            result = await found(command)
            shown(self.files, self.base_path)
            return result

        return call


builtin.BetaLocalFilesystemMemoryTool = Sync
builtin.BetaAsyncLocalFilesystemMemoryTool = Async
