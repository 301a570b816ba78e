"""ObjectHub (`s3://`, `gs://`, `az://`): a log in an object store, with no server to run.

Opened by `hub_urls`. Events lie in segments that are never changed, each under a name of its own. `manifest.json` lists
them in order, and is replaced only by who has read its present form (compare and swap, which the store must offer). An
append is a new segment and a new manifest; many small segments become one now and then; erasing writes new segments.
What no manifest names is removed when it is old.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import msgspec

from skep.errors import ConfigError, HubAwayError, MissingExtraError, SkepError, SyncError
from skep.hub.hub import (
    AWAY_SECONDS,
    BATCH,
    Batch,
    Heading,
    HubStatus,
    PollingHub,
    SnapshotNote,
    decode,
    dots,
    encode,
    outlived,
    place_of,
    position_of,
    read_heading,
)
from skep.hub.hub_urls import shown
from skep.model import Event
from skep.replication.version_vectors import Versions, normalise

MANIFEST = "manifest.json"
TRIES = 40
"""Tries to replace the manifest, while others do the same."""
TIERS = (32, 1024)
"""As many segments as the first number, each with fewer events than a tier, become one."""
ORPHAN = timedelta(hours=1)
"""Age at which an object that no manifest names is removed; a younger one may be about to be named."""


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """Events in one object."""

    name: str
    count: int
    holds: Versions


class StoredSnapshot(SnapshotNote, frozen=True, kw_only=True):
    """A snapshot, and the object that it is in."""

    name: str


class Manifest(Heading, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    segments: tuple[Segment, ...] = ()
    snapshot: StoredSnapshot | None = None

    @property
    def events(self) -> int:
        """The number of events in all segments."""
        return sum(segment.count for segment in self.segments)

    @property
    def held(self) -> Versions:
        """The events of all segments."""
        ranges: dict[str, list[tuple[int, int]]] = {}
        for segment in self.segments:
            for actor, found in segment.holds.ranges.items():
                ranges.setdefault(actor, []).extend(found)
        return Versions({actor: normalise(found) for actor, found in ranges.items()})


Change = Callable[[Manifest], Manifest]


class ObjectHub(PollingHub):
    """A log in an object store. See `Hub` for the promises."""

    PAUSES = (0.5, 4.0)

    def __init__(self, store: Any, url: str) -> None:
        """Open a hub, beginning it where there is none.

        Args:
            store: A store of `obstore`.
            url: Its address, to be shown.
        """
        super().__init__()
        self._obstore = _library()
        self._store = store
        self.url = url
        self._known: tuple[Manifest, dict[str, str]] | None = None
        """The manifest as it was last read, and the mark of that version."""
        with self._errors():
            if self._manifest() is None:
                first = msgspec.json.encode(Manifest(log=uuid4().hex))
                with contextlib.suppress(self._obstore.exceptions.AlreadyExistsError):
                    self._obstore.put(self._store, MANIFEST, first, mode="create")

    @classmethod
    def open(cls, url: str) -> ObjectHub:
        """From `s3://bucket/folder?region=eu-west-1`, `gs://bucket/folder`, `az://container/folder`.

        Keys come from the environment, as the tools of the provider expect them; behind `?` stands what they are not
        told by it, such as `region` and `endpoint`.
        """
        obstore = _library()
        parts = urlsplit(url.partition("#")[0])
        config = dict(parse_qsl(parts.query))
        plain = config.get("endpoint", "").startswith("http://")
        try:
            store = obstore.store.from_url(
                f"{parts.scheme}://{parts.netloc}{parts.path}",
                config=config or None,
                client_options={"timeout": "20s", "connect_timeout": "5s", "allow_http": plain},
                retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=AWAY_SECONDS)},
            )
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise ConfigError(f"{shown(url)} is no address of an object store ({_said(error)})") from error
        return cls(store, shown(url))

    # The log

    def append(self, events: Sequence[Event]) -> None:
        """Store a segment, then name it in the manifest."""
        if not events:
            return
        with self._errors():
            segment = self._put_segment(events)
            after = self._swap(lambda now: msgspec.structs.replace(now, segments=(*now.segments, segment)))
            self._tidy(after)

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, in the order of the manifest."""
        with self._errors():
            while True:
                manifest = self._present()
                start = _number(after, manifest)
                found: list[Event] = []
                passed = 0
                try:
                    for segment in manifest.segments:
                        if passed + segment.count > start + len(found) and len(found) < limit:
                            skip = max(0, start - passed)
                            found += self._events(segment)[skip : skip + limit - len(found)]
                        passed += segment.count
                except FileNotFoundError:  # merged or erased since the manifest was read
                    if self._present() == manifest:
                        raise
                    continue
                position = position_of(manifest.log, start + len(found))
                return Batch(events=tuple(found), position=position, log=manifest.log)

    def has_more(self, after: str) -> bool:
        """True if the manifest names more events."""
        with self._errors():
            manifest = self._present()
        return manifest.events > _number(after, manifest)

    def held(self) -> Versions:
        """The events that the manifest names."""
        with self._errors():
            return self._present().held

    # The bank and its snapshot

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        with self._errors():
            manifest = self._present()
        return HubStatus(
            url=self.url,
            bank=manifest.bank,
            log=manifest.log,
            events=manifest.events,
            snapshot=manifest.snapshot and manifest.snapshot.seen,
        )

    def claim(self, bank: str) -> str:
        """Say which bank this log belongs to, if nobody has."""
        with self._errors():
            return self._swap(lambda now: msgspec.structs.replace(now, bank=now.bank or bank)).bank or bank

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Store a file, then name it in the manifest."""
        with self._errors():
            stored = StoredSnapshot(seen=seen, position=position, name=f"snapshot/{uuid4().hex}")
            before = self._present().snapshot
            self._obstore.put(self._store, stored.name, source)
            self._swap(lambda now: msgspec.structs.replace(now, snapshot=stored))
            if before is not None:
                self._drop([before.name])

    def get_snapshot(self, target: Path) -> str | None:
        """Write the snapshot to a file."""
        with self._errors():
            while (stored := self._present().snapshot) is not None:
                try:
                    with target.open("wb") as file:
                        for part in self._obstore.get(self._store, stored.name).stream():
                            file.write(part)
                except FileNotFoundError:  # replaced meanwhile
                    if self._present().snapshot == stored:
                        return None
                    continue
                return stored.position
        return None

    def erase(self, events: Sequence[Event]) -> None:
        """Write the segments that hold one of the events anew, then remove the old ones and the snapshot."""
        instead = {event.id: event for event in events}
        changed = dots(events)
        with self._errors():
            gone: list[str] = []

            def without_text(now: Manifest) -> Manifest:
                gone.clear()
                segments: list[Segment] = []
                for segment in now.segments:
                    if segment.holds.common(changed):
                        old = self._events(segment)
                        new = [instead.get(event.id, event) for event in old]
                        if new != old:
                            gone.append(segment.name)
                            segment = self._put_segment(new)
                    segments.append(segment)
                snapshot = now.snapshot
                if snapshot is not None and not outlived(snapshot.seen, events):
                    gone.append(snapshot.name)
                    snapshot = None
                return msgspec.structs.replace(now, segments=tuple(segments), snapshot=snapshot)

            after = self._swap(without_text)
            self._drop(gone)
            self._sweep(after)

    # Segments

    def _put_segment(self, events: Sequence[Event]) -> Segment:
        segment = Segment(name=f"log/{uuid4().hex}.jsonl", count=len(events), holds=dots(events))
        content = b"".join(encode(event) + b"\n" for event in events)
        self._obstore.put(self._store, segment.name, content, mode="create")
        return segment

    def _events(self, segment: Segment) -> list[Event]:
        content = bytes(self._obstore.get(self._store, segment.name).bytes())
        return [decode(line) for line in content.splitlines()]

    def _tidy(self, manifest: Manifest) -> None:
        """Make one segment of many small ones at the end."""
        for tier in TIERS:
            small = 0
            for segment in reversed(manifest.segments):
                if segment.count >= tier:
                    break
                small += 1
            if small < TIERS[0]:
                continue
            old = manifest.segments[-small:]
            try:
                joined = self._put_segment([event for segment in old for event in self._events(segment)])
            except FileNotFoundError:  # somebody else does it
                return
            names = [segment.name for segment in old]

            def one_for_all(
                now: Manifest, joined: Segment = joined, old: tuple[Segment, ...] = old
            ) -> Manifest:
                for start in range(len(now.segments) - len(old) + 1):
                    if now.segments[start : start + len(old)] == old:
                        rest = now.segments[start + len(old) :]
                        return msgspec.structs.replace(now, segments=(*now.segments[:start], joined, *rest))
                return now  # somebody else has done it

            after = self._swap(one_for_all)
            self._drop(names if joined in after.segments else [joined.name])
            self._sweep(after)
            return

    def _sweep(self, manifest: Manifest) -> None:
        """Remove what an interrupted write has left."""
        named = {MANIFEST, *(segment.name for segment in manifest.segments)}
        if manifest.snapshot is not None:
            named.add(manifest.snapshot.name)
        there = [found for group in self._obstore.list(self._store) for found in group]
        newest = max((found["last_modified"] for found in there), default=None)
        if newest is not None:
            self._drop(
                found["path"]
                for found in there
                if found["path"] not in named and newest - found["last_modified"] > ORPHAN
            )

    def _drop(self, names: Any) -> None:
        for name in list(names):
            with contextlib.suppress(FileNotFoundError):
                self._obstore.delete(self._store, name)

    # The manifest

    def _manifest(self) -> tuple[Manifest, dict[str, str]] | None:
        options = (
            {"if_none_match": self._known[1]["e_tag"]} if self._known and "e_tag" in self._known[1] else None
        )
        try:
            found = self._obstore.get(self._store, MANIFEST, options=options)
            content = bytes(found.bytes())
        except self._obstore.exceptions.NotModifiedError:
            return self._known
        except FileNotFoundError:
            return None
        self._known = read_heading(content, Manifest, self.url), _mark(found.meta)
        return self._known

    def _marked(self) -> tuple[Manifest, dict[str, str]]:
        found = self._manifest()
        if found is None:
            raise HubAwayError(f"there is no hub at {self.url} any more; it was deleted while it was open")
        return found

    def _present(self) -> Manifest:
        return self._marked()[0]

    def _swap(self, change: Change) -> Manifest:
        """Replace the manifest by a changed one, as often as somebody else is faster."""
        for tried in range(TRIES):
            now, mark = self._marked()
            try:
                new = change(now)
            except FileNotFoundError:  # a segment that was merged meanwhile
                if self._present() == now:
                    raise
                continue
            if new == now:
                return now
            try:
                put = self._obstore.put(self._store, MANIFEST, msgspec.json.encode(new), mode=mark)
            except (self._obstore.exceptions.PreconditionError, self._obstore.exceptions.AlreadyExistsError):
                self._known = None
                time.sleep(random.random() * 0.02 * min(tried, 20))
                continue
            self._known = new, _mark(put)
            return new
        raise HubAwayError(
            f"too many write to {self.url} at once; try again, or choose postgresql:// or nats://"
        )

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        errors = self._obstore.exceptions
        try:
            yield
        except SkepError:
            raise
        except (
            errors.NotSupportedError,
            RuntimeError,
        ) as error:  # the second: the library lacks it for this store
            raise SyncError(
                f"{self.url} cannot replace an object on condition that nobody else has, which a hub needs"
                f" ({_said(error)}); choose another store"
            ) from error
        except (errors.PermissionDeniedError, errors.UnauthenticatedError) as error:
            raise SyncError(
                f"{self.url} refused the keys ({_said(error)}); check them and their rights"
            ) from error
        except (errors.BaseError, OSError) as error:
            said = _said(error)
            if "NoSuchBucket" in said:
                raise SyncError(
                    f"{self.url}: there is no such bucket; create it, or check the name"
                ) from error
            raise HubAwayError(f"{self.url} did not answer ({said})") from error


def _library() -> Any:
    try:
        import obstore
        from obstore import exceptions, store
    except ImportError as error:
        raise MissingExtraError("A bank in an object store", "objects") from error
    assert obstore.exceptions is exceptions
    assert obstore.store is store
    return obstore


def _mark(found: Any) -> dict[str, str]:
    """What marks a version of an object, in the form in which a condition names it."""
    return {name: cast("str", found[name]) for name in ("e_tag", "version") if found.get(name) is not None}


def _number(position: str, manifest: Manifest) -> int:
    """The number of events before a position; none if it belongs to another log."""
    number = place_of(position, manifest.log, 0)
    return number if 0 <= number <= manifest.events else 0


def _said(error: Exception) -> str:
    return " ".join(str(error).partition("Debug source:")[0].split())[:300]
