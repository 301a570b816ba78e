"""Commands about links."""

from __future__ import annotations

import click

from skep.cli.shared import asked_scope, common, memory_line, open_bank, print_json
from skep.model import RELATIONS


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option(
    "--rel",
    default="related",
    show_default=True,
    help=f"How they relate: {', '.join(RELATIONS)}, or a word of your own.",
)
@click.option("--strength", type=float, default=1.0, show_default=True, help="How strongly, 0 to 1.")
@common
def link(src: str, dst: str, rel: str, strength: float, bank_path: str | None, as_json: bool) -> None:
    """Link the memory SRC to DST."""
    with open_bank(bank_path, create=False) as bank:
        made = bank.link(src, dst, rel, strength)
    print_json(made) if as_json else click.echo(f"{made.src} -{made.rel}-> {made.dst}")


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option("--rel", help="Only this relation.")
@common
def unlink(src: str, dst: str, rel: str | None, bank_path: str | None, as_json: bool) -> None:
    """Remove the links from SRC to DST."""
    with open_bank(bank_path, create=False) as bank:
        removed = bank.unlink(src, dst, rel)
    print_json({"removed": removed}) if as_json else click.echo(f"removed {removed}")


@click.command()
@click.argument("memory_id")
@click.option("--rel", help="Only this relation.")
@click.option(
    "--direction",
    type=click.Choice(["out", "in", "both"]),
    default="both",
    show_default=True,
    help="Links from it, to it, or both.",
)
@click.option("--depth", type=int, default=1, show_default=True, help="How many links away.")
@asked_scope
@common
def neighbors(
    memory_id: str,
    rel: str | None,
    direction: str,
    depth: int,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show what MEMORY_ID is linked to."""
    with open_bank(bank_path, create=False) as bank:
        graph = bank.neighbors(
            memory_id,
            rel,
            direction,  # type: ignore[arg-type]
            depth,
            scope=scope,
            include_shared=include_shared,
        )
    if as_json:
        print_json(graph)
        return
    for made in graph.links:
        click.echo(f"{made.src} -{made.rel}-> {made.dst}")
    for memory in graph.memories.values():
        click.echo(memory_line(memory))
    for gone in graph.dangling:
        click.echo(f"{gone}  (gone)", err=True)


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option("--max-depth", type=int, default=6, show_default=True, help="Look no further than this.")
@asked_scope
@common
def path(
    src: str,
    dst: str,
    max_depth: int,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show the fewest links that lead from SRC to DST."""
    with open_bank(bank_path, create=False) as bank:
        found = bank.path(src, dst, max_depth, scope=scope, include_shared=include_shared)
    if as_json:
        print_json(found)
        return
    for made in found:
        click.echo(f"{made.src} -{made.rel}-> {made.dst}")
    if not found and src != dst:
        click.echo("no links lead there", err=True)
