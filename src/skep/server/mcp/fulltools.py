"""What the full profile adds: the tools of somebody who tends a bank, rather than only uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta

from skep.model import CURRENT, Kind, Status
from skep.server.mcp.call import Call
from skep.server.mcp.learning import learning_tools
from skep.server.mcp.registry import IS_ID, Tool, tool
from skep.server.mcp.render import (
    by_words,
    event_line,
    found_nothing,
    hit_line,
    memory_line,
    page,
    pair_line,
    read_cursor,
)
from skep.server.mcp.tools import Budget, Cursor, Id, Limit, Tags, When, Within, touch


def search_memory(
    call: Call,
    *,
    query: Annotated[str, Meta(description="A question or a few words.", min_length=1)],
    search_type: Annotated[
        Literal["facts", "episodes", "both"], Meta(description="Facts and procedures, past events, or both.")
    ] = "both",
    limit: Limit = 10,
    preset: Annotated[
        str | None, Meta(description="How to rank: default, semantic, hybrid, rrf, hive, patterns, stream.")
    ] = None,
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None,
    as_of: Annotated[str | None, Meta(description="Answer as the bank would have at that ISO time.")] = None,
    expand: Annotated[bool, Meta(description="Also follow links from the hits.")] = False,
    explain: Annotated[bool, Meta(description="Add why each hit was returned.")] = True,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """Search in depth: also what was replaced or merged, with scores and reasons, at a past moment, or along
    links. For ordinary questions use recall."""
    from skep.recall.tool import SEARCHED

    bank = call.bank()
    found = bank.recall(
        query,
        kind=SEARCHED[search_type],
        limit=limit,
        preset=preset,
        min_confidence=min_confidence,
        as_of=as_of,
        include_superseded=True,
        expand=True if expand else None,
        explain=explain,
    )
    now = bank.engine.now()
    lines = [hit_line(hit, now, explain=explain) for hit in found.hits]
    lines = [*by_words(found.reason), *lines] if lines else lines
    return page(lines, max_tokens, start=read_cursor(cursor), empty=found_nothing(found.reason))


def find(
    call: Call,
    *,
    text: Annotated[str | None, Meta(description="Only memories with all of these words.")] = None,
    kind: Kind | None = None,
    status: Annotated[Status | None, Meta(description="Default: what is current.")] = None,
    tags: Tags = [],  # noqa: B006 - read only
    domain: str | None = None,
    agent: Annotated[str | None, Meta(description="Who wrote it.")] = None,
    scope: Within = None,
    since: When = None,
    until: When = None,
    limit: Limit = 20,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """List memories that meet every condition, newest first. Exact filters, no ranking; to answer a
    question use recall."""
    bank = call.bank()
    where, _, start = (cursor or "").rpartition("@")
    found = bank.find(
        text,
        kind=kind,
        tags=tags,
        domain=domain,
        agent=agent,
        scope=scope,
        include_shared=scope is not None,
        since=since,
        until=until,
        limit=limit,
        cursor=where or None,
        status=CURRENT if status is None else status,
    )
    now = bank.engine.now()
    lines = [memory_line(memory, now) for memory in found.memories]
    more = f"{found.cursor}@at-0" if found.cursor is not None else None
    return page(
        lines, max_tokens, start=read_cursor(start or None), more=more, within=f"{where}@" if where else ""
    )


def find_conflicts(
    call: Call,
    *,
    id: Annotated[
        str | None,
        Meta(description="Only conflicts of this memory; leave out for the whole bank.", extra=IS_ID),
    ] = None,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """Stored memories that repeat or contradict each other, or of which one updates the other. Settle them
    with supersede, revise or forget."""
    bank = call.bank()
    found = bank.find_conflicts(id, progress=call.progress)
    lines = [pair_line(one) for one in found]
    return page(lines, max_tokens, start=read_cursor(cursor), empty="no conflicts")


def supersede(
    call: Call,
    *,
    old: Annotated[str, Meta(description="Id of the memory that no longer holds.", extra=IS_ID)],
    new: Annotated[str, Meta(description="Id of the memory that holds instead.", extra=IS_ID)],
    reason: str | None = None,
) -> str:
    """Say that a newer memory replaces an older one. The older leaves every recall and stays in history;
    restore brings it back."""
    bank = call.bank()
    memory = bank.supersede(old, new, reason)
    touch(call, old, new)
    return memory_line(memory, bank.engine.now())


def restore(call: Call, *, id: Id, reason: str | None = None) -> str:
    """Make a memory current again that was superseded, merged, retracted, deprecated or expired. What was
    forgotten cannot be restored."""
    bank = call.bank()
    memory = bank.restore(id, reason)
    touch(call, id)
    return "restored " + memory_line(memory, bank.engine.now())


def unlink(
    call: Call,
    *,
    src: Id,
    dst: Id,
    rel: Annotated[str | None, Meta(description="Only links of this kind.")] = None,
) -> str:
    """Remove links from one memory to another. The memories stay."""
    count = call.bank().unlink(src, dst, rel)
    touch(call, src, dst)
    return f"removed {count} link{'' if count == 1 else 's'}"


def neighbors(
    call: Call,
    *,
    id: Id,
    rel: str | None = None,
    direction: Literal["out", "in", "both"] = "both",
    depth: Annotated[int, Meta(ge=1, le=5)] = 1,
    max_tokens: Budget = 1500,
    cursor: Cursor = None,
) -> str:
    """Memories that are linked to one, within a number of steps, and how."""
    bank = call.bank()
    found = bank.neighbors(id, rel=rel, direction=direction, depth=depth)
    now = bank.engine.now()
    lines = [f"[{edge.src}] {edge.rel} [{edge.dst}]" for edge in found.links]
    lines += [memory_line(memory, now) for memory in found.memories.values()]
    lines += [f"[{gone}] is gone" for gone in found.dangling]
    return page(lines, max_tokens, start=read_cursor(cursor), empty="no links")


def history(
    call: Call,
    *,
    id: Annotated[
        str | None,
        Meta(description="Id of a memory; leave out for the latest events of the bank.", extra=IS_ID),
    ] = None,
    limit: Limit = 20,
    max_tokens: Budget = 1500,
    cursor: Cursor = None,
) -> str:
    """What happened to a memory, oldest first, or in the whole bank, newest first. The ids in brackets are
    events; undo takes one back."""
    events = call.bank().history(id, limit=limit)
    return page([event_line(event) for event in events], max_tokens, start=read_cursor(cursor))


def undo(
    call: Call,
    *,
    event: Annotated[str, Meta(description="Id of an event, from history.", min_length=1, extra=IS_ID)],
    reason: str | None = None,
) -> str:
    """Take one event back, as if it had never been: a revision, a link, a supersede, even a remember.
    Undoing an undo brings it back. A forget is final."""
    done = call.bank().undo(event, reason)
    touch(call, *(str(one) for one in done.body["mentions"]))
    return f"undone; this is event [{done.id}]"


def full_tools(judge: Sequence[str] | None = None) -> list[Tool]:
    """Everything beyond the default profile."""
    return [
        tool(search_memory, title="Search in depth", reads=True),
        tool(find, title="List memories", reads=True),
        tool(find_conflicts, title="Find conflicts", reads=True),
        tool(supersede, title="Supersede a memory", repeats=True),
        tool(restore, title="Restore a memory", repeats=True),
        tool(unlink, title="Remove links", destroys=True, repeats=True),
        tool(neighbors, title="Linked memories", reads=True),
        tool(history, title="History", reads=True),
        tool(undo, title="Undo an event", destroys=True),
        *learning_tools(judge),
    ]
