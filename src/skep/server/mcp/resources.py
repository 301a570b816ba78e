"""Memories as resources: a client may read them by address and subscribe to their changes."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.server.mcp.call import Call
from skep.server.mcp.protocol import Params
from skep.server.mcp.registry import Resource
from skep.server.mcp.render import event_line


def _stats(call: Call, _uri: str) -> Params:
    return _json(call.bank().status())


def _memory(call: Call, _uri: str, id: str) -> Params:
    bank = call.bank()
    links = bank.neighbors(id).links
    return _json({**msgspec.to_builtins(bank.get(id)), "links": msgspec.to_builtins(links)})


def _history(call: Call, _uri: str, id: str) -> Params:
    return {"text": "\n".join(event_line(event) for event in call.bank().history(id))}


def _json(value: Any) -> Params:
    return {"text": msgspec.json.format(msgspec.json.encode(value), indent=2).decode()}


RESOURCES: tuple[Resource, ...] = (
    Resource(
        uri="memory://stats",
        name="stats",
        title="Memory statistics",
        description="How many memories there are, of which kinds, and how the bank is doing.",
        mime="application/json",
        read=_stats,
    ),
    Resource(
        uri="memory://{id}",
        name="memory",
        title="One memory",
        description="Everything known about one memory, with its links.",
        mime="application/json",
        read=_memory,
    ),
    Resource(
        uri="memory://{id}/history",
        name="history",
        title="History of a memory",
        description="What happened to one memory, oldest first.",
        read=_history,
    ),
)
