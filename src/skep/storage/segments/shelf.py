"""Where segments are kept: in a folder shared by any number of processes, or in memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from skep.storage.segments.codes import Frame
from skep.storage.segments.columns import SCHEMA
from skep.storage.segments.format import (
    VERSION,
    BadFileError,
    MappedFile,
    open_file,
    write_file,
)
from skep.storage.segments.manifest import (
    NAME,
    Holding,
    Listed,
    Manifest,
    load_manifest,
    save_manifest,
    sweep,
)
from skep.storage.segments.reader import Segment

if TYPE_CHECKING:
    from skep.storage.segments.format import Arrays

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
        self._files: dict[str, MappedFile] = {}

    def holding(self, patience: float) -> Holding:
        """The right to change the folder, waited for at most so many seconds."""
        if self.folder is None or not self.writable:
            return Holding(None, patience)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        return Holding(self.folder, patience)

    def load(self) -> tuple[list[Segment], Frame | None, int]:
        """The segments on the shelf, their frame, and the newest event they know. Nothing if any is damaged."""
        self._generation = self._frame_name = None
        self._files = {}
        manifest = load_manifest(self.folder, self.owner) if self.folder is not None else None
        if manifest is None or self.folder is None:
            return [], None, 0
        try:
            segments = [self._open_segment(self.folder, listed) for listed in manifest.segments]
            frame = self._open_frame(self.folder, manifest.frame) if manifest.frame else None
        except BadFileError:
            self._files = {}
            return [], None, 0
        self._generation, self._frame_name = manifest.generation, manifest.frame
        return segments, frame, manifest.position

    @property
    def moved(self) -> bool:
        """Whether another process changed the folder since it was loaded or published."""
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
        self._files = {
            segment.name: self._files[segment.name] for segment in segments if segment.name in self._files
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
        self._generation = self._frame_name = None
        self._files = {}
        if self.folder is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.folder, NAME))
            sweep(self.folder, None)

    def damaged(self) -> list[str]:
        """Read every byte of the segments in use; the names of the files that are not as they were written."""
        bad: list[str] = []
        for name, file in self._files.items():
            try:
                file.verify()
            except BadFileError:
                bad.append(name)
        return bad

    def check(self, segments: Sequence[Segment]) -> None:
        """Read every byte of some segments.

        Raises:
            BadFileError: One is not as it was written.
        """
        for segment in segments:
            if segment.name in self._files:
                self._files[segment.name].verify()

    def _open_segment(self, folder: str, listed: Listed) -> Segment:
        file = open_file(os.path.join(folder, listed.name), "segment", self.owner)
        if file.header.size != listed.size:
            raise BadFileError(f"{listed.name}: not the size it had")
        file.verify(VITAL)
        self._files[listed.name] = file
        return Segment(listed.name, file.arrays(), listed.size, file.verify)

    def _open_frame(self, folder: str, name: str) -> Frame:
        file = open_file(os.path.join(folder, name), "frame", self.owner)
        file.verify()
        arrays = file.arrays()
        try:
            return Frame(*(arrays[field] for field in Frame._fields))
        except KeyError as error:
            raise BadFileError(f"{name}: no {error}") from error


def _fresh() -> str:
    """A name that no other process will choose."""
    return os.urandom(8).hex()
