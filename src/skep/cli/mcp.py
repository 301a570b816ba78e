"""`skep mcp`: the bank as a server for agents."""

from __future__ import annotations

import os
import secrets

import click

from skep.server.mcp.launch import PROFILE_NAMES


@click.command()
@click.option("--bank", "bank_path", type=click.Path(), help="The bank file.")
@click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
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
    from skep.server.mcp.launch import Plain, Serving, serve_plain

    outer = ctx.obj.get("bank") if isinstance(ctx.obj, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    chosen = bank_path or (outer if isinstance(outer, str) else None)
    if not http:
        serve_plain(Plain(chosen, profile), {**os.environ, **({"SKEP_JUDGE": judge} if judge else {})})
        return
    with Serving(chosen, profile, judge, os.environ, local=False) as serving:
        _serve_http(serving.server, host=host, port=port, token=token, no_auth=no_auth, origins=origins)


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
