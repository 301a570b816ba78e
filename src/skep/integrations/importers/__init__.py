"""Read the memories of other programs. Every importer only reads; none changes what it reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from skep.errors import InvalidInputError, NotFoundError
from skep.integrations.importers.banks import is_bank, read_bank
from skep.integrations.importers.base import Item, Source, in_pieces
from skep.integrations.importers.chats import is_chatgpt, is_claude, read_chatgpt, read_claude
from skep.integrations.importers.databases import is_claude_mem, is_mem0, read_claude_mem, read_mem0
from skep.integrations.importers.graphs import is_graphiti, is_reference, read_graphiti, read_reference
from skep.integrations.importers.markdown import (
    is_basic_memory,
    is_markdown,
    is_vault,
    read_basic_memory,
    read_markdown,
    read_vault,
)
from skep.integrations.importers.plain import (
    is_csv,
    is_json,
    is_jsonl,
    is_text,
    read_csv,
    read_json,
    read_jsonl,
    read_lines,
)

SOURCES: Final[tuple[Source, ...]] = (
    Source(name="skep", title="a skep bank or export", sniff=is_bank, read=read_bank),
    Source(name="reference", title="the reference memory server", sniff=is_reference, read=read_reference),
    Source(name="claude-mem", title="claude-mem", sniff=is_claude_mem, read=read_claude_mem),
    Source(name="mem0", title="mem0", sniff=is_mem0, read=read_mem0),
    Source(name="chatgpt", title="a ChatGPT export", sniff=is_chatgpt, read=read_chatgpt),
    Source(name="claude", title="a Claude export", sniff=is_claude, read=read_claude),
    Source(name="graphiti", title="Zep or Graphiti", sniff=is_graphiti, read=read_graphiti),
    Source(name="basic-memory", title="basic-memory", sniff=is_basic_memory, read=read_basic_memory),
    Source(name="obsidian", title="an Obsidian vault", sniff=is_vault, read=read_vault),
    Source(name="markdown", title="Markdown", sniff=is_markdown, read=read_markdown),
    Source(name="jsonl", title="JSON lines", sniff=is_jsonl, read=read_jsonl),
    Source(name="csv", title="a table", sniff=is_csv, read=read_csv),
    Source(name="json", title="JSON", sniff=is_json, read=read_json),
    Source(name="text", title="lines of text", sniff=is_text, read=read_lines),
)
"""Most telling first: the first that recognises a path reads it."""


def detect(path: Path) -> Source:
    """What a file or folder is.

    Raises:
        NotFoundError: There is nothing at that path.
        InvalidInputError: Nothing recognises it.
    """
    if not path.exists():
        raise NotFoundError(f"there is no file or folder {path}")
    for source in SOURCES:
        if source.sniff(path):
            return source
    names = ", ".join(source.name for source in SOURCES)
    raise InvalidInputError(f"{path} is of no kind that skep knows; name one with --from: {names}")


def source(name: str) -> Source:
    """A source by name.

    Raises:
        NotFoundError: There is none of that name; the message lists them.
    """
    for one in SOURCES:
        if one.name == name:
            return one
    raise NotFoundError(f"unknown source {name!r}; there are {', '.join(one.name for one in SOURCES)}")


def read(path: Path, name: str | None = None) -> tuple[Source, Iterator[Item]]:
    """The items at a path, and what it was taken for."""
    if not path.exists():
        raise NotFoundError(f"there is no file or folder {path}")
    chosen = source(name) if name is not None else detect(path)
    return chosen, (piece for item in chosen.read(path) for piece in in_pieces(item))


__all__ = ["SOURCES", "Item", "Source", "detect", "read", "source"]
