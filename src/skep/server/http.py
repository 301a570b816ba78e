"""`skep mcp --http`: the MCP endpoint on Starlette, closed to everybody but its owner.

It listens on the loopback address unless told otherwise. A web page that the user visits could reach that
address too, so the `Host` and `Origin` of every request are checked, and a bearer token is asked for.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from skep.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from skep.server.mcp.session import Server

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """Whether an address is reachable from this machine only."""
    return host.strip("[]").lower() in LOOPBACK


def host_of(value: str) -> str:
    """The host part of a `Host` header, without port and brackets."""
    return (urlsplit(f"//{value}").hostname or "").lower()


def refusal(
    headers: dict[str, str], *, token: str | None, hosts: Sequence[str], origins: Sequence[str]
) -> tuple[int, str] | None:
    """Why a request is turned away, as status and reason; None when it may pass.

    Args:
        headers: Header values by lower-case name.
        token: The bearer token to ask for, if any.
        hosts: Names by which this server may be addressed.
        origins: Web origins allowed besides those on `hosts`.
    """
    try:
        host = host_of(headers.get("host", ""))
        origin = headers.get("origin")
        origin_host = (urlsplit(origin).hostname or "").lower() if origin else None
    except ValueError:
        return 400, "malformed Host or Origin"
    if host not in hosts:
        return 403, "this server does not answer to that host name"
    if origin is not None and origin not in origins and origin_host not in hosts:
        return 403, "requests from that origin are not allowed"
    if token is not None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            return 401, "a bearer token is required"
    return None


def create_app(
    server: Server,
    *,
    token: str | None,
    hosts: Sequence[str] = LOOPBACK,
    origins: Sequence[str] = (),
    path: str = "/mcp",
) -> Starlette:
    """The web application: one endpoint, guarded.

    Raises:
        MissingExtraError: Starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import Response
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtraError("the HTTP server", "http") from error
    from skep.server.mcp.streamable import Endpoint

    endpoint = Endpoint(server)
    names = tuple(name.lower() for name in hosts)

    async def handle(request: Request) -> Response:
        reason = refusal(dict(request.headers), token=token, hosts=names, origins=origins)
        if reason is not None:
            extra = {"www-authenticate": "Bearer"} if reason[0] == 401 else {}
            return Response(reason[1], status_code=reason[0], headers=extra)
        return await endpoint.handle(request)

    return Starlette(routes=[Route(path, handle, methods=["GET", "POST", "DELETE"])])


def serve_http(
    server: Server,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    token: str | None,
    origins: Sequence[str] = (),
    path: str = "/mcp",
) -> None:
    """Serve until interrupted.

    Raises:
        ConfigError: No token was given although the address can be reached from other machines.
        MissingExtraError: Starlette or uvicorn is not installed.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            "--no-auth is only possible on the loopback address; give a token, or leave --host out"
        )
    hosts = LOOPBACK if is_loopback(host) else (*LOOPBACK, host)
    app = create_app(server, token=token, hosts=hosts, origins=origins, path=path)
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("the HTTP server", "http") from error
    uvicorn.run(app, host=host, port=port, log_level="warning", ws="none")
