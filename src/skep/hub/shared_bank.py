"""SharedBank: the bank that several machines share, opened by the address of its hub.

`Bank.open` comes here when it is given an address. The bank is a replica in the user's data folder: reads run on it at
local speed. It lies in no cache folder, because it may hold what the hub has not got yet. Before a verb the replica
catches up if the address asks for it (`stale`); after a verb what it wrote goes to the hub: at once (`mode=hub`), or
from a thread (`mode=local`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from skep.bank.bank import Bank
from skep.clock import Now
from skep.config import Settings
from skep.embedding.embedder import Embedder, Opener
from skep.engine.engine import Engine
from skep.errors import BankNotFoundError, HubAwayError, SkepError
from skep.hub.hub import AWAY_SECONDS
from skep.hub.hub_urls import HubOptions, open_hub, options_of, replica_file, shown
from skep.hub.replica import LocalReplica, unpack_snapshot
from skep.index.segment_files import Holding
from skep.model import Receipt
from skep.replication.version_vectors import Versions

FOLLOW_AFTER = 1.0
"""Seconds that a bank is open before a thread follows the hub: a command is over by then."""
FOLLOW_SECONDS = 20.0
GATHER_SECONDS = 0.2
"""Writes of this time are sent together where a thread sends them."""
PAUSES = (1.0, 30.0)
"""Seconds between two tries to reach a hub that is away: at first, at most."""


class SharedBank(Bank):
    """A bank that several machines share; a `Bank` in everything."""

    def __init__(
        self, engine: Engine, replica: LocalReplica | None = None, options: HubOptions | None = None
    ) -> None:
        super().__init__(engine)
        self.replica = replica
        """What keeps it in step with the hub; None for a view of the past."""
        self._options = options
        self._errand = None if replica is None or options is None else _Errand(replica)

    def _before(self) -> None:
        replica, options = self.replica, self._options
        if replica is None or options is None or options.stale is None or self.closed:
            return
        heard = replica.heard_at
        if heard is None or self._engine.now() - heard > options.stale:
            try:
                replica.pull()
            except HubAwayError as error:
                raise HubAwayError(
                    f"{error}. This replica was last in step more than {options.stale:g} seconds ago; open the bank"
                    " without `stale` to read what is here"
                ) from error

    def _after(self, before: dict[str, int]) -> None:
        """Send what a verb wrote. In mode `hub` it fails if the hub has not got that; no verb fails for another."""
        if self.replica is None or self._options is None or self._errand is None or self.closed:
            return
        if self._options.mode == "local":
            if not self.replica.all_sent:
                self._errand.wake()
            return
        written = Versions.contiguous(self._versions()).minus(Versions.contiguous(before))
        if not written:
            return
        try:
            self.replica.push()
        except HubAwayError as error:
            if all(event.kind == "use" for event in self._engine.log.ranges(written.ranges)):
                return  # counts of what was handed out: for those, no read fails
            raise HubAwayError(
                f"what was written is kept here ({self.file}) and sent as soon as the hub answers, so do not write it"
                f" again; it is not at the hub yet: {error}"
            ) from error

    def _versions(self) -> dict[str, int]:
        return {} if self.closed else self._engine.log.versions()

    def close(self) -> None:
        """Send what waits, if the hub answers, and release the file. What is not sent stays for the next time."""
        if self.closed:
            return
        if self.replica is None or self._errand is None:
            super().close()
            return
        self._errand.stop()
        try:
            if not (self._engine.read_only or self._engine.settings.pure_reads):
                self._engine.flush_uses()
            with contextlib.suppress(HubAwayError):
                self.replica.push()
        finally:
            self.replica.close()
            self._errand.join()
            super().close()

    def __repr__(self) -> str:
        if self.closed or self.replica is None:
            return super().__repr__()
        return f"Bank({self.replica.url!r}, {self._engine.size()} memories)"


def _in_step(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """A verb of a bank that catches up before, as far as is asked for, and sends what it wrote afterwards."""

    @functools.wraps(verb)
    def call(self: SharedBank, *args: Any, **options: Any) -> Any:
        self._before()  # pyright: ignore[reportPrivateUsage]
        before = self._versions()  # pyright: ignore[reportPrivateUsage]
        done = verb(self, *args, **options)
        self._after(before)  # pyright: ignore[reportPrivateUsage]
        if name == "forget" and self.replica is not None:
            return _told_who_is_late(done, self.replica)
        return done

    return call


ASIDE = {"open", "put_back", "salvage", "close", "as_of"}
"""Methods that are no verbs on the log."""

for _name in dir(Bank):
    _verb = getattr(Bank, _name)
    if not _name.startswith("_") and callable(_verb) and _name not in ASIDE:
        setattr(SharedBank, _name, _in_step(_name, _verb))


def _told_who_is_late(receipt: Receipt, replica: LocalReplica) -> Receipt:
    """The receipt of a `forget`, with the replicas that have not carried it out yet."""
    if receipt.dry_run:
        return receipt
    late = replica.unconfirmed()
    names = dict.fromkeys(name for memory in receipt.memories for name in late.get(memory, ()))
    told = tuple(
        f"replica {name}: it has not been in step since; `skep sync status` tells when" for name in names
    )
    return msgspec.structs.replace(receipt, unreached=(*receipt.unreached, *told))


class _Errand:
    """The threads that follow the hub, and send to it what was written here."""

    def __init__(self, replica: LocalReplica) -> None:
        self._replica = replica
        self._stopping = threading.Event()
        self._written = threading.Event()
        self._threads = [threading.Thread(target=self._follow, name="skep-follow", daemon=True)]
        self._threads[0].start()

    def wake(self) -> None:
        """Something may have been written."""
        self._written.set()
        if len(self._threads) == 1:
            self._threads.append(threading.Thread(target=self._send, name="skep-send", daemon=True))
            self._threads[1].start()

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping.set()
        self._written.set()

    def join(self) -> None:
        """Wait until both threads have ended; closing the hub ends what they wait for."""
        for thread in self._threads:
            thread.join(AWAY_SECONDS)

    def _follow(self) -> None:
        replica = self._replica
        if self._stopping.wait(FOLLOW_AFTER):
            return

        def follow() -> None:
            if replica.wait(FOLLOW_SECONDS) and not self._stopping.is_set() and not replica.pull().events:
                self._stopping.wait(GATHER_SECONDS)
            if not self._stopping.is_set():
                replica.look_if_due()
                replica.push()  # what other processes of this machine, or rooms above, wrote
                replica.refresh_snapshot()

        self._try_on(follow)

    def _send(self) -> None:
        def send() -> None:
            self._written.wait()
            self._stopping.wait(GATHER_SECONDS)
            self._written.clear()
            if not self._stopping.is_set():
                self._replica.push()

        self._try_on(send)

    def _try_on(self, work: Callable[[], None]) -> None:
        """Do it again and again; after a failure, more and more slowly. The replica's `why` tells of it."""
        pause = PAUSES[0]
        while not self._stopping.is_set():
            try:
                work()
                pause = PAUSES[0]
            except SkepError:
                self._stopping.wait(pause)
                pause = min(2 * pause, PAUSES[1])
                self._written.set()


