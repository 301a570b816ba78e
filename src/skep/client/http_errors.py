"""Errors of skep as they travel over HTTP: a status, the name of the class, the message and what it carries.

The server writes them, the client raises them again as the same class.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from skep import errors
from skep.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    MissingExtraError,
    RemoteError,
    SkepError,
    VersionError,
)
from skep.model import Conflict, Event, Memory

STATUS: Final[dict[type[SkepError], int]] = {
    errors.ForgottenError: 410,
    errors.BankNotFoundError: 404,
    errors.NotFoundError: 404,
    errors.InvalidInputError: 400,
    errors.ConfigError: 400,
    errors.ConflictError: 409,
    errors.VersionError: 409,
    errors.LineageError: 409,
    errors.UndoError: 409,
    errors.AccessError: 403,
    errors.ReadOnlyError: 403,
    errors.BusyError: 503,
    errors.ClosedError: 503,
    errors.MovedError: 503,
    errors.EmbedderUnavailableError: 503,
    errors.HubAwayError: 503,
    errors.SyncError: 502,
    errors.DiskFullError: 507,
    errors.MissingExtraError: 501,
    errors.JudgeError: 502,
    errors.DistilError: 502,
}
"""The status of an error; of one that is not here, that of its nearest ancestor, else 500."""


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An error over HTTP."""

    type: str
    """The name of the class in `skep.errors`."""
    message: str
    """What happened and what to do."""
    field: str | None = None
    """The argument that was refused."""
    extra: str | None = None
    """The optional dependency that is missing at the server."""
    retry_after: float | None = None
    """Seconds after which it may go well."""
    conflicts: tuple[Conflict, ...] = ()
    """The memories that the text does not go with."""
    current: Memory | None = None
    """With `VersionError`: the memory as it is now."""
    expected: int = 0
    """With `VersionError`: the version that was expected."""
    changes: tuple[Event, ...] = ()
    """With `VersionError`: what was changed since, oldest first."""


class Failure(msgspec.Struct):
    """The body of every answer that is no success."""

    error: Told


def status_of(error: SkepError) -> int:
    """The HTTP status of an error."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 500)


def told(error: SkepError) -> Told:
    """An error, ready to be sent."""
    found = Told(type=type(error).__name__, message=str(error))
    if isinstance(error, InvalidInputError):
        found.field = error.field
    elif isinstance(error, ConflictError):
        found.conflicts = error.conflicts
    elif isinstance(error, VersionError):
        found.current, found.expected, found.changes = error.memory, error.expected, error.changes
    elif isinstance(error, MissingExtraError):
        found.extra = error.extra
    elif isinstance(error, BusyError):
        found.retry_after = 1.0
    return found


def raised(status: int, body: bytes) -> SkepError:
    """The error that an answer tells of."""
    try:
        one = msgspec.json.decode(body, type=Failure).error
    except msgspec.MsgspecError:
        return RemoteError(
            f"the server answered with status {status} and no reason; is it a skep server, and is a proxy in between?"
        )
    kind: Any = getattr(errors, one.type, None)
    if not (isinstance(kind, type) and issubclass(kind, SkepError)):
        return RemoteError(one.message)
    if issubclass(kind, InvalidInputError):
        return kind(one.message, field=one.field)
    if kind is MissingExtraError:
        return RemoteError(f"at the server: {one.message}")
    if kind is VersionError and one.current is not None:
        return VersionError(one.current, one.expected, one.changes)
    if kind is ConflictError:
        return _worded(ConflictError("", one.conflicts), one.message)
    return _worded(kind.__new__(kind, one.message), one.message)


def _worded(error: SkepError, message: str) -> SkepError:
    error.args = (message,)
    return error
