"""Everything that can go wrong, as one tree.

::

    SkepError
    ├── InvalidInputError        a value was refused at the edge; nothing was written
    │   ├── EmptyTextError
    │   ├── TextTooLongError
    │   ├── BadTextError         control characters, lone surrogates
    │   ├── OutOfRangeError      NaN, a confidence of 1.5, an inverted interval
    │   ├── WrongTypeError
    │   └── UnknownKeyError
    ├── ConfigError              settings or a recall config that cannot work
    ├── NotFoundError            no such memory, event or version
    ├── ForgottenError           it was there, and was erased on request
    ├── ConflictError            the write contradicts what is stored
    ├── VersionError             the memory was changed since it was read
    ├── LineageError             a cycle, or a memory that would replace itself
    ├── UndoError                that event cannot be undone
    ├── StorageError
    │   ├── BankNotFoundError
    │   ├── ClosedError          the bank was closed before
    │   ├── NotABankError        the file is something else
    │   ├── NewerVersionError    written by a newer skep
    │   ├── CorruptBankError
    │   ├── ReadOnlyError
    │   ├── DiskFullError
    │   └── BusyError            another process held the write lock for too long
    │       └── LeaseHeldError   another run of maintenance is at work
    ├── EmbeddingError
    │   ├── EmbedderUnavailableError
    │   └── EmbedderMismatchError
    ├── RerankError              the service behind a reranker failed
    ├── SyncError                replicas could not exchange events
    │   └── HubAwayError         a hub did not answer; what was written here is kept and sent later
    ├── JudgeError               the judge answered with something unusable
    ├── LLMError                 a language model gave no answer that can be used
    │   └── BudgetError          the next question does not fit into what may be spent
    ├── AccessError              the token is missing; or an agent has not the right to change what another wrote
    ├── RemoteError              the server could not be reached, or answered with something unusable
    └── MissingExtraError        an optional dependency is not installed

Every message says what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from skep.model import Conflict, Event, Memory

HINTED = 12
"""Words that a hint lists at most."""


class SkepError(Exception):
    """The root of every error skep raises on purpose."""


class InvalidInputError(SkepError, ValueError):
    """A value was refused at the edge; nothing was written."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        self.field = field
        super().__init__(message)


class EmptyTextError(InvalidInputError):
    """There is nothing to remember."""


class TextTooLongError(InvalidInputError):
    """The text is over the limit."""


class BadTextError(InvalidInputError):
    """Control characters or lone surrogates, which cannot be stored faithfully."""


class OutOfRangeError(InvalidInputError):
    """A number, time or interval that means nothing."""


class WrongTypeError(InvalidInputError, TypeError):
    """A value of the wrong type."""


class UnknownKeyError(InvalidInputError):
    """A key that skep does not know; the message says which it may have meant."""


class ConfigError(SkepError, ValueError):
    """Settings or a recall config that cannot work."""


class NotFoundError(SkepError, LookupError):
    """No such memory, event or version."""


class ForgottenError(NotFoundError):
    """The memory was erased on request, and stays erased."""


class ConflictError(SkepError):
    """A write was refused because it contradicts or repeats what is stored."""

    def __init__(self, text: str, conflicts: tuple[Conflict, ...]) -> None:
        self.conflicts = conflicts
        ids = ", ".join(c.existing.id for c in conflicts)
        verb = "repeats" if all(c.kind == "duplicate" for c in conflicts) else "contradicts"
        super().__init__(
            f"{text!r} {verb} {ids}; pass on_conflict='supersede' to replace, or 'warn' to keep both"
        )


class VersionError(SkepError):
    """A change was refused because the memory was changed since it was read; nothing was written."""

    def __init__(self, memory: Memory, expected: int, changes: tuple[Event, ...]) -> None:
        self.memory = memory
        """As it is now."""
        self.expected = expected
        self.changes = changes
        """The changes since the version that was expected, oldest first."""
        told = "; ".join(map(_told, changes)) or "it never had that version here"
        super().__init__(
            f"{memory.id} has version {memory.version}, not {expected} ({told}); read it again and pass"
            f" expected_version={memory.version} if the change still makes sense"
        )


