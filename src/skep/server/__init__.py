"""Ways in from outside: the MCP server, over stdio and HTTP."""

from __future__ import annotations
