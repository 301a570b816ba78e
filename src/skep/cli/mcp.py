"""`skep mcp`: the bank as a server for agents."""

from __future__ import annotations

import os
import secrets
import shlex
from pathlib import Path

import click


@click.command()
@click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")
@click.option(
    "--profile",
    type=click.Choice(["default", "full", "reference", "search"]),
    default="default",
    show_default=True,
    help="Which tools: seven, all, those of the reference memory server, or search and fetch.",
)
@click.option(
    "--judge", envvar="SKEP_JUDGE", help="An agent's command that decides conflicts, such as 'claude -p'."
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: the address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8420, show_default=True, help="With --http.")
@click.option("--token", envvar="SKEP_MCP_TOKEN", help="With --http: the bearer token; else one is made up.")
@click.option("--no-auth", is_flag=True, help="With --http on the loopback address: ask for no token.")
@click.option("--origin", "origins", multiple=True, help="With --http: a web origin that may connect.")
@click.pass_context
def mcp(
    ctx: click.Context,
    *,
    bank_path: str | None,
    profile: str,
    judge: str | None,
    http: bool,
    host: str,
    port: int,
    token: str | None,
    no_auth: bool,
    origins: tuple[str, ...],
) -> None:
    """Serve the bank to an agent over MCP, on standard input and output or over HTTP."""
    from skep.server.mcp.banks import Banks
    from skep.server.mcp.profiles import build_server

    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # small products: a pool of threads costs more than it gives
    outer = ctx.obj.get("bank") if isinstance(ctx.obj, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    chosen = bank_path or (outer if isinstance(outer, str) else None)
    banks = Banks(chosen, environ=os.environ, start=Path.cwd(), local=not http)
    server = build_server(profile, banks, version=_version(), judge=shlex.split(judge) if judge else None)
    try:
        if http:
            _serve_http(server, host=host, port=port, token=token, no_auth=no_auth, origins=origins)
        else:
            from skep.server.mcp.loop import serve_stdio

            serve_stdio(server, wants_roots=not banks.named)
    finally:
        banks.close()


def _serve_http(
    server: object, *, host: str, port: int, token: str | None, no_auth: bool, origins: tuple[str, ...]
) -> None:
    from skep.server.http import serve_http
    from skep.server.mcp.session import Server

    assert isinstance(server, Server)
    if no_auth:
        token = None
    elif token is None:
        token = secrets.token_urlsafe(32)
        click.echo(f"bearer token: {token}", err=True)
    click.echo(f"serving http://{host}:{port}/mcp", err=True)
    serve_http(server, host=host, port=port, token=token, origins=origins)


def _version() -> str:
    """The version, without importing what reads package metadata."""
    from skep import __version__

    return __version__


commands = [mcp]
