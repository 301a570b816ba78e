from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from tests.lifecycle.endpoint import Server
from tests.llm.chat_server import ChatServer, chat_server


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with chat_server() as served:
        yield served


@pytest.fixture
def endpoint() -> Iterator[Server]:
    served = Server()
    thread = threading.Thread(target=served.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    served.server.shutdown()
    thread.join()
    served.server.server_close()
