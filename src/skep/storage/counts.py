"""How much of what a bank holds."""

from __future__ import annotations

import contextlib

import msgspec

from skep.storage.sqlite import SqliteStore


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one moment."""

    by_status: dict[str, int]
    by_kind: dict[str, int]
    events: int
    links: int
    held: int
    schema: int
    size_bytes: int
    index_bytes: int


def counts(store: SqliteStore) -> Counts:
    """Count everything, in one snapshot."""
    space = store.active_space()
    number = space.number if space else -1
    c = store.connection
    with c.snapshot():
        by_status = dict(
            c.rows(
                "SELECT CASE WHEN m.status = 'active' AND p.row IS NOT NULL THEN 'pending' ELSE m.status END AS s,"
                " count(*) FROM memories m LEFT JOIN pending p ON p.row = m.row AND p.space = ? WHERE m.forgotten = 0"
                " GROUP BY s ORDER BY s",
                (number,),
            )
        )
        _take_ended(store, by_status, number)
        by_kind = dict(
            c.rows("SELECT kind, count(*) FROM memories WHERE forgotten = 0 GROUP BY kind ORDER BY kind")
        )
        return Counts(
            by_status=by_status,
            by_kind=by_kind,
            events=c.one("SELECT count(*) FROM events"),
            links=c.one("SELECT count(*) FROM links"),
            held=c.one("SELECT count(*) FROM held"),
            schema=c.db.pragma("user_version"),
            size_bytes=_size(store),
            index_bytes=_index_size(store),
        )


def _take_ended(store: SqliteStore, by_status: dict[str, int], space: int) -> None:
    """Count what has reached its end as expired, whether that is written down or not. The index on ends finds it."""
    rows = store.connection.rows(
        "SELECT p.row IS NOT NULL AS waits, count(*) FROM memories m"
        " LEFT JOIN pending p ON p.row = m.row AND p.space = ?"
        " WHERE m.expires_at <= ? AND m.status = 'active' AND m.forgotten = 0 GROUP BY waits",
        (space, store.now()),
    )
    for waits, count in rows:
        shown = "pending" if waits else "active"
        by_status[shown] -= count
        by_status["expired"] = by_status.get("expired", 0) + count
        if not by_status[shown]:
            del by_status[shown]


def _size(store: SqliteStore) -> int:
    if store.path is None:
        db = store.connection.db
        return db.pragma("page_count") * db.pragma("page_size")
    wal = store.path.with_name(store.path.name + "-wal")
    return store.path.stat().st_size + (wal.stat().st_size if wal.exists() else 0)


def _index_size(store: SqliteStore) -> int:
    if store.path is None:
        return 0
    folder = store.path.with_name(store.path.name + ".index")
    total = 0
    for file in folder.rglob("*") if folder.is_dir() else ():
        with contextlib.suppress(FileNotFoundError):  # another process may clear it away at this moment
            total += file.stat().st_size if file.is_file() else 0
    return total
