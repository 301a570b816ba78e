"""The process of `skep serve`: uvicorn over the API, from the first request to a stop that loses nothing.

Called by the command line. On SIGTERM it takes no new calls, ends the live streams, finishes what is under way and
closes the banks.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skep import __version__
from skep.config import user_data
from skep.errors import ConfigError, MissingExtraError
from skep.server.served_banks import ServedBanks
from skep.server.tokens import FILE_NAME, TokenFile, made_up, whole_token
from skep.server.traffic import RATE, Audit

try:
    import uvicorn

    from skep.server.http_api import Access, create_server, host_names
    from skep.server.mcp.http import MAX_CONNECTIONS, ImpatientProtocol, is_loopback
except ImportError as error:
    raise MissingExtraError("the server", "server") from error

if TYPE_CHECKING:
    from types import FrameType

STOP_SECONDS: Final = 20
"""How long calls that are under way may take when the server stops."""


def token_file(given: str | None, environ: Mapping[str, str]) -> TokenFile:
    """The file of tokens: the one given, or that of the user."""
    return TokenFile(Path(given) if given else Path(user_data(environ)) / FILE_NAME)


class _Stoppable(uvicorn.Server):
    """uvicorn, which tells the API first that it is to stop: otherwise it would wait for live streams."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], object]) -> None:
        super().__init__(config)
        self._stop = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # uvicorn would send itself the signal again at the end, and the banks would not be closed.
        self._stop()
        self.force_exit = self.should_exit
        self.should_exit = True


def serve(
    banks: ServedBanks,
    tokens: TokenFile,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    no_auth: bool = False,
    allowed_hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    rate: float = RATE,
    profile: str = "default",
    started: Callable[[str, str | None], None] = lambda _url, _secret: None,
) -> None:
    """Serve until told to stop.

    Args:
        banks: The banks; they are closed at the end.
        tokens: Who may come in besides.
        host: The address to listen on.
        port: Its port; 0 takes a free one.
        no_auth: Ask for no token; on the loopback address only.
        allowed_hosts: Names by which clients address this server, besides `host` and the loopback names.
        origins: Web origins that may call it.
        rate: Requests per second of one token.
        profile: Which MCP tools.
        started: Told the address, and the token that was made up for this run.

    Raises:
        ConfigError: Other machines would reach it without a token.
    """
    if no_auth and not is_loopback(host):
        raise ConfigError(
            "--no-auth is only possible on the loopback address; leave it out, or leave --host out"
        )
    tokens.list()  # a damaged file is told of now
    secret = None
    if not no_auth and is_loopback(host):
        secret = made_up()
    if not no_auth and secret is None and not tokens.list():
        raise ConfigError(
            f"other machines reach {host}, and there is no token yet; make one with `skep token add NAME`"
        )
    for name in banks.places:
        banks.bank(name)  # one that cannot be opened is told of now
    access = Access(
        tokens=tokens,
        hosts=host_names(host, allowed_hosts),
        origins=tuple(origins),
        secret=whole_token(secret) if secret else None,
        open=no_auth,
        rate=rate,
    )
    audit = Audit(tokens.path.with_name("denials.jsonl"))
    _run(banks, access, audit, host, port, profile, lambda url: started(url, secret))


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens, whose answers leave at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=1024)
        # asyncio does this only for sockets of its own; without it each answer waits 40 ms for the client's ACK
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened on ({error.strerror or error}); is another server running there? --port"
            " chooses another, 0 takes a free one"
        ) from error


def _run(
    banks: ServedBanks,
    access: Access,
    audit: Audit,
    host: str,
    port: int,
    profile: str,
    started: Callable[[str], None],
) -> None:
    import asyncio

    async def run() -> None:
        api = create_server(banks, access, audit, version=__version__, profile=profile)
        config: Any = uvicorn.Config(
            api.app(),
            host=host,
            port=port,
            log_level="warning",
            http=ImpatientProtocol,
            ws="none",
            lifespan="off",
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=STOP_SECONDS,
            backlog=1024,
        )
        loop = asyncio.get_running_loop()
        server = _Stoppable(config, lambda: loop.call_soon_threadsafe(api.closing.set))
        bound = listener(host, port)
        name = f"[{host}]" if ":" in host else host
        started(f"http://{name}:{bound.getsockname()[1]}/")
        try:
            await server.serve(sockets=[bound])
        finally:
            await asyncio.to_thread(api.close)

    try:
        asyncio.run(run())
    finally:
        banks.close()
