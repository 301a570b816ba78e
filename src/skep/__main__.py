"""The entry point of the `skep` command and of `python -m skep`."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.server.mcp.start import Plain


def main() -> None:
    """Run a command.

    A hook runs before every prompt, a client waits for its server, and a version is asked for by scripts, so none of
    them waits for the library that reads command lines.
    """
    try:
        _run(sys.argv[1:])
    finally:
        gc.freeze()  # what is still there goes with the process; looking it over first takes as long as a search


def _run(words: list[str]) -> None:
    if words == ["--version"]:
        from skep import __version__

        sys.stdout.write(f"skep, version {__version__}\n")
        return
    if words[:1] == ["hook"] and words[-1] not in ("-h", "--help"):
        absent: Any = None  # msgspec does as well without it, and a hook has no time for what it loads
        sys.modules.setdefault("typing_extensions", absent)
        from skep.integrations.hooks import run

        if sys.modules["typing_extensions"] is absent:
            del sys.modules["typing_extensions"]
        run(words[1:])
    if "mcp" in words:
        from skep.server.mcp.start import read_plain

        plain = read_plain(words)
        if plain is not None:
            _serve(plain)
            return
    from skep.cli.app import main as command

    command()


def _serve(plain: Plain) -> None:
    from skep.errors import SkepError
    from skep.server.mcp.start import serve_plain

    try:
        serve_plain(plain)
    except SkepError as error:
        sys.stderr.write(f"skep: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
