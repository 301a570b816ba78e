"""Rerankers over HTTP: Cohere and Voyage, or any service that speaks as they do.

`Bank.recall(..., reranker=open_reranker("cohere:rerank-v3.5", api_key=...))` lets one order the short list, and
`skep search --reranker` opens one by name. The query and the texts of the short list leave the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from skep.embedding.remote import KEYS, Retry, check_url, post_json
from skep.errors import ConfigError, EmbeddingError, RerankError

BATCH = 500
"""Texts per request; both services take a thousand."""


class RerankService(msgspec.Struct, frozen=True, kw_only=True):
    """The dialect of a service."""

    name: str
    url: str
    example: str
    call: Callable[[str, str, Sequence[str]], dict[str, Any]]
    """The request, from model, query and texts."""
    field: str
    """The key under which the reply has its results."""


COHERE = RerankService(
    name="cohere",
    url="https://api.cohere.com/v2",
    example="rerank-v3.5",
    call=lambda model, query, texts: {
        "model": model,
        "query": query,
        "documents": list(texts),
        "top_n": len(texts),
    },
    field="results",
)
VOYAGE = RerankService(
    name="voyage",
    url="https://api.voyageai.com/v1",
    example="rerank-2.5",
    call=lambda model, query, texts: {"model": model, "query": query, "documents": list(texts)},
    field="data",
)
RERANK_SERVICES: Mapping[str, RerankService] = {service.name: service for service in (COHERE, VOYAGE)}


class RemoteReranker:
    """Scores texts for a query at a service; a `reranker` for `Bank.recall`."""

    def __init__(
        self,
        service: RerankService,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        retry: Retry | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if not model:
            raise ConfigError(f"name a model, for example '{service.name}:{service.example}'")
        if not (api_key or base_url):
            raise ConfigError(
                f"{service.name} needs a key; set {KEYS[service.name][0]} for the commands, or pass api_key"
            )
        self._service = service
        self._model = model
        self._url = check_url(base_url or service.url) + "/rerank"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._retry = retry or Retry(attempts=2, timeout=10.0)
        self._sleep = sleep

    def __call__(self, query: str, texts: Sequence[str]) -> list[float]:
        """One score per text, from 0 to 1; larger is better."""
        scores: list[float] = []
        for start in range(0, len(texts), BATCH):
            scores += self._asked(query, texts[start : start + BATCH])
        return scores

    def _asked(self, query: str, texts: Sequence[str]) -> list[float]:
        payload = self._service.call(self._model, query, texts)
        try:
            reply = post_json(self._url, payload, self._headers, retry=self._retry, sleep=self._sleep)
        except EmbeddingError as error:
            raise RerankError(f"{error}; leave the reranker out to go on without it") from error
        try:
            results = cast("list[dict[str, Any]]", reply[self._service.field])
            found = {int(one["index"]): float(one["relevance_score"]) for one in results}
        except (KeyError, TypeError, ValueError) as error:
            raise RerankError(f"{self._url} does not answer in the form of {self._service.name}") from error
        if found.keys() != set(range(len(texts))):
            raise RerankError(f"{self._url} scored {len(found)} of {len(texts)} texts")
        return [found[number] for number in range(len(texts))]


def open_reranker(spec: str, *, api_key: str | None = None, base_url: str | None = None) -> RemoteReranker:
    """A reranker by name: `cohere:MODEL` or `voyage:MODEL`."""
    name, _, model = spec.partition(":")
    service = RERANK_SERVICES.get(name)
    if service is None:
        raise ConfigError(f"unknown reranker {spec!r}; choose one of {', '.join(RERANK_SERVICES)}")
    return RemoteReranker(service, model, api_key=api_key, base_url=base_url)