def _told(event: Event) -> str:
    said: dict[str, object] = event.body.get("changes") or {}
    what = f"{event.kind} of {', '.join(said)}" if said else event.kind
    return f"{what} by {event.body.get('by') or event.actor}"


class LineageError(SkepError, ValueError):
    """A chain of replacements that would bite its own tail."""


class UndoError(SkepError):
    """That event cannot be undone."""


class StorageError(SkepError):
    """The bank could not be read or written."""


class BankNotFoundError(StorageError, FileNotFoundError):
    """There is no bank at that path."""


class ClosedError(StorageError):
    """The bank was closed before; open it again."""


class MovedError(StorageError):
    """The file was moved, deleted or replaced while it was open."""


class NotABankError(StorageError):
    """The file exists and is not a bank."""


class NewerVersionError(StorageError):
    """The bank was written by a newer skep."""


class CorruptBankError(StorageError):
    """The file is damaged."""


class ReadOnlyError(StorageError, PermissionError):
    """The bank or its folder cannot be written."""


class DiskFullError(StorageError):
    """No space is left; the write was rolled back."""


class BusyError(StorageError, TimeoutError):
    """Another process held the write lock for too long."""


class LeaseHeldError(BusyError):
    """Another run of maintenance is at work on the bank; nothing was done."""

    def __init__(self, message: str, *, owner: str | None = None, ends_in: float | None = None) -> None:
        self.owner = owner
        """Who is at work, if that is known."""
        self.ends_in = ends_in
        """Seconds after which its lease ends unless it is prolonged."""
        super().__init__(message)


class EmbeddingError(SkepError):
    """Text could not be turned into vectors."""


class EmbedderUnavailableError(EmbeddingError):
    """The model or the service behind the embedder did not answer."""

    retry_after: float | None = None
    """Seconds the service asked to be left alone for, if it said so."""


class EmbedderFailedError(EmbedderUnavailableError):
    """An embedder that is not ours raised something unforeseen."""


class EmbedderMismatchError(EmbeddingError):
    """Vectors of two different embedders would have met."""


class AccessError(SkepError, PermissionError):
    """The right is missing: no token, one that is not valid any more, or what another agent wrote would change."""


class RemoteError(SkepError, ConnectionError):
    """The server could not be reached, or answered with something unusable."""


class RerankError(SkepError):
    """The service behind a reranker did not answer as it should."""


class SyncError(SkepError):
    """Replicas could not exchange events."""


class HubAwayError(SyncError, ConnectionError):
    """A hub did not answer; what was written here is kept and sent later."""


class JudgeError(SkepError):
    """The judge answered with something unusable."""


class LLMError(SkepError):
    """A language model gave no answer that can be used."""

    def __init__(self, message: str, *, tokens: int = 0, passing: bool = False) -> None:
        self.tokens = tokens
        """What the call took, or may have taken, though there is no answer."""
        self.passing = passing
        """True if the same question may be answered later: the model was busy or away."""
        super().__init__(message)


class BudgetError(LLMError):
    """The next question does not fit into what may be spent; nothing was asked."""


class DistilError(SkepError):
    """A callable or model that turns texts into one text failed."""


class MissingExtraError(SkepError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.extra = extra
        super().__init__(
            f"{feature} needs an optional dependency; install it with: pip install 'skep[{extra}]'"
        )


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint for a word that is not among those known: the nearest one, or the list.

    >>> did_you_mean("topk", ["top_k", "rrf_k"]), did_you_mean("x", ["alpha", "beta"])
    ("did you mean 'top_k'?", 'known are alpha, beta')
    """
    import difflib

    choices = list(known)
    close = difflib.get_close_matches(str(word), choices, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(choices[:HINTED]) + (", …" if len(choices) > HINTED else "")
    return f"known are {shown}" if choices else "there is none to choose from"
