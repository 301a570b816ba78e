"""One server, asked over HTTP: connections that are kept, calls that are repeated safely, errors as classes.

The standard library speaks HTTP here: a client needs nothing installed. Each thread has a connection of its own.
"""

from __future__ import annotations

import http.client
import math
import random
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from skep.client.http_errors import raised
from skep.client.verb_table import Verb, verbs
from skep.errors import (
    BadTextError,
    ClosedError,
    ConfigError,
    NotFoundError,
    OutOfRangeError,
    RemoteError,
    WrongTypeError,
)

ATTEMPTS: Final = 4
"""How often a call is made before it is given up."""
PAUSE: Final = 0.1
"""Seconds before the second attempt; each further pause is twice as long, and a little random."""
LONGEST: Final = 10.0
"""The longest pause that a server may ask for."""
AGAIN: Final = (429, 503)


class Connection:
    """Speaks to one server."""

    def __init__(self, url: str, token: str | None, *, timeout: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is no address of a skep server; give one like http://127.0.0.1:8420")
        if token is not None and (not token.strip() or not token.isascii() or not token.isprintable()):
            raise ConfigError("the token is blank or no token; give the one that `skep token add` printed")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._parts = parts
        self._base = parts.path.rstrip("/")
        self._timeout = timeout
        self._headers = {"authorization": f"Bearer {token.strip()}"} if token else {}
        self._own = threading.local()
        self._all: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    def call(self, bank: str, verb: Verb, arguments: Mapping[str, Any], *, as_of: Any = None) -> Any:
        """Ask a bank."""
        given = {name: plain(name, value) for name, value in arguments.items()}
        headers = {"content-type": "application/json"}
        if verb.writes:
            headers["idempotency-key"] = secrets.token_hex(16)
        path = f"/v1/banks/{quote(bank, safe='')}/{verb.name}"
        if as_of is not None:
            path += "?" + urlencode({"as_of": plain("as_of", as_of)})
        try:
            body = msgspec.json.encode(given)
        except UnicodeEncodeError as error:
            raise BadTextError(
                "a text holds half of a character pair (a lone surrogate); remove it"
            ) from error
        return _read(self.ask("POST", path, body, headers), verb.read)

    def get(self, path: str, kind: Any = Any) -> Any:
        """Ask for something about the server or a log."""
        return _read(self.ask("GET", path, None, {}), msgspec.json.Decoder(kind).decode)

    def ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        """One request, repeated while the server is busy or the line breaks; the body of its answer.

        A call that writes carries a key, so that repeating it writes once.
        """
        attempt = 0
        while True:
            attempt += 1
            last = attempt >= ATTEMPTS
            try:
                status, found, pause = self._once(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                if last:
                    why = str(error) or type(error).__name__
                    raise RemoteError(
                        f"{self.url} cannot be reached ({why}); is the server running?"
                    ) from error
                pause = None
            else:
                if status == 200:
                    return found
                problem = raised(status, found)
                if last or status not in AGAIN or (pause is not None and pause > LONGEST):
                    raise problem
            time.sleep(max(pause or 0.0, PAUSE * 2 ** (attempt - 1) * (0.5 + random.random())))

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes, float | None]:
        line = self._line()
        line.request(method, self._base + path, body, {**self._headers, **headers})
        answer = line.getresponse()
        found = answer.read()
        pause = answer.getheader("retry-after")
        if answer.will_close:
            self._drop()
        seconds = float(pause) if pause and pause.isdigit() else None
        return answer.status, found, seconds

    def lines(self, path: str) -> Iterator[bytes]:
        """The lines of an answer that does not end, such as live changes."""
        line = self._new()
        try:
            line.request("GET", self._base + path, None, self._headers)
            answer = line.getresponse()
            if answer.status != 200:
                raise raised(answer.status, answer.read())
            while found := answer.readline():
                yield found.rstrip(b"\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise RemoteError(
                f"the line to {self.url} broke ({error}); ask again from the last change"
            ) from error
        finally:
            line.close()

    def close(self) -> None:
        """Close every connection. Closing twice is no error."""
        self._closed = True
        with self._lock:
            lines, self._all = self._all, []
        for line in lines:
            line.close()

    def _line(self) -> http.client.HTTPConnection:
        if self._closed:
            raise ClosedError("this client was closed; make another")
        line: http.client.HTTPConnection | None = getattr(self._own, "line", None)
        if line is None:
            line = self._own.line = self._new()
            with self._lock:
                self._all.append(line)
        return line

    def _new(self) -> http.client.HTTPConnection:
        host = cast("str", self._parts.hostname)
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, self._parts.port, timeout=self._timeout)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(host, self._parts.port, timeout=self._timeout, context=context)

    def _drop(self) -> None:
        line: http.client.HTTPConnection | None = getattr(self._own, "line", None)
        if line is not None:
            self._own.line = None
            line.close()
            with self._lock:
                if line in self._all:
                    self._all.remove(line)


def one_bank(connection: Connection) -> str:
    """The name of the only bank that the token opens.

    Raises:
        NotFoundError: There is none, or there are several.
    """
    names = cast("list[str]", connection.get("/v1/banks", list[str]))
    if len(names) != 1:
        known = ", ".join(names) or "none"
        raise NotFoundError(f"say which bank: Client(url, bank=NAME); the token opens {known}")
    return names[0]


def verb_of(name: str) -> Verb:
    """A verb by its name."""
    return verbs()[name]


def _read(body: bytes, decode: Callable[[bytes], Any]) -> Any:
    try:
        return decode(body)
    except msgspec.MsgspecError as error:
        raise RemoteError(
            f"the server's answer cannot be read ({error}); is it a newer or older skep?"
        ) from error


def plain(field: str, value: Any) -> Any:
    """A value as JSON has it: times and spans as the server takes them, any iterable as a list.

    >>> plain("ttl", timedelta(minutes=2)), plain("tags", ("a", "b"))
    (120.0, ['a', 'b'])
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise OutOfRangeError(f"{field} must be a finite number, got {value}", field=field)
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        held = cast("Mapping[Any, Any]", value)
        for key in held:
            if not isinstance(key, str):
                raise WrongTypeError(
                    f"a key of {field} must be a string, got {type(key).__name__}", field=field
                )
        return {key: plain(field, one) for key, one in held.items()}
    if isinstance(value, bytes | bytearray) or not hasattr(value, "__iter__"):
        raise WrongTypeError(f"{field} cannot be sent: it is a {type(value).__name__}", field=field)
    return [plain(field, one) for one in value]
