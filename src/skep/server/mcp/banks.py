"""Which bank a client works with: the one named, the one of its project, or the user's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skep.config import PROJECT_FOLDER, find_bank
from skep.errors import MovedError
from skep.server.mcp.call import Call
from skep.server.mcp.loop import root_uris
from skep.server.mcp.session import Session

if TYPE_CHECKING:
    from skep.bank import Bank

MEMORY: Final = ":memory:"
ROOTS_KEY: Final = "skep_roots"
ROOTS_TIMEOUT: Final = 2.0
"""Seconds a first call waits for a client that was asked for its folders."""


class Banks:
    """Opens banks on first use and keeps them open; one process may serve clients of several projects.

    A file is made by the first call that writes. Until then whoever reads sees an empty bank in memory.
    """

    def __init__(
        self,
        path: str | None,
        *,
        environ: Mapping[str, str],
        start: Path,
        local: bool = True,
        opener: Callable[[str], Bank] | None = None,
    ) -> None:
        self.named = bool(path or environ.get("SKEP_BANK"))
        """Whether the user said which bank; then the client's folders do not matter."""
        self._path = path
        self._environ = environ
        self._start = start
        self._local = local
        """Whether the client is on this machine, so that its folders are ours."""
        self._opener = opener or partial(_open, environ=environ)
        self._lock = threading.Lock()
        self._open: dict[Path, Bank] = {}
        self._nothing: Bank | None = None

    def of(self, call: Call, session: Session) -> Bank:
        """The bank for a call, opened if need be."""
        where = find_bank(self._path, self._environ, self._folder(call, session))
        call.place = str(where)
        with self._lock:
            self._let_go_if_moved(where)
            if where not in self._open and call.reads and not where.exists():
                if self._nothing is None:
                    self._nothing = self._opener(MEMORY)
                return self._nothing
            if where not in self._open:
                self._open[where] = self._opener(str(where))
            return self._open[where]

    def _let_go_if_moved(self, where: Path) -> None:
        """A bank whose file was replaced, by a copy that was put back for instance, is opened again."""
        known = self._open.get(where)
        if known is not None and known.engine.store.connection.moved:
            del self._open[where]
            with suppress(MovedError):  # uses that were counted since the last batch have no place any more
                known.close()

    def close(self) -> None:
        """Close everything that was opened."""
        with self._lock:
            banks, self._open = list(self._open.values()), {}
            banks += [self._nothing] if self._nothing is not None else []
            self._nothing = None
        for bank in banks:
            bank.close()

    def _folder(self, call: Call, session: Session) -> Path:
        if self.named or not self._local:
            return self._start
        if call.envelope.stateless:
            self._ask_once(call, session)
        else:
            session.roots_settled.wait(ROOTS_TIMEOUT)
        folders = [path for path in map(path_of, session.roots or ()) if path is not None]
        for folder in folders:
            if any((parent / PROJECT_FOLDER).is_dir() for parent in (folder, *folder.parents)):
                return folder
        return self._start

    @staticmethod
    def _ask_once(call: Call, session: Session) -> None:
        """A stateless client is asked in the answer to its first call, and never again, whatever it says."""
        if session.roots is None and call.can_ask("roots/list"):
            answered = ROOTS_KEY in call.answers()
            if answered or not session.roots_asked:
                session.roots_asked = True
                session.roots = root_uris(call.ask(ROOTS_KEY, "roots/list", {}))


def path_of(uri: str) -> Path | None:
    """The folder that a `file:` address names."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return None
    text = unquote(parts.path)
    if os.name == "nt":
        text = text.lstrip("/")
    return Path(text) if text else None


def _open(path: str, environ: Mapping[str, str]) -> Bank:
    from skep.bank import Bank
    from skep.config import Settings
    from skep.embedding.environment import from_environment

    create = not os.path.exists(path)  # an empty file was a bank
    return Bank.open(
        path, settings=Settings(pure_reads=True), create=create, opener=from_environment(environ)
    )
