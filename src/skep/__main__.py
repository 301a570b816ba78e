"""The entry point of the `skep` command and of `python -m skep`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run a command. A hook runs before every prompt, so it does not even wait for the command line's library."""
    if sys.argv[1:2] == ["hook"]:
        from skep.integrations.hooks import main as hook

        hook(sys.argv[2:])
        return
    from skep.cli import main as command

    command()


if __name__ == "__main__":
    main()
