"""The streamable HTTP transport of `skep mcp --http`, on Starlette and uvicorn (extra `server`).

One POST carries one message. A request that emits nothing is answered as plain JSON; the first notification turns its
answer into a stream of events. Clients of the session era carry `Mcp-Session-Id`; stateless ones carry their envelope
in the body and in headers. Within a session a request waits for the writes that were sent before it.

The server listens on the loopback address unless told otherwise. A web page that the user visits could reach that
address too, so the `Host` and `Origin` of every request are checked, and a bearer token is asked for. Sessions end
after an idle hour, and a connection whose request does not arrive in time is closed.

The official SDK is not used here: its server has a session layer of its own, and both transports of skep share one
(`session.py`), with subscriptions, both eras and questions to the client; docs/how-to/mcp.md has what it would cost.
"""

from __future__ import annotations

import asyncio
import hmac
import queue
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from skep.errors import ConfigError, MissingExtraError
from skep.server.mcp.protocol import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MAX_FRAME,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    SESSION_VERSIONS,
    STATELESS_VERSIONS,
    UNSUPPORTED_VERSION,
    VERSION_HEADER,
    Answer,
    Id,
    Malformed,
    Message,
    Notification,
    Params,
    Request,
    RpcError,
    cancelled_id,
    check_headers,
    failure,
    is_stateless,
    notification,
    parse,
    request,
    response,
    unsupported,
)
from skep.server.mcp.session import SESSION_ONLY, SLOW, STATELESS_ONLY, Server, Session
from skep.server.mcp.stdio import ANSWER_TIMEOUT
from skep.server.mcp.tool_calls import Cancelled, ToolError

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingExtraError("the HTTP server", "server") from error

SESSION_HEADER: Final = "mcp-session-id"
MAX_SESSIONS: Final = 256
SESSION_SECONDS: Final = 3600.0
"""How long a session may be idle before it ends."""
MAX_CONNECTIONS: Final = 512
REQUEST_SECONDS: Final = 30.0
"""How long the head of a request may take to arrive, and its body after that."""
KEEPALIVE: Final = 15.0
MIN_TOKEN: Final = 16
"""Characters of the shortest token that is not guessed in time."""
STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}
"""The HTTP status of an error in the stateless era."""

JSON_TYPE: Final = "application/json"
EVENT_TYPE: Final = "text/event-stream"
EVENT_HEADERS: Final = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


class Stream:
    """Frames on their way to one HTTP response; may be filled from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.frames: asyncio.Queue[bytes | None] = asyncio.Queue()

    def put(self, frame: bytes | None) -> None:
        """Add a frame, or None at the end."""
        self._loop.call_soon_threadsafe(self.frames.put_nowait, frame)


class HttpSession:
    """One client of the session era."""

    def __init__(self, identity: str, now: float) -> None:
        self.id = identity
        self.used_at = now
        self.last_write: asyncio.Future[bytes] | None = None
        self.standing: Stream | None = None
        """The stream of an open GET, if there is one."""
        self.session = Session(self._notify)
        self.flights: dict[Id, HttpFlight] = {}
        self.pending: dict[Id, Callable[[Answer | None], None]] = {}

    @property
    def busy(self) -> bool:
        """True while a request or a stream of it is open."""
        return bool(self.flights) or self.standing is not None

    def _notify(self, method: str, params: Params) -> None:
        if self.standing is not None:
            self.standing.put(notification(method, params))


class HttpFlight:
    """A request that is being answered over HTTP; the way back to the client for its tool."""

    def __init__(self, owner: HttpSession | None) -> None:
        self.stream = Stream()
        self.withdrawn = False
        self._owner = owner

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification on this request's own stream."""
        self.stream.put(notification(method, params))

    def request(self, method: str, params: Mapping[str, Any]) -> Params:
        """Ask the client on this request's stream; the answer comes in another POST."""
        if self._owner is None:
            raise ToolError(f"{method} cannot be asked here")
        answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        identity = f"skep-{secrets.token_hex(8)}"
        self._owner.pending[identity] = answers.put
        self.stream.put(request(identity, method, params))
        try:
            answer = answers.get(timeout=ANSWER_TIMEOUT)
        except queue.Empty:
            answer = None
        if answer is None or answer.result is None:
            raise ToolError(f"the client did not answer {method}")
        return answer.result

    def cancelled(self) -> bool:
        """True once the client has withdrawn the request."""
        return self.withdrawn


