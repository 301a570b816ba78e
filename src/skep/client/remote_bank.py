"""The part of `Client` and `AsyncClient` that is written by hand: calls, views of the past, the log, streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import msgspec

from skep.client.connection import Connection, one_bank, verb_of
from skep.client.verb_table import DEFAULT
from skep.errors import InvalidInputError, ReadOnlyError
from skep.model import Event

if TYPE_CHECKING:
    from skep.model import ScopeLike
    from skep.recall.memory_stream import Stream
    from skep.validation import Time

T = TypeVar("T")
PAGE = 1000


class _Log(msgspec.Struct):
    events: list[Event]
    position: int


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was just made to a bank."""

    id: str
    kind: str
    at: float
    memories: tuple[str, ...] = ()


class Remote:
    """One bank of a server.

    Args:
        url: The address of the server, such as `http://127.0.0.1:8420`.
        token: The token that opens it.
        bank: The name of the bank; may be left out where the token opens one alone.
        timeout: Seconds to wait for an answer.
    """

    def __init__(
        self, url: str, *, token: str | None = None, bank: str | None = None, timeout: float = 60.0
    ) -> None:
        self._line = Connection(url, token, timeout=timeout)
        self._name = bank
        self._as_of: Any = None
        self._actor: str | None = None

    @property
    def bank(self) -> str:
        """The name of the bank at the server."""
        if self._name is None:
            self._name = one_bank(self._line)
        return self._name

    @property
    def actor(self) -> str:
        """The name under which the server writes to the log."""
        if self._actor is None:
            self._actor = str(self.call("status").actor)
        return self._actor

    def as_of(self, time: Time) -> Self:
        """The bank as it was at a moment; for reading only. What was forgotten since stays forgotten."""
        past = object.__new__(type(self))
        past.__dict__.update(self.__dict__)
        past._as_of = time
        return past

    def events(self, since: Mapping[str, int] | None = None) -> Iterator[Event]:
        """The events that a replica with these versions lacks."""
        have, after = dict(since or {}), 0
        while True:
            path = f"/v1/banks/{quote(self.bank, safe='')}/events?after={after}&limit={PAGE}"
            found = self._line.get(path, _Log)
            yield from (event for event in found.events if event.counter > have.get(event.actor, 0))
            if len(found.events) < PAGE:
                return
            after = found.position

    def changes(self, after: int | None = None) -> Iterator[Change]:
        """The changes of the bank as they are made, by whomever; it ends when the server stops."""
        path = f"/v1/banks/{quote(self.bank, safe='')}/changes" + (
            f"?after={after}" if after is not None else ""
        )
        for line in self._line.lines(path):
            if line.startswith(b"data: "):
                yield msgspec.json.decode(line[6:], type=Change)

    def stream(
        self,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        turns: int = 2,
        inline: bool = False,
    ) -> Stream:
        """Passive recall: `observe` each turn, and `context` has what the turns before call to mind."""
        from skep.client.remote_stream import remote_stream

        return remote_stream(
            self.call, scope=scope, include_shared=include_shared, turns=turns, inline=inline
        )

    def close(self) -> None:
        """Close the connections; the bank stays open at the server. Closing twice is no error."""
        if self._as_of is None:
            self._line.close()

    def call(self, name: str, given: Mapping[str, Any] | None = None) -> Any:
        """Ask the server for a verb; `given` holds the arguments as the method has them, with itself."""
        verb = verb_of(name)
        fields = verb.arguments.__struct_fields__
        arguments = {field: value for field, value in (given or {}).items() if value is not DEFAULT}
        arguments.pop("self", None)
        arguments |= arguments.pop("changes", {})
        for field in () if name == "revise" else arguments.keys() - set(fields):
            if arguments.pop(field) is not None:
                raise InvalidInputError(
                    f"{field} stays here: a function cannot be sent to a server; leave it out", field=field
                )
        if self._as_of is not None and verb.writes:
            raise ReadOnlyError("this is a view of the past, for reading only; write to the bank itself")
        return self._line.call(self.bank, verb, arguments, as_of=self._as_of)


class AsyncRemote:
    """The same for asyncio; calls run in threads of their own. The arguments are those of `Client`."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        bank: str | None = None,
        timeout: float = 60.0,
        threads: int = 8,
    ) -> None:
        self._remote = Remote(url, token=token, bank=bank, timeout=timeout)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="skep-client")

    async def as_of(self, time: Time) -> Self:
        """The bank as it was at a moment; for reading only."""
        past = object.__new__(type(self))
        past.__dict__.update(self.__dict__)
        past._remote = self._remote.as_of(time)
        return past

    async def events(self, since: Mapping[str, int] | None = None) -> list[Event]:
        """The events that a replica with these versions lacks."""
        return await self._run(lambda: list(self._remote.events(since)))

    async def changes(self, after: int | None = None) -> AsyncIterator[Change]:
        """The changes of the bank as they are made, by whomever."""
        found = self._remote.changes(after)
        while (change := await asyncio.to_thread(next, found, None)) is not None:
            yield change

    async def close(self) -> None:
        """Close the connections; the bank stays open at the server. Closing twice is no error."""
        await asyncio.to_thread(self._pool.shutdown)
        self._remote.close()

    async def _run(self, method: Callable[..., T], *given: Any, **options: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._pool, partial(method, *given, **options)
        )

    async def call(self, name: str, given: Mapping[str, Any] | None = None) -> Any:
        """Ask the server for a verb."""
        return await self._run(self._remote.call, name, given)
