"""The profiles: the tools of `full`, `reference` and `search`, and the server of each.

Fewer tools are used better, so the default (`tools.py`) is the smallest set that does the job. `full` adds the
tools of somebody who tends a bank. `reference` speaks like the reference memory server, in the shape of
`importers/databases`; `search` offers the pair `search` and `fetch` that chat clients look for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from skep.errors import NotFoundError
from skep.integrations.hooks import clip
from skep.integrations.importers.databases import ENTITY, OBSERVATION, entity_item, observation_item, tag_of
from skep.model import CURRENT, Kind, Memory, Status
from skep.retrieval.recall_config import Expand
from skep.server.mcp.protocol import Params
from skep.server.mcp.render import (
    INSTRUCTIONS,
    PROMPTS,
    RESOURCES,
    by_words,
    event_line,
    found_nothing,
    hit_line,
    memory_line,
    page,
    pair_line,
    read_cursor,
)
from skep.server.mcp.session import INTERVAL, Server
from skep.server.mcp.start import Banks
from skep.server.mcp.tool_calls import IS_ID, Call, Registry, Reply, Tool, ToolError, schema_of, tool
from skep.server.mcp.tools import (
    Budget,
    Cursor,
    Id,
    Limit,
    Tags,
    When,
    Within,
    client_name,
    default_tools,
    learning_tools,
    linked_lines,
    touch,
    without_secrets,
)

if TYPE_CHECKING:
    from skep.bank.bank import Bank


def search_memory(
    call: Call,
    *,
    query: Annotated[str, Meta(description="A question or a few words.", min_length=1)],
    search_type: Annotated[
        Literal["facts", "episodes", "both"], Meta(description="Facts and procedures, past events, or both.")
    ] = "both",
    limit: Limit = 10,
    preset: Annotated[
        str | None, Meta(description="How to rank: default, semantic, hybrid, rrf, hive, patterns, stream.")
    ] = None,
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None,
    as_of: Annotated[str | None, Meta(description="Answer as the bank would have at that ISO time.")] = None,
    expand: Annotated[Expand | None, Meta(description="Also follow links from the hits.")] = None,
    explain: Annotated[bool, Meta(description="Add why each hit was returned.")] = True,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """Search in depth: also what was replaced or merged, with scores and reasons, at a past moment, or along
    links. For ordinary questions use recall."""
    from skep.recall.memory_stream import SEARCHED

    bank = call.bank()
    found = bank.recall(
        query,
        kind=SEARCHED[search_type],
        limit=limit,
        preset=preset,
        min_confidence=min_confidence,
        as_of=as_of,
        include_superseded=True,
        expand=expand,
        explain=explain,
    )
    now = bank.engine.now()
    lines = [hit_line(hit, now, explain=explain) for hit in found.hits]
    lines = [*by_words(found.reason), *lines] if lines else lines
    return page(lines, max_tokens, start=read_cursor(cursor), empty=found_nothing(found.reason))


def find(
    call: Call,
    *,
    text: Annotated[str | None, Meta(description="Only memories with all of these words.")] = None,
    kind: Kind | None = None,
    status: Annotated[Status | None, Meta(description="Default: what is current.")] = None,
    tags: Tags = [],  # noqa: B006 - read only
    domain: str | None = None,
    agent: Annotated[str | None, Meta(description="Who wrote it.")] = None,
    scope: Within = None,
    since: When = None,
    until: When = None,
    limit: Limit = 20,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """List memories that meet every condition, newest first. Exact filters, no ranking; to answer a
    question use recall."""
    bank = call.bank()
    where, _, start = (cursor or "").rpartition("@")
    found = bank.find(
        text,
        kind=kind,
        tags=tags,
        domain=domain,
        agent=agent,
        scope=scope,
        include_shared=scope is not None,
        since=since,
        until=until,
        limit=limit,
        cursor=where or None,
        status=CURRENT if status is None else status,
    )
    now = bank.engine.now()
    lines = [memory_line(memory, now) for memory in found.memories]
    more = f"{found.cursor}@at-0" if found.cursor is not None else None
    return page(
        lines, max_tokens, start=read_cursor(start or None), more=more, within=f"{where}@" if where else ""
    )


def find_conflicts(
    call: Call,
    *,
    id: Annotated[
        str | None,
        Meta(description="Only conflicts of this memory; leave out for the whole bank.", extra=IS_ID),
    ] = None,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """Stored memories that repeat or contradict each other, or of which one updates the other. Settle them
    with supersede, revise or forget."""
    bank = call.bank()
    found = bank.find_conflicts(id, progress=call.progress)
    lines = [pair_line(one) for one in found]
    return page(lines, max_tokens, start=read_cursor(cursor), empty="no conflicts")


def supersede(
    call: Call,
    *,
    old: Annotated[str, Meta(description="Id of the memory that no longer holds.", extra=IS_ID)],
    new: Annotated[str, Meta(description="Id of the memory that holds instead.", extra=IS_ID)],
    reason: str | None = None,
) -> str:
    """Say that a newer memory replaces an older one. The older leaves every recall and stays in history;
    restore brings it back."""
    bank = call.bank()
    memory = bank.supersede(old, new, reason)
    touch(call, old, new)
    return memory_line(memory, bank.engine.now())


def restore(call: Call, *, id: Id, reason: str | None = None) -> str:
    """Make a memory current again that was superseded, merged, retracted, deprecated or expired. What was
    forgotten cannot be restored."""
    bank = call.bank()
    memory = bank.restore(id, reason)
    touch(call, id)
    return "restored " + memory_line(memory, bank.engine.now())


def unlink(
    call: Call,
    *,
    src: Id,
    dst: Id,
    rel: Annotated[str | None, Meta(description="Only links of this kind.")] = None,
) -> str:
    """Remove links from one memory to another. The memories stay."""
    count = call.bank().unlink(src, dst, rel)
    touch(call, src, dst)
    return f"removed {count} link{'' if count == 1 else 's'}"


def neighbors(
    call: Call,
    *,
    id: Id,
    rel: str | None = None,
    direction: Literal["out", "in", "both"] = "both",
    depth: Annotated[int, Meta(ge=1, le=5)] = 1,
    max_tokens: Budget = 1500,
    cursor: Cursor = None,
) -> str:
    """Memories that are linked to one, within a number of steps, and how."""
    bank = call.bank()
    found = bank.neighbors(id, rel=rel, direction=direction, depth=depth)
    return page(linked_lines(bank, found), max_tokens, start=read_cursor(cursor), empty="no links")


def history(
    call: Call,
    *,
    id: Annotated[
        str | None,
        Meta(description="Id of a memory; leave out for the latest events of the bank.", extra=IS_ID),
    ] = None,
    limit: Limit = 20,
    max_tokens: Budget = 1500,
    cursor: Cursor = None,
) -> str:
    """What happened to a memory, oldest first, or in the whole bank, newest first. The ids in brackets are
    events; undo takes one back."""
    events = call.bank().history(id, limit=limit)
    return page([event_line(event) for event in events], max_tokens, start=read_cursor(cursor))


def undo(
    call: Call,
    *,
    event: Annotated[str, Meta(description="Id of an event, from history.", min_length=1, extra=IS_ID)],
    reason: str | None = None,
) -> str:
    """Take one event back, as if it had never been: a revision, a link, a supersede, even a remember.
    Undoing an undo brings it back. A forget is final."""
    done = call.bank().undo(event, reason)
    touch(call, *(str(one) for one in done.body["mentions"]))
    return f"undone; this is event [{done.id}]"


def full_tools(judge: Sequence[str] | None = None) -> list[Tool]:
    """Everything beyond the default profile."""
    return [
        tool(search_memory, title="Search in depth", reads=True),
        tool(find, title="List memories", reads=True),
        tool(find_conflicts, title="Find conflicts", reads=True),
        tool(supersede, title="Supersede a memory", repeats=True),
        tool(restore, title="Restore a memory", repeats=True),
        tool(unlink, title="Remove links", destroys=True, repeats=True),
        tool(neighbors, title="Linked memories", reads=True),
        tool(history, title="History", reads=True),
        tool(undo, title="Undo an event", destroys=True),
        *learning_tools(judge),
    ]


PROFILES: Final[dict[str, Callable[[Sequence[str] | None], list[Tool]]]] = {
    "default": lambda _judge: default_tools(),
    "full": lambda judge: [*default_tools(), *full_tools(judge)],
    "reference": lambda _judge: reference_tools(),
    "search": lambda _judge: search_tools(),
}


def build_server(
    profile: str,
    banks: Banks,
    *,
    version: str,
    judge: Sequence[str] | None = None,
    watch_seconds: float = INTERVAL,
) -> Server:
    """The server that a client meets.

    Args:
        profile: Which tools.
        banks: Where memories are.
        version: Our own version.
        judge: The command of an agent that decides what rules cannot, if the user named one.
        watch_seconds: How often to look for changes by other processes while somebody subscribes to any.
    """
    own = profile in ("default", "full")
    registry = Registry(
        tools={tool.name: tool for tool in PROFILES[profile](judge)},
        resources=RESOURCES,
        prompts={prompt.name: prompt for prompt in PROMPTS} if own else {},
    )
    return Server(
        registry,
        version=version,
        instructions=INSTRUCTIONS if own else "",
        bank=banks.of,
        watch_seconds=watch_seconds,
    )


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
