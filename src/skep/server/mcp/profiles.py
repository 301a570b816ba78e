"""Which tools a server offers. Fewer tools are used better, so the default is the smallest set that does
the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from skep.server.mcp.banks import Banks
from skep.server.mcp.prompts import INSTRUCTIONS, PROMPTS
from skep.server.mcp.registry import Registry, Tool
from skep.server.mcp.resources import RESOURCES
from skep.server.mcp.session import Server
from skep.server.mcp.watch import INTERVAL


def _default(_judge: Sequence[str] | None) -> list[Tool]:
    from skep.server.mcp.tools import default_tools

    return default_tools()


def _full(judge: Sequence[str] | None) -> list[Tool]:
    from skep.server.mcp.fulltools import full_tools

    return [*_default(judge), *full_tools(judge)]


def _reference(_judge: Sequence[str] | None) -> list[Tool]:
    from skep.server.mcp.compat import reference_tools

    return reference_tools()


def _search(_judge: Sequence[str] | None) -> list[Tool]:
    from skep.server.mcp.compat import search_tools

    return search_tools()


PROFILES: Final[dict[str, Callable[[Sequence[str] | None], list[Tool]]]] = {
    "default": _default,
    "full": _full,
    "reference": _reference,
    "search": _search,
}


def build_server(
    profile: str,
    banks: Banks,
    *,
    version: str,
    judge: Sequence[str] | None = None,
    watch_seconds: float = INTERVAL,
) -> Server:
    """The server that a client meets.

    Args:
        profile: Which tools.
        banks: Where memories are.
        version: Our own version.
        judge: The command of an agent that decides what rules cannot, if the user named one.
        watch_seconds: How often to look for changes by other processes while somebody subscribes to any.
    """
    own = profile in ("default", "full")
    registry = Registry(
        tools={tool.name: tool for tool in PROFILES[profile](judge)},
        resources=RESOURCES,
        prompts={prompt.name: prompt for prompt in PROMPTS} if own else {},
    )
    return Server(
        registry,
        version=version,
        instructions=INSTRUCTIONS if own else "",
        bank=banks.of,
        watch_seconds=watch_seconds,
    )
