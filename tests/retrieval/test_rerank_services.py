"""Rerankers over HTTP, against a real server on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.embedding.stub import KEY, Stub, serving

from skep.bank.bank import Bank
from skep.embedding.remote import Retry
from skep.errors import ConfigError, RerankError
from skep.retrieval.rerank_services import COHERE, VOYAGE, RemoteReranker, RerankService, open_reranker


@pytest.fixture
def stub() -> Iterator[Stub]:
    with serving() as stub:
        yield stub


@pytest.mark.parametrize("service", [COHERE, VOYAGE], ids=lambda s: s.name)
def test_scores_come_back_in_the_order_of_the_texts(stub: Stub, service: RerankService) -> None:
    reranker = RemoteReranker(service, "m", api_key=KEY, base_url=stub.url)
    assert reranker("q", ["four", "a", "to"]) == [0.25, 1.0, 0.5]
    path, headers, body = stub.requests[0]
    assert (path, headers["Authorization"], body["query"]) == ("/rerank", f"Bearer {KEY}", "q")


def test_a_recall_is_ordered_by_the_service(stub: Stub) -> None:
    with Bank.open(":memory:") as bank:
        bank.remember_many(["the port of the cache is 6379, as everybody knows", "cache port"])
        reranker = open_reranker("cohere:m", base_url=stub.url)
        assert bank.recall("port of the cache", reranker=reranker)[0].memory.text == "cache port"


def test_a_service_that_fails_says_so_and_what_to_do(stub: Stub) -> None:
    stub.always = (401, {}, {"message": "invalid api token"})
    reranker = RemoteReranker(COHERE, "m", api_key=KEY, base_url=stub.url)
    with pytest.raises(RerankError, match="leave the reranker out") as caught:
        reranker("q", ["a"])
    assert KEY not in str(caught.value)


def test_a_reply_that_leaves_out_a_text_is_refused(stub: Stub) -> None:
    stub.always = (200, {}, {"results": [{"index": 0, "relevance_score": 1}]})
    with pytest.raises(RerankError, match="scored 1 of 2"):
        RemoteReranker(COHERE, "m", base_url=stub.url)("q", ["a", "b"])


def test_a_busy_service_is_asked_again(stub: Stub) -> None:
    slept: list[float] = []
    stub.script = [(429, {"Retry-After": "3"}, {})]
    reranker = RemoteReranker(VOYAGE, "m", base_url=stub.url, retry=Retry(attempts=2), sleep=slept.append)
    assert reranker("q", ["a"]) == [1.0]
    assert slept == [3.0]


@pytest.mark.parametrize("spec", ["cohere:rerank-v3.5", "cohere:", "jina:x"])
def test_a_name_that_cannot_work_is_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        open_reranker(spec)
