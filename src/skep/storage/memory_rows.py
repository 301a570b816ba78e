"""Rows of the file as values and back: memories, events, and a `Filter` as a WHERE clause.

Every module of this room uses it. It knows the columns and runs no SQL itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from skep.errors import CorruptBankError
from skep.filters import Condition, Filter, meets
from skep.model import ANY, BELOW, Event, Memory, Scope

if TYPE_CHECKING:
    from skep.storage.fold import State


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(tuple[str, ...]).decode

STATE_COLUMNS = (
    "kind",
    "text",
    "title",
    "domain",
    "agent",
    "scope_user",
    "scope_project",
    "scope_session",
    "tags",
    "source",
    "confidence",
    "importance",
    "polarity",
    "own_status",
    "pinned",
    "level",
    "created_at",
    "valid_from",
    "valid_to",
    "expires_at",
    "last_evidence_at",
    "evidence",
    "successes",
    "failures",
    "confirmations",
    "disputes",
    "metadata",
    "key",
    "version",
    "replaced_by",
    "replaced_how",
    "replaced_at",
    "forgotten",
)
"""Columns that the fold decides. `status` and `stale` also depend on other memories."""

AS_STORED = (
    *("kind", "text", "title", "domain", "agent", "source", "confidence", "importance", "polarity", "level"),
    *("created_at", "valid_from", "valid_to", "expires_at", "last_evidence_at"),
    *("successes", "failures", "confirmations", "disputes", "key", "version"),
)
"""Columns that hold the field of the same name as it is."""


def decode_list(encoded: str) -> tuple[str, ...]:
    """A list of strings from its JSON."""
    return () if encoded == "[]" else _decode_list(encoded)


def encode_list(values: Iterable[Any]) -> str:
    """The JSON of a list."""
    return _encode(values).decode() if values else "[]"


def state_values(state: State) -> list[Any]:
    """The values of `STATE_COLUMNS`."""
    m = state.memory
    derived = {
        "scope_user": m.scope.user,
        "scope_project": m.scope.project,
        "scope_session": m.scope.session,
        "tags": encode_list(m.tags),
        "own_status": m.status,
        "pinned": m.pinned,
        "evidence": encode_list(m.evidence),
        "metadata": _encode(m.metadata).decode() if m.metadata else "{}",
        "replaced_by": state.replaced_by,
        "replaced_how": state.replaced_how if state.replaced_by else None,
        "replaced_at": encode_list(state.replaced_at) if state.replaced_at else None,
        "forgotten": state.forgotten,
    }
    return [derived[name] if name in derived else getattr(m, name) for name in STATE_COLUMNS]


def own_memory(memory_id: str, row: Sequence[Any]) -> Memory:
    """A memory from the values of `STATE_COLUMNS`, with its own status, whatever others did to it."""
    found: dict[str, Any] = dict(zip(STATE_COLUMNS, row, strict=True))
    return Memory(
        id=memory_id,
        scope=Scope(user=found["scope_user"], project=found["scope_project"], session=found["scope_session"]),
        tags=_decode_list(found["tags"]),
        evidence=_decode_list(found["evidence"]),
        metadata=_decode(found["metadata"]),
        pinned=bool(found["pinned"]),
        status=found["own_status"],
        **{name: found[name] for name in AS_STORED},
    )


def event_of(row: tuple[Any, ...]) -> Event:
    """An event from (seq, actor, counter, hlc, kind, body, signature)."""
    seq, actor, counter, hlc, kind, body, signature = row
    try:
        said = _decode(body)
    except (msgspec.MsgspecError, TypeError) as error:
        raise damaged(f"event {actor}-{counter}", error) from error
    return Event(seq=seq, actor=actor, counter=counter, hlc=hlc, kind=kind, body=said, signature=signature)


def damaged(what: str, error: Exception) -> CorruptBankError:
    """The error for a row that cannot be read."""
    return CorruptBankError(
        f"{what} is damaged ({error}); put a backup in place with `skep backup --restore`, or save what can be read"
        " with `skep export --salvage`"
    )


def encode_body(body: dict[str, Any]) -> str:
    """The JSON that stands in the log."""
    return _encode(body).decode()


def searched_text(title: str | None, text: str) -> str:
    """The text that words and vectors are made from."""
    return f"{title}\n{text}" if title else text


def where_clause(where: Filter, now: float) -> tuple[str, dict[str, Any]]:
    """The conditions of a filter over `memories m` (joined with `pending p`) at a moment, and their bindings."""
    parts = ["m.forgotten = 0"]
    values: dict[str, Any] = {}

    def bind(value: Any) -> str:
        name = f"w{len(values)}"
        values[name] = value
        return f":{name}"

    def among(column: str, options: tuple[str, ...]) -> None:
        if options:
            parts.append(f"{column} IN ({', '.join(bind(o) for o in options)})")

    scope = where.scope
    if scope is not None:
        same = " AND ".join(
            scope_part(f"m.scope_{part}", asked, bind)
            for part in ("user", "project", "session")
            if (asked := getattr(scope, part)) != ANY
        )
        same = same or "1"
        if where.include_shared:
            same = (
                f"({same} OR (m.scope_user IS NULL AND m.scope_project IS NULL AND m.scope_session IS NULL))"
            )
        parts.append(same)
    among("m.kind", where.kinds)
    among("m.domain", where.domains)
    among("m.agent", where.agents)
    among("m.key", where.keys)
    if where.statuses:
        ended = f"WHEN m.status = 'active' AND m.expires_at <= {bind(now)} THEN 'expired'"
        status = (
            f"CASE {ended} WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END"
        )
        among(f"({status})", where.statuses)
    for group in where.tags:
        options = ", ".join(bind(tag) for tag in group)
        parts.append(f"m.row IN (SELECT row FROM tags WHERE tag IN ({options}))")
    if where.since is not None:
        parts.append(f"m.created_at >= {bind(where.since)}")
    if where.until is not None:
        parts.append(f"m.created_at < {bind(where.until)}")
    if where.valid_at is not None:
        at = bind(where.valid_at)
        parts.append(
            f"(m.valid_from IS NULL OR m.valid_from <= {at}) AND (m.valid_to IS NULL OR {at} < m.valid_to)"
            f" AND (m.expires_at IS NULL OR {at} < m.expires_at)"
        )
    if where.min_confidence is not None:
        days = f"max(0, ({bind(where.now)} - m.last_evidence_at) / 86400.0)"
        parts.append(
            f"m.confidence * exp(-{bind(where.decay_per_day)} * {days}) >= {bind(where.min_confidence)}"
        )
    if where.min_importance is not None:
        parts.append(f"m.importance >= {bind(where.min_importance)}")
    if where.metadata:
        parts.append(f"metadata_meets(m.metadata, {bind(_encode(where.metadata).decode())})")
    return " AND ".join(parts), values


def scope_part(column: str, asked: str | None, bind: Callable[[Any], str]) -> str:
    """The condition that one part of a scope puts to its column; `bind` gives a value a name."""
    if asked is None or not asked.endswith(BELOW):
        return f"{column} IS {bind(asked)}"
    path = asked.removesuffix(BELOW)
    after = chr(ord("/") + 1)
    return (
        f"({column} = {bind(path)} OR ({column} >= {bind(path + '/')} AND {column} < {bind(path + after)}))"
    )


def metadata_meets(metadata: str, conditions: str) -> bool:
    """True if the metadata of a row meets conditions; both are JSON. SQLite calls it, as `metadata_meets`."""
    return meets(_conditions(conditions), {} if metadata == "{}" else _decode(metadata))


@lru_cache(maxsize=64)
def _conditions(encoded: str) -> tuple[Condition, ...]:
    return msgspec.json.decode(encoded, type=tuple[Condition, ...])
