"""Ways in from outside: the MCP server, over stdio and HTTP."""
