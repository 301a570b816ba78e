"""The arguments of mem0's calls as those of a bank: messages, ids of users and runs, filters. `mem0` calls it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from skep.filters import OPERATORS
from skep.model import ANY, Scope

PARTS = {"user_id": "user", "run_id": "session"}
ENTITIES = ("user_id", "agent_id", "run_id")
Message = Mapping[str, Any]


def messages_of(messages: Any) -> list[Message]:
    """A text, a message or several, as messages."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        return [cast("Message", messages)]
    if not isinstance(messages, list | tuple):
        raise ValueError(f"messages must be str, dict, or list[dict], got {type(messages).__name__}")
    return list(cast("Sequence[Message]", messages))


def by_user(message: Message) -> bool:
    """True if a person said it."""
    return message.get("role", "user") == "user"


def words_of(message: Message) -> str:
    """The text of a message; parts that are no text are left out."""
    content = message.get("content")
    if isinstance(content, list):
        parts = cast("list[Message]", content)
        return "\n".join(str(part["text"]) for part in parts if part.get("text"))
    return str(content or "")


def whose(named: Mapping[str, Any], *, asked: bool) -> dict[str, Any]:
    """Scope and agent of the ids; in what is asked for, an id that is not named may be any."""
    clean: dict[str, str] = {}
    for name in ENTITIES:
        if (value := named.get(name)) is None:
            continue
        clean[name] = str(value).strip()
        if not clean[name] or any(map(str.isspace, clean[name])):
            raise ValueError(f"{name} must not be empty or hold spaces, got {value!r}")
    if not clean:
        raise ValueError(
            "name at least one of user_id, agent_id, run_id; for example filters={'user_id': 'u1'}"
        )
    missing = ANY if asked else None
    scope = Scope(project=missing, **{part: clean.get(name, missing) for name, part in PARTS.items()})
    return {"scope": scope, "agent": clean.get("agent_id")}


def asked_for(filters: Mapping[str, Any] | None, extra: Mapping[str, Any], verb: str) -> dict[str, Any]:
    """Scope, agent and conditions on metadata of a filter."""
    if extra:
        raise ValueError(f"{verb}() takes {', '.join(sorted(extra))} inside filters={{...}}")
    conditions: dict[str, Any] = {}
    for name, wanted in _flat(filters or {}):
        before = conditions.get(name)
        conditions[name] = (
            {**before, **wanted} if isinstance(before, dict) and isinstance(wanted, dict) else wanted
        )
    named = {name: conditions.pop(name) for name in ENTITIES if name in conditions}
    return {**whose(named, asked=True), "metadata": conditions}


def _flat(filters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, wanted in filters.items():
        if name == "AND":
            for inner in cast("Sequence[Mapping[str, Any]]", wanted):
                yield from _flat(inner)
        elif name in ("OR", "NOT"):
            raise ValueError(f"{name} is not there in filters; ask twice, or use 'nin' and 'ne'")
        elif isinstance(wanted, Mapping):
            operators = cast("Mapping[str, Any]", wanted)
            unknown = sorted(set(operators) - set(OPERATORS))
            if unknown:
                raise ValueError(
                    f"{name}: {', '.join(unknown)} is not there in filters; use {', '.join(OPERATORS)}"
                )
            yield name, {f"${key}": value for key, value in operators.items()}
        else:
            yield name, {"$ne": None} if wanted == ANY else wanted
