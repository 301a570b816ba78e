"""One JSON request over urllib, with a time limit, retries and back-off. Time is injected."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from skep.clock import Now, system_now
from skep.errors import ConfigError, EmbedderUnavailableError, EmbeddingError

REFUSED = frozenset({400, 413, 422})
"""The service understood and will not take this text; trying again is no use."""
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Worth another try."""
MAX_REPLY = 256 * 1024 * 1024


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a request is."""

    attempts: int = 4
    timeout: float = 30.0
    first_wait: float = 0.5
    longest_wait: float = 30.0

    def wait(self, attempt: int, asked: float | None) -> float:
        """Seconds before the next try: what the service asked for, else doubling."""
        return min(self.longest_wait, asked if asked is not None else self.first_wait * 2**attempt)


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing."""


opener = build_opener(_NoRedirect)
"""Asks one address and no other."""


def check_url(url: str) -> str:
    """The URL without a trailing slash; only http and https are spoken."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url!r} is not an http or https address")
    return url.rstrip("/")


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds asked for by a Retry-After header: a number or a date."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except ValueError:
        return None


def _explain(error: HTTPError, url: str) -> str:
    try:
        said = error.read(500).decode(errors="replace").strip()
    except (OSError, HTTPException):
        said = ""
    return f"{url} answered {error.code} {error.reason}" + (f": {said}" if said else "")


def post_json(
    url: str,
    payload: Mapping[str, Any],
    headers: Mapping[str, str],
    *,
    retry: Retry,
    sleep: Callable[[float], None],
    now: Now = system_now,
) -> Any:
    """Post and return the parsed reply.

    Raises EmbeddingError if the service refuses what was sent, EmbedderUnavailableError if it cannot be
    reached, stays busy, or answers with something that is not JSON.
    """
    body = json.dumps(payload).encode()
    asked: float | None = None
    for attempt in range(retry.attempts):
        asked = None
        try:
            request = Request(url, body, {"Content-Type": "application/json", **headers})
            with opener.open(request, timeout=retry.timeout) as reply:
                return json.loads(reply.read(MAX_REPLY))
        except HTTPError as error:
            problem = _explain(error, url)
            error.close()
            if error.code in REFUSED:
                raise EmbeddingError(f"{problem}; the text was refused") from error
            if error.code not in BUSY:
                raise EmbedderUnavailableError(
                    f"{problem}; check the address, the model name and the key"
                ) from error
            asked = retry_after(error.headers.get("Retry-After"), now())
        except ValueError as error:
            raise EmbedderUnavailableError(f"{url} did not answer with JSON; check the address") from error
        except (URLError, OSError, HTTPException) as error:
            problem = f"{url} could not be reached: {getattr(error, 'reason', error)}"
        if attempt + 1 < retry.attempts:
            sleep(retry.wait(attempt, asked))
    tries = f"; gave up after {retry.attempts} tries" if retry.attempts > 1 else ""
    failure = EmbedderUnavailableError(f"{problem}{tries}")  # pyright: ignore[reportPossiblyUnboundVariable]
    failure.retry_after = asked
    raise failure
