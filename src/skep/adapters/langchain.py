"""A bank as a LangChain retriever: a question in, documents out, best first.

A chain that asks a retriever uses it. The level, score and marks of each hit are in the document's metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skep.errors import MissingExtraError

try:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field
except ImportError as error:
    raise MissingExtraError("BankRetriever", "langchain") from error

if TYPE_CHECKING:
    from langchain_core.callbacks import CallbackManagerForRetrieverRun

    from skep.model import Hit


class BankRetriever(BaseRetriever):
    """The memories of a bank that fit a question, as documents."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    bank: Any
    """The bank, or an agent's bank in a hive."""
    k: int = 5
    """At most so many documents."""
    scope: Any = None
    include_shared: bool = False
    levels: tuple[str, ...] = ("strong", "likely", "weak")
    """Only hits of these levels; leave `weak` out where a wrong document does more harm than none."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of `recall`, such as `metadata`, `tags` or `preset`."""

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - LangChain passes it by name
        k: int | None = None,
        **options: Any,
    ) -> list[Document]:
        found = self.bank.recall(
            query,
            limit=self.k if k is None else k,
            scope=self.scope,
            include_shared=self.include_shared,
            **{**self.options, **options},
        )
        return [as_document(hit) for hit in found if hit.level in self.levels]


def as_document(hit: Hit) -> Document:
    """A hit as a document; what the memory's own metadata hold stays under its names."""
    memory = hit.memory
    told: dict[str, Any] = {
        "score": hit.score,
        "level": hit.level,
        "flags": list(hit.flags),
        "source": memory.source,
        "title": memory.title,
        "kind": memory.kind,
        "created_at": memory.created_at,
    }
    return Document(page_content=memory.text, id=memory.id, metadata={**told, **memory.metadata})
