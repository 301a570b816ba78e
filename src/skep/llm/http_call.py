"""One POST with a deadline that holds: also where a server sends its answer byte by byte.

`language_model` calls this. A redirect is not followed, since it would carry the key to another host. The proxies
that the environment names are used, as by `urllib`.
"""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from skep.embedding.kept_connection import connect

FAILED = (OSError, http.client.HTTPException, ValueError, AttributeError)
"""What a connection raises when it fails, or when it is cut while it is read."""


@contextmanager
def posted(
    url: str, body: bytes, headers: Mapping[str, str], seconds: float
) -> Generator[http.client.HTTPResponse]:
    """The response to a POST; whatever is read in the block must end before `seconds` are over.

    Raises:
        TimeoutError: The time is over.
        OSError, HTTPException: There was no answer, or it broke off.
    """
    over = threading.Event()
    connection = connect(url, seconds)
    timer: threading.Timer | None = None
    try:
        connection.connect()
        held: socket.socket = connection.sock

        def cut() -> None:
            over.set()
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(max(0.001, seconds), cut)
        timer.daemon = True
        timer.start()
        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        target = url if connection.host != parts.hostname and parts.scheme == "http" else path
        connection.request("POST", target, body, {"connection": "close", **headers})
        response = connection.getresponse()
        with response:
            yield response
            if over.is_set():
                raise TimeoutError(f"no whole answer within {seconds:g} s")
    except Exception as error:
        if over.is_set() or isinstance(error, TimeoutError):  # a connection that was cut fails in many ways
            raise TimeoutError(f"no whole answer within {seconds:g} s") from error
        raise
    finally:
        if timer is not None:
            timer.cancel()
        connection.close()
