"""What something that was derived from several memories has from them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.model import Memory

SHARED_FIELDS = ("domain", "agent")
"""Kept if every source has the same."""


def inherited(sources: Sequence[Memory]) -> dict[str, object]:
    """The fields of a new memory that follow from its sources, all of one scope.

    It is as old as the newest of them, as important as they are on average, and ends with the first of them that ends.
    Domain, agent and tags are those that all of them share.
    """
    body: dict[str, object] = {
        "importance": sum(source.importance for source in sources) / len(sources),
        "evidence": [source.id for source in sources],
        "created_at": max(source.created_at for source in sources),
    }
    scope = sources[0].scope
    parts = {k: v for k in ("user", "project", "session") if (v := getattr(scope, k)) is not None}
    tags = [tag for tag in sorted(sources[0].tags) if all(tag in source.tags for source in sources)]
    ends = [source.expires_at for source in sources if source.expires_at is not None]
    if parts:
        body["scope"] = parts
    if tags:
        body["tags"] = tags
    for key in SHARED_FIELDS:
        values = {getattr(source, key) for source in sources}
        if len(values) == 1 and None not in values:
            body[key] = values.pop()
    if ends:
        body["expires_at"] = min(ends)
    return body


def derived_from(source: str) -> Callable[[Sequence[str]], dict[str, object]]:
    """The body of the link from a memory that is yet to be written to one of its sources."""
    return lambda ids: {"src": ids[0], "dst": source, "rel": "derived_from", "strength": 1.0}
