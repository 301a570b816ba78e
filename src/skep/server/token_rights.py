"""Who may do what: checks a call against a token before it reaches the bank, and the answer before it leaves.

A token with a scope is a wall. It reads memories of its scope and shared ones, writes only into its scope, and of
anything else it does not learn that it exists. Verbs about the bank as a whole are not for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep.client.verb_table import Right, Verb
from skep.errors import AccessError, InvalidInputError, NotFoundError
from skep.events import mentioned
from skep.model import Memory, Receipt, Scope, is_pattern, part_admits
from skep.server.tokens import Token
from skep.validation import clean_scope

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.model import Event

ONE: Final = ("memory_id", "old", "new", "loser", "winner", "src", "dst")
"""Arguments that hold the id of a memory that is read or changed."""
MANY: Final = ("memory_ids", "used")
"""Arguments that hold the ids of such memories."""
CITED: Final = ("evidence", "sources")
"""Arguments that hold ids of memories that are only referred to."""
LABEL: Final = 500


def check_call(
    token: Token, bank_name: str, bank: MemoryBank, verb: Verb, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call that may go on, with the scope of its token put in.

    Raises:
        AccessError: The token does not allow it.
        NotFoundError: It names a memory outside the scope of the token.
    """
    if not token.opens(bank_name):
        raise AccessError(f"the token {token.name!r} does not open the bank {bank_name!r}")
    right = "review" if _lets_in(bank, verb.name, given) else verb.right
    if not token.allows(verb.name, right):
        person = "; it must be a person's (`skep token add --person`)" if right == "review" else ""
        raise AccessError(
            f"the token {token.name!r} has not the right {right!r} that {verb.name} needs{person}"
        )
    arguments = dict(given)
    if verb.name == "confirm" and arguments.get("by") is None:
        arguments["by"] = token.name
    if verb.name == "resolve_judgement":
        arguments["by"] = token.name
    if token.scope is None:
        return arguments
    return _within(token, token.scope, bank, verb, arguments)


def check_answer(token: Token, bank: MemoryBank, answer: Any) -> Any:
    """The answer, if a token may see all of it. It always may: this is the second lock on the door.

    Of a receipt it is given what it may know: the names of memories outside its scope are left out.
    """
    if token.scope is not None:
        if isinstance(answer, Receipt):
            shown = {
                field: tuple(
                    i for i in getattr(answer, field) if _reaches(token.scope, bank, i, writes=False)
                )
                for field in ("derived", "copies")
            }
            answer = msgspec.structs.replace(answer, **shown)
        for memory in _memories(answer):
            if memory.id and not _sees(token.scope, memory):
                raise AccessError(
                    "the answer holds a memory outside the scope of the token and was kept back"
                )
    return answer


def _lets_in(bank: MemoryBank, verb: str, given: Mapping[str, Any]) -> bool:
    """True for calls that bring a memory out of quarantine, whatever they are called."""
    try:
        if verb == "restore" or (verb == "mark" and given.get("status") == "active"):
            return bank.get(given["memory_id"]).status == "quarantined"
        if verb == "undo":
            event = bank.event(given["event_id"])
            return event.kind == "mark" and event.body.get("status") == "quarantined"
    except (NotFoundError, InvalidInputError):
        return False
    return False


def _within(
    token: Token, wall: Scope, bank: MemoryBank, verb: Verb, arguments: dict[str, Any]
) -> dict[str, Any]:
    fields = verb.arguments.__struct_fields__
    whole = verb.name not in ("get", "event", "undo") and "scope" not in fields and not _named(fields)
    if whole or verb.right in ("manage", "review"):
        raise AccessError(
            f"{verb.name} concerns the whole bank, and the token {token.name!r} has a scope; use one without"
        )
    if verb.name in ("event", "undo"):
        _check_event(wall, bank, arguments["event_id"], writes=verb.writes)
        return arguments
    if verb.name == "remember_many":
        items = [
            dict[str, Any](text=item) if isinstance(item, str) else dict(item) for item in arguments["items"]
        ]
        for item in items:
            item["scope"] = _written(wall, item.get("scope"))
            _check_ids(wall, bank, item, writes=True)
        return arguments | {"items": items}
    if "scope" in fields and (verb.name != "revise" or "scope" in arguments):
        asked = arguments.get("scope")
        if verb.name == "revise" and asked is None:
            raise AccessError("a token with a scope may not share a memory with everybody")
        arguments["scope"] = _written(wall, asked) if verb.writes else _asked(wall, asked)
    if verb.writes or "scope" not in fields:
        _check_ids(wall, bank, arguments, writes=verb.writes)
    if verb.name == "forget" and arguments.pop("derived", False):
        also = bank.forget(arguments["memory_ids"], dry_run=True, derived=True).memories
        arguments["memory_ids"] = [one for one in also if _reaches(wall, bank, one, writes=True)]
    return arguments


