"""Other servers' tools over a bank, for agents and prompts that were written for them.

`reference` speaks like the reference memory server: entities with observations, and relations between them.
An entity is a memory titled with its name; each observation is a memory of its own, so that it can be
found, dated and contested; a relation is a link. `search` offers the pair `search` and `fetch` that chat
clients look for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from skep.errors import NotFoundError
from skep.integrations.entities import ENTITY, OBSERVATION, entity_item, observation_item, tag_of
from skep.integrations.wording import clip
from skep.model import Memory
from skep.server.mcp.call import Call, ToolError
from skep.server.mcp.protocol import Params
from skep.server.mcp.registry import IS_ID, Reply, Tool, schema_of, tool
from skep.server.mcp.tools import client_name, touch, without_secrets

if TYPE_CHECKING:
    from skep.bank import Bank

SEARCH_LIMIT = 20
TITLE_CHARS = 80


class Entity(msgspec.Struct, rename="camel"):
    """A node of the graph."""

    name: Annotated[str, Meta(description="The name of the entity")]
    entity_type: Annotated[str, Meta(description="The type of the entity")]
    observations: Annotated[list[str], Meta(description="Observations associated with the entity")]


class Relation(msgspec.Struct, rename={"from_": "from", "relation_type": "relationType"}):
    """An edge of the graph."""

    from_: Annotated[str, Meta(description="The name of the entity where the relation starts")]
    to: Annotated[str, Meta(description="The name of the entity where the relation ends")]
    relation_type: Annotated[str, Meta(description="The type of the relation, in active voice")]


class Added(msgspec.Struct, rename="camel"):
    """Observations to add to an entity."""

    entity_name: str
    contents: list[str]


class Deletion(msgspec.Struct, rename="camel"):
    """Observations to take from an entity."""

    entity_name: str
    observations: list[str]


def create_entities(call: Call, *, entities: list[Entity]) -> Reply:
    """Create multiple new entities in the knowledge graph"""
    bank = call.bank()
    created = [entity for entity in entities if _entity(bank, entity.name) is None]
    items = [
        item
        for entity in created
        for item in (entity_item(entity.name, entity.entity_type), *_observations(entity))
    ]
    stored = bank.remember_many([{**item, "agent": client_name(call)} for item in items])
    touch(call, *(one.memory.id for one in stored))
    return _json({"entities": created}, [msgspec.to_builtins(one) for one in created])


def create_relations(call: Call, *, relations: list[Relation]) -> Reply:
    """Create multiple new relations between entities in the knowledge graph. Relations should be in active
    voice"""
    bank = call.bank()
    created: list[Relation] = []
    for relation in relations:
        src, dst = _known(bank, relation.from_), _known(bank, relation.to)
        present = bank.neighbors(src.id, rel=relation.relation_type, direction="out").links
        if not any(link.dst == dst.id for link in present):
            bank.link(src.id, dst.id, rel=relation.relation_type)
            touch(call, src.id, dst.id)
            created.append(relation)
    return _json({"relations": created}, msgspec.to_builtins(created))


def add_observations(call: Call, *, observations: list[Added]) -> Reply:
    """Add new observations to existing entities in the knowledge graph"""
    bank = call.bank()
    results: list[Params] = []
    for one in observations:
        _known(bank, one.entity_name)
        present = {memory.text for memory in _of(bank, one.entity_name, OBSERVATION)}
        fresh = [text for text in _storable(one.contents) if text not in present]
        for text in fresh:
            item = observation_item(one.entity_name, text)
            stored = bank.remember(item.pop("text"), **item, agent=client_name(call))
            touch(call, stored.memory.id)
        results.append({"entityName": one.entity_name, "addedObservations": fresh})
    return _json({"results": results}, results)


def delete_entities(call: Call, *, entityNames: list[str]) -> Reply:
    """Delete multiple entities and their associated relations from the knowledge graph"""
    bank = call.bank()
    for name in entityNames:
        entity = _entity(bank, name)
        if entity is None:
            continue
        for link in bank.neighbors(entity.id).links:
            bank.unlink(link.src, link.dst, link.rel)
        for memory in (*_of(bank, name, OBSERVATION), entity):
            bank.retract(memory.id, "deleted")
            touch(call, memory.id)
    return _done("Entities deleted successfully")


def delete_observations(call: Call, *, deletions: list[Deletion]) -> Reply:
    """Delete specific observations from entities in the knowledge graph"""
    bank = call.bank()
    for one in deletions:
        for memory in _of(bank, one.entity_name, OBSERVATION):
            if memory.text in one.observations:
                bank.retract(memory.id, "deleted")
                touch(call, memory.id)
    return _done("Observations deleted successfully")


def delete_relations(call: Call, *, relations: list[Relation]) -> Reply:
    """Delete multiple relations from the knowledge graph"""
    bank = call.bank()
    for one in relations:
        src, dst = _entity(bank, one.from_), _entity(bank, one.to)
        if src is not None and dst is not None:
            bank.unlink(src.id, dst.id, one.relation_type)
            touch(call, src.id, dst.id)
    return _done("Relations deleted successfully")


def read_graph(call: Call) -> Reply:
    """Read the entire knowledge graph"""
    bank = call.bank()
    return _graph(bank, [str(memory.title) for memory in _all(bank, [ENTITY])])


def search_nodes(
    call: Call,
    *,
    query: Annotated[str, Meta(description="What to look for in entity names, types and observations")],
) -> Reply:
    """Search for nodes in the knowledge graph based on a query"""
    bank = call.bank()
    hits = bank.recall(query, limit=SEARCH_LIMIT).hits if query.strip() else ()
    named = [str(hit.memory.metadata["entity"]) for hit in hits if "entity" in hit.memory.metadata]
    exact = [query] if query.strip() and _entity(bank, query) is not None else []
    return _graph(bank, list(dict.fromkeys((*exact, *named))))


def open_nodes(
    call: Call, *, names: Annotated[list[str], Meta(description="An array of entity names to retrieve")]
) -> Reply:
    """Open specific nodes in the knowledge graph by their names"""
    return _graph(call.bank(), names)


def search(call: Call, *, query: Annotated[str, Meta(description="A question or a few words.")]) -> Reply:
    """Search the memory for what answers a query. Gives ids, titles and addresses; fetch gives the whole
    text."""
    hits = call.bank().recall(query, limit=SEARCH_LIMIT).hits if query.strip() else ()
    results = [
        {"id": hit.memory.id, "title": _title(hit.memory), "url": f"memory://{hit.memory.id}"} for hit in hits
    ]
    return _json({"results": results})


def fetch(
    call: Call, *, id: Annotated[str, Meta(description="An id from search.", min_length=1, extra=IS_ID)]
) -> Reply:
    """Fetch the whole text of one memory by its id."""
    memory = call.bank().get(id)
    metadata = {"kind": memory.kind, "status": memory.status, "confidence": f"{memory.confidence:.2f}"}
    if memory.source:
        metadata["source"] = memory.source
    body = {
        "id": memory.id,
        "title": _title(memory),
        "text": memory.text,
        "url": f"memory://{memory.id}",
        "metadata": metadata,
    }
    return _json(body)


def reference_tools() -> list[Tool]:
    """The nine tools of the reference memory server."""
    graph = schema_of(list[Entity]), schema_of(list[Relation])
    both = _object(entities=graph[0], relations=graph[1])
    result = _object(success={"type": "boolean"}, message={"type": "string"})
    added = {
        "type": "array",
        "items": _object(
            entityName={"type": "string"}, addedObservations={"type": "array", "items": {"type": "string"}}
        ),
    }
    return [
        tool(create_entities, title="Create Entities", output=_object(entities=graph[0])),
        tool(create_relations, title="Create Relations", output=_object(relations=graph[1])),
        tool(add_observations, title="Add Observations", output=_object(results=added)),
        tool(delete_entities, title="Delete Entities", destroys=True, repeats=True, output=result),
        tool(delete_observations, title="Delete Observations", destroys=True, repeats=True, output=result),
        tool(delete_relations, title="Delete Relations", destroys=True, repeats=True, output=result),
        tool(read_graph, title="Read Graph", reads=True, output=both),
        tool(search_nodes, title="Search Nodes", reads=True, output=both),
        tool(open_nodes, title="Open Nodes", reads=True, output=both),
    ]


def search_tools() -> list[Tool]:
    """The two tools that chat clients look for."""
    return [tool(search, title="Search", reads=True), tool(fetch, title="Fetch", reads=True)]


def _object(**properties: Params) -> Params:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _observations(entity: Entity) -> list[dict[str, Any]]:
    return [observation_item(entity.name, text) for text in _storable(entity.observations)]


def _storable(texts: list[str]) -> list[str]:
    """Each text once, without secrets and without those that are empty."""
    return [text for text in dict.fromkeys(without_secrets(text)[0] for text in texts) if text.strip()]


def _all(bank: Bank, tags: list[str]) -> list[Memory]:
    found: list[Memory] = []
    cursor = None
    while True:
        page = bank.find(tags=tags, limit=1000, cursor=cursor)
        found += page.memories
        cursor = page.cursor
        if cursor is None:
            return found[::-1]


def _of(bank: Bank, name: str, kind: str) -> list[Memory]:
    return _all(bank, [kind, tag_of(name)]) if name.strip() else []


def _entity(bank: Bank, name: str) -> Memory | None:
    return next(iter(_of(bank, name, ENTITY)), None)


def _known(bank: Bank, name: str) -> Memory:
    found = _entity(bank, name)
    if found is None:
        raise ToolError(f"Entity with name {name} not found")
    return found


def _graph(bank: Bank, names: list[str]) -> Reply:
    entities: list[Entity] = []
    relations: dict[tuple[str, str, str], Relation] = {}
    for name in names:
        memory = _entity(bank, name)
        if memory is None:
            continue
        kind = str(memory.metadata.get("entityType", ""))
        entities.append(Entity(name, kind, [one.text for one in _of(bank, name, OBSERVATION)]))
        for link in bank.neighbors(memory.id).links:
            ends = _name(bank, link.src), _name(bank, link.dst)
            if ends[0] is not None and ends[1] is not None:
                relations[ends[0], ends[1], link.rel] = Relation(ends[0], ends[1], link.rel)
    return _json({"entities": entities, "relations": list(relations.values())})


def _name(bank: Bank, memory_id: str) -> str | None:
    try:
        memory = bank.get(memory_id)
    except NotFoundError:
        return None
    return memory.title if ENTITY in memory.tags else None


def _title(memory: Memory) -> str:
    return memory.title or clip(memory.text, TITLE_CHARS)


def _done(message: str) -> Reply:
    return Reply(text=message, structured={"success": True, "message": message})


def _json(structured: Params, text: Any = None) -> Reply:
    plain = msgspec.to_builtins(structured)
    return Reply(text=msgspec.json.encode(plain if text is None else text).decode(), structured=plain)