class Endpoint:
    """The one address that speaks the protocol."""

    def __init__(self, server: Server, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._sessions: dict[str, HttpSession] = {}
        """Least recently used first."""

    async def handle(self, http: HttpRequest) -> Response:
        """Answer one HTTP request."""
        oldest = self._clock() - SESSION_SECONDS
        for idle in [one for one in self._sessions.values() if one.used_at < oldest and not one.busy]:
            self._drop(idle.id)
        if http.method == "POST":
            return await self._post(http)
        if http.headers.get(VERSION_HEADER) in STATELESS_VERSIONS:
            return Response(status_code=405, headers={"allow": "POST"})
        found = self._find(http)
        if isinstance(found, Response):
            return found
        if http.method == "DELETE":
            self._drop(found.id)
            return Response(status_code=200)
        return self._standing(http, found)

    async def _post(self, http: HttpRequest) -> Response:
        if not http.headers.get("content-type", "").lower().startswith(JSON_TYPE):
            return _plain(415, "Content-Type must be application/json")
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                body = await _body(http)
        except TimeoutError:
            return _plain(408, f"the message did not arrive within {REQUEST_SECONDS:g} seconds")
        if body is None:
            return _plain(413, f"message longer than {MAX_FRAME} bytes")
        message = parse(body)
        if isinstance(message, Malformed):
            return _json(failure(message.id, message), 400)
        if not _accepts(http, JSON_TYPE) or not _accepts(http, EVENT_TYPE):
            return _plain(406, f"Accept must allow {JSON_TYPE} and {EVENT_TYPE}")
        if self._is_stateless(http, message):
            return await self._post_stateless(http, message)
        return await self._post_session(http, message)

    @staticmethod
    def _is_stateless(http: HttpRequest, message: Message) -> bool:
        if http.headers.get(VERSION_HEADER) in STATELESS_VERSIONS:
            return True
        return isinstance(message, Request) and (
            is_stateless(message.params) or message.method in STATELESS_ONLY
        )

    async def _post_stateless(self, http: HttpRequest, message: Message) -> Response:
        if isinstance(message, Notification):
            version = http.headers.get(VERSION_HEADER, "")
            if version not in STATELESS_VERSIONS:
                return _json(failure(None, unsupported(version)), 400)
            return Response(status_code=202)
        if not isinstance(message, Request):
            return _json(failure(None, Malformed(INVALID_REQUEST, "not a request or a notification")), 400)
        session = Session()
        try:
            tool = self._server.registry.tools.get(str(message.params.get("name")))
            schema = tool.schema if tool is not None and message.method == "tools/call" else None
            if is_stateless(message.params):
                check_headers(http.headers.items(), message, schema)
                if message.method in SESSION_ONLY:
                    raise RpcError(METHOD_NOT_FOUND, "Method not found", {"method": message.method})
            self._server.envelope(session, message)
        except RpcError as error:
            return _json(failure(message.id, error), STATUS.get(error.code, 200))
        if message.method == "subscriptions/listen":
            return await self._listen(message)
        return await self._run(http, message, session, HttpFlight(None), None)

    async def _post_session(self, http: HttpRequest, message: Message) -> Response:
        if isinstance(message, Request) and message.method == "initialize":
            owner = HttpSession(secrets.token_urlsafe(24), self._clock())
            answer = await self._run(http, message, owner.session, HttpFlight(owner), owner)
            if owner.session.envelope is not None:
                while len(self._sessions) >= MAX_SESSIONS:
                    self._drop(next(iter(self._sessions)))
                self._sessions[owner.id] = owner
                answer.headers[SESSION_HEADER] = owner.id
            return answer
        owner = self._find(http)
        if isinstance(owner, Response):
            return owner
        if isinstance(message, Answer):
            settle = owner.pending.pop(message.id, None)
            if settle is not None:
                settle(message)
            return Response(status_code=202)
        if not isinstance(message, Request):
            if isinstance(message, Notification) and message.method == "notifications/cancelled":
                identity = cancelled_id(message)
                if identity is None:
                    return _plain(400, "requestId must be a string or an integer")
                if identity in owner.flights:
                    owner.flights[identity].withdrawn = True
            return Response(status_code=202)
        if message.id in owner.flights:
            taken = RpcError(INVALID_REQUEST, f"request id {message.id!r} is already in use")
            return _json(failure(message.id, taken), 400)
        return await self._run(http, message, owner.session, HttpFlight(owner), owner)

    def _find(self, http: HttpRequest) -> HttpSession | Response:
        version = http.headers.get(VERSION_HEADER)
        if version is not None and version not in SESSION_VERSIONS:
            return _plain(400, f"unsupported {VERSION_HEADER}: {version}")
        identity = http.headers.get(SESSION_HEADER)
        if identity is None:
            return _plain(400, f"missing {SESSION_HEADER}; send initialize first")
        owner = self._sessions.pop(identity, None)
        if owner is None:
            return _plain(404, "no such session; send initialize again")
        self._sessions[identity] = owner
        owner.used_at = self._clock()
        return owner

    def _drop(self, identity: str) -> None:
        owner = self._sessions.pop(identity)
        self._server.leave(owner.session)
        for settle in owner.pending.values():
            settle(None)
        if owner.standing is not None:
            owner.standing.put(None)

    async def _run(
        self,
        http: HttpRequest,
        asked: Request,
        session: Session,
        flight: HttpFlight,
        owner: HttpSession | None,
    ) -> Response:
        if owner is not None:
            owner.flights[asked.id] = flight
        status = 200

        def work() -> bytes:
            nonlocal status
            try:
                return response(
                    asked.id, self._server.guarded(lambda: self._server.answer(session, asked, flight))
                )
            except RpcError as error:
                status = STATUS.get(error.code, 200) if owner is None else 200
                return failure(asked.id, error)
            except Cancelled:
                return failure(asked.id, RpcError(REQUEST_CANCELLED, "Request cancelled"))
            finally:
                if owner is not None:
                    owner.flights.pop(asked.id, None)

        before = owner.last_write if owner is not None and asked.method in SLOW else None
        done = asyncio.ensure_future(_in_turn(before, work))
        if owner is not None and self._server.writes(asked):
            owner.last_write = done
        first = asyncio.ensure_future(flight.stream.frames.get())
        left = asyncio.ensure_future(_until_gone(http)) if owner is None else None
        waiting: list[asyncio.Future[Any]] = [done, first]
        if left is not None:
            waiting.append(left)
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if left is not None:
            flight.withdrawn = left.done()
            left.cancel()
        if done.done() and not first.done():
            first.cancel()
            return _json(done.result(), status)
        return StreamingResponse(
            self._events(flight, first, done, withdraw=owner is None),
            media_type=EVENT_TYPE,
            headers=EVENT_HEADERS,
        )

    @staticmethod
    async def _events(
        flight: HttpFlight,
        first: asyncio.Future[bytes | None],
        done: asyncio.Future[bytes],
        *,
        withdraw: bool,
    ) -> AsyncIterator[bytes]:
        def finish(future: asyncio.Future[bytes]) -> None:
            flight.stream.put(future.result())
            flight.stream.put(None)

        done.add_done_callback(finish)
        try:
            frame = await first
            while frame is not None:
                yield _event(frame)
                frame = await flight.stream.frames.get()
        finally:
            if withdraw:
                flight.withdrawn = True

    def _standing(self, http: HttpRequest, owner: HttpSession) -> Response:
        if not _accepts(http, EVENT_TYPE):
            return _plain(406, f"Accept must allow {EVENT_TYPE}")
        if owner.standing is not None:
            return _plain(409, "this session already has an open stream")
        stream = owner.standing = Stream()

        def close() -> None:
            owner.standing = None

        return StreamingResponse(_drain(stream, close), media_type=EVENT_TYPE, headers=EVENT_HEADERS)

    async def _listen(self, asked: Request) -> Response:
        stream = Stream()
        key = (stream, asked.id)

        def send(method: str, params: Params) -> None:
            stream.put(notification(method, params))

        try:
            await run_in_threadpool(self._server.listen, asked, key, send, Session())  # it may open a bank
        except RpcError as error:
            return _json(failure(asked.id, error), STATUS.get(error.code, 200))
        return StreamingResponse(
            _drain(stream, lambda: self._server.leave(key)), media_type=EVENT_TYPE, headers=EVENT_HEADERS
        )


async def _in_turn(before: asyncio.Future[bytes] | None, work: Callable[[], bytes]) -> bytes:
    """Do the work of a request on a thread, after the write that its session sent before it."""
    if before is not None:
        await asyncio.wait([before])
    return await run_in_threadpool(work)


async def _drain(stream: Stream, close: Callable[[], None]) -> AsyncIterator[bytes]:
    """Pass frames on until the end, with a comment now and then so that proxies keep the line open."""
    try:
        while True:
            try:
                frame = await asyncio.wait_for(stream.frames.get(), KEEPALIVE)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if frame is None:
                return
            yield _event(frame)
    finally:
        close()


async def _until_gone(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        continue


async def _body(http: HttpRequest) -> bytes | None:
    """The whole body, or None when it is too long."""
    parts: list[bytes] = []
    size = 0
    async for part in http.stream():
        size += len(part)
        if size > MAX_FRAME:
            return None
        parts.append(part)
    return b"".join(parts)


def _accepts(http: HttpRequest, kind: str) -> bool:
    offered = {part.split(";")[0].strip().lower() for part in http.headers.get("accept", "*/*").split(",")}
    return bool(offered & {kind, "*/*", kind.split("/", maxsplit=1)[0] + "/*"})


def _event(frame: bytes) -> bytes:
    return b"event: message\ndata: " + frame + b"\n\n"


def _json(frame: bytes, status: int) -> Response:
    return Response(frame, status_code=status, media_type=JSON_TYPE)


def _plain(status: int, message: str) -> Response:
    return _json(failure(None, Malformed(INVALID_REQUEST, message)), status)


LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


def is_loopback(host: str) -> bool:
    """True for an address that is reachable from this machine only."""
    return host.strip("[]").lower() in LOOPBACK


def check_token(token: str) -> None:
    """Refuse a bearer token that is no protection.

    Raises:
        ConfigError: It is blank, short or holds white space.
    """
    if len(token) < MIN_TOKEN or any(character.isspace() for character in token):
        state = "blank" if not token.strip() else "too short, or holds white space"
        raise ConfigError(
            f"the bearer token is {state}; give at least {MIN_TOKEN} characters without spaces with --token or "
            "SKEP_MCP_TOKEN, or neither: then one is made up and printed"
        )


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
        return 403, "this server does not answer to that host name; `skep mcp --allow-host NAME` adds one"
    if origin is not None and origin not in origins and origin_host not in hosts:
        return 403, "requests from that origin are not allowed; `skep mcp --origin ORIGIN` adds one"
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
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """The web application: one endpoint, guarded.

    Raises:
        ConfigError: The token is no protection.
    """
    if token is not None:
        check_token(token)
    endpoint = Endpoint(server, clock)
    names = tuple(name.lower() for name in hosts)

    async def handle(request: HttpRequest) -> Response:
        reason = refusal(dict(request.headers), token=token, hosts=names, origins=origins)
        if reason is not None:
            extra = {"www-authenticate": "Bearer"} if reason[0] == 401 else {}
            return Response(reason[1], status_code=reason[0], headers=extra, media_type="text/plain")
        return await endpoint.handle(request)

    return Starlette(routes=[Route(path, handle, methods=["GET", "POST", "DELETE"])])


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which closes a connection when the head of its next request does not arrive in time."""

    seconds = REQUEST_SECONDS
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def _set_deadline(self) -> None:
        cycle: Any = self.cycle  # None before the first request
        waiting = cycle is None or cycle.response_complete
        if waiting and self._deadline is None:
            self._deadline = self.loop.call_later(self.seconds, self.transport.close)
        elif not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def serve_http(
    server: Server,
    *,
    host: str = "127.0.0.1",
    port: int = 8420,
    token: str | None,
    allowed_hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    path: str = "/mcp",
) -> None:
    """Serve until interrupted.

    Args:
        server: What is offered.
        host: The address to listen on.
        port: And its port.
        token: The bearer token to ask for; None asks for none.
        allowed_hosts: Names by which clients address this server, besides `host` and the loopback names.
        origins: Web origins that may connect.
        path: Where the endpoint lies.

    Raises:
        ConfigError: The token is no protection, or there is none although other machines reach the address.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(
            "--no-auth is only possible on the loopback address; give a token, or leave --host out"
        )
    hosts = (*LOOPBACK, host, *allowed_hosts)
    app = create_app(server, token=token, hosts=hosts, origins=origins, path=path)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        http=ImpatientProtocol,
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
    )
