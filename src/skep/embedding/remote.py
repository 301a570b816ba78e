"""Remote services that embed: OpenAI-compatible ones, Gemini, Voyage, Cohere and Ollama, on the standard library alone.

`open_embedder` makes a `RemoteEmbedder`; nothing is sent until a text is embedded. Requests are JSON over kept
connections with a time limit, retries and back-off; time is an argument. The key is an argument too, and appears in no
message. Entry points pass the environment to `from_environment`, which finds keys and addresses in the variables of the
services' own tools, uses them and stores nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime
from functools import cached_property
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from skep.clock import Now, system_now
from skep.embedding.embedder import Calibration, Embedder, Opener, measure, open_embedder
from skep.embedding.kept_connection import CONNECTIONS, Reply
from skep.errors import ConfigError, EmbedderMismatchError, EmbedderUnavailableError, EmbeddingError

if TYPE_CHECKING:
    from skep.embedding.embedder import Vectors


REFUSED = frozenset({400, 413, 422})
"""The service understood and will not take this text; trying again is no use."""
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Worth another try."""


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The patience of a request: tries, time limit and pauses."""

    attempts: int = 4
    timeout: float = 30.0
    first_wait: float = 0.5
    longest_wait: float = 30.0

    def wait(self, attempt: int, asked: float | None) -> float:
        """Seconds before the next try: what the service asked for, else doubling."""
        return min(self.longest_wait, asked if asked is not None else self.first_wait * 2**attempt)


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


def _explain(reply: Reply, url: str) -> str:
    said = reply.body[:500].decode(errors="replace").strip()
    return f"{url} answered {reply.status} {reply.reason}" + (f": {said}" if said else "")


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
            sent = {"Content-Type": "application/json", **headers}
            reply = CONNECTIONS.post(url, body, sent, retry.timeout)
            if 200 <= reply.status < 300:
                return json.loads(reply.body)
            problem = _explain(reply, url)
            if reply.status in REFUSED:
                raise EmbeddingError(f"{problem}; the text was refused")
            if reply.status not in BUSY:
                raise EmbedderUnavailableError(f"{problem}; check the address, the model name and the key")
            asked = retry_after(reply.headers.get("Retry-After"), now())
        except ValueError as error:
            raise EmbedderUnavailableError(f"{url} did not answer with JSON; check the address") from error
        except (OSError, HTTPException) as error:
            problem = f"{url} could not be reached: {error}"
        if attempt + 1 < retry.attempts:
            sleep(retry.wait(attempt, asked))
    tries = f"; gave up after {retry.attempts} tries" if retry.attempts > 1 else ""
    failure = EmbedderUnavailableError(f"{problem}{tries}")  # pyright: ignore[reportPossiblyUnboundVariable]
    failure.retry_after = asked
    raise failure


QUERY_SECONDS = 5.0
"""Seconds that a question waits for its vector; without one it is answered by words."""

Call = tuple[str, dict[str, Any]]
"""A path below the base address, and what to post there."""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """The dialect of a service: the shape of a request, and the place of the vectors in the reply."""

    name: str
    url: str
    batch: int
    native: Mapping[str, int]
    """Dimensions of well-known models, so that nothing need be asked to know them."""
    key_header: tuple[str, str] | None
    """Header and prefix of the key; None where no key is used."""
    key_variable: str = ""
    """The environment variable in which the entry points look for it."""
    call: Callable[[str, Sequence[str], int | None], Call]
    """From model, texts and a shortened dimension."""
    rows: Callable[[Any], Sequence[Sequence[float]]]


def _openai_call(model: str, texts: Sequence[str], shortened: int | None) -> Call:
    payload: dict[str, Any] = {"model": model, "input": list(texts), "encoding_format": "float"}
    return "/embeddings", payload | ({"dimensions": shortened} if shortened else {})


def _openai_rows(reply: Any) -> list[Sequence[float]]:
    return [entry["embedding"] for entry in sorted(reply["data"], key=lambda entry: entry["index"])]


def _gemini_call(model: str, texts: Sequence[str], shortened: int | None) -> Call:
    extra = {"outputDimensionality": shortened} if shortened else {}
    requests = [
        {"model": f"models/{model}", "content": {"parts": [{"text": text}]}, **extra} for text in texts
    ]
    return f"/models/{quote(model)}:batchEmbedContents", {"requests": requests}


def _gemini_rows(reply: Any) -> list[Sequence[float]]:
    return [entry["values"] for entry in reply["embeddings"]]


def _ollama_call(model: str, texts: Sequence[str], shortened: int | None) -> Call:
    payload: dict[str, Any] = {"model": model, "input": list(texts)}
    return "/api/embed", payload | ({"dimensions": shortened} if shortened else {})


def _voyage_call(model: str, texts: Sequence[str], shortened: int | None) -> Call:
    payload: dict[str, Any] = {"model": model, "input": list(texts)}
    return "/embeddings", payload | ({"output_dimension": shortened} if shortened else {})


def _cohere_call(model: str, texts: Sequence[str], shortened: int | None) -> Call:
    payload: dict[str, Any] = {
        "model": model,
        "texts": list(texts),
        "input_type": "search_document",
        "embedding_types": ["float"],
    }
    return "/embed", payload | ({"output_dimension": shortened} if shortened else {})


OPENAI = Service(
    name="openai",
    url="https://api.openai.com/v1",
    batch=256,
    native={"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536},
    key_header=("Authorization", "Bearer "),
    key_variable="OPENAI_API_KEY",
    call=_openai_call,
    rows=_openai_rows,
)
GEMINI = Service(
    name="gemini",
    url="https://generativelanguage.googleapis.com/v1beta",
    batch=100,
    native={"gemini-embedding-001": 3072, "text-embedding-004": 768},
    key_header=("x-goog-api-key", ""),
    key_variable="GEMINI_API_KEY",
    call=_gemini_call,
    rows=_gemini_rows,
)
OLLAMA = Service(
    name="ollama",
    url="http://localhost:11434",
    batch=64,
    native={"nomic-embed-text": 768, "mxbai-embed-large": 1024, "all-minilm": 384, "bge-m3": 1024},
    key_header=None,
    call=_ollama_call,
    rows=lambda reply: reply["embeddings"],
)
VOYAGE = Service(
    name="voyage",
    url="https://api.voyageai.com/v1",
    batch=128,
    native={"voyage-3.5": 1024, "voyage-3.5-lite": 1024, "voyage-3-large": 1024, "voyage-code-3": 1024},
    key_header=("Authorization", "Bearer "),
    key_variable="VOYAGE_API_KEY",
    call=_voyage_call,
    rows=_openai_rows,
)
COHERE = Service(
    name="cohere",
    url="https://api.cohere.com/v2",
    batch=96,
    native={"embed-v4.0": 1536, "embed-english-v3.0": 1024, "embed-multilingual-v3.0": 1024},
    key_header=("Authorization", "Bearer "),
    key_variable="COHERE_API_KEY",
    call=_cohere_call,
    rows=lambda reply: reply["embeddings"]["float"],
)
SERVICES: Mapping[str, Service] = {
    service.name: service for service in (OPENAI, GEMINI, VOYAGE, COHERE, OLLAMA)
}


class RemoteEmbedder:
    """Vectors from a service over HTTP.

    Args:
        service: One of `SERVICES`.
        model: The name the service knows it by.
        dim: Rows of this length; asked of the service where it can shorten, checked everywhere.
        known_dim: The length of vectors that the service named before, so that it need not be asked again.
        api_key: Needed at the services' own addresses, optional at others.
        base_url: Another address that speaks the same language.
        knots: Calibration, if known; else measured with one request when first needed.
        sleep: Called between tries.
    """

    def __init__(
        self,
        service: Service,
        model: str,
        *,
        dim: int | None = None,
        known_dim: int | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        knots: Sequence[Sequence[float]] | None = None,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not model:
            raise ConfigError(f"name a model, for example '{service.name}:{next(iter(service.native))}'")
        if service.key_header and not (api_key or base_url):
            raise ConfigError(
                f"{service.name} needs a key; set {service.key_variable} for the commands, pass api_key in a program,"
                " or name the address of a service without one (base_url)"
            )
        self._service = service
        self._model = model
        self._url = check_url(base_url or service.url)
        self._retry = retry or Retry()
        self._sleep = sleep
        self._knots = knots
        header = service.key_header
        self._headers = {header[0]: f"{header[1]}{api_key}"} if header and api_key else {}
        native = service.native.get(model)
        self._declared = dim or native or known_dim
        self._shortened = dim if dim and native and dim != native else None

    @property
    def fingerprint(self) -> str:
        """Names the service's language, the model and the dimension; not the address."""
        return f"{self._service.name}-{self._model}-{self.dim}"

    @property
    def dim(self) -> int:
        """The length of every row; for a model nobody has named a length for, asked of the service once."""
        return self._width

    @property
    def instant(self) -> bool:
        """Never."""
        return False

    @cached_property
    def calibration(self) -> Calibration:
        """As given, else measured once on a few probes. Not tried twice: a question may be waiting for it."""
        return Calibration(self._knots) if self._knots is not None else measure(_Once(self))

    def calibrate(self, cosine: float) -> float:
        """Map a raw cosine of this model to the common scale."""
        return self.calibration(cosine)

    @cached_property
    def _width(self) -> int:
        if self._declared:
            return self._declared
        return len(self._ask(["dimension"], self._briefly(QUERY_SECONDS))[0])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text; blank texts are not sent and give zero rows."""
        return self._embed(texts, self._retry)

    def embed_once(self, texts: Sequence[str], seconds: float | None = None) -> Vectors:
        """As `embed`, asked once and not again: for a question, and for the queue, which has pauses of its own.

        Args:
            texts: The texts to embed.
            seconds: The longest wait for the answer, if not the usual one.
        """
        return self._embed(texts, self._briefly(seconds))

    def _briefly(self, seconds: float | None) -> Retry:
        timeout = self._retry.timeout if seconds is None else min(seconds, self._retry.timeout)
        return msgspec.structs.replace(self._retry, attempts=1, timeout=timeout)

    def _embed(self, texts: Sequence[str], retry: Retry) -> Vectors:
        import numpy as np

        out = np.zeros((len(texts), self.dim), np.float32)
        filled = [number for number, text in enumerate(texts) if text.strip()]
        for start in range(0, len(filled), self._service.batch):
            chosen = filled[start : start + self._service.batch]
            out[chosen] = self._rows(self._ask([texts[number] for number in chosen], retry))
        return out

    def _ask(self, texts: Sequence[str], retry: Retry) -> Sequence[Sequence[float]]:
        path, payload = self._service.call(self._model, texts, self._shortened)
        url = self._url + path
        reply = post_json(url, payload, self._headers, retry=retry, sleep=self._sleep)
        try:
            rows = self._service.rows(reply)
        except (KeyError, TypeError) as error:
            raise EmbedderUnavailableError(
                f"{url} does not answer in the form of {self._service.name}"
            ) from error
        if len(rows) != len(texts):
            raise EmbedderMismatchError(f"{url} gave {len(rows)} vectors for {len(texts)} texts")
        return rows

    def _rows(self, raw: Sequence[Sequence[float]]) -> Vectors:
        import numpy as np

        wrong = {len(row) for row in raw} - {self.dim}
        if wrong:
            raise EmbedderMismatchError(
                f"{self._model} gave vectors of {sorted(wrong)[0]} numbers, not {self.dim}; name the right "
                f"length, for example '{self._service.name}:{self._model}@{sorted(wrong)[0]}'"
            )
        try:
            rows = np.array(raw, np.float32)
        except (TypeError, ValueError) as error:
            raise EmbedderUnavailableError(f"{self._model} gave vectors that are not numbers") from error
        if not np.isfinite(rows).all():
            raise EmbedderUnavailableError(f"{self._model} gave vectors that are not finite numbers")
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


class _Once:
    """A remote embedder that does not try again."""

    def __init__(self, embedder: RemoteEmbedder) -> None:
        self.embed = embedder.embed_once


KEYS: Mapping[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "voyage": ("VOYAGE_API_KEY",),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
}
"""Per service, the variables that may hold its key; the first that is set counts."""
ADDRESSES: Mapping[str, str] = {"openai": "OPENAI_BASE_URL", "ollama": "OLLAMA_HOST"}
OLLAMA_PORT = 11434


def from_environment(environ: Mapping[str, str]) -> Opener:
    """An `open_embedder` that looks up keys and addresses."""

    def opened(spec: str, *, known_dim: int | None = None) -> Embedder:
        name = spec.partition(":")[0]
        key = next((environ[each] for each in KEYS.get(name, ()) if environ.get(each)), None)
        address = environ.get(ADDRESSES.get(name, "")) or None
        if address is not None and name == "ollama":
            address = ollama_address(address)
        return open_embedder(spec, known_dim=known_dim, api_key=key, base_url=address)

    return opened


def ollama_address(host: str) -> str:
    """The address that OLLAMA_HOST means: a host, a host and a port, or an address in full.

    >>> ollama_address("gpu.lan"), ollama_address("0.0.0.0:8000")
    ('http://gpu.lan:11434', 'http://127.0.0.1:8000')
    """
    host = host.strip()
    if "://" in host:
        return host
    name, _, port = host.rpartition(":") if ":" in host.rpartition("]")[2] else (host, "", "")
    if name in ("", "0.0.0.0", "[::]"):
        name = "127.0.0.1"
    return f"http://{name}:{port or OLLAMA_PORT}"
