"""`skep hook`: what a coding agent runs before a prompt and after an answer."""

from __future__ import annotations

import click


@click.command()
@click.argument("client", type=click.Choice(["claude-code", "codex", "gemini"]))
@click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")
def hook(client: str, bank_path: str | None) -> None:
    """Run as a hook of CLIENT: reads the event from standard input, prints what the model should know.

    Always exits with 0, so that a prompt is never held up. `skep install CLIENT` sets it up.
    """
    from skep.integrations.hooks import main

    main([client, *([bank_path] if bank_path else [])])


commands = [hook]
