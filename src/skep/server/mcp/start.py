"""The start of `skep mcp`: its plain command line, the banks of its clients, and the server over them.

A client starts the server anew for every session, so the plain command line is read here, without click. A client
works with the bank named, that of its project, or the user's own; banks open on first use.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from skep.config import HIVE, PROJECT_FOLDER, bank_url, find_bank
from skep.errors import MovedError
from skep.server.mcp.session import Session
from skep.server.mcp.stdio import root_uris
from skep.server.mcp.tool_calls import Call

if TYPE_CHECKING:
    from skep.bank.bank import Bank


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
        self._open: dict[str, Bank] = {}
        self._nothing: Bank | None = None

    def of(self, call: Call, session: Session) -> Bank:
        """The bank for a call, opened if need be."""
        url = bank_url(self._path, self._environ)
        if url is None:
            where = str(find_bank(self._path, self._environ, self._folder(call, session)))
            call.place = where
        else:
            from skep.hub.hub_urls import shown

            where, call.place = url, shown(url)
        with self._lock:
            self._let_go_if_moved(where)
            if where not in self._open and url is None and call.reads and not os.path.exists(where):
                if self._nothing is None:
                    self._nothing = self._opener(MEMORY)
                return self._nothing
            if where not in self._open:
                self._open[where] = self._opener(where)
            return self._open[where]

    def _let_go_if_moved(self, where: str) -> None:
        """A bank whose file was replaced, by a copy that was put back for instance, is opened again."""
        known = self._open.get(where)
        if known is not None and known.engine.moved:
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
    if path.startswith(HIVE):
        from skep.hive.controller import open_agent

        return cast("Bank", open_agent(path, environ))
    from skep.bank.bank import Bank
    from skep.config import Settings
    from skep.embedding.remote import from_environment

    create = not os.path.exists(path)  # an empty file was a bank
    return Bank.open(
        path, settings=Settings(pure_reads=True), create=create, opener=from_environment(environ)
    )


PROFILE_NAMES: Final = ("default", "full", "reference", "search")


class Plain(NamedTuple):
    """A command line for standard input and output, read."""

    bank: str | None
    profile: str


def read_plain(words: Sequence[str]) -> Plain | None:
    """The command line as `skep install` writes it; None for any other, which is left to the full reader.

    >>> read_plain(["--bank", "b.skep", "mcp", "--profile=full"]), read_plain(["mcp", "--http"])
    (Plain(bank='b.skep', profile='full'), None)
    """
    given: dict[str, str] = {}
    outer: str | None = None
    named = False
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "mcp" and not named:
            named, outer = True, given.pop("--bank", None)
        elif name in ("--bank", "--profile") and (named or name == "--bank"):
            given[name] = value if equals else next(rest, "")
        else:
            return None
    profile = given.get("--profile", "default")
    if not named or profile not in PROFILE_NAMES or "" in given.values() or outer == "":
        return None
    return Plain(given.get("--bank", outer), profile)


def serve_plain(plain: Plain, environ: Mapping[str, str] = os.environ) -> None:
    """Serve standard input and output until the client leaves."""
    judge = environ.get("SKEP_JUDGE")
    with Serving(plain.bank, plain.profile, judge, environ, local=True) as serving:
        from skep.server.mcp.stdio import serve_stdio

        serve_stdio(serving.server, wants_roots=not serving.banks.named)


class Serving:
    """A server and its banks, from the first request to the last."""

    def __init__(
        self, bank: str | None, profile: str, judge: str | None, environ: Mapping[str, str], *, local: bool
    ) -> None:
        from skep import __version__
        from skep.server.mcp.tool_profiles import build_server

        command = _words(judge) if judge else None
        self.banks = Banks(bank, environ=environ, start=Path.cwd(), local=local)
        self.server = build_server(profile, self.banks, version=__version__, judge=command)

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *_error: object) -> None:
        self.server.close()
        self.banks.close()


def _words(judge: str) -> list[str]:
    import shlex

    from skep.errors import ConfigError

    try:
        return shlex.split(judge)
    except ValueError as error:
        raise ConfigError(
            f"the judge {judge!r} is not a command line ({error}); mend --judge or SKEP_JUDGE"
        ) from error
