"""OpenBank: the engine of an open bank and the helpers that every group of verbs needs.

`bank.Bank` is put together from the groups in `write`, `read`, `history`, `upkeep` and `bank_file`; each inherits this
class and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Self, cast

from skep.clock import pack
from skep.config import POLICY
from skep.engine.engine import Engine
from skep.errors import ClosedError, DiskFullError, NotFoundError, ReadOnlyError, SkepError, StorageError
from skep.events import Body, mentioned, plan
from skep.filters import Filter, checked_filter
from skep.model import Event, Memory, OnConflict, ScopeLike
from skep.validation import Time, clean_flag, clean_policy, clean_scope, clean_time, public_text

if TYPE_CHECKING:
    from pathlib import Path

    from skep.recall.recaller import Recaller


Sees = Callable[[Memory], bool]
"""True if a read may show a memory."""
LAST = (1 << 63) - 1
"""No stamp is later."""
BULK = 2000
"""Memories per transaction in bulk work."""


@contextlib.contextmanager
def file_errors(path: Path) -> Generator[None]:
    """Turn errors of the system about a file into errors that say what to do."""
    try:
        yield
    except SkepError:
        raise
    except OSError as error:
        why = f"{path} cannot be read or written ({error.strerror or error})"
        if error.errno == errno.ENOSPC:
            raise DiskFullError(f"{why}; free some space and try again") from error
        if isinstance(error, PermissionError):
            raise ReadOnlyError(f"{why}; check its permissions and those of its folder") from error
        raise StorageError(f"{why}; choose a file in a folder that exists") from error


class _Closed:
    """Stands in the place of the engine of a bank that was closed."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        raise ClosedError(f"{self._path or 'this bank'} was closed; open it again with `Bank.open`")


class OpenBank:
    """Holds the engine, closes it, and shows the bank as it was."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine = engine
        if not engine.embeddings.embedder.instant:
            from skep.semantics.pair_reader import BankReader

            engine.reader = BankReader(engine)
            engine.embeddings.filled = partial(engine.reader.read_near, behind=True)
        self._past: tuple[tuple[float, tuple[int, int]], Self] | None = None
        """The last view that was asked for; older ones live for as long as somebody holds them."""

    @property
    def closed(self) -> bool:
        """True if it was closed: nothing can be asked of it any more."""
        return isinstance(self._engine, _Closed)  # pyright: ignore[reportUnnecessaryIsInstance]

    def close(self) -> None:
        """Write what is still in memory and release the file. Closing twice is no error."""
        if self.closed:
            return
        self._past = None
        self.__dict__.pop("_recall", None)
        engine = self._engine
        try:
            engine.close()
        finally:
            self._engine = cast("Engine", _Closed(engine.file))

    @property
    def engine(self) -> Engine:
        """The parts this bank is made of, for the rooms built on top of it."""
        return self._engine

    @property
    def actor(self) -> str:
        """The name under which this bank writes to the log."""
        return self._engine.actor

    def as_of(self, time: Time) -> Self:
        """The bank as it was at a moment; for reading only. What was forgotten since stays forgotten."""
        moment = clean_time("time", time)
        key = (moment, self._engine.position())
        if self._past is not None and self._past[0] == key and not self._past[1].closed:
            return self._past[1]
        mine = self._engine
        store = mine.copy_to_memory()
        store.rewind(min(pack(moment) | 0xFFFF, LAST))
        engine = Engine(
            store,
            mine.embeddings.embedder,
            spec=mine.embeddings.spec,
            settings=mine.settings,
            now=lambda: moment,
            index_folder=mine.index_folder,
            frozen=True,
            opener=mine.embeddings.opener,
        )
        engine.embeddings.drain_few()
        store.read_only = True
        past = type(self)(engine)
        self._past = (key, past)
        return past

    def _cleaned(self, fields: Mapping[str, Any], redact: Any) -> tuple[Mapping[str, Any], dict[str, int]]:
        """The arguments without parts that must not be stored, and how often each kind of those was there."""
        from skep.text import redaction

        usual = redaction.kinds_of(self._engine.setting(redaction.SETTING)) if redact is True else ()
        chosen = redaction.clean_kinds("redact", redact, usual)
        limits = self._engine.settings
        return redaction.redact_fields(fields, chosen, longest=max(limits.text_limit, limits.metadata_limit))

    def _policy(self, given: OnConflict | None, usual: OnConflict) -> OnConflict:
        """What to do with a conflict: what the call says, else how the bank was opened, else its setting."""
        if given is not None:
            return cast("OnConflict", clean_policy("on_conflict", given))
        return self._engine.settings.on_conflict or self._engine.setting(POLICY) or usual

    @cached_property
    def _recall(self) -> Recaller:
        """Answers questions; loaded with the first one."""
        from skep.recall.recaller import Recaller

        return Recaller(self._engine)

    def _filter(self, **conditions: Any) -> Filter:
        """A checked filter; see `checked_filter`."""
        return checked_filter(self._engine.settings, self._engine.now(), **conditions)

    def _sees(self, scope: ScopeLike | None, include_shared: bool) -> Sees | None:
        """The test that a read with a scope puts memories to; None where everything is shown."""
        shared = clean_flag("include_shared", include_shared)
        if scope is None:
            return None
        asked = clean_scope("scope", scope, self._engine.settings.label_limit, asked=True)
        return lambda memory: asked.admits(memory.scope) or (shared and memory.scope.shared)

    def _seen(self, memory_id: str, sees: Sees | None) -> Memory:
        """A memory that a read may show. Of what lies outside its scope, a read does not even say that it exists."""
        if sees is None:
            return self._found(memory_id)
        try:
            memory = self._found(memory_id)
        except NotFoundError:
            memory = None
        if memory is None or not sees(memory):
            raise NotFoundError(
                f"there is no memory {memory_id!r} in that scope; ask without a scope, or with include_shared=True"
            )
        return memory

    def _found(self, memory_id: str) -> Memory:
        """A memory by id, wherever this looks for it."""
        return self._engine.memory(memory_id)

    def _shown(self, event: Event, sees: Sees | None) -> bool:
        """True if a read may show an event: only if it may show every memory the event speaks of."""
        if sees is None:
            return True
        named = mentioned(event)
        found = self._known(named)
        return bool(named) and all(name in found and sees(found[name]) for name in named)

    def _known(self, memory_ids: Iterable[str]) -> dict[str, Memory]:
        """Those of some memories that are there, by id."""
        found = {memory_id: self._engine.get(memory_id) for memory_id in memory_ids}
        return {memory_id: memory for memory_id, memory in found.items() if memory is not None}

    def _write(self, body: Body, reason: str | None = None) -> Event:
        """Write one event, with the reason that the caller gave."""
        kind, plain = plan(body)
        if reason is not None:
            plain["reason"] = public_text("reason", reason, self._engine.settings.text_limit)
        events, _ = self._engine.write([(kind, plain)])
        return events[0]
