"""The tasks of an agent, in a SQLite file of their own: taken, finished or taken again, never lost.

A task that is taken is leased. Whoever took it prolongs the lease while it works; when a process dies, the lease ends
and the task is taken again. So a task is done at least once, and what it does must bear being done twice. The runner
(`agent.runner`) and the command line use this.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from skep.errors import InvalidInputError, NotFoundError
from skep.storage.sqlite_connection import Connection, translated

Status = Literal["waiting", "taken", "done", "failed"]
SCHEMA = """
CREATE TABLE IF NOT EXISTS tasks (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, kind TEXT NOT NULL, body TEXT NOT NULL, trace TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'waiting', attempts INTEGER NOT NULL DEFAULT 0,
    put_off INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0,
    owner TEXT, until REAL, made REAL NOT NULL, ended REAL, result TEXT, error TEXT
);
CREATE INDEX IF NOT EXISTS open_tasks ON tasks (status, id) WHERE status IN ('waiting', 'taken');
"""
COLUMNS = "id, key, kind, body, trace, status, attempts, put_off, made, ended, result, error"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do."""

    id: int
    kind: str
    body: dict[str, Any]
    key: str | None = None
    """Tasks with the same key are one task."""
    trace: str = ""
    status: Status = "waiting"
    attempts: int = 0
    put_off: int = 0
    """How often it was put off because a model or a bank was away."""
    made: float = 0.0
    ended: float | None = None
    result: Any = None
    error: str | None = None


class TaskQueue:
    """Tasks in the order in which they came. Any number of processes may add, and take."""

    def __init__(self, path: str | os.PathLike[str], now: Callable[[], float]) -> None:
        self.path = os.fspath(path)
        self._now = now
        os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
        self._connection = Connection(self.path, busy_seconds=30.0)
        self._connection.write_ahead()
        with translated(self.path), self._connection.lock:
            self._connection.execute(SCHEMA).fetchall()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def put(self, kind: str, body: Mapping[str, Any], *, key: str | None = None, trace: str = "") -> Task:
        """Add a task; durable when this returns. One with a key that is there already is returned as it is."""
        values = (kind, json.dumps(dict(body), ensure_ascii=False), trace, key, self._now())
        with self._connection.transaction():
            self._connection.execute(
                "INSERT INTO tasks (kind, body, trace, key, made) VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
                values,
            )
            if key is not None:
                rows = self._connection.rows(f"SELECT {COLUMNS} FROM tasks WHERE key = ?", (key,))
            else:
                rows = self._connection.rows(f"SELECT {COLUMNS} FROM tasks WHERE id = last_insert_rowid()")
        return _task(rows[0])

    def take(self, owner: str, lease: float) -> Task | None:
        """The oldest task that waits, or whose lease has ended; None if there is none now."""
        now = self._now()
        with self._connection.transaction():
            rows = self._connection.rows(
                "UPDATE tasks SET status = 'taken', owner = ?, until = ?, attempts = attempts + 1 WHERE id = ("
                "SELECT id FROM tasks WHERE (status = 'waiting' AND not_before <= ?)"
                " OR (status = 'taken' AND until <= ?)"
                f" ORDER BY id LIMIT 1) RETURNING {COLUMNS}",
                (owner, now + lease, now, now),
            )
        return _task(rows[0]) if rows else None

    def prolong(self, task: Task, owner: str, lease: float) -> bool:
        """Go on holding a task; False if it is somebody else's by now."""
        return self._held(task, owner, "until = ?", (self._now() + lease,))

    def finish(self, task: Task, owner: str, result: Any) -> bool:
        """The task is done; False if it is somebody else's by now, who will do it again.

        Its text is dropped: what was learnt stands in the bank, where `forget` reaches it.
        """
        said = json.dumps(result, ensure_ascii=False)
        body = json.dumps({key: value for key, value in task.body.items() if key != "text"})
        return self._held(
            task,
            owner,
            "status = 'done', result = ?, body = ?, error = NULL, ended = ?",
            (said, body, self._now()),
        )

    def put_back(self, task: Task, owner: str, error: str, after: float, *, counts: bool = True) -> bool:
        """The task could not be done now; it waits for so many seconds at least.

        Args:
            task: The task.
            owner: Who took it.
            error: Why.
            after: Seconds.
            counts: Whether this try counts among its attempts.
        """
        return self._held(
            task,
            owner,
            "status = 'waiting', owner = NULL, error = ?, not_before = ?, put_off = put_off + ?,"
            " attempts = attempts - ?",
            (error, self._now() + after, int(not counts), int(not counts)),
        )

    def fail(self, task: Task, owner: str, error: str) -> bool:
        """The task cannot be done; it is kept with what was wrong."""
        return self._held(task, owner, "status = 'failed', error = ?, ended = ?", (error, self._now()))

    def _held(self, task: Task, owner: str, change: str, values: tuple[Any, ...]) -> bool:
        with self._connection.transaction():
            rows = self._connection.rows(
                f"UPDATE tasks SET {change} WHERE id = ? AND owner = ? AND status = 'taken' RETURNING id",
                (*values, task.id, owner),
            )
        return bool(rows)

    def get(self, task_id: int) -> Task:
        """A task by its number."""
        rows = self._connection.rows(f"SELECT {COLUMNS} FROM tasks WHERE id = ?", (task_id,))
        if not rows:
            raise NotFoundError(f"there is no task {task_id}")
        return _task(rows[0])

    def tasks(self, status: Status | None = None, limit: int = 50) -> list[Task]:
        """The newest tasks, newest first."""
        if limit < 1:
            raise InvalidInputError(f"limit must be 1 or more, got {limit}", field="limit")
        rows = self._connection.rows(
            f"SELECT {COLUMNS} FROM tasks WHERE ? IS NULL OR status = ? ORDER BY id DESC LIMIT ?",
            (status, status, limit),
        )
        return [_task(row) for row in rows]

    def retry(self, task_id: int) -> Task:
        """Let a task that failed wait again."""
        with self._connection.transaction():
            self._connection.execute(
                "UPDATE tasks SET status = 'waiting', attempts = 0, not_before = 0, ended = NULL"
                " WHERE id = ? AND status = 'failed'",
                (task_id,),
            )
        return self.get(task_id)

    def purge(self, before: float) -> int:
        """Delete what ended before a moment; how many tasks that were."""
        with self._connection.transaction():
            return len(self._connection.rows("DELETE FROM tasks WHERE ended < ? RETURNING id", (before,)))

    def counts(self) -> dict[str, int]:
        """The number of tasks of each status."""
        found: dict[str, int] = {"waiting": 0, "taken": 0, "done": 0, "failed": 0}
        found.update(self._connection.rows("SELECT status, count(*) FROM tasks GROUP BY status"))
        return found

    def of_feed(self, feed: str) -> dict[str, int]:
        """The number of tasks of each status whose body names a feed."""
        rows = self._connection.rows(
            "SELECT status, count(*) FROM tasks WHERE kind = 'learn' AND json_extract(body, '$.feed') = ?"
            " GROUP BY status",
            (feed,),
        )
        return dict(rows)


def _task(row: tuple[Any, ...]) -> Task:
    found: dict[str, Any] = dict(zip(COLUMNS.split(", "), row, strict=True))
    found["body"] = json.loads(found["body"])
    found["result"] = None if found["result"] is None else json.loads(found["result"])
    return Task(**found)
