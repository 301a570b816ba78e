from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.llm.chat_server import ChatServer, chat_server

from skep.llm import LLM, open_llm


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server() as served:
        yield served


@pytest.fixture
def llm(chat: ChatServer) -> LLM:
    """The model behind the server."""
    return open_llm("openai:m", base_url=chat.url, sleep=lambda _seconds: None)
