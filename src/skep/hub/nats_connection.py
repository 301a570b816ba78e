"""NatsConnection: a NATS server, called from ordinary threads.

The client library (`nats-py`) speaks asyncio, so each connection runs a loop in a thread of its own. It reconnects by
itself; a call that gets no answer in time is a `HubAwayError`. The NATS hub and the NATS bus call it; it knows nothing
of events or frames, and no other module imports the client.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from skep.errors import AccessError, ConfigError, HubAwayError, MissingExtraError, SyncError
from skep.hub.hub import AWAY_SECONDS
from skep.hub.hub_urls import shown

T = TypeVar("T")
FIRST_SECONDS = 4.0
"""Seconds for the first connection; later ones are tried for ever."""
logger = logging.getLogger("skep.hub.nats")
START_ONE = "start a server with `nats-server -js -sd FOLDER`"
FORBIDDEN = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
"""The server's word that this connection may not publish on a subject, or not listen to it."""
NO_ANSWER = 503
"""The server's word that nobody listens on a subject."""
END_OF_BATCH = 204
IN_USE = 10058
"""A stream of that name is there with another configuration."""
SECOND_NS = 1_000_000_000


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A message that arrived."""

    subject: str
    data: bytes
    reply: str = ""
    headers: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    @property
    def status(self) -> int:
        """What the server says instead of a message; 0 for a message."""
        return int(self.headers.get("Status", "0") or 0)


class StreamError(SyncError):
    """The server refused something about a stream; `code` is its own number for why."""

    def __init__(self, code: int, description: str) -> None:
        self.code = code
        super().__init__(f"the NATS server refused: {description}")


class NatsConnection:
    """One connection. Several threads may use it at once."""

    def __init__(self, url: str, *, name: str = "skep", timeout: float = AWAY_SECONDS) -> None:
        """Connect, or raise an error that says what to do.

        Args:
            url: `nats://user:password@host:4222`, or `tls://…`; `?creds=FILE` names a file of credentials, and
                `?domain=NAME` the domain whose streams are meant, where the server is a leaf of another.
            name: What the server shows of this connection.
            timeout: Seconds after which a server that does not answer counts as away.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("nats", "tls") or not parts.hostname:
            raise ConfigError(
                f"{shown(url)} is no address of a NATS server; write nats://HOST:4222, or tls://…"
            )
        self.url = shown(f"{parts.scheme}://{parts.netloc}")
        self.timeout = timeout
        self._said: list[str] = []
        """What the client said about its connection, latest last."""
        self._forbidden: dict[str, str] = {}
        """Per subject what the server does not allow there."""
        self._waiting: dict[str, set[asyncio.Task[Any]]] = {}
        """Per subject the questions that wait for an answer."""
        given = parse_qs(parts.query)
        self.api = f"$JS.{given['domain'][0]}.API" if "domain" in given else "$JS.API"
        """The subject of JetStream's calls."""
        options: dict[str, Any] = {}
        if creds := given.get("creds"):
            if not Path(creds[0]).is_file():
                raise ConfigError(
                    f"there is no file of credentials at {creds[0]}; check ?creds= in the address"
                )
            options["user_credentials"] = creds[0]
        if parts.username:
            options |= {"user": unquote(parts.username), "password": unquote(parts.password or "")}
        server = f"{parts.scheme}://{parts.hostname}:{parts.port or 4222}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="skep-nats", daemon=True)
        self._thread.start()
        try:
            self._client: Any = self.call(self._connect(server, name, options), timeout + 1.0)
        except BaseException:
            self._end_loop()
            raise

    async def _connect(self, server: str, name: str, options: dict[str, Any]) -> Any:
        nats = _library()

        async def said(error: Exception) -> None:
            self._said.append(str(error) or type(error).__name__)
            del self._said[:-8]
            if found := FORBIDDEN.search(str(error)):
                verb, subject = found.groups()
                self._forbidden[subject] = "publish on" if verb == "publish" else "listen to"
                for question in self._waiting.pop(subject, ()):
                    question.cancel()

        client = nats.NATS()
        try:
            await asyncio.wait_for(
                client.connect(
                    server,
                    name=name,
                    error_cb=said,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.2,
                    connect_timeout=2,
                    pending_size=16 * 1024 * 1024,
                    **options,
                ),
                min(self.timeout, FIRST_SECONDS),
            )
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await self._give_up(client)
            raise self._unreachable(error) from error
        except ValueError as error:
            await self._give_up(client)
            raise ConfigError(f"the file of credentials for {self.url} cannot be read ({error})") from error
        return client

    @staticmethod
    async def _give_up(client: Any) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(client.close(), 5.0)

    def _unreachable(self, error: BaseException) -> SyncError:
        why = "; ".join(dict.fromkeys([*self._said[-2:], str(error)])).strip("; ") or type(error).__name__
        if "authorization" in why.lower() or "authentication" in why.lower():
            return SyncError(
                f"the NATS server at {self.url} refused the login ({why}); check user and password"
            )
        return HubAwayError(
            f"no NATS server answers at {self.url} ({why}); {START_ONE}, or check the address"
        )

    # Calls

    def call(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run something of the client; whatever takes too long is given up."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(self.timeout if timeout is None else timeout)
        except TimeoutError as error:
            future.cancel()
            raise self._unreachable(error) from error

    def publish(self, subject: str, data: bytes) -> None:
        """Send a message and wait for nothing."""
        self._loop.call_soon_threadsafe(self._send, subject, data)

    def _send(self, subject: str, data: bytes) -> None:
        task = self._loop.create_task(self._client.publish(subject, data))
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._said.append(str(error) or type(error).__name__)

    def flush(self) -> None:
        """Wait until the server has everything that was sent so far."""
        self.call(self._flushed())

    async def _flushed(self) -> None:
        nats = _library()

        try:
            await self._client.flush(timeout=self.timeout)
        except (nats.errors.Error, TimeoutError) as error:
            raise self._unreachable(error) from error

    def ask(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Told:
        """One question, one answer."""
        return self.call(self._asked(subject, data, headers), self.timeout + 1.0)

    async def _asked(self, subject: str, data: bytes, headers: Mapping[str, str] | None) -> Told:
        nats = _library()

        question = asyncio.ensure_future(
            self._client.request(
                subject, data, timeout=self.timeout, headers=dict(headers) if headers else None
            )
        )
        waiting = self._waiting.setdefault(subject, set())
        waiting.add(question)
        try:
            return _told(await question)
        except nats.errors.NoRespondersError:
            return Told(subject=subject, data=b"", headers={"Status": str(NO_ANSWER)})
        except (nats.errors.Error, TimeoutError, asyncio.CancelledError) as error:
            self._check_allowed(subject)
            raise self._unreachable(error) from error
        finally:
            waiting.discard(question)
            if not waiting:
                self._waiting.pop(subject, None)

    def _check_allowed(self, subject: str) -> None:
        """Raise an error if the server said that this user may not use a subject."""
        if (verb := self._forbidden.pop(subject, None)) is not None:
            raise AccessError(
                f"the NATS server at {self.url} does not let this user {verb} {subject};"
                " whoever gives out its users can allow it"
            )

    def ask_all(self, questions: list[tuple[str, bytes, dict[str, str]]]) -> list[Told]:
        """Several questions at once, each with one answer; the answers in their order."""
        return self.call(self._asked_all(questions), self.timeout + 1.0)

    async def _asked_all(self, questions: list[tuple[str, bytes, dict[str, str]]]) -> list[Told]:
        return list(await asyncio.gather(*(self._asked(*one) for one in questions)))

    def collect(self, subject: str, data: bytes, done: Callable[[Told], bool], wait: float) -> list[Told]:
        """Ask once and take answers until one says that it is the last, or `wait` seconds have passed."""
        return self.call(self._collected(subject, data, done, wait), wait + self.timeout)

    async def _collected(
        self, subject: str, data: bytes, done: Callable[[Told], bool], wait: float
    ) -> list[Told]:
        nats = _library()

        found: list[Told] = []
        until = time.monotonic() + wait
        inbox = self._client.new_inbox()
        try:
            arrived = await self._client.subscribe(inbox)
            try:
                await self._client.publish(subject, data, reply=inbox)
                while (left := until - time.monotonic()) > 0:
                    try:
                        message = await arrived.next_msg(timeout=min(left, 0.25))
                    except nats.errors.TimeoutError:
                        self._check_allowed(subject)
                        continue
                    found.append(_told(message))
                    if done(found[-1]):
                        break
            finally:
                await arrived.unsubscribe()
        except nats.errors.Error as error:
            raise self._unreachable(error) from error
        return found

    def subscribe(self, subject: str, heard: Callable[[Told], None]) -> Callable[[], None]:
        """Call `heard`, which must be quick, for each message, in the thread of the connection; what is returned ends
        it.
        """

        async def handler(message: Any) -> None:
            try:
                heard(_told(message))
            except Exception:  # where a handler starts; the client would drop it in silence
                logger.exception("a message on %s could not be dealt with", message.subject)

        async def begin() -> Any:
            return await self._client.subscribe(subject, cb=handler)

        subscription = self.call(begin())

        async def end() -> None:
            if not self._client.is_closed:
                await subscription.unsubscribe()

        return lambda: self.call(end()) if not self.closed else None

    def jetstream(self, verb: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A call of JetStream's API, such as `STREAM.INFO.name`; its refusal is a `StreamError`."""
        told = self.ask(f"{self.api}.{verb}", msgspec.json.encode(given or {}))
        return self.answered(told)

    def make_stream(self, name: str, subjects: Sequence[str], **config: Any) -> None:
        """Make a stream in files on the server; one that is there is used as it is."""
        fixed = {"name": name, "subjects": list(subjects), "retention": "limits", "storage": "file"}
        window = {"duplicate_window": 120 * SECOND_NS}
        try:
            self.jetstream(f"STREAM.CREATE.{name}", {**fixed, **window, **config})
        except StreamError as error:
            if error.code != IN_USE:  # made before, or by somebody else at the same moment
                raise

    def answered(self, told: Told) -> dict[str, Any]:
        """The answer of JetStream, or its refusal as an error."""
        if told.status == NO_ANSWER:
            raise SyncError(f"the NATS server at {self.url} keeps no streams; {START_ONE}")
        answer: dict[str, Any] = msgspec.json.decode(told.data)
        if "error" in answer:
            error = answer["error"]
            raise StreamError(int(error.get("err_code", 0)), str(error.get("description", error)))
        return answer

    # The end

    @property
    def closed(self) -> bool:
        """True after `close`."""
        return self._loop.is_closed() or not self._loop.is_running()

    def close(self) -> None:
        """Release the connection. Closing twice is no error."""
        if self.closed:
            return
        with contextlib.suppress(SyncError):
            self.call(self._give_up(self._client), 6.0)
        self._end_loop()

    def _end_loop(self) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_finish(), self._loop).result(5.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        if not self._loop.is_running():
            self._loop.close()


def _library() -> Any:
    """The client library."""
    try:
        import nats
    except ImportError as error:
        raise MissingExtraError("a NATS server", "nats") from error
    return nats


async def _finish() -> None:
    """End what still runs in a loop, and let sockets be closed."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    for _ in range(5):
        await asyncio.sleep(0.002)


def _told(message: Any) -> Told:
    headers: dict[str, str] = dict(message.headers or {})
    return Told(subject=message.subject, data=message.data, reply=message.reply or "", headers=headers)
