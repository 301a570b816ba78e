"""The async façade: every method of `Bank`, run in a thread. No twin class: names and arguments are Bank's own."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, cast

from skep.bank.bank import Bank
from skep.errors import ClosedError


class AsyncBank:
    """A bank whose methods are awaited. `await AsyncBank.open(...)`, then the methods of `Bank`."""

    def __init__(self, bank: Bank, *, threads: int = 4) -> None:
        self._bank = bank
        self._closed = False
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="skep")

    @classmethod
    async def open(cls, *args: Any, **options: Any) -> Self:
        """Open a bank in a thread; the arguments are those of `Bank.open`."""
        return cls(await asyncio.to_thread(functools.partial(Bank.open, *args, **options)))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        value = getattr(self._bank, name)
        if not callable(value):
            raise AttributeError(f"{name} is not a method of Bank; use .bank.{name}")

        @functools.wraps(value)
        async def call(*args: Any, **options: Any) -> Any:
            if self._closed:
                raise ClosedError("this bank was closed; open it again with `AsyncBank.open`")
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._pool, functools.partial(_whole, value, *args, **options))
            return AsyncBank(found) if isinstance(found, Bank) else found  # a view of the past

        return call

    @property
    def bank(self) -> Bank:
        """The bank itself."""
        return self._bank

    async def close(self) -> None:
        """Finish what is running, then close the bank. Closing twice is no error."""
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.to_thread(self._bank.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _whole(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a method in the thread it belongs in; what it would give bit by bit comes as a list."""
    result = method(*args, **options)
    return list(cast("Iterator[Any]", result)) if isinstance(result, Iterator) else result
