"""The schema: the tables of a new bank, the steps that bring an older one to them, and views that stand in for them.

A bank remembers the last step it has taken (`user_version`). `sqlite_file` makes the tables, or runs the steps that are
missing; a file that may not be changed is read through `StandIns` instead. Nothing here runs outside `sqlite_file` and
`Connection`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

APPLICATION_ID = 0x736B6570
"""`skep` in ASCII, in the header of the file."""
OLDEST = 7
"""The schema of the oldest banks that can be opened."""
TABLES = """
    CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;

    -- The log: the only truth. Everything below this table can be rebuilt from it.
    CREATE TABLE event_log(
        seq INTEGER PRIMARY KEY,
        actor TEXT NOT NULL,
        counter INTEGER NOT NULL,
        hlc INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        signature BLOB
    );
    CREATE UNIQUE INDEX event_log_place ON event_log(actor, counter);
    CREATE INDEX events_outcome ON event_log(seq) WHERE kind = 'outcome';
    CREATE INDEX events_undo ON event_log(seq) WHERE kind = 'undo';
    -- Which events speak of a memory or a setting. A memory bears the id of the event that creates it, so that one is
    -- not written down.
    CREATE TABLE subjects(subject TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY(subject, seq)) WITHOUT ROWID;
    CREATE TABLE actors(actor TEXT PRIMARY KEY, counter INTEGER NOT NULL, hlc INTEGER NOT NULL) WITHOUT ROWID;
    -- Where a long history was folded up to, so that one more event costs the same whatever its length. The subject is
    -- a memory, `links:` and a memory, or `setting:` and a key. May be emptied at any time.
    CREATE TABLE kept_folds(subject TEXT PRIMARY KEY, kept BLOB NOT NULL) WITHOUT ROWID;
    -- Events of other replicas that cannot be taken yet: a gap before them, or a stamp from the future.
    CREATE TABLE held(
        actor TEXT NOT NULL, counter INTEGER NOT NULL, hlc INTEGER NOT NULL, kind TEXT NOT NULL,
        body TEXT NOT NULL, signature BLOB, PRIMARY KEY(actor, counter)
    ) WITHOUT ROWID;

    CREATE TABLE memories(
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        changed INTEGER NOT NULL,
        forgotten INTEGER NOT NULL DEFAULT 0,
        kind TEXT NOT NULL,
        text TEXT NOT NULL,
        title TEXT,
        domain TEXT,
        agent TEXT,
        scope_user TEXT,
        scope_project TEXT,
        scope_session TEXT,
        tags TEXT NOT NULL DEFAULT '[]',
        source TEXT,
        confidence REAL NOT NULL,
        importance REAL NOT NULL,
        polarity INTEGER NOT NULL DEFAULT 0,
        status TEXT NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        level INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        valid_from REAL,
        valid_to REAL,
        expires_at REAL,
        last_evidence_at REAL NOT NULL,
        evidence TEXT NOT NULL DEFAULT '[]',
        successes INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0,
        confirmations INTEGER NOT NULL DEFAULT 0,
        disputes INTEGER NOT NULL DEFAULT 0,
        metadata TEXT NOT NULL DEFAULT '{}',
        own_status TEXT NOT NULL,
        replaced_by TEXT,
        replaced_how TEXT,
        replaced_at TEXT,
        stale INTEGER NOT NULL DEFAULT 0,
        key TEXT,
        version INTEGER NOT NULL DEFAULT 1
    );
    CREATE INDEX memories_changed ON memories(changed);
    CREATE INDEX memories_replaced ON memories(replaced_by) WHERE replaced_by IS NOT NULL;
    CREATE INDEX memories_scope ON memories(scope_user, scope_project, scope_session, created_at, row)
        WHERE scope_user IS NOT NULL OR scope_project IS NOT NULL OR scope_session IS NOT NULL;
    CREATE INDEX memories_expires ON memories(expires_at) WHERE expires_at IS NOT NULL;
    CREATE INDEX memories_procedures ON memories(successes, failures, forgotten) WHERE kind = 'procedure';
    CREATE INDEX memories_stale ON memories(row) WHERE stale = 1;
    CREATE INDEX memories_valid_from ON memories(valid_from) WHERE valid_from IS NOT NULL;
    CREATE INDEX memories_valid_to ON memories(valid_to) WHERE valid_to IS NOT NULL;
    -- What a session begins with; see `Reads.foremost`, whose condition must be this very one.
    CREATE INDEX memories_foremost ON memories(pinned, importance, row)
        WHERE forgotten = 0 AND (pinned = 1 OR importance >= 0.7);
    -- Whoever asks whether one of many was forgotten need not read each.
    CREATE INDEX memories_forgotten ON memories(id) WHERE forgotten = 1;
    CREATE INDEX memories_key ON memories(key, scope_project) WHERE key IS NOT NULL;
    CREATE INDEX memories_project ON memories(scope_project) WHERE scope_project IS NOT NULL;
    CREATE TABLE tags(tag TEXT NOT NULL, row INTEGER NOT NULL, PRIMARY KEY(tag, row)) WITHOUT ROWID;
    -- Hot counters, apart from the rows so that using a memory rewrites nothing else.
    CREATE TABLE uses(memory TEXT PRIMARY KEY, count INTEGER NOT NULL, last_at REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE links(
        src TEXT NOT NULL, dst TEXT NOT NULL, rel TEXT NOT NULL, strength REAL NOT NULL,
        PRIMARY KEY(src, dst, rel)
    ) WITHOUT ROWID;
    CREATE INDEX links_dst ON links(dst, rel);
    -- What is derived from a memory that such a link names is stale; `storage.staleness` keeps it so.
    CREATE INDEX links_contradicts ON links(src, dst) WHERE rel = 'contradicts';
    CREATE TABLE settings(key TEXT PRIMARY KEY, value TEXT NOT NULL, seq INTEGER NOT NULL) WITHOUT ROWID;

    -- Vectors in half precision, of length 1: the index keeps no more digits. One space per embedder; the key is
    -- space << 40 | row.
    CREATE TABLE spaces(
        space INTEGER PRIMARY KEY AUTOINCREMENT, fingerprint TEXT NOT NULL UNIQUE, dim INTEGER NOT NULL, spec TEXT,
        state TEXT NOT NULL CHECK(state IN ('active', 'building', 'retired'))
    );
    CREATE TABLE halves(key INTEGER PRIMARY KEY, vector BLOB NOT NULL);
    CREATE TABLE pending(
        space INTEGER NOT NULL, row INTEGER NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
        retry_at REAL NOT NULL DEFAULT 0, error TEXT, PRIMARY KEY(space, row)
    ) WITHOUT ROWID;

    -- Words, analysed by skep.text.terms; SQLite only splits at spaces.
    CREATE VIRTUAL TABLE words USING fts5(
        terms, content='', detail=none, tokenize="unicode61 remove_diacritics 0 categories 'L* M* N* P* S* C*'"
    );
    INSERT INTO words(words, rank) VALUES('secure-delete', 1);

    -- Copies this bank has made of itself, so that `forget` can reach them.
    CREATE TABLE backups(path TEXT PRIMARY KEY, made_at REAL NOT NULL) WITHOUT ROWID;

    -- Outputs of the reader of pairs, by a number made of both texts. May be emptied at any time.
    CREATE TABLE pair_readings(pair INTEGER PRIMARY KEY, outputs BLOB NOT NULL);
"""
"""The present schema."""

COUNTED = """1 + (SELECT count(*) FROM subjects s JOIN event_log e ON e.seq = s.seq WHERE s.subject = memories.id
        AND e.kind IN ('revise', 'retract', 'restore', 'supersede', 'merge', 'undo'))"""
"""The version of a memory by the log."""
STEPS = {
    8: """
    -- The plain form: every event in one unique index, every change in one index, the counter and stamp of every actor
    -- in a table; words and tags go in with their row. `sqlite_file.migrate` then indexes the newest rows.
    -- The name of the log is new so that an older skep, which has the bank open, cannot go on writing.
    DROP VIEW newborn;
    DROP VIEW altered;
    DROP VIEW actors;
    DROP VIEW events;
    DROP INDEX memories_changed;
    ALTER TABLE memories DROP COLUMN born;
    CREATE INDEX memories_changed ON memories(changed);
    ALTER TABLE log RENAME TO event_log;
    DELETE FROM event_log WHERE seq NOT IN (SELECT min(seq) FROM event_log GROUP BY actor, counter);
    CREATE UNIQUE INDEX event_log_place ON event_log(actor, counter);
    CREATE TABLE actors(actor TEXT PRIMARY KEY, counter INTEGER NOT NULL, hlc INTEGER NOT NULL) WITHOUT ROWID;
    INSERT INTO actors(actor, counter, hlc)
        SELECT r.actor,
            coalesce(r.counter, (SELECT max(e.counter) FROM event_log e WHERE e.actor = r.actor), 0),
            coalesce(r.hlc, (SELECT max(e.hlc) FROM event_log e WHERE e.actor = r.actor), 0)
        FROM replicas r;
    DROP TABLE replicas;
    DROP TABLE runs;
    """,
    9: f"""
    -- Keys that callers chose, and how often a memory was changed. `kept_folds` is a new name so that an older skep,
    -- which has the bank open, cannot go on changing memories: it would not count.
    ALTER TABLE memories ADD COLUMN key TEXT;
    ALTER TABLE memories ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
    UPDATE memories SET version = {COUNTED} WHERE forgotten = 0 AND id IN (SELECT subject FROM subjects);
    CREATE INDEX memories_key ON memories(key, scope_project) WHERE key IS NOT NULL;
    CREATE INDEX memories_project ON memories(scope_project) WHERE scope_project IS NOT NULL;
    ALTER TABLE folds RENAME TO kept_folds;
    """,
    10: TABLES[TABLES.rindex("CREATE TABLE pair_readings") :],
}
"""What brings a bank that has taken the step before to each step."""
VERSION = max(STEPS)

_SAID = (
    "BEGIN SELECT raise(ABORT, 'a newer skep has changed the form of this bank; close it, upgrade skep and open it"
    " again'); END"
)
OF_OLDER_BANKS = f"""
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
    CREATE TRIGGER actors_added INSTEAD OF INSERT ON actors {_SAID};
    CREATE TRIGGER actors_moved INSTEAD OF UPDATE ON actors {_SAID};
    CREATE TRIGGER events_added INSTEAD OF INSERT ON events {_SAID};
    CREATE TRIGGER events_cut INSTEAD OF DELETE ON events {_SAID};
"""
"""Views and triggers that stand in a bank of schema 7, to tell them from what a stranger put there."""

AS_IT_IS = {
    7: """
    CREATE TEMP VIEW event_log AS SELECT seq, actor, counter, hlc, kind, body, signature FROM events;
    CREATE TEMP VIEW tags(tag, row) AS SELECT tag, row FROM main.tags UNION ALL
        SELECT t.value, n.row FROM main.memories n, json_each(n.tags) t
        WHERE n.row > (SELECT coalesce(max(id), 0) FROM main.words_docsize);
    """,
    8: f"""
    CREATE TEMP VIEW memories AS SELECT *, NULL AS key, iif(forgotten, 1, {COUNTED}) AS version FROM main.memories;
    """,
    9: "CREATE TEMP VIEW pair_readings(pair, outputs) AS SELECT 0, NULL WHERE 0;",
}
"""The views that a bank needs that has come no further than a step, and cannot be migrated."""


class StandIns:
    """The views on one handle. They change when another process migrates the file."""

    def __init__(self, views: Callable[[int], str]) -> None:
        self._views = views
        """Gives the SQL of the views that a file of some version needs."""
        self._version: int | None = None

    def begin(self, db: Any) -> None:
        """Make the views on a handle that has none."""
        version: int = db.pragma("user_version")
        db.execute(self._views(version)).fetchall()
        self._version = version

    def follow(self, db: Any) -> bool:
        """Renew the views if the file has another version now; True if it has. Call between two reads."""
        if db.pragma("user_version") == self._version:
            return False
        for (name,) in db.execute("SELECT name FROM sqlite_temp_schema WHERE type = 'view'").fetchall():
            db.execute(f'DROP VIEW temp."{name}"')
        self.begin(db)
        return True
