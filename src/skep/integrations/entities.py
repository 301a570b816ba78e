"""Entities, observations and relations as memories: the shape shared by importing a graph and serving one.

An entity is a memory titled with its name. Each observation is a memory of its own, so that it can be
found, dated and contested. A relation is a link. The tag `entity:<name>` holds them together."""

from __future__ import annotations

from typing import Any, Final

ENTITY: Final = "entity"
OBSERVATION: Final = "observation"


def tag_of(name: str) -> str:
    """The tag that an entity and its observations share."""
    return f"entity:{name}"


def entity_item(name: str, kind: str) -> dict[str, Any]:
    """The memory that stands for an entity."""
    return {
        "text": f"{name} ({kind})" if kind else name,
        "title": name,
        "tags": [ENTITY, tag_of(name)],
        "metadata": {"entity": name, "entityType": kind},
    }


def observation_item(name: str, text: str) -> dict[str, Any]:
    """The memory that holds one observation."""
    return {"text": text, "title": name, "tags": [OBSERVATION, tag_of(name)], "metadata": {"entity": name}}
