"""The official Python SDK as a client, in both eras; the other official clients are left to the full run."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

mcp: Any = pytest.importorskip("mcp", reason="the official Python SDK is not installed")


def client(bank: Path, mode: str) -> Any:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    words = ["-m", "skep", "--bank", str(bank), "mcp"]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    return mcp.Client(stdio_client(server), mode=mode)


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.filterwarnings("ignore")
def test_the_python_client_lists_calls_reads_and_is_refused(mode: str, tmp_path: Path) -> None:
    async def story() -> None:
        from mcp.shared.exceptions import MCPError

        async with client(tmp_path / "b.skep", mode) as one:
            assert len((await one.list_tools()).tools) == 8
            assert "nothing found" in (await one.call_tool("recall", {"query": "tea"})).content[0].text
            stored = await one.call_tool("remember", {"text": "Ana likes tea"})
            known = re.findall(r"\[([^\]]+)\]", stored.content[0].text)[0]
            found = await one.call_tool("recall", {"query": "what does Ana like?"})
            assert known in found.content[0].text
            refused = await one.call_tool("recall", {"query": "x", "kind": "thought"})
            assert refused.is_error
            assert "one of document, episode, fact, procedure" in refused.content[0].text
            with pytest.raises(MCPError):
                await one.call_tool("no_such_tool", {})
            read = await one.read_resource(f"memory://{known}")
            assert "Ana likes tea" in read.contents[0].text
            assert len((await one.list_prompts()).prompts) == 2

    asyncio.run(story())