def open_shared(
    open_file: Callable[..., Bank],
    url: str,
    *,
    embedder: Embedder | str | None,
    opener: Opener,
    settings: Settings | None,
    now: Now,
    create: bool,
    read_only: bool,
) -> Bank:
    """Open the bank at a hub: its replica here, made first if there is none, and brought up to date.

    Args:
        open_file: `Bank.open`, for the file of the replica.
        url: The address.
        embedder: As in `Bank.open`.
        opener: As in `Bank.open`.
        settings: As in `Bank.open`.
        now: As in `Bank.open`.
        create: Whether to begin a bank at a hub that has none.
        read_only: Catch up once, then read alone.
    """
    options = options_of(url)
    file = Path(replica_file(url, os.environ))
    opened: dict[str, Any] = {"embedder": embedder, "opener": opener, "settings": settings, "now": now}
    file.parent.mkdir(parents=True, exist_ok=True)
    with Holding(str(file.parent), AWAY_SECONDS):
        position = None
        if not file.exists():
            position = _begin(url, file, create=create)
        plain = open_file(str(file), **opened)
    replica = LocalReplica(plain, lambda: open_hub(url), url=shown(url), mode=options.mode, name=options.name)
    try:
        if position is not None:
            replica.start_from(position)
        with contextlib.suppress(HubAwayError):  # what is here can be read; `status` says so
            replica.pull()
            replica.register()
            replica.push()
        if read_only:
            replica.close()
            plain.close()
            return open_file(str(file), **opened, read_only=True)
    except BaseException:
        replica.close()
        plain.close()
        raise
    return SharedBank(plain.engine, replica, options)


def _begin(url: str, file: Path, *, create: bool) -> str | None:
    """Fetch the snapshot for a new replica; where it ends, None if there is none. The hub has to answer."""
    hub = open_hub(url)
    try:
        if not create and hub.status().bank is None:
            raise BankNotFoundError(
                f"there is no bank at {shown(url)} yet; write a first memory to begin one"
            )
        packed = file.with_suffix(".gz")
        try:
            position = hub.get_snapshot(packed)
            if position is not None:
                partial = file.with_suffix(".partial")
                unpack_snapshot(packed, partial)
                os.replace(partial, file)
            return position
        finally:
            packed.unlink(missing_ok=True)
    finally:
        hub.close()
