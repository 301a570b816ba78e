"""Catching up: keep an index in step with its store by writing, merging and erasing segments.

Segments are kept on a shelf: a folder shared by any number of processes, or memory. Whoever writes holds the
folder's lock and, holding it, first catches up with the store. So what was forgotten before the lock was taken is
never written, and what is forgotten later is erased by whoever forgets it, who waits for the lock. Only `index`
calls this module.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from skep.errors import BusyError
from skep.index.bm25 import Postings, offsets, postings_of
from skep.index.columns import COLUMNS, SCHEMA, worth_storing
from skep.index.quantisation import SAMPLE, Frame, fit_frame
from skep.index.row_table import Table
from skep.index.segment_builder import Content
from skep.index.segment_files import (
    NAME,
    VERSION,
    BadFileError,
    Holding,
    Listed,
    Manifest,
    MappedFile,
    load_manifest,
    open_file,
    save_manifest,
    sweep,
    write_file,
)
from skep.index.segment_reader import Segment, shown
from skep.runtime import gc_paused

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    from skep.filters import IndexRow, IndexSource
    from skep.index.segment_files import Arrays

    Ints = NDArray[np.int64]
    Array = NDArray[Any]
    Flags = NDArray[np.bool_]

VITAL = ("rows", "order", "gone", "words.offsets", "tag_offsets")
"""Small arrays that lead to everything else; checked whenever a segment is opened."""


class Shelf:
    """The files of one index. What cannot be written stays in memory, and is not shared."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        identity: str,
        fingerprint: str,
        dim: int,
        *,
        writable: bool,
    ) -> None:
        self.folder = None if folder is None else os.fspath(folder)
        self.writable = writable and folder is not None
        self.owner = "|".join((str(VERSION), SCHEMA, identity, fingerprint, str(dim)))
        self._generation: str | None = None
        self._frame_name: str | None = None
        self.files: dict[str, MappedFile] = {}
        """The files in use, by name."""

    def holding(self, patience: float) -> Holding:
        """The right to change the folder, waited for at most so many seconds."""
        if self.folder is None or not self.writable:
            return Holding(None, patience)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        return Holding(self.folder, patience)

    def load(self) -> tuple[list[Segment], Frame | None, int]:
        """The segments on the shelf, their frame, and the newest event they know. Nothing if any is damaged."""
        self.let_go()
        manifest = load_manifest(self.folder, self.owner) if self.folder is not None else None
        if manifest is None or self.folder is None:
            return [], None, 0
        try:
            segments = [self._open_segment(self.folder, listed) for listed in manifest.segments]
            frame = self._open_frame(self.folder, manifest.frame) if manifest.frame else None
        except BadFileError:
            self.let_go()
            return [], None, 0
        self._generation, self._frame_name = manifest.generation, manifest.frame
        return segments, frame, manifest.position

    @property
    def moved(self) -> bool:
        """True if another process changed the folder since it was loaded or published."""
        if self.folder is None or not self.writable:
            return False
        manifest = load_manifest(self.folder, self.owner)
        return (manifest.generation if manifest else None) != self._generation

    def put_segment(self, arrays: Arrays) -> Segment:
        """Keep a segment. It is not part of the index until it is published."""
        if self.folder is None or not self.writable:
            return Segment(_fresh(), arrays)
        name = f"{_fresh()}.seg"
        size = write_file(os.path.join(self.folder, name), "segment", self.owner, arrays)
        return self._open_segment(self.folder, Listed(name, size))

    def put_frame(self, frame: Frame | None) -> None:
        """Keep the frame that the segments published next are sketched in."""
        if frame is None or self.folder is None or not self.writable:
            self._frame_name = None
            return
        self._frame_name = f"{_fresh()}.frame"
        write_file(os.path.join(self.folder, self._frame_name), "frame", self.owner, frame._asdict())

    def publish(self, segments: Sequence[Segment], position: int) -> None:
        """Make these segments the index, at once, and clear away the rest."""
        self.files = {
            segment.name: self.files[segment.name] for segment in segments if segment.name in self.files
        }
        if self.folder is None or not self.writable:
            return
        manifest = Manifest(
            owner=self.owner,
            generation=_fresh(),
            position=position,
            frame=self._frame_name,
            segments=tuple(Listed(segment.name, segment.size) for segment in segments),
        )
        save_manifest(self.folder, manifest)
        self._generation = manifest.generation
        sweep(self.folder, manifest)

    def clear(self) -> None:
        """Delete every file of the index. Call it with the lock held."""
        self.let_go()
        if self.folder is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, NAME))
            sweep(self.folder, None)

    def damaged(self) -> list[str]:
        """Read every byte of the segments in use; the names of the files that are not as they were written."""
        bad: list[str] = []
        for name, file in self.files.items():
            try:
                file.verify()
            except BadFileError:
                bad.append(name)
        return bad

    def let_go(self) -> None:
        """Use no file any more."""
        self._generation = self._frame_name = None
        self.files = {}

    def check(self, segments: Sequence[Segment]) -> None:
        """Read every byte of some segments.

        Raises:
            BadFileError: One is not as it was written.
        """
        for segment in segments:
            if segment.name in self.files:
                self.files[segment.name].verify()

    def _open_segment(self, folder: str, listed: Listed) -> Segment:
        file = open_file(os.path.join(folder, listed.name), "segment", self.owner)
        if file.header.size != listed.size:
            raise BadFileError(f"{listed.name}: not the size it had")
        file.verify(VITAL)
        self.files[listed.name] = file
        return Segment(listed.name, file.arrays(), listed.size)

    def _open_frame(self, folder: str, name: str) -> Frame:
        file = open_file(os.path.join(folder, name), "frame", self.owner)
        file.verify()
        arrays = file.arrays()
        try:
            return Frame(
                *(arrays[field].copy() for field in Frame._fields)
            )  # small, and needed by every search
        except KeyError as error:
            raise BadFileError(f"{name}: no {error}") from error


