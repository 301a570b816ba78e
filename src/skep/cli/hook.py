"""`skep hook`: what a coding agent runs before a prompt and after an answer."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("client", default="claude-code")
@click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")
@click.pass_context
def hook(ctx: click.Context, client: str, bank_path: str | None) -> None:
    """Run as a hook of CLIENT (claude-code, codex or gemini).

    Reads the event from standard input and prints what the model should know. Always exits with 0, whatever it is
    given: some clients take any other code as a reason to stop the prompt. `skep install CLIENT` sets it up.
    """
    from skep.integrations.hooks import main

    outer = ctx.obj.get("bank") if isinstance(ctx.obj, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    bank = bank_path or (outer if isinstance(outer, str) else None)
    main([client, *(["--bank", bank] if bank else [])])
