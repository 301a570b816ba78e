"""Which tools a server offers. Fewer tools are used better, so the default is the smallest set that does
the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from skep.server.mcp.banks import Banks
from skep.server.mcp.prompts import INSTRUCTIONS, PROMPTS
from skep.server.mcp.registry import Registry, Tool
from skep.server.mcp.resources import RESOURCES
from skep.server.mcp.session import Server


def _default() -> list[Tool]:
    from skep.server.mcp.tools import default_tools

    return default_tools()


def _full() -> list[Tool]:
    from skep.server.mcp.fulltools import full_tools

    return [*_default(), *full_tools()]


def _reference() -> list[Tool]:
    from skep.server.mcp.compat import reference_tools

    return reference_tools()


def _search() -> list[Tool]:
    from skep.server.mcp.compat import search_tools

    return search_tools()


PROFILES: Final[dict[str, Callable[[], list[Tool]]]] = {
    "default": _default,
    "full": _full,
    "reference": _reference,
    "search": _search,
}


def build_server(profile: str, banks: Banks, *, version: str) -> Server:
    """The server that a client meets, with the tools of a profile."""
    own = profile in ("default", "full")
    registry = Registry(
        tools={tool.name: tool for tool in PROFILES[profile]()},
        resources=RESOURCES,
        prompts={prompt.name: prompt for prompt in PROMPTS} if own else {},
    )
    return Server(registry, version=version, instructions=INSTRUCTIONS if own else "", bank=banks.of)
