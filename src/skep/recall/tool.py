"""The agent's blocking tool: search facts, episodes or both."""

from __future__ import annotations

import msgspec

from skep.confidence import ABOVE, DEPRECATED
from skep.model import Hit, Recalled
from skep.recall.search import Recaller
from skep.storage.base import Filter
from skep.validation import clean_choice

SEARCHED: dict[str, tuple[str, ...]] = {
    "facts": ("fact", "procedure", "document"),
    "episodes": ("episode",),
    "both": ("fact", "procedure", "document", "episode"),
}


def search_memory(
    recaller: Recaller, query: str, where: Filter, *, search_type: str = "both", limit: int = 5
) -> tuple[Hit, ...]:
    """What is stored about a question, if at least somewhat sure (effective confidence above 0.3), diverse."""
    clean_choice("search_type", search_type, tuple(SEARCHED))
    narrowed = msgspec.structs.replace(where, kinds=SEARCHED[search_type], min_confidence=DEPRECATED + ABOVE)
    found: Recalled = recaller.run(query, narrowed, limit=limit, config={"select": "diversity"})
    return found.hits