def _fresh() -> str:
    """A name that no other process will choose."""
    return os.urandom(8).hex()


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
"""Exceptions that reading a damaged file may end in."""
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
        if not all(file.whole for file in self.shelf.files.values()):  # one was cut off since it was mapped
            self.drop()
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
        from skep.index.segment_builder import Builder

        entries = list(self.table.tail.entries.values())
        builder = Builder(self._dim)
        builder.add([entry.row for entry in entries])
        builder.add(list(self.table.tail.gone.values()))
        position = self.position
        while True:
            with gc_paused():
                last = builder.add_next(rows, CHUNK)
            if last is None:
                break
            position = max(position, last)
            if builder.count >= SEGMENT_ROWS:
                yield builder.finish(), position
                builder = Builder(self._dim)
        if builder.count:
            yield builder.finish(), max(position, head)

    def _add(self, content: Content, position: int) -> None:
        """Put a new segment on top, merged with those beneath it that are not much larger."""
        from skep.index.segment_builder import segment_arrays

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
        """The kept rows of some segments. Nothing damaged gets into a new file, where its checksum would be right."""
        from skep.index.segment_builder import merge

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
        from skep.index.segment_builder import segment_arrays

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
        self.shelf.let_go()
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


def trimmed(segment: Segment, keep: Flags, *, oldest: bool) -> Content:
    """The content of a segment that holds some rows of another.

    Args:
        segment: What is left whole.
        keep: One flag per row.
        oldest: Nothing older lies beneath, so there is nothing left for `gone` rows to hide.
    """
    places = np.flatnonzero(keep)
    number = np.cumsum(keep, dtype=np.int64) - 1
    lengths = segment.lengths[places].astype(np.int64)
    tag_keys, tag_offsets, tag_docs = _tags(segment, keep, number)
    return Content(
        rows=segment.rows[places],
        gone=segment.gone[:0] if oldest else segment.gone,
        columns=worth_storing({name: segment.column(name)[places] for name in COLUMNS})
        if len(places)
        else {},
        lengths=lengths,
        words=_words(segment.words, keep, number, lengths),
        tag_keys=tag_keys,
        tag_offsets=tag_offsets,
        tag_docs=tag_docs,
        codes=None if segment.codes is None else segment.codes.pick(places),
        sketches=None if segment.sketches is None else segment.sketches.pick(places),
    )


def _words(words: Postings, keep: Flags, number: Ints, lengths: Ints) -> Postings:
    """The postings of the rows that stay."""
    there = keep[words.docs]
    sizes = np.diff(words.doc_offsets)
    stay = np.repeat(keep, sizes)
    lost = np.bincount(words.doc_terms[~stay], minlength=len(words.keys))
    return postings_of(
        words.keys,
        words.doc_terms[stay],
        np.cumsum(sizes[keep]),
        number[words.docs[there]].astype(np.uint32),
        words.class_count[words.classes[there]],
        np.diff(words.offsets) - lost,
        lengths,
    )


def _tags(segment: Segment, keep: Flags, number: Ints) -> tuple[Array, Ints, Array]:
    """The tags of the rows that stay: keys, where the rows of each begin, and the rows."""
    there = keep[segment.tag_docs]
    whose = np.repeat(np.arange(len(segment.tag_keys)), np.diff(segment.tag_offsets))[there]
    sizes = np.bincount(whose, minlength=len(segment.tag_keys))
    used = np.flatnonzero(sizes)
    docs = number[segment.tag_docs[there]].astype(np.uint32)
    return segment.tag_keys[used], offsets(sizes[used]), docs
