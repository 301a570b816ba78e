"""Between rows and memories, and from a `Filter` to a WHERE clause."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from skep.errors import CorruptBankError
from skep.filters import Filter
from skep.model import ANY, SHARED, Event, Memory, Scope

if TYPE_CHECKING:
    from skep.storage.fold import State


WORDED = "(SELECT coalesce(max(id), 0) FROM words_docsize)"
"""The last row whose words and tags are in their tables, as SQL; see `storage.wording`."""
LAST = "coalesce((SELECT max(row) FROM memories), 0)"
"""The newest row, as SQL."""
HEAD = (
    "max(coalesce((SELECT changed FROM memories ORDER BY row DESC LIMIT 1), 0),"
    " coalesce((SELECT max(changed) FROM altered), 0))"
)
"""The number of the newest change of a memory, as SQL: that of the newest row, or of one that was altered later."""
CHANGED = "(m.row > :row OR m.row IN (SELECT row FROM altered WHERE changed > :after)) AND m.changed > :after"
"""The memories `m` that changed after a change, as SQL; see `Reads.created_after` for the row."""

NEVER = float("-inf")
"""A moment before every end."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_decode_list = msgspec.json.Decoder(tuple[str, ...]).decode
SHORT = 120
"""Sets of tags that take no more room than this are remembered: most repeat."""
MOST = 1 << 11
"""How many; when there are more, all are let go."""
_known: dict[str, tuple[str, ...]] = {}


def _labels(spelt: str) -> tuple[str, ...]:
    """A set of tags that is not among those remembered; from now on it is, if it is short."""
    found = _decode_list(spelt)
    if len(spelt) <= SHORT:
        if len(_known) >= MOST:
            _known.clear()
        _known[spelt] = found
    return found


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
    "replaced_by",
    "replaced_how",
    "replaced_at",
    "forgotten",
)
"""What the fold decides. `status` and `stale` also depend on other memories."""

_AS_STORED = (
    *("kind", "text", "title", "domain", "agent", "source", "confidence", "importance", "polarity", "level"),
    *("created_at", "valid_from", "valid_to", "expires_at", "last_evidence_at"),
    *("successes", "failures", "confirmations", "disputes"),
)

USUAL: dict[str, str | int | None] = {
    "polarity": 0,
    "status": "active",
    "pinned": 0,
    "level": 0,
    "evidence": "[]",
    "successes": 0,
    "failures": 0,
    "confirmations": 0,
    "disputes": 0,
    "metadata": "{}",
    "replaced_by": None,
    "stale": 0,
}
"""Columns of which nearly every row holds just this. They are read as one, a JSON array of all, which is NULL for a row
that does: a column costs as much to hand over as to find."""


_USUAL: tuple[Any, ...] = tuple(USUAL.values())


def _unusual() -> str:
    """Those columns as one, as SQL."""
    differs = (
        f"m.{name}" if held == 0 else f"m.{name} IS NOT NULL" if held is None else f"m.{name} != '{held}'"
        for name, held in USUAL.items()
    )
    return f"CASE WHEN {' OR '.join(differs)} THEN json_array({', '.join(f'm.{name}' for name in USUAL)}) END"


SHOWN = (
    *("m.id", "m.kind", "m.text", "m.title", "m.domain", "m.agent"),
    *(
        "m.scope_user",
        "m.scope_project",
        "m.scope_session",
        "m.tags",
        "m.source",
        "m.confidence",
        "m.importance",
    ),
    *(
        "m.created_at",
        "m.valid_from",
        "m.valid_to",
        "m.expires_at",
        "m.last_evidence_at",
        "u.count",
        "u.last_at",
    ),
)
"""The other columns of a memory, each by itself."""
SELECT = f"""
SELECT {", ".join(SHOWN)}, {_unusual()}, p.row, m.row
FROM memories m
LEFT JOIN uses u ON u.memory = m.id
LEFT JOIN pending p ON p.row = m.row AND p.space = :space
"""
AT_REST = SELECT.replace("p.row,", "NULL,").replace(
    "LEFT JOIN pending p ON p.row = m.row AND p.space = :space", ""
)
"""The same while nothing waits to be embedded: not looking for every row in an empty queue is a quarter of the work."""


def _by_row(select: str) -> str:
    """The same of the rows `:each`: one after the other, where `IN` would make a table of them first."""
    these = "FROM (VALUES :each) v CROSS JOIN memories m ON m.row = v.column1"
    return select.replace("FROM memories m", these) + " WHERE m.forgotten = 0"


BY_ROW, BY_ROW_AT_REST = _by_row(SELECT), _by_row(AT_REST)


def state_values(state: State) -> list[Any]:
    """The values of `STATE_COLUMNS`."""
    m = state.memory
    return [
        m.kind,
        m.text,
        m.title,
        m.domain,
        m.agent,
        m.scope.user,
        m.scope.project,
        m.scope.session,
        _json(m.tags),
        m.source,
        m.confidence,
        m.importance,
        m.polarity,
        m.status,
        m.pinned,
        m.level,
        m.created_at,
        m.valid_from,
        m.valid_to,
        m.expires_at,
        m.last_evidence_at,
        _json(m.evidence),
        m.successes,
        m.failures,
        m.confirmations,
        m.disputes,
        _json(m.metadata) if m.metadata else "{}",
        state.replaced_by,
        state.replaced_how if state.replaced_by else None,
        _json(state.replaced_at) if state.replaced_at else None,
        state.forgotten,
    ]


