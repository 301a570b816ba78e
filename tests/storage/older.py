"""A bank as an older skep would have left it, to see what becomes of it."""

from __future__ import annotations

from pathlib import Path

import apsw
import numpy as np

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
TO_SIX = """
DROP VIEW events;
DROP VIEW actors;
DROP TABLE runs;
CREATE TABLE events(
    seq INTEGER PRIMARY KEY, actor TEXT NOT NULL, counter INTEGER NOT NULL, hlc INTEGER NOT NULL, kind TEXT NOT NULL,
    body TEXT NOT NULL,
    signature BLOB,
    UNIQUE(actor, counter)
);
INSERT INTO events SELECT * FROM log;
DROP TABLE log;
CREATE INDEX events_outcome ON events(seq) WHERE kind = 'outcome';
CREATE INDEX events_undo ON events(seq) WHERE kind = 'undo';
CREATE VIEW actors(actor, counter, hlc) AS
    SELECT r.actor,
        coalesce(r.counter, (SELECT max(e.counter) FROM events e WHERE e.actor = r.actor), 0),
        coalesce(r.hlc, (SELECT e.hlc FROM events e WHERE e.actor = r.actor ORDER BY e.counter DESC LIMIT 1), 0)
    FROM replicas r;
DROP VIEW newborn;
DROP VIEW altered;
DROP INDEX memories_changed;
ALTER TABLE memories DROP COLUMN born;
CREATE INDEX memories_changed ON memories(changed);
PRAGMA user_version = 6;
"""
TO_FIVE = """
ALTER TABLE halves RENAME TO vectors;
PRAGMA user_version = 5;
"""
TO_FOUR = """
CREATE TABLE counted AS SELECT * FROM actors;
DROP VIEW actors;
DROP TABLE replicas;
CREATE TABLE actors(actor TEXT PRIMARY KEY, counter INTEGER NOT NULL, hlc INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO actors SELECT actor, counter, hlc FROM counted;
DROP TABLE counted;
PRAGMA user_version = 4;
"""
TO_THREE = """
DROP INDEX links_contradicts;
DROP INDEX memories_forgotten;
PRAGMA user_version = 3;
"""
TO_TWO = """
CREATE TABLE mentions(memory TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(memory, seq)) WITHOUT ROWID;
INSERT INTO mentions SELECT subject, seq FROM subjects;
INSERT INTO mentions SELECT actor || '-' || counter, seq FROM events WHERE kind = 'remember';
DROP TABLE subjects;
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'row INTEGER PRIMARY KEY', 'row INTEGER PRIMARY KEY AUTOINCREMENT')
    WHERE type = 'table' AND name = 'memories';
PRAGMA writable_schema = RESET;
INSERT INTO sqlite_sequence(name, seq) SELECT 'memories', max(row) FROM memories;
PRAGMA user_version = 2;
"""
TO_ONE = """
DROP TABLE folds; DROP INDEX events_undo; DROP INDEX memories_foremost; PRAGMA user_version = 1;
"""


WAITED = 7
"""Banks of the schemas 3 to 7 indexed words and tags of so many of their newest rows later, or of more."""


def make_older(path: Path, version: int) -> None:
    """Take a bank that nobody has open back to an earlier schema."""
    store = SqliteStore.open(path, Settings())
    if 2 < version < 8:
        with store.writing():
            newest = "SELECT row, title, text, tags, forgotten FROM memories ORDER BY row DESC LIMIT ?"
            for row, title, text, tags, forgotten in store.connection.rows(newest, (WAITED,)):
                if not forgotten:
                    store.tables.full_text.erase(row, searched_text(title, text), tags)
    store.close_as_one_file()
    connection = apsw.Connection(str(path))
    connection.execute(TO_EIGHT)
    if version <= 7:
        connection.execute(TO_SEVEN)
    if version <= 6:
        connection.execute(TO_SIX)
    if version <= 5:
        connection.execute(TO_FIVE)
        whole = [
            (np.frombuffer(v, "<f2").astype("<f4").tobytes(), k)
            for k, v in connection.execute("SELECT * FROM vectors")
        ]
        connection.executemany("UPDATE vectors SET vector = ? WHERE key = ?", whole)
    if version <= 4:
        connection.execute(TO_FOUR)
    if version <= 3:
        connection.execute(TO_THREE)
    if version <= 2:
        connection.execute(TO_TWO)
    if version == 1:
        connection.execute(TO_ONE)
    connection.close()
