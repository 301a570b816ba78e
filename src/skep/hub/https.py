"""HttpHub (`https://`, `http://`): a bank of a skep server (`skep serve`).

Opened by `hub_urls`. The token stands in the address (`https://:TOKEN@host/bank`) or in `SKEP_TOKEN`.
"""

from __future__ import annotations

import os
from urllib.parse import quote, unquote, urlsplit

import msgspec

from skep.client.connection import Connection
from skep.errors import AccessError, ConfigError, HubAwayError, NotFoundError, RemoteError, SyncError
from skep.hub.hub_calls import WAIT_SECONDS, Answered, Asked, CallingHub
from skep.hub.hub_urls import shown


class HttpHub(CallingHub):
    """A bank of a skep server. See `Hub` for the promises."""

    def __init__(self, server: str, bank: str, token: str | None, *, url: str) -> None:
        """Nothing is asked yet.

        Args:
            server: The address of the server.
            bank: The name of the bank there.
            token: The token that opens it.
            url: Its address, to be shown.
        """
        super().__init__(url)
        self._bank = bank
        self._line = Connection(server, token, timeout=WAIT_SECONDS + 15)

    @classmethod
    def open(cls, url: str) -> HttpHub:
        """From `https://:TOKEN@host:port/bank`."""
        parts = urlsplit(url.partition("#")[0])
        base, _, bank = parts.path.rstrip("/").rpartition("/")
        if not bank:
            raise ConfigError(
                f"{shown(url)} names no bank; write https://host/NAME, as `skep serve` names it"
            )
        token = unquote(parts.password) if parts.password else os.environ.get("SKEP_TOKEN")
        host = parts.netloc.rpartition("@")[2]
        hub = cls(f"{parts.scheme}://{host}{base}", unquote(bank), token, url=shown(url))
        hub.status()
        return hub

    def ask(self, call: str, asked: Asked) -> Answered:
        """Send a call, and wait for its answer."""
        path = f"/v1/banks/{quote(self._bank, safe='')}/hub/{call}"
        try:
            found = self._line.ask(
                "POST", path, msgspec.json.encode(asked), {"content-type": "application/json"}
            )
            return msgspec.json.decode(found, type=Answered)
        except RemoteError as error:
            raise HubAwayError(str(error)) from error
        except AccessError as error:
            raise SyncError(f"{self.url} does not let this token in: {error}") from error
        except NotFoundError as error:
            raise SyncError(f"{self.url}: {error}") from error
        except msgspec.DecodeError as error:
            raise SyncError(
                f"{self.url} answered with something else ({error}); is it `skep serve`?"
            ) from error

    def close(self) -> None:
        """Close the connections."""
        self._closed.set()
        self._line.close()