def _json(value: Any) -> str:
    return _encode(value).decode() if value else "[]"


def together(held: Sequence[Any]) -> str | None:
    """Values of the columns that are `USUAL` as rows of `SELECT` have them."""
    return None if tuple(held) == _USUAL else _encode(held).decode()


def memories_of(
    rows: list[tuple[Any, ...]], fingerprint: str | None, now: float = NEVER
) -> dict[int, Memory]:
    """Memories by row from rows of `SELECT`; see `memory_of`."""
    return {row[-1]: memory_of(row, fingerprint, now) for row in rows}


@lru_cache(maxsize=1 << 9)
def _scope(user: str | None, project: str | None, session: str | None) -> Scope:
    """A scope; most memories share theirs with many."""
    return Scope(user=user, project=project, session=session)


def memory_of(row: tuple[Any, ...], fingerprint: str | None, now: float = NEVER) -> Memory:
    """A memory from a row of `SELECT`; what has reached its end by then is expired, written down or not."""
    (
        id_, kind, text, title, domain, agent, user, project, session, tags, source, confidence, importance,
        created, start, end, expires, evidence_at, uses, used_at, unusual, pending, _row,
    ) = row  # fmt: skip
    waits = pending is not None or fingerprint is None
    try:
        (
            polarity, status, pinned, level, evidence, successes, failures, confirmations, disputes, metadata, replaced,
            stale,
        ) = _USUAL if unusual is None else _decode(unusual)  # fmt: skip
        labels = () if tags == "[]" else _known.get(tags) or _labels(tags)
        support = () if evidence == "[]" else _decode_list(evidence)
        more: dict[str, Any] = {} if metadata == "{}" else _decode(metadata)
    except (msgspec.MsgspecError, TypeError) as error:
        raise _damaged(f"memory {id_}", error) from error
    if status == "active":
        status = "expired" if expires is not None and expires <= now else "pending" if waits else "active"
    shared = user is None and project is None and session is None
    scope = SHARED if shared else _scope(user, project, session)
    superseded = merged = None
    if replaced is not None:
        superseded = replaced if status == "superseded" else None
        merged = replaced if status == "merged" else None
    return Memory(  # by place: naming thirty fields takes longer than filling them
        id_, kind, text, title, domain, agent, scope, labels, source, confidence, importance, polarity,
        status, pinned != 0, level, created, start, end, expires,
        evidence_at, used_at, support, uses or 0, successes, failures, confirmations, disputes,
        superseded, merged, stale != 0, more,
        None if waits else fingerprint,
    )  # fmt: skip


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
        **{name: found[name] for name in _AS_STORED},
    )


def event_of(row: tuple[Any, ...]) -> Event:
    """An event from (seq, actor, counter, hlc, kind, body, signature)."""
    seq, actor, counter, hlc, kind, body, signature = row
    try:
        said = _decode(body)
    except (msgspec.MsgspecError, TypeError) as error:
        raise _damaged(f"event {actor}-{counter}", error) from error
    return Event(seq=seq, actor=actor, counter=counter, hlc=hlc, kind=kind, body=said, signature=signature)


def _damaged(what: str, error: Exception) -> CorruptBankError:
    return CorruptBankError(
        f"{what} is damaged ({error}); put a backup in place with `skep backup --restore`, or save what can be read"
        " with `skep export --salvage`"
    )


def encode_body(body: dict[str, Any]) -> str:
    """The JSON that stands in the log."""
    return _encode(body).decode()


def searched_text(title: str | None, text: str) -> str:
    """What words and vectors are made from."""
    return f"{title}\n{text}" if title else text


_TAGGED = (
    "SELECT row FROM tags WHERE tag IN ({options}) UNION ALL SELECT n.row FROM memories n, json_each(n.tags) t"
    f" WHERE n.row > {WORDED} AND t.value IN ({{options}})"
)
"""Rows with one of these tags: from the table of tags, and of the newest rows, which are not there yet."""


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
            f"m.scope_{part} IS {bind(getattr(scope, part))}"
            for part in ("user", "project", "session")
            if getattr(scope, part) != ANY
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
    if where.statuses:
        ended = f"WHEN m.status = 'active' AND m.expires_at <= {bind(now)} THEN 'expired'"
        status = (
            f"CASE {ended} WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END"
        )
        among(f"({status})", where.statuses)
    for group in where.tags:
        options = ", ".join(bind(tag) for tag in group)
        parts.append(f"m.row IN ({_TAGGED.format(options=options)})")
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
    return " AND ".join(parts), values


@lru_cache(maxsize=256)
def with_room(sql: str, names: tuple[str, ...], room: int) -> str:
    """Bindings by number: giving them by name takes longer than the search itself.

    The text is read at every call to find the statement it stands for, so it is short: what has no number has the next.
    """
    numbers = {name: f"?{i}" for i, name in enumerate(names, 1)}
    numbers["rows"] = f"?{len(names) + 1}" + ",?" * (room - 1)
    numbers["each"] = f"(?{len(names) + 1})" + ",(?)" * (room - 1)
    for name in sorted(numbers, key=len, reverse=True):  # so that none is taken for the beginning of another
        sql = sql.replace(f":{name}", numbers[name])
    return sql
