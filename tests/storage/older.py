"""A bank as an older skep would have left it, to see what becomes of it."""

from __future__ import annotations

from pathlib import Path

import apsw

from skep.config import Settings
from skep.storage.memory_rows import searched_text
from skep.storage.sqlite_store import SqliteStore

TO_EIGHT = """
DROP TABLE pair_readings;
ALTER TABLE kept_folds RENAME TO folds;
DROP INDEX memories_key;
DROP INDEX memories_project;
ALTER TABLE memories DROP COLUMN key;
ALTER TABLE memories DROP COLUMN version;
PRAGMA user_version = 8;
"""
TO_SEVEN = """
DROP INDEX event_log_place;
ALTER TABLE event_log RENAME TO log;
CREATE TABLE runs(seq INTEGER PRIMARY KEY, actor TEXT NOT NULL, counter INTEGER NOT NULL, UNIQUE(actor, counter));
INSERT INTO runs(seq, actor, counter) SELECT seq, actor, counter FROM log;
CREATE TABLE replicas(actor TEXT PRIMARY KEY, counter INTEGER, hlc INTEGER) WITHOUT ROWID;
INSERT INTO replicas(actor, counter, hlc) SELECT
    actor,
    iif(counter = (SELECT max(counter) FROM log WHERE log.actor = actors.actor), NULL, counter),
    iif(hlc = (SELECT hlc FROM log WHERE log.actor = actors.actor ORDER BY counter DESC LIMIT 1), NULL, hlc)
    FROM actors;
DROP TABLE actors;
ALTER TABLE memories ADD COLUMN born INTEGER NOT NULL DEFAULT 0;
UPDATE memories SET born = changed WHERE changed = row;
DROP INDEX memories_changed;
CREATE INDEX memories_changed ON memories(changed) WHERE changed != born;
CREATE VIEW newborn AS SELECT * FROM memories WHERE changed = born;
CREATE VIEW altered AS SELECT * FROM memories WHERE changed != born;
CREATE VIEW actors(actor, counter, hlc) AS
    SELECT p.actor, coalesce(p.counter, e.counter, 0), coalesce(p.hlc, e.hlc, 0)
    FROM replicas p LEFT JOIN log e ON p.counter IS NULL AND e.seq = (
        SELECT coalesce(
            (SELECT max(l.seq) FROM log l WHERE l.seq < (SELECT min(n.seq) FROM runs n WHERE n.seq > r.seq)),
            (SELECT max(seq) FROM log)
        ) FROM runs r WHERE r.actor = p.actor ORDER BY r.counter DESC LIMIT 1
    );
CREATE VIEW events AS SELECT seq, actor, counter, hlc, kind, body, signature FROM log;
PRAGMA user_version = 7;
"""
WAITED = 7
"""Banks of schema 7 indexed words and tags of so many of their newest rows later, or of more."""


def make_older(path: Path, version: int) -> None:
    """Take a bank that nobody has open back to an earlier schema."""
    store = SqliteStore.open(path, Settings())
    if version == 7:
        with store.writing():
            newest = "SELECT row, title, text, tags, forgotten FROM memories ORDER BY row DESC LIMIT ?"
            for row, title, text, tags, forgotten in store.connection.rows(newest, (WAITED,)):
                if not forgotten:
                    store.tables.full_text.erase(row, searched_text(title, text), tags)
    store.close_as_one_file()
    connection = apsw.Connection(str(path))
    connection.execute(TO_EIGHT)
    if version == 7:
        connection.execute(TO_SEVEN)
    connection.close()
