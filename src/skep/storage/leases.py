"""Who is at work on a bank: one lease per job, in the bank's file, never replicated.

A lease has an owner and an end. Its owner moves the end while it works; whoever finds the end passed may take the
lease, so that a crash costs a wait and nothing else.
"""

from __future__ import annotations

import msgspec

from skep.storage.connection import Connection

FURTHEST = 10.0
"""A lease that ends more than so many times its length ahead was written by a clock gone wrong; it does not count."""


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who works on a job, and until when nobody else may."""

    owner: str
    until: float


def _held(connection: Connection, job: str) -> Lease | None:
    value = connection.one("SELECT value FROM meta WHERE key = ?", (f"lease:{job}",))
    return None if value is None else msgspec.json.decode(value, type=Lease)


def claim(connection: Connection, job: str, owner: str, *, now: float, seconds: float) -> Lease | None:
    """Take or prolong a lease. None means it is ours; otherwise the lease that stands in the way."""
    with connection.transaction():
        held = _held(connection, job)
        if held is not None and held.owner != owner and now < held.until <= now + FURTHEST * seconds:
            return held
        mine = msgspec.json.encode(Lease(owner=owner, until=now + seconds)).decode()
        connection.execute("INSERT OR REPLACE INTO meta(key, value) VALUES(?, ?)", (f"lease:{job}", mine))
    return None


def owned(connection: Connection, job: str, owner: str) -> bool:
    """Whether a lease is still ours; asked inside a transaction, the answer holds until its end."""
    held = _held(connection, job)
    return held is not None and held.owner == owner


def release(connection: Connection, job: str, owner: str) -> None:
    """Give a lease back, if it is still ours."""
    with connection.transaction():
        if owned(connection, job, owner):
            connection.execute("DELETE FROM meta WHERE key = ?", (f"lease:{job}",))