def _named(fields: Iterable[str]) -> bool:
    return any(name in (*ONE, *MANY, "items") for name in fields)


def _asked(wall: Scope, asked: Any) -> Scope:
    """The scope of a read: that of the token, or a part of it."""
    if asked is None:
        return wall
    scope = clean_scope("scope", asked, LABEL, asked=True)
    for mine, theirs in zip(msgspec.structs.astuple(wall), msgspec.structs.astuple(scope), strict=True):
        if not part_admits(mine, theirs):
            raise AccessError("the token does not reach that scope; leave the scope out to use its own")
    return scope


def _written(wall: Scope, asked: Any) -> Scope:
    """The scope that a memory is written into."""
    if asked is None:
        if any(map(is_pattern, msgspec.structs.astuple(wall))):
            raise InvalidInputError("say into which scope: the token reaches several", field="scope")
        return wall
    scope = clean_scope("scope", asked, LABEL)
    if not wall.admits(scope):
        raise AccessError("the token does not reach that scope; leave the scope out to use its own")
    return scope


def _check_ids(wall: Scope, bank: MemoryBank, arguments: Mapping[str, Any], *, writes: bool) -> None:
    """Raise unless every memory that is named may be seen, and changed if the call changes it."""
    named = [arguments[field] for field in ONE if field in arguments]
    for field in MANY:
        several = arguments.get(field, ())
        named += [several] if isinstance(several, str) else list(several)
    for memory_id in named:
        _check_id(wall, bank, memory_id, writes=writes)
    cited = [one for field in CITED for one in arguments.get(field) or ()]
    recalled = arguments.get("recalled")
    cited += [*(hit.memory.id for hit in recalled), *recalled.withheld] if recalled is not None else []
    for memory_id in cited:
        _check_id(wall, bank, memory_id, writes=False)


def _check_id(wall: Scope, bank: MemoryBank, memory_id: str, *, writes: bool) -> None:
    try:
        memory = bank.get(memory_id)
    except NotFoundError:
        memory = None
    if memory is None or not _sees(wall, memory):
        raise NotFoundError(f"there is no memory {memory_id!r} in the scope of the token")
    if writes and not wall.admits(memory.scope):
        raise AccessError(f"{memory_id} is shared with everybody; a token with a scope may only read it")


def _reaches(wall: Scope, bank: MemoryBank, memory_id: str, *, writes: bool) -> bool:
    """True if a token with this scope may see a memory, or change it."""
    try:
        _check_id(wall, bank, memory_id, writes=writes)
    except (NotFoundError, AccessError):
        return False
    return True


def _check_event(wall: Scope, bank: MemoryBank, event_id: str, *, writes: bool) -> None:
    try:
        subjects = mentioned(bank.event(event_id))
        if not subjects:
            raise NotFoundError(event_id)
        for subject in subjects:
            _check_id(wall, bank, subject, writes=writes)
    except NotFoundError:
        raise NotFoundError(f"there is no event {event_id!r} in the scope of the token") from None


def _sees(wall: Scope, memory: Memory) -> bool:
    return memory.scope.shared or wall.admits(memory.scope)


def _memories(value: Any) -> Iterator[Memory]:
    """Every memory in an answer, at any depth."""
    if isinstance(value, Memory):
        yield value
    elif isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _memories(getattr(value, field))
    elif isinstance(value, Mapping):
        for held in cast("Mapping[Any, Any]", value).values():
            yield from _memories(held)
    elif isinstance(value, list | tuple):
        for held in cast("list[Any]", value):
            yield from _memories(held)


def sees_event(token: Token, bank: MemoryBank, event: Event) -> bool:
    """True if a token may be told of an event."""
    if token.scope is None:
        return True
    try:
        _check_event(token.scope, bank, event.id, writes=False)
    except NotFoundError:
        return False
    return True


def check_whole(token: Token, bank_name: str, right: Right) -> None:
    """Raise unless a token may read or take the log of a bank as a whole."""
    if not token.opens(bank_name):
        raise AccessError(f"the token {token.name!r} does not open the bank {bank_name!r}")
    if token.scope is not None:
        raise AccessError(
            f"this opens the whole bank, and the token {token.name!r} has a scope;"
            f" the verbs under /v1/banks/{bank_name}/ serve it"
        )
    if right not in token.rights:
        raise AccessError(f"the token {token.name!r} has not the right {right!r}")
