"""The HTTP API of `skep serve`: every verb, the log for replicas, live changes, health, metrics, MCP and the page.

A request passes the gate (host, origin, token, rate), then the check of rights, then the bank, in a thread. Nothing is
kept between two requests except counts. `serve_process` starts it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep.client.http_errors import Failure, Told, status_of, told
from skep.client.verb_table import RIGHTS, Verb, verbs
from skep.clock import system_now
from skep.errors import (
    AccessError,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    SkepError,
    SyncError,
    did_you_mean,
)
from skep.model import Memory, Recalled
from skep.server.live_events import Pulse, changes
from skep.server.mcp.http import (
    EVENT_HEADERS,
    EVENT_TYPE,
    JSON_TYPE,
    LOOPBACK,
    REQUEST_SECONDS,
    SESSION_HEADER,
    Endpoint,
    refusal,
)
from skep.server.openapi import openapi
from skep.server.served_banks import ServedBanks
from skep.server.token_rights import check_answer, check_call, check_whole, sees_event
from skep.server.tokens import Token, TokenFile
from skep.server.traffic import GUESSES, RATE, Audit, Counts, QuestionCounts, RateLimit
from skep.server.verb_calls import KEY_LIMIT, REPEATABLE, perform_once

try:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.cors import CORSMiddleware
    from starlette.middleware.gzip import GZipMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route
except ImportError as error:
    raise MissingExtraError("the server", "server") from error

if TYPE_CHECKING:
    from skep.bank.bank import Bank

MAX_BODY: Final = 16 << 20
READ_SECONDS: Final = 60.0
"""How long a verb that reads may take."""
SLOW: Final = frozenset(("maintain", "find_conflicts", "remember_many", "apply", "pending_judgements"))
"""Verbs that have threads of their own, so that the others need not wait for them."""
SAFE: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
}
KINDS: Final = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
LOCAL_USER: Final = Token(name="local", hash="", rights=tuple(RIGHTS), person=True)
"""Whoever calls a server that asks for no token."""
Handler = Callable[[Request, Token], Awaitable[Response]]


class Refused(Exception):
    """A request ends here with a status."""

    def __init__(
        self, status: int, message: str, *, kind: str = "AccessError", retry: float | None = None
    ) -> None:
        self.status, self.retry = status, retry
        self.told = Told(type=kind, message=message, retry_after=retry)
        super().__init__(message)


class Access(msgspec.Struct, kw_only=True):
    """Who may come in, and how often."""

    tokens: TokenFile
    hosts: tuple[str, ...] = LOOPBACK
    origins: tuple[str, ...] = ()
    secret: Token | None = None
    """The token that was made up for this run, if any."""
    open: bool = False
    """Everybody is let in; on the loopback address only."""
    rate: float = RATE


class Api:
    """The handlers and what they share."""

    def __init__(
        self, banks: ServedBanks, access: Access, audit: Audit, *, version: str, mcp: Any = None
    ) -> None:
        self.banks = banks
        self.access = access
        self.audit = audit
        self.closing = asyncio.Event()
        self.counts = Counts(system_now())
        self.questions = QuestionCounts()
        self._limit = RateLimit()
        self._version = version
        self._mcp = mcp
        """Makes the MCP server of a bank by its name."""
        self._endpoints: dict[str, tuple[Any, Endpoint]] = {}
        self._sessions: dict[str, str] = {}
        self._pulses: dict[str, Pulse] = {}
        self._quick = ThreadPoolExecutor(16, thread_name_prefix="skep-call")
        self._slow = ThreadPoolExecutor(2, thread_name_prefix="skep-slow")
        self._described: bytes | None = None
        self._page = _page()

    def app(self) -> Starlette:
        """The web application."""
        one = "/v1/banks/{bank}"
        routes = [
            Route("/", self._asset, methods=["GET"]),
            Route("/assets/{name}", self._asset, methods=["GET"]),
            Route("/health/live", self._live, methods=["GET"]),
            Route("/health/ready", self._ready, methods=["GET"]),
            Route("/metrics", self._gate("metrics", self._metrics), methods=["GET"]),
            Route("/v1/openapi.json", self._gate("openapi", self._openapi), methods=["GET"]),
            Route("/v1/me", self._gate("me", self._me), methods=["GET"]),
            Route("/v1/banks", self._gate("banks", self._list), methods=["GET"]),
            Route("/v1/spread", self._gate("spread", self._spread), methods=["GET"]),
            Route("/v1/denials", self._gate("denials", self._denials), methods=["GET"]),
            Route(f"{one}/usage", self._gate("usage", self._usage), methods=["GET"]),
            Route(f"{one}/changes", self._gate("changes", self._changes), methods=["GET"]),
            Route(f"{one}/events", self._gate("events", self._read_events), methods=["GET"]),
            Route(f"{one}/hub/{{call}}", self._gate("hub", self._hub_call), methods=["POST"]),
            Route(f"{one}/{{verb}}", self._gate("verb", self._verb), methods=["POST"]),
            Route("/mcp", self._gate("mcp", self._speak), methods=["GET", "POST", "DELETE"]),
            Route("/mcp/{bank}", self._gate("mcp", self._speak), methods=["GET", "POST", "DELETE"]),
        ]
        middleware = [Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)]
        if self.access.origins:
            middleware.append(
                Middleware(
                    CORSMiddleware,
                    allow_origins=list(self.access.origins),
                    allow_methods=["GET", "POST", "DELETE"],
                    allow_headers=[
                        "authorization",
                        "content-type",
                        "idempotency-key",
                        "if-match",
                        SESSION_HEADER,
                    ],
                    expose_headers=["etag", "retry-after", "idempotency-replayed", SESSION_HEADER],
                )
            )
        return Starlette(
            routes=routes,
            middleware=middleware,
            exception_handlers={404: _no_such_address, 405: _no_such_method, 500: _failed, Refused: _refused},
        )

    def close(self) -> None:
        """End the threads and the MCP servers; the banks are closed by whoever opened them."""
        self.closing.set()
        for server, _ in self._endpoints.values():
            server.close()
        self._quick.shutdown()
        self._slow.shutdown()

    # The gate

    def _gate(self, what: str, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            begun = time.perf_counter()
            name = request.path_params.get("verb", what) if what == "verb" else what
            label = name if what != "verb" or name in verbs() else "unknown"
            try:
                answer = await self._answer(request, handler)
            except ClientDisconnect:
                answer = Response(status_code=499)
            self.counts.note(label, answer.status_code, time.perf_counter() - begun)
            return answer

        return handle

    async def _answer(self, request: Request, handler: Handler) -> Response:
        token: Token | None = None
        try:
            token = self._admit(request)
            return await handler(request, token)
        except Refused as refused:
            self._note_denial(request, token, refused.status, str(refused))
            return _failure(refused.status, refused.told, retry=refused.retry)
        except SkepError as error:
            status = status_of(error)
            if isinstance(error, AccessError):
                self._note_denial(request, token, status, str(error))
            one = told(error)
            return _failure(status, one, retry=one.retry_after)

    def _admit(self, request: Request) -> Token:
        headers = dict(request.headers)
        turned_away = refusal(headers, token=None, hosts=self.access.hosts, origins=self.access.origins)
        if turned_away is not None:
            status, reason = turned_away
            raise Refused(status, reason.replace("skep mcp", "skep serve"))
        if self.closing.is_set():
            raise Refused(503, "the server is stopping; try again", kind="BusyError", retry=1.0)
        token = self._token(request, headers.get("authorization", ""))
        pause = self._limit.wait(f"token {token.name}", token.rate or self.access.rate)
        if pause:
            raise Refused(
                429,
                f"too many requests; go on in {pause:.2f} seconds",
                kind="BusyError",
                retry=round(pause, 3),
            )
        return token

    def _token(self, request: Request, given: str) -> Token:
        if self.access.open and not given:
            return LOCAL_USER
        scheme, _, secret = given.partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Refused(
                401, "a token is needed: send `Authorization: Bearer …` (`skep token add` makes one)"
            )
        made_up = self.access.secret
        if made_up is not None and made_up.hash == _hash(secret):
            return made_up
        found = self.access.tokens.find(secret)
        if found is not None:
            return found
        address = request.client.host if request.client else "unknown"
        pause = self._limit.wait(f"guess {address}", GUESSES)
        if pause:
            raise Refused(
                429, "too many wrong tokens from this address", kind="BusyError", retry=round(pause, 3)
            )
        raise Refused(
            401, "the token is not known here, or has expired; `skep token list` shows which there are"
        )

    def _note_denial(self, request: Request, token: Token | None, status: int, reason: str) -> None:
        if status not in (401, 403, 429):
            return
        self.counts.denied += 1
        self.audit.deny(
            status=status,
            token=token.name if token else None,
            address=request.client.host if request.client else None,
            method=request.method,
            path=request.url.path[:200],
            reason=reason[:300],
        )

    # Verbs

    async def _verb(self, request: Request, token: Token) -> Response:
        name, verb = request.path_params["bank"], verbs().get(request.path_params["verb"])
        if verb is None:
            asked = request.path_params["verb"]
            raise NotFoundError(f"there is no verb {asked!r}; {did_you_mean(asked, verbs())}")
        key = request.headers.get("idempotency-key")
        known = request.headers.get("if-match")
        as_of = request.query_params.get("as_of")
        _refuse_headers(verb, key, known, as_of)
        self._refuse_unopened(token, name)
        body = await _body(request)
        given = _decoded(verb, body) | _expected(known)
        slow = verb.name in SLOW or as_of is not None

        def work() -> tuple[bytes, dict[str, str]]:
            opened = self.banks.bank(name)
            arguments = check_call(token, name, opened, verb, given)
            bank = opened if as_of is None else opened.as_of(_moment(as_of))
            headers: dict[str, str] = {}
            if key is not None and verb.writes and verb.name not in REPEATABLE:
                answer, again = perform_once(opened, verb, arguments, key=f"{token.name}\0{key}", asked=body)
                headers["idempotency-replayed"] = "true" if again else "false"
            else:
                answer = _called(bank, verb.name, arguments)
            if isinstance(answer, Recalled) and token.scope is None:
                self.questions.note(name, str(given["query"]), answer)
            if isinstance(answer, Memory) and as_of is None:
                headers["etag"] = f'"{answer.version}"'
            return verb.encode(check_answer(token, opened, answer)), headers

        encoded, headers = await self._in_thread(
            work, slow=slow, limit=None if verb.writes or slow else READ_SECONDS
        )
        return _json(encoded, headers=headers)

    def _refuse_unopened(self, token: Token, name: str) -> None:
        if not token.opens(name):
            raise AccessError(f"the token {token.name!r} does not open the bank {name!r}")

    async def _in_thread(
        self, work: Callable[[], Any], *, slow: bool = False, limit: float | None = None
    ) -> Any:
        pool = self._slow if slow else self._quick
        done = asyncio.get_running_loop().run_in_executor(pool, work)
        try:
            return await asyncio.wait_for(asyncio.shield(done), limit)
        except TimeoutError:
            raise Refused(
                504, f"no answer within {limit:g} seconds; ask for less", kind="BusyError", retry=5.0
            ) from None

    # The log, for replicas

    async def _read_events(self, request: Request, token: Token) -> Response:
        name = request.path_params["bank"]
        check_whole(token, name, "read")
        after, limit = _number(request, "after", 0), _number(request, "limit", 1000, 1, 10_000)

        def work() -> bytes:
            from itertools import islice

            found = list(islice(self.banks.bank(name).engine.log.after(after, limit), limit))
            position = found[-1].seq if found else after
            return msgspec.json.encode({"events": found, "position": position})

        return _json(await self._in_thread(work, limit=READ_SECONDS))

    async def _hub_call(self, request: Request, token: Token) -> Response:
        """A call of a replica on another machine (`https://` addresses), for which this bank is the hub."""
        from skep.hub.bank_hub import BankHub
        from skep.hub.hub_calls import READING, WAIT_SECONDS, Answered, answer, read_asked

        name, call = request.path_params["bank"], request.path_params["call"]
        check_whole(token, name, "read" if call in READING else "manage")
        asked = read_asked(await _body(request))
        if call == "wait":  # no thread is kept for one who waits
            start = await self._in_thread(lambda: BankHub(self.banks.bank(name)).number(asked.after))
            reached = await self._pulse(name).wait(start, min(asked.timeout, WAIT_SECONDS))
            return _json(msgspec.json.encode(Answered(more=reached > start)))

        def work() -> bytes:
            return msgspec.json.encode(answer(BankHub(self.banks.bank(name)), call, asked))

        return _json(await self._in_thread(work, slow=call not in READING))

    def _pulse(self, name: str) -> Pulse:
        if name not in self.banks.places:
            self.banks.bank(name)  # says which there are
        if name not in self._pulses:
            self._pulses[name] = Pulse(partial(self.banks.bank, name), self.closing)
        return self._pulses[name]

    async def _changes(self, request: Request, token: Token) -> Response:
        name = request.path_params["bank"]
        self._refuse_unopened(token, name)
        if not token.allows("history", "read"):
            raise AccessError(
                f"the token {token.name!r} has not the right 'read' that following changes needs"
            )
        bank = partial(self.banks.bank, name)
        given = request.headers.get("last-event-id") or request.query_params.get("after")
        last = int(given) if given and given.isascii() and given.isdigit() and len(given) < 19 else None
        if last is None:
            last = await self._in_thread(partial(_last, bank))
        shows = partial(sees_event, token)
        granted = token is self.access.secret or token.hash == ""

        def ended() -> bool:
            return self.closing.is_set() or not (granted or self.access.tokens.holds(token))

        frames = changes(bank, self._pulse(name), last, shows, ended)
        self.counts.streams += 1

        async def counted() -> AsyncIterator[bytes]:
            try:
                async for frame in frames:
                    yield frame
            finally:
                self.counts.streams -= 1

        return StreamingResponse(counted(), media_type=EVENT_TYPE, headers=EVENT_HEADERS)

    # About the server

    async def _usage(self, request: Request, token: Token) -> Response:
        name = request.path_params["bank"]
        check_whole(token, name, "read")
        self._pulse(name)  # a name that is none is told of
        return _json(msgspec.json.encode(self.questions.of(name)))

    async def _list(self, _request: Request, token: Token) -> Response:
        return _json(msgspec.json.encode([name for name in self.banks.places if token.opens(name)]))

    async def _spread(self, _request: Request, token: Token) -> Response:
        names = [name for name in self.banks.places if token.opens(name)]
        for name in names:
            check_whole(token, name, "read")
        found = await self._in_thread(lambda: self.banks.spread(names), slow=True)
        return _json(msgspec.json.encode(found))

    async def _me(self, _request: Request, token: Token) -> Response:
        told = {
            "name": token.name,
            "rights": token.rights,
            "banks": [name for name in self.banks.places if token.opens(name)],
            "scope": token.scope,
            "person": token.person,
            "expires_at": token.expires_at,
            "version": self._version,
        }
        return _json(msgspec.json.encode(told))

    async def _denials(self, _request: Request, token: Token) -> Response:
        if "manage" not in token.rights or token.scope is not None:
            raise AccessError(
                "the audit of denials needs a token with the right 'manage' and without a scope"
            )
        return _json(msgspec.json.encode(await asyncio.to_thread(self.audit.newest)))

    async def _openapi(self, _request: Request, _token: Token) -> Response:
        if self._described is None:
            self._described = msgspec.json.encode(openapi(self._version))
        return _json(self._described)

    async def _metrics(self, _request: Request, token: Token) -> Response:
        if token.scope is not None:
            raise AccessError("metrics concern the whole server, and the token has a scope; use one without")

        def work() -> str:
            told = [(n, b) for n, b in self.banks.opened().items() if token.opens(n)]
            return self.counts.text((n, b.engine.size(), b.engine.log.last_seq()) for n, b in told)

        return Response(await self._in_thread(work), media_type="text/plain; version=0.0.4", headers=SAFE)

    async def _live(self, _request: Request) -> Response:
        return _json(b'{"status":"live"}')

    async def _ready(self, _request: Request) -> Response:
        if self.closing.is_set():
            return _failure(503, Told(type="BusyError", message="the server is stopping"), retry=1.0)

        def work() -> None:
            for name in self.banks.places:
                self.banks.bank(name).engine.log.last_seq()

        try:
            await self._in_thread(work, limit=READ_SECONDS)
        except SkepError:  # the reason is not for whoever is not known
            return _failure(
                503, Told(type="StorageError", message="a bank cannot be read; see the log of the server")
            )
        return _json(b'{"status":"ready"}')

    async def _asset(self, request: Request) -> Response:
        turned_away = refusal(
            dict(request.headers), token=None, hosts=self.access.hosts, origins=self.access.origins
        )
        if turned_away is not None:
            return _failure(turned_away[0], Told(type="AccessError", message=turned_away[1]))
        name = request.path_params.get("name", "index.html")
        if name not in self._page:
            return await _no_such_address(request, None)
        kind = KINDS[name.rpartition(".")[2]]
        return Response(self._page[name], media_type=kind, headers={**SAFE, "cache-control": "no-cache"})

    # MCP

    async def _speak(self, request: Request, token: Token) -> Response:
        if self._mcp is None:
            return await _no_such_address(request, None)
        name = request.path_params.get("bank") or next(iter(self.banks.places))
        check_whole(token, name, "read")
        missing = [right for right in ("write", "erase") if right not in token.rights]
        if missing:
            raise AccessError(
                f"MCP writes and forgets: the token {token.name!r} has not the right {missing[0]!r}"
            )
        if name not in self.banks.places:
            self.banks.bank(name)
        session = request.headers.get(SESSION_HEADER)
        if session is not None and self._sessions.get(session) != f"{token.name}\0{name}":
            raise Refused(404, "no such session; send initialize again", kind="NotFoundError")
        if name not in self._endpoints:
            server = self._mcp(name)
            self._endpoints[name] = server, Endpoint(server)
        answer = await self._endpoints[name][1].handle(request)
        if SESSION_HEADER in answer.headers:
            self._sessions[answer.headers[SESSION_HEADER]] = f"{token.name}\0{name}"
            while len(self._sessions) > 4096:
                self._sessions.pop(next(iter(self._sessions)))
        return answer


def _called(bank: Bank, verb: str, arguments: dict[str, Any]) -> Any:
    try:
        return getattr(bank, verb)(**arguments)
    except SyncError as error:
        if verb != "apply":
            raise
        raise Refused(400, str(error), kind="SyncError") from error  # the fault of who sent these events


def _last(bank: Callable[[], Bank]) -> int:
    return bank().engine.log.last_seq()


def _hash(secret: str) -> str:
    from skep.server.tokens import digest

    return digest(secret)


def _refuse_headers(verb: Verb, key: str | None, known: str | None, as_of: str | None) -> None:
    if key is not None and not 0 < len(key) <= KEY_LIMIT:
        raise InvalidInputError(
            f"an idempotency key has 1 to {KEY_LIMIT} characters; a random UUID will do",
            field="Idempotency-Key",
        )
    if known is not None and verb.name != "revise":
        raise InvalidInputError("If-Match goes with revise alone; leave it out", field="If-Match")
    if as_of is not None and verb.writes:
        raise InvalidInputError(
            f"as_of is for reading; {verb.name} changes the bank as it is now", field="as_of"
        )


def _expected(known: str | None) -> dict[str, int]:
    """The version in an `If-Match`, as `revise` takes it; `*` asks for any."""
    if known is None or known.strip() == "*":
        return {}
    version = known.strip().removeprefix("W/").strip('"')
    if not (version.isascii() and version.isdigit() and 0 < len(version) < 12):
        raise InvalidInputError("If-Match must be the ETag that `get` gave, or *", field="If-Match")
    return {"expected_version": int(version)}


def _moment(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _number(request: Request, name: str, default: int, least: int = 0, most: int = 10**18 - 1) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 19 and least <= int(given) <= most):
        raise InvalidInputError(
            f"{name} must be a whole number from {least} to {most}, got {given[:40]!r}", field=name
        )
    return int(given)


def _decoded(verb: Verb, body: bytes) -> dict[str, Any]:
    from skep.errors import UnknownKeyError, WrongTypeError

    try:
        return verb.decode(body)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        field = place.strip("`.").partition("[")[0].partition(".")[0] or None
        if "unknown field" in message:
            unknown = message.rpartition(" unknown field ")[2].strip("`")
            hint = did_you_mean(unknown, verb.arguments.__struct_fields__)
            raise UnknownKeyError(f"{verb.name} takes no {unknown!r}; {hint}", field=unknown) from None
        raise WrongTypeError(f"{field or 'the body'}: {message}", field=field) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(
            f"the body is no JSON object ({error}); send the arguments of {verb.name}"
        ) from None


async def _body(request: Request) -> bytes:
    """The whole body, within the limits."""
    if not request.headers.get("content-type", "").lower().startswith(JSON_TYPE):
        raise Refused(
            415, "send the arguments as JSON, with Content-Type: application/json", kind="InvalidInputError"
        )
    if request.headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "send the body as it is, not compressed", kind="InvalidInputError")
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY:
                    raise Refused(
                        413,
                        f"the body is over {MAX_BODY >> 20} MB; send it in parts",
                        kind="TextTooLongError",
                    )
                parts.append(part)
    except TimeoutError:
        raise Refused(
            408, f"the body did not arrive within {REQUEST_SECONDS:g} seconds", kind="BusyError"
        ) from None
    return b"".join(parts)


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    given = {**SAFE, "cache-control": "no-store", **(headers or {})}
    return Response(body, status_code=status, media_type=JSON_TYPE, headers=given)


def _failure(status: int, one: Told, *, retry: float | None = None) -> Response:
    headers = {"retry-after": str(max(1, round(retry)))} if retry else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return _json(msgspec.json.encode(Failure(one)), status, headers)


async def _refused(_request: Request, error: Exception) -> Response:
    refused = cast("Refused", error)
    return _failure(refused.status, refused.told, retry=refused.retry)


async def _failed(_request: Request, error: Exception) -> Response:
    message = f"the server failed at this ({type(error).__name__}); what it wrote to standard error says where"
    return _failure(500, Told(type="SkepError", message=message))


async def _no_such_address(_request: Request, _error: Any) -> Response:
    message = "nothing lies at this address; /v1/openapi.json lists what there is"
    return _failure(404, Told(type="NotFoundError", message=message))


async def _no_such_method(_request: Request, error: Any) -> Response:
    answer = _failure(
        405,
        Told(type="InvalidInputError", message="this address is asked in another way; see /v1/openapi.json"),
    )
    answer.headers.update(getattr(error, "headers", None) or {})
    return answer


def _page() -> dict[str, bytes]:
    """The files of the page, by name; they are few and small."""
    folder = resources.files("skep.server") / "assets"
    files = (
        [one for one in folder.iterdir() if one.name.rpartition(".")[2] in KINDS] if folder.is_dir() else []
    )
    return {one.name: one.read_bytes() for one in files}


def create_server(
    banks: ServedBanks, access: Access, audit: Audit, *, version: str, profile: str = "default"
) -> Api:
    """The API over some banks, with MCP in it."""

    def mcp(name: str) -> Any:
        from pathlib import Path

        from skep.server.mcp.start import Banks
        from skep.server.mcp.tool_profiles import build_server

        one = Banks(
            banks.places[name], environ={}, start=Path.cwd(), local=False, opener=lambda _: banks.bank(name)
        )
        return build_server(profile, one, version=version)

    return Api(banks, access, audit, version=version, mcp=mcp)


def host_names(host: str, allowed: Sequence[str]) -> tuple[str, ...]:
    """The names by which a server may be addressed."""
    return tuple(name.lower() for name in (*LOOPBACK, host, *allowed))
