"""MCP in `skep serve`: the official Python client works with it in every era, beside the HTTP API."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")
pytest.importorskip("mcp", reason="the official Python SDK is not installed")

import mcp
from http_server import Running


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
@pytest.mark.filterwarnings("ignore")
def test_the_official_client_works_beside_the_api(mode: str, tmp_path: Path) -> None:
    with Running(tmp_path, ("team", "notes"), open=True) as running:

        async def story() -> str:
            async with mcp.Client(f"{running.url}/mcp/notes", mode=mode) as client:
                tools = [tool.name for tool in (await client.list_tools()).tools]
                assert {"remember", "recall"} <= set(tools)
                stored = await client.call_tool("remember", {"text": "Ana likes tea"})
                found = await client.call_tool("recall", {"query": "what does Ana like?"})
                known = re.findall(r"\[([^\]]+)\]", stored.content[0].text)[0]
                assert known in found.content[0].text
                read = await client.read_resource(f"memory://{known}")
                assert "Ana likes tea" in read.contents[0].text
                texts = [f"Note {number} by the Python client" for number in range(30)]
                calls = [
                    client.call_tool("remember", {"text": text, "on_conflict": "ignore"}) for text in texts
                ]
                await asyncio.gather(*calls)
                return known

        known = asyncio.run(story())

        assert running.verb("get", bank="notes", memory_id=known)[1]["text"] == "Ana likes tea"
        assert len(running.verb("find", bank="notes", limit=100)[1]["memories"]) == 31
        assert running.verb("find", bank="team")[1]["memories"] == []
