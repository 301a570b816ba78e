"""The files of Claude's memory tool, as memories of a bank: the six commands, worded as in Anthropic's own tool.

`anthropic_tool` calls it. A file is one memory: its path is the key, its content the text.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from skep.errors import InvalidInputError, MissingExtraError, VersionError
from skep.model import Memory, ScopeLike

try:
    from anthropic.lib.tools import ToolError
except ImportError as error:
    raise MissingExtraError("MemoryTool", "anthropic") from error

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank

ROOT = "/memories"
MOST_LINES = 999_999
WIDTH = len(str(MOST_LINES))
DEPTH = 2
"""Levels of folders that a view shows."""
BLANK = "blank"
"""Metadata of a file with nothing to see in it: its content. A memory has at least one visible character."""


class MemoryFiles:
    """The six commands over a bank; their answers are worded as in Anthropic's own tool.

    Args:
        bank: The bank, or an agent's bank in a hive.
        scope: Whose files these are. Give each user or agent one of its own.
    """

    def __init__(self, bank: MemoryBank, scope: ScopeLike) -> None:
        self.bank = bank
        self.scope = scope

    def view(self, command: Any) -> str:
        """A file with line numbers, or a folder two levels deep."""
        path = _clean(command.path)
        memory = self._file(path)
        if memory is None:
            return self._folder(path, command.path)
        lines = _content(memory).split("\n")
        if len(lines) > MOST_LINES:
            raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
        start, shown = 1, lines
        if command.view_range and len(command.view_range) == 2:
            first, last = command.view_range
            start = max(1, first)
            shown = lines[start - 1 : len(lines) if last == -1 else last]
        numbered = "\n".join(_numbered(shown, start))
        return f"Here's the content of {command.path} with line numbers:\n{numbered}"

    def create(self, command: Any) -> str:
        """A new file."""
        path = _clean(command.path)
        if self._file(path) is not None or path == ROOT or any(self._below(path)):
            raise ToolError(f"File {command.path} already exists")
        self._write(path, command.file_text)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: Any) -> str:
        """Put one text in the place of another, which must stand there once."""
        memory = self._existing(command.path)
        content, old = _content(memory), command.old_str
        count = content.count(old)
        if count == 0:
            raise ToolError(
                f"No replacement was performed, old_str `{old}` did not appear verbatim in {command.path}."
            )
        if count > 1:
            lines = ", ".join(str(content[:at].count("\n") + 1) for at in _places(content, old))
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: {lines}."
                " Please ensure it is unique"
            )
        changed = content[: content.find(old)].count("\n")
        new = content.replace(old, command.new_str)
        self._write(memory.key or "", new, memory)
        start = max(0, changed - 2)
        snippet = "\n".join(_numbered(new.split("\n")[start : changed + 3], start + 1))
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            + snippet
        )

    def insert(self, command: Any) -> str:
        """Put a text behind a line."""
        memory = self._existing(command.path)
        lines = _content(memory).split("\n")
        if lines[-1] == "":
            lines.pop()
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. It should be within the range"
                f" [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._write(memory.key or "", "\n".join(lines).rstrip("\n") + "\n", memory)
        return f"The file {command.path} has been edited."

    def delete(self, command: Any) -> str:
        """Take a file or a folder back. A person can restore it; `forget` erases it."""
        path = _clean(command.path)
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        memory = self._file(path)
        found = list(self._below(path)) if memory is None else [memory]
        if not found:
            raise ToolError(f"The path {command.path} does not exist")
        for each in found:
            self.bank.retract(each.id, "deleted by the memory tool")
        return f"Successfully deleted {command.path}"

    def rename(self, command: Any) -> str:
        """Give a file or a folder another path."""
        old, new = _clean(command.old_path), _clean(command.new_path)
        if old == ROOT:
            raise ToolError("Cannot rename the /memories directory itself")
        if new == ROOT or self._file(new) is not None or any(self._below(new)):
            raise ToolError(f"The destination {command.new_path} already exists")
        memory = self._file(old)
        found = list(self._below(old)) if memory is None else [memory]
        if not found:
            raise ToolError(f"The path {command.old_path} does not exist")
        for each in found:
            path = new + (each.key or "").removeprefix(old)
            self.bank.revise(each.id, key=path, title=path.removeprefix(ROOT + "/"))
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def clear_all_memory(self) -> str:
        """Erase every file for good."""
        found = [memory.id for memory in self._files()]
        if found:
            self.bank.forget(found)
        return "All memory cleared"

    def _folder(self, path: str, asked: str) -> str:
        sizes: dict[str, int] = {}
        for memory in self._below(path):
            parts = (memory.key or "").removeprefix(path + "/").split("/")
            size = len(_content(memory).encode())
            if any(part.startswith(".") for part in parts):
                continue
            for depth in range(1, min(len(parts), DEPTH) + 1):
                name = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
                sizes[name] = sizes.get(name, 0) + size
        if not sizes and path != ROOT:
            raise ToolError(f"The path {asked} does not exist. Please provide a valid path.")
        whole = sum(size for name, size in sizes.items() if name.count("/") == name.endswith("/"))
        lines = [f"{_size(whole)}\t{asked}", *(f"{_size(sizes[n])}\t{asked}/{n}" for n in sorted(sizes))]
        head = f"Here're the files and directories up to 2 levels deep in {asked}, excluding hidden items:"
        return "\n".join([head, *lines])

    def _files(self) -> Iterator[Memory]:
        cursor: str | None = None
        while True:
            page = self.bank.find(scope=self.scope, kind="document", limit=1000, cursor=cursor)
            yield from (memory for memory in page if (memory.key or "").startswith(ROOT + "/"))
            if (cursor := page.cursor) is None:
                return

    def _below(self, path: str) -> Iterator[Memory]:
        return (memory for memory in self._files() if (memory.key or "").startswith(path + "/"))

    def _file(self, path: str) -> Memory | None:
        found = self.bank.find(key=path, scope=self.scope, kind="document", limit=1).memories
        return found[0] if found else None

    def _existing(self, asked: str) -> Memory:
        path = _clean(asked)
        memory = self._file(path)
        if memory is None:
            if path == ROOT or any(self._below(path)):
                raise ToolError(f"The path {asked} is not a file.")
            raise ToolError(f"The path {asked} does not exist. Please provide a valid path.")
        return memory

    def _write(self, path: str, content: str, over: Memory | None = None) -> None:
        """Write a file, or change the one that was read if nobody else has since."""
        blank = not content.strip()
        text = path if blank else content
        metadata = {BLANK: content} if blank else {}
        try:
            if over is None:
                self.bank.remember(
                    text,
                    key=path,
                    kind="document",
                    title=path.removeprefix(ROOT + "/"),
                    scope=self.scope,
                    metadata=metadata,
                    on_conflict="ignore",
                )
            else:
                self.bank.revise(over.id, expected_version=over.version, text=text, metadata=metadata)
        except VersionError as error:
            raise ToolError(
                f"{path} was changed by somebody else meanwhile. View it again, then edit it."
            ) from error
        except InvalidInputError as error:
            raise ToolError(str(error)) from error


def _clean(path: str) -> str:
    """A path below the root, without detours."""
    if path != ROOT and not path.startswith(ROOT + "/"):
        raise ToolError(f"Path must start with /memories, got: {path}")
    clean = posixpath.normpath(path)
    if clean != ROOT and not clean.startswith(ROOT + "/"):
        raise ToolError(f"Path {path} would escape /memories directory")
    return clean


def _content(memory: Memory) -> str:
    return memory.metadata.get(BLANK, memory.text)


def _numbered(lines: list[str], start: int) -> list[str]:
    return [f"{str(number).rjust(WIDTH)}\t{line}" for number, line in enumerate(lines, start)]


def _places(content: str, wanted: str) -> Iterator[int]:
    at = content.find(wanted)
    while at >= 0:
        yield at
        at = content.find(wanted, at + 1)


def _size(count: int) -> str:
    """A number of bytes as `ls -h` writes it."""
    size, unit = float(count), "B"
    for unit in "BKMG":
        if size < 1024 or unit == "G":
            break
        size /= 1024
    return f"{size:.0f}{unit}" if size == int(size) else f"{size:.1f}{unit}"
