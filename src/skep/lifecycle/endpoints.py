"""Asking a model behind an address: one request on the standard library, and what it cost."""

from __future__ import annotations

import http.client
import json
import math
import urllib.request
from typing import Any, Literal, NamedTuple, cast

from skep.embedding.http import opener
from skep.errors import ConfigError
from skep.lifecycle.commands import FailedError
from skep.tokens import count_tokens

WIDE = 1.72
"""What a sign outside ASCII takes at most, on average."""
LONGEST = 1 << 23
"""The most bytes of an answer that are read."""

Style = Literal["openai", "anthropic"]


def tokens_of(text: str) -> int:
    """About what a text takes; rather too much, where it is not written in Latin letters, than too little."""
    plain = text.encode("ascii", "ignore").decode()
    return count_tokens(plain) + math.ceil(WIDE * (len(text) - len(plain)))


class Said(NamedTuple):
    """What came back and what it cost. Without a text, `problem` says in words what was wrong with the answer."""

    text: str | None
    tokens: int
    problem: str = ""


class Endpoint:
    """Any OpenAI-compatible or Anthropic endpoint.

    Args:
        url: Such as `http://localhost:11434/v1/chat/completions` or `https://api.anthropic.com/v1/messages`. Where it
            sends on to another address, that is not followed: the key is meant for this one.
        model: The model's name.
        key: The API key, if one is needed.
        style: The shape of the request; by default Anthropic's for an address that ends in `/messages`.
        price_per_million: What a million tokens cost, to count the money spent.
        timeout: How many seconds an answer may take.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        style: Style | None = None,
        price_per_million: float = 0.0,
        timeout: float = 60.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{url.partition('?')[0]!r} is no address; write it like http://localhost:11434/v1/chat/completions"
            )
        key = key.strip() if key else None
        if key and not (key.isascii() and key.isprintable()):
            raise ConfigError("the key of the endpoint holds a sign that no key has; copy it again")
        self.url, self._model, self._key, self._timeout = url, model, key, timeout
        self._shown = url.partition("?")[0]  # what follows may be a secret
        self._style = style or ("anthropic" if self._shown.rstrip("/").endswith("/messages") else "openai")
        self.price_per_million = price_per_million

    def ask(self, prompt: str, most: int) -> Said:
        """One request; the answer may take `most` tokens.

        Raises:
            FailedError: There was no answer, and nothing was spent.
        """
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": most,
            "temperature": 0,
        }
        headers = {"content-type": "application/json"}
        if self._style == "anthropic":
            headers |= {"x-api-key": self._key or "", "anthropic-version": "2023-06-01"}
        elif self._key:
            headers["authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        try:
            with opener.open(request, timeout=self._timeout) as response:
                answer: bytes = response.read(LONGEST + 1)
        except (TimeoutError, http.client.IncompleteRead) as error:  # the question is read, and paid for
            return Said(None, tokens_of(prompt), f"{self._shown} did not answer in time ({error})")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise FailedError(f"{self._shown} did not answer: {error}") from error
        if len(answer) > LONGEST:
            return Said(None, tokens_of(prompt) + most, f"the answer of {self._shown} does not end")
        tokens: int | None = None
        try:
            data: Any = json.loads(answer)
            tokens = self._billed(data.get("usage"))
            text = self._text_of(data)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
            said = prompt + answer.decode(errors="replace")
            what = f"the answer of {self._shown} has an unknown shape ({error!r})"
            return Said(None, tokens or tokens_of(said), what)
        return Said(text, tokens or tokens_of(prompt) + tokens_of(text))

    def cost(self, tokens: int) -> float:
        """What so many tokens cost."""
        return tokens * self.price_per_million / 1_000_000

    def _text_of(self, data: Any) -> str:
        if self._style == "anthropic":
            return "".join(part["text"] for part in data["content"] if "text" in part)
        return str(data["choices"][0]["message"]["content"] or "")

    def _billed(self, usage: object) -> int | None:
        if self._style == "anthropic":
            cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
            return billed(usage, "input_tokens", "output_tokens", *cached)
        return billed(usage, "total_tokens") or billed(usage, "prompt_tokens", "completion_tokens")


def billed(usage: object, *names: str) -> int | None:
    """The tokens that an endpoint says were used, the counts of these names together; None if it does not say.

    >>> billed({"input_tokens": 5, "output_tokens": 7}, "input_tokens", "output_tokens")
    12
    >>> billed({"total_tokens": "many"}, "total_tokens") is None
    True
    """
    given = cast("dict[str, object]", usage) if isinstance(usage, dict) else {}
    counts = [given.get(name) or 0 for name in names]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 53 for n in counts):
        return None
    return sum(cast("list[int]", counts)) or None
