"""Posts to a service over connections that stay open, so that a question does not wait for a handshake.

Embedders and rerankers over HTTP share the connections of this process; `skep.llm` takes `connect` for its own. A
redirect is not followed, since it would carry the key to another host. The proxies that the environment names are used,
as by `urllib`.
"""

from __future__ import annotations

import atexit
import http.client
import os
import threading
from collections.abc import Mapping
from email.message import Message
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

KEPT = 4
"""Connections per address that wait for the next question."""
STALE = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, http.client.CannotSendRequest)
"""What a connection raises that the other side closed while it waited."""
MAX_REPLY = 256 * 1024 * 1024


class Reply(NamedTuple):
    """The answer to a post, whatever its status."""

    status: int
    reason: str
    headers: Message
    body: bytes


def connect(url: str, seconds: float) -> http.client.HTTPConnection:
    """A connection to the host of an address, not opened yet; through a proxy where the environment names one."""
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    proxy = getproxies().get(parts.scheme)
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    if not proxy or proxy_bypass(host):
        return kind(host, parts.port, timeout=seconds)
    via = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    connection = kind(via.hostname or "", via.port, timeout=seconds)
    if secure:
        connection.set_tunnel(host, parts.port or 443)
    return connection


class Connections:
    """Open connections by address. Threads may share it; a connection serves one post at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: dict[tuple[int, str], list[http.client.HTTPConnection]] = {}
        """By process and address: a child must not write to its parent's."""

    def post(self, url: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Reply:
        """The answer to a post. One that was kept and closed meanwhile is opened anew, once.

        Raises:
            OSError, HTTPException: There was no answer in time, or it broke off.
        """
        parts = urlsplit(url)
        address = (os.getpid(), f"{parts.scheme}://{parts.netloc}")
        with self._lock:
            idle = self._idle.get(address)
            kept = idle.pop() if idle else None
        if kept is not None:
            try:
                return self._posted(kept, address, parts, body, headers, seconds)
            except STALE:
                pass
        return self._posted(connect(url, seconds), address, parts, body, headers, seconds)

    def _posted(
        self,
        connection: http.client.HTTPConnection,
        address: tuple[int, str],
        parts: SplitResult,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
    ) -> Reply:
        try:
            connection.timeout = seconds
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            plain_proxy = connection.host != parts.hostname and parts.scheme == "http"
            connection.request("POST", parts.geturl() if plain_proxy else path, body, dict(headers))
            response = connection.getresponse()
            answer = Reply(response.status, response.reason, response.headers, response.read(MAX_REPLY))
            whole = response.isclosed() and not response.will_close
        except BaseException:
            connection.close()
            raise
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if whole and len(idle) < KEPT:
                idle.append(connection)
                return answer
        connection.close()
        return answer

    def close(self) -> None:
        """Close what waits."""
        with self._lock:
            waiting, self._idle = self._idle, {}
        for connections in waiting.values():
            for connection in connections:
                connection.close()


CONNECTIONS = Connections()
"""Those of this process."""
atexit.register(CONNECTIONS.close)
