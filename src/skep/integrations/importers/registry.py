"""The table of importers, detection of a file's kind, and the import of items into a bank.

Importers only read. An item is stored once, however often its file is imported. Called by `skep import` and `skep
audit`; writes through the bank's engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from skep.bank.open_bank import BULK
from skep.errors import InvalidInputError, NotFoundError
from skep.integrations.importers.agent_memories import (
    is_claude_code,
    is_claude_memories,
    is_langgraph,
    is_letta,
    is_supermemory,
    read_claude_code,
    read_claude_memories,
    read_langgraph,
    read_letta,
    read_supermemory,
)
from skep.integrations.importers.chats import (
    ORIGIN,
    is_bank,
    is_chatgpt,
    is_claude,
    read_bank,
    read_chatgpt,
    read_claude,
)
from skep.integrations.importers.chroma import is_chroma, read_chroma
from skep.integrations.importers.cogx import is_cogx, read_cogx
from skep.integrations.importers.databases import (
    is_claude_mem,
    is_graphiti,
    is_mem0,
    is_reference,
    read_claude_mem,
    read_graphiti,
    read_mem0,
    read_reference,
)
from skep.integrations.importers.item import Item, Source, in_pieces, label_of, source_of
from skep.integrations.importers.text_files import (
    is_basic_memory,
    is_csv,
    is_json,
    is_jsonl,
    is_markdown,
    is_text,
    is_vault,
    read_basic_memory,
    read_csv,
    read_json,
    read_jsonl,
    read_lines,
    read_markdown,
    read_vault,
)
from skep.integrations.open_files import is_bundle, read_bundle

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.storage.sqlite_store import Plan


SOURCES: Final[tuple[Source, ...]] = (
    Source(name="skep", title="a skep bank or export", sniff=is_bank, read=read_bank),
    Source(name="bundle", title="a bundle", sniff=is_bundle, read=read_bundle),
    Source(name="reference", title="the reference memory server", sniff=is_reference, read=read_reference),
    Source(name="claude-mem", title="claude-mem", sniff=is_claude_mem, read=read_claude_mem),
    Source(name="mem0", title="mem0", sniff=is_mem0, read=read_mem0),
    Source(name="chroma", title="Chroma", sniff=is_chroma, read=read_chroma),
    Source(name="langgraph", title="a LangGraph or LangMem store", sniff=is_langgraph, read=read_langgraph),
    Source(name="letta", title="an agent file of Letta", sniff=is_letta, read=read_letta),
    Source(
        name="claude-memories", title="Claude's memories", sniff=is_claude_memories, read=read_claude_memories
    ),
    Source(name="claude-code", title="Claude Code's memory", sniff=is_claude_code, read=read_claude_code),
    Source(name="cognee", title="a COGX archive of cognee", sniff=is_cogx, read=read_cogx),
    Source(name="supermemory", title="supermemory", sniff=is_supermemory, read=read_supermemory),
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
    """The importer that recognises a file or folder.

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


Progress = Callable[[int, int], None]


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of an import, done or planned."""

    new: int
    known: int
    """Already here: from an earlier import, or memories of this bank itself."""
    links: int
    dry_run: bool = False


def import_items(
    bank: Bank, items: Iterable[Item], *, dry_run: bool = False, progress: Progress | None = None
) -> Imported:
    """Store items and the links among them. The file is read to its end before anything is written."""
    unique = {item.key: item for item in items}
    here = _sources(
        bank, {tag for item in unique.values() for tag in item.fields["tags"] if tag.startswith("from:")}
    )
    ids = {key: here[source] for key, item in unique.items() if (source := item.fields["source"]) in here}
    versions = bank.versions()
    ids |= {key: key for key, item in unique.items() if key not in ids and _own(item, versions)}
    fresh = [item for key, item in unique.items() if key not in ids]
    links = [link for item in unique.values() for link in _unsaid(bank, item, ids) if link[2] in unique]
    if dry_run:
        return Imported(new=len(fresh), known=len(ids), links=len(links), dry_run=True)
    stored = bank.remember_many([item.fields for item in fresh], progress=progress)
    ids.update({item.key: one.memory.id for item, one in zip(fresh, stored, strict=True)})
    wanted = dict.fromkeys(
        (ids[key], ids[target], rel) for key, rel, target in links if ids[key] != ids[target]
    )
    plans: list[Plan] = [
        ("link", {"src": src, "dst": dst, "rel": rel, "strength": 1.0}) for src, dst, rel in wanted
    ]
    for start in range(0, len(plans), BULK):
        bank.engine.write(plans[start : start + BULK])
    return Imported(new=len(fresh), known=len(unique) - len(fresh), links=len(plans))


def _unsaid(bank: Bank, item: Item, ids: dict[str, str]) -> list[tuple[str, str, str]]:
    """The links of an item that were never made, by keys: an earlier import may have been cut off before them, or the
    other end is new. What was made and taken away since stays away.
    """
    links = [(item.key, label_of(rel) or "related", target) for rel, target in item.links]
    if not links or item.key not in ids:
        return links
    made = bank.engine.log.of(ids[item.key])
    said = {(event.body["dst"], event.body["rel"]) for event in made if event.kind == "link"}
    return [
        link
        for link in links
        if (ids.get(link[2]), link[1]) not in said and ids.get(link[2]) != ids[item.key]
    ]


def _own(item: Item, versions: dict[str, int]) -> bool:
    """True for a memory of this very bank, out of a copy of it or of a replica: here, or forgotten here."""
    actor, _, counter = item.key.rpartition("-")
    return (
        item.fields["source"] == source_of(ORIGIN, item.key)
        and counter.isdecimal()
        and int(counter) <= versions.get(actor, 0)
    )


def _sources(bank: Bank, tags: set[str]) -> dict[str, str]:
    """The ids of what earlier imports left, by source, whatever became of it since."""
    found: dict[str, str] = {}
    for tag in sorted(tags):
        cursor: str | None = None
        while True:
            try:
                page = bank.find(tags=[tag], status=None, limit=1000, cursor=cursor)
            except NotFoundError:
                break
            found.update({memory.source: memory.id for memory in page if memory.source})
            cursor = page.cursor
            if cursor is None:
                break
    return found
