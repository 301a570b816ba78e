"""Starting `skep mcp`. A client starts it anew for every session, so the plain form of the command line is read
here, without the library that reads all the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from skep.loading import undisturbed

PROFILE_NAMES: Final = ("default", "full", "reference", "search")


class Plain(NamedTuple):
    """What a command line for standard input and output asks for."""

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
        from skep.server.mcp.loop import serve_stdio

        serve_stdio(serving.server, wants_roots=not serving.banks.named)


class Serving:
    """A server and its banks, from the first request to the last."""

    def __init__(
        self, bank: str | None, profile: str, judge: str | None, environ: Mapping[str, str], *, local: bool
    ) -> None:
        with undisturbed():
            from pathlib import Path

            from skep import __version__
            from skep.server.mcp.banks import Banks
            from skep.server.mcp.profiles import build_server

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
