"""One run of maintenance at a time: a lease in the bank's file that beats while the run is alive."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from types import TracebackType

from skep.engine import Engine
from skep.errors import BusyError, LeaseHeldError, MovedError
from skep.storage import leases

JOB = "maintain"
SECONDS = 60.0
"""How long a lease holds without a beat; a run that crashed blocks the next one for this long."""


class Held:
    """The lease of one run; a context manager.

    Raises:
        LeaseHeldError: Another run is at work.
    """

    def __init__(self, engine: Engine, *, seconds: float = SECONDS) -> None:
        self._engine = engine
        self._seconds = seconds
        self.owner = f"{os.getpid()}@{socket.gethostname()}/{secrets.token_hex(4)}"
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Held:
        held = self._claim()
        if held is not None:
            ends = max(0.0, held.until - self._engine.now())
            raise LeaseHeldError(
                f"another run ({held.owner.split('/')[0]}) is maintaining this bank; nothing was done. Wait for it;"
                f" if it crashed, its lease ends in {ends:.0f} s",
                owner=held.owner,
                ends_in=ends,
            )
        if self._engine.store.file is not None:
            self._thread = threading.Thread(target=self._beat, name="skep-lease", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()
        leases.release(self._engine.store.connection, JOB, self.owner)

    def check(self) -> None:
        """Refuse to write once another run has taken over. Call inside the transaction that writes."""
        if not leases.owned(self._engine.store.connection, JOB, self.owner):
            raise LeaseHeldError(
                "this run stood still for so long that another one took over; what it had not written yet was dropped"
            )

    def _claim(self) -> leases.Lease | None:
        store = self._engine.store
        return leases.claim(store.connection, JOB, self.owner, now=self._engine.now(), seconds=self._seconds)

    def _beat(self) -> None:
        while not self._done.wait(self._seconds / 3):
            try:
                if self._claim() is not None:
                    return  # taken over: the next write finds out
            except BusyError:
                continue  # somebody else is writing; there are two more beats before the lease ends
            except MovedError:
                return  # the file has gone: the next write finds out
