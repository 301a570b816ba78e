"""Keeping an index in step with its store: catching up, writing segments, merging them, erasing.

Whoever writes holds the folder's lock and, holding it, first catches up with the store. So what was forgotten
before the lock was taken is never written, and what is forgotten later is erased by whoever forgets it, who
waits for the lock.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from skep.errors import BusyError
from skep.storage.segments.codes import SAMPLE, Frame, fit_frame
from skep.storage.segments.format import BadFileError
from skep.storage.segments.reader import Segment, shown
from skep.storage.segments.shelf import Shelf
from skep.storage.segments.table import Table

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from skep.storage.base import IndexRow, IndexSource
    from skep.storage.segments.builder import Content

    Ints = NDArray[np.int64]


SEGMENT_ROWS = 1 << 18
"""No segment grows beyond this, so that no merge takes long."""
RATIO = 3
"""A segment is merged with the newer ones when it is not this many times larger."""
TAIL_BYTES = 8 << 20
"""Long vectors make for a shorter tail."""
WORTH_SHARING = 128
"""So many rows, read on opening, become a segment at once: that costs no more than keeping them in memory, and
whoever opens the bank next need not read them again."""
CHUNK = 1024
LARGE = 1 << 12
"""Building a segment of so many rows leaves enough unused memory behind to be worth handing back."""
FAILURES = (BadFileError, IndexError, ValueError, MemoryError)
"""What reading a damaged file may end in."""
PATIENCE = 60.0
"""Seconds to wait for another process that builds, when there is no way around it."""


class Upkeep:
    """The present state of an index (`table`, up to event `position`) and everything that changes it."""

    def __init__(
        self,
        folder: str | PathLike[str] | None,
        source: IndexSource,
        *,
        tail_limit: int,
        read_only: bool,
    ) -> None:
        self._source = source
        self._asked_limit = tail_limit
        self._folder = folder
        self._writable = folder is not None and not read_only
        self._open()

    def _open(self) -> None:
        """Take over what the folder holds for this bank and embedder."""
        source = self._source
        self._opening = True
        self._fingerprint = source.fingerprint()
        self._dim = source.dim()
        self.shelf = Shelf(
            self._folder,
            source.identity(),
            self._fingerprint,
            self._dim,
            writable=self._writable,
        )
        self._take()

    def _take(self) -> None:
        """Load the shelf as it is now; the tail is gone and comes back by catching up."""
        segments, frame, position = self.shelf.load()
        try:
            self._show(segments, frame, position)
        except (IndexError, ValueError, MemoryError):
            self._show([], None, 0)

    def _show(self, segments: Sequence[Segment], frame: Frame | None, position: int) -> None:
        self.table = Table(segments, frame, self._dim)
        self._written = self.position = position

    def refresh(self) -> int:
        """Catch up with the store; returns the position reached."""
        head = self._source.head()
        if self._source.fingerprint() != self._fingerprint:
            self._open()
        if head < self.position:
            self._show([], None, 0)
        if head != self.position:
            try:
                self._catch_up(head)
            except FAILURES:
                if not self.shelf.damaged():
                    raise
                self.drop()
                self._catch_up(head)
        return self.position

    def _catch_up(self, head: int) -> None:
        if self._opening:
            self._opening = False
            if head - self.position >= WORTH_SHARING:
                self._write(0, least=WORTH_SHARING)
            if self.position >= head:
                return
        first = list(islice(self._source.changed_since(self.position), self._limit + 1))
        if len(first) > self._limit:
            del first  # read again with the lock held
            self._write(PATIENCE)
            return
        self._apply(first, head)
        if any(row.gone for row in first) and self.shelf.moved:
            self._take()
            self._catch_up(head)
        elif self.table.tail.count > self._limit:
            self._write(0)

    def _apply(self, rows: Sequence[IndexRow], head: int) -> None:
        try:
            self.position = max(self.position, head, self.table.apply(rows))
        except BaseException:  # an interrupt in between leaves a row half there
            self._take()
            raise

    @property
    def _limit(self) -> int:
        """Rows the tail may hold."""
        return max(1, min(self._asked_limit, TAIL_BYTES // (4 * self._dim or 1)))

    def _write(self, patience: float, *, least: int | None = None) -> None:
        """Turn the tail and whatever is newer into segments, if it is `least` rows; else it stays in memory.

        If another process is at it and there is no time to wait, the tail stays; if the folder cannot be
        written, the segments stay in memory.
        """
        before = self.table.base
        least = self._limit + 1 if least is None else min(least, self._limit + 1)
        try:
            with self.shelf.holding(patience) as lock:
                if lock.held:
                    self._settle(least)
                elif patience:
                    self._go_on_in_memory(least)
        except OSError:
            self._go_on_in_memory(least)
        if self.table.base - before >= LARGE:
            hand_back()

    def _go_on_in_memory(self, least: int) -> None:
        self._writable = self.shelf.writable = False
        self._settle(least)

    def _settle(self, least: int) -> None:
        """With the lock held: take over what others wrote, then write what is missing, if it is `least` rows."""
        if self.shelf.moved:
            self._take()
        head = self._source.head()
        rows = self._source.changed_since(self.position)
        first = list(islice(rows, least))
        if self.table.tail.count + len(first) < least:
            self._apply(first, head)
            return
        if self.shelf.writable and _erased_since(self._source, head):
            # Somebody has forgotten something since what is read here, and found no file to erase it from. It must
            # not get into one now; from here on whoever forgets waits for the lock.
            self._apply([*first, *rows], head)
            return
        rows = chain(first, rows)
        del first  # so that each row is let go of as soon as it is taken in
        for content, position in self._contents(rows, head):
            self._add(content, position)
            del content

    def _contents(self, rows: Iterator[IndexRow], head: int) -> Iterator[tuple[Content, int]]:
        """The tail and the rows after it, in portions of a segment each, with the event each portion ends at."""
        from skep.bulk import uncollected
        from skep.storage.handover import handed_over
        from skep.storage.segments.builder import Builder

        entries = list(self.table.tail.entries.values())
        builder = Builder(self._dim, handed_over(self._source))
        builder.add([entry.row for entry in entries])
        builder.add(list(self.table.tail.gone.values()))
        position = self.position
        while (last := uncollected(lambda builder=builder: builder.add_next(rows, CHUNK))) is not None:
            position = max(position, last)
            if builder.count >= SEGMENT_ROWS:
                yield builder.finish(), position
                builder = Builder(self._dim)
        if builder.count:
            yield builder.finish(), max(position, head)

    def _add(self, content: Content, position: int) -> None:
        """Put a new segment on top, merged with those beneath it that are not much larger."""
        from skep.storage.segments.builder import segment_arrays

        top = Segment("new", segment_arrays(content, None))
        below = list(self.table.segments)
        flags = shown([*below, top])
        group = [top]
        size = top.count
        while below and _worth_merging(below[-1], int(flags[len(below) - 1].sum()), size):
            group.insert(0, below.pop())
            size += group[0].count
        if len(group) > 1:
            content = self._merged(group, flags[len(below) :], oldest=not below)
        frame = self._frame_for(content, rewritten=not below)
        kept = self.shelf.put_segment(segment_arrays(content, frame))
        self._publish([*below, kept], frame, position)

    def _merged(
        self, segments: Sequence[Segment], keep: Sequence[NDArray[np.bool_]], *, oldest: bool
    ) -> Content:
        """What is kept of some segments. Nothing damaged gets into a new file, where its checksum would be right."""
        from skep.storage.segments.builder import merge

        self.shelf.check(segments)
        return merge(segments, keep, oldest=oldest)

    def _frame_for(self, content: Content, *, rewritten: bool) -> Frame | None:
        """The frame to sketch new content in: a better one when nothing else is sketched in the old one."""
        frame = self.table.frame
        if (frame is None or rewritten) and content.codes is not None:
            frame = fit_frame(content.codes)
            self.shelf.put_frame(frame)
        return frame

    def _publish(self, segments: Sequence[Segment], frame: Frame | None, position: int) -> None:
        self.shelf.publish(segments, position)
        self._show(segments, frame, position)

    def erase(self, rows: Sequence[int]) -> int:
        """Rewrite the segments that hold these rows, without them; returns how many were rewritten."""
        with self.shelf.holding(PATIENCE) as lock:
            if not lock.held:
                raise BusyError("another process is building the index; forget again in a minute")
            try:
                return self._erase(rows)
            except FAILURES:
                if not self.shelf.damaged():
                    raise
                count = len(self.table.segments)
                self.shelf.clear()
                self._show([], None, 0)
                self._settle(self._limit + 1)
                return count

    def _erase(self, rows: Sequence[int]) -> int:
        self._settle(self._limit + 1)
        self.table.hide(rows)
        wanted = np.unique(np.array(rows, dtype=np.int64))
        touched = [i for i, s in enumerate(self.table.segments) if len(s.places(wanted))]
        if touched:
            self._rewrite(touched)
        return len(touched)

    def _rewrite(self, touched: Sequence[int]) -> None:
        from skep.storage.segments.builder import segment_arrays
        from skep.storage.segments.trimming import trimmed

        table = self.table
        alive = [
            table.alive[base : base + segment.count]
            for base, segment in zip(table.bases, table.segments, strict=False)
        ]
        frame = table.frame
        if table.live <= SAMPLE:
            content = self._merged(table.segments, alive, oldest=True)
            frame = self._frame_for(content, rewritten=True)
            segments = [self.shelf.put_segment(segment_arrays(content, frame))]
        else:
            segments = list(table.segments)
            self.shelf.check([segments[i] for i in touched])
            for i in touched:
                content = trimmed(segments[i], alive[i], oldest=i == 0)
                segments[i] = self.shelf.put_segment(segment_arrays(content, frame))
        tail, position = table.tail, self.position
        self._publish(segments, frame, self._written)
        self._apply([entry.row for entry in tail.entries.values()], 0)
        self._apply(list(tail.gone.values()), position)

    def drop(self) -> None:
        """Delete every file; the next refresh builds them again."""
        if self.shelf.writable:
            with self.shelf.holding(PATIENCE) as lock:
                if not lock.held:
                    raise BusyError("another process is building the index; try again in a minute")
                self.shelf.clear()
        self._show([], None, 0)


def _erased_since(source: object, head: int) -> bool:
    ask = getattr(source, "erased_since", None)
    return ask is not None and ask(head)


def hand_back() -> None:
    """Give memory that is free back to the system, where the C library offers it (glibc does, others by themselves).

    Building a segment of 100,000 rows left 100 MB behind that the process would otherwise keep for good.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _worth_merging(segment: Segment, live: int, above: int) -> bool:
    if live + above > SEGMENT_ROWS:
        return False
    return live < RATIO * above or 2 * live < segment.count
