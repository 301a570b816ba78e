"""The stdio transport: one frame per line, answered as soon as its answer is ready.

One thread reads. Requests that need no bank are answered there and then; the others go to a few workers, so that a
slow tool holds up neither a ping nor a cancellation. A request waits for the writes that were sent before it, so a
recall sees what was remembered just before. Standard output carries frames only: other prints go to standard error.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, cast

from skep.server.mcp.protocol import (
    INVALID_REQUEST,
    MAX_FRAME,
    Answer,
    Id,
    Malformed,
    Notification,
    Params,
    Request,
    RpcError,
    cancelled_id,
    failure,
    notification,
    parse,
    request,
    response,
)
from skep.server.mcp.session import SLOW, Server, Session
from skep.server.mcp.tool_calls import Cancelled, ToolError

WORKERS: Final = 4
ANSWER_TIMEOUT: Final = 60.0
"""Seconds to wait for a client that was asked something."""


def frames(reader: BinaryIO, limit: int = MAX_FRAME) -> Iterator[bytes | Malformed]:
    """Split a stream into lines; one that is too long is skipped to its end and reported."""
    while line := reader.readline(limit + 1):
        if len(line) <= limit or line.endswith(b"\n"):
            if line.strip():
                yield line
            continue
        while line and not line.endswith(b"\n"):
            line = reader.readline(limit)
        yield Malformed(INVALID_REQUEST, f"message longer than {limit} bytes")


class Flight:
    """A request that is being answered; the way back to the client for its tool."""

    def __init__(self, connection: Connection, asked: Request) -> None:
        self.request_ = asked
        self.withdrawn = False
        self.after: Flight | None = None
        """The write that was sent before it, and that it waits for."""
        self.done = threading.Event()
        self._connection = connection

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification, unless nobody waits any more."""
        if not self.withdrawn:
            self._connection.write(notification(method, params))

    def request(self, method: str, params: Mapping[str, Any]) -> Params:
        """Ask the client and wait for the answer."""
        answers: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._connection.ask(method, params, answers.put)
        try:
            answer = answers.get(timeout=ANSWER_TIMEOUT)
        except queue.Empty:
            raise ToolError(f"the client did not answer {method}") from None
        if answer is None or answer.result is None:
            reason = (
                answer.error.get("message")
                if answer is not None and answer.error
                else "the connection closed"
            )
            raise ToolError(f"the client refused {method}: {reason}")
        return answer.result

    def cancelled(self) -> bool:
        """True once the client has withdrawn the request."""
        return self.withdrawn


class Connection:
    """One client on one pair of streams."""

    def __init__(
        self,
        server: Server,
        reader: BinaryIO,
        writer: BinaryIO,
        *,
        wants_roots: bool = False,
        limit: int = MAX_FRAME,
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._limit = limit
        self._wants_roots = wants_roots
        self._session = Session(lambda method, params: self.write(notification(method, params)))
        self._write_lock = threading.Lock()
        self._lock = threading.Lock()
        self._flights: dict[Id, Flight] = {}
        self._listening: set[Id] = set()
        self._pending: dict[Id, Callable[[Answer | None], None]] = {}
        self._asked = 0
        self._jobs: queue.SimpleQueue[Flight | None] = queue.SimpleQueue()
        self._last_write: Flight | None = None
        self._workers: list[threading.Thread] = []
        self._idle = 0

    def run(self) -> None:
        """Serve until the client closes its end; what was already asked is still answered."""
        for frame in frames(self._reader, self._limit):
            message = frame if isinstance(frame, Malformed) else parse(frame)
            if isinstance(message, Request):
                self._on_request(message)
            elif isinstance(message, Notification):
                self._on_notification(message)
            elif isinstance(message, Answer):
                with self._lock:
                    settle = self._pending.pop(message.id, None)
                if settle is not None:
                    settle(message)
            else:
                self.write(failure(message.id, message))
        self._close()

    def write(self, frame: bytes) -> None:
        """Put one frame on the wire, whole."""
        with self._write_lock:
            try:
                self._writer.write(frame + b"\n")
                self._writer.flush()
            except (BrokenPipeError, ValueError):
                return

    def ask(self, method: str, params: Mapping[str, Any], settle: Callable[[Answer | None], None]) -> None:
        """Ask the client; `settle` gets its answer, or None when the connection ends first."""
        with self._lock:
            self._asked += 1
            identity = f"skep-{self._asked}"
            self._pending[identity] = settle
        self.write(request(identity, method, params))

    def _close(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        for settle in pending.values():
            settle(None)
        for identity in self._listening:
            self._server.leave((self, identity))
        self._server.leave(self._session)
        for _ in self._workers:
            self._jobs.put(None)
        for worker in self._workers:
            worker.join()

    def _on_request(self, asked: Request) -> None:
        flight = Flight(self, asked)
        with self._lock:
            if asked.id in self._flights or asked.id in self._listening:
                taken = RpcError(INVALID_REQUEST, f"request id {asked.id!r} is already in use")
                self.write(failure(asked.id, taken))
                return
            self._flights[asked.id] = flight
        if asked.method in SLOW:
            self._hand_over(flight)
        elif asked.method == "subscriptions/listen":
            self._listen(flight)
        else:
            self._serve(flight)

    def _hand_over(self, flight: Flight) -> None:
        flight.after = self._last_write
        if self._server.writes(flight.request_):
            self._last_write = flight
        with self._lock:
            if self._idle == 0 and len(self._workers) < WORKERS:
                worker = threading.Thread(
                    target=self._work, name=f"skep-worker-{len(self._workers)}", daemon=True
                )
                self._workers.append(worker)
                worker.start()
            else:
                self._idle = max(0, self._idle - 1)
        self._jobs.put(flight)

    def _work(self) -> None:
        while (flight := self._jobs.get()) is not None:
            if flight.after is not None:  # jobs come in order, so a worker has begun that write already
                flight.after.done.wait()
                flight.after = None
            try:
                self._serve(flight)
            finally:
                flight.done.set()
            with self._lock:
                self._idle += 1

    def _serve(self, flight: Flight) -> None:
        asked = flight.request_
        try:
            if flight.withdrawn:
                raise Cancelled
            frame = response(
                asked.id, self._server.guarded(lambda: self._server.answer(self._session, asked, flight))
            )
        except RpcError as error:
            frame = failure(asked.id, error)
        except Cancelled:
            frame = None
        with self._lock:
            self._flights.pop(asked.id, None)
        if frame is not None and not flight.withdrawn:
            self.write(frame)

    def _listen(self, flight: Flight) -> None:
        asked = flight.request_
        with self._lock:
            self._flights.pop(asked.id, None)
        try:
            self._server.envelope(self._session, asked)
            self._listening.add(asked.id)
            self._server.listen(asked, (self, asked.id), flight.notify, self._session)
        except RpcError as error:
            self._listening.discard(asked.id)
            self.write(failure(asked.id, error))

    def _on_notification(self, told: Notification) -> None:
        if told.method == "notifications/cancelled":
            identity = cancelled_id(told)
            if identity is None:
                return
            with self._lock:
                flight = self._flights.get(identity)
            if flight is not None and flight.request_.method != "initialize":
                flight.withdrawn = True
            if identity in self._listening:
                self._listening.discard(identity)
                self._server.leave((self, identity))
        elif told.method in ("notifications/initialized", "notifications/roots/list_changed"):
            self._ask_roots()

    def _ask_roots(self) -> None:
        session = self._session
        if not self._wants_roots or session.envelope is None or "roots" not in session.envelope.capabilities:
            return

        def settle(answer: Answer | None) -> None:
            if answer is not None and answer.result is not None:
                session.roots = root_uris(answer.result)
            session.roots_settled.set()

        session.roots_settled.clear()
        self.ask("roots/list", {}, settle)


def root_uris(result: Params) -> list[str]:
    """The addresses in a client's answer to `roots/list`."""
    roots: Any = result.get("roots")
    found = [
        cast("Params", root).get("uri") for root in cast("list[Any]", roots or []) if isinstance(root, dict)
    ]
    return [uri for uri in found if isinstance(uri, str)]


def serve_stdio(server: Server, *, wants_roots: bool = False) -> None:
    """Serve the process's own standard streams until the client leaves."""
    wire_in = os.fdopen(os.dup(0), "rb")
    wire_out = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    sys.stdout = sys.stderr
    try:
        Connection(server, wire_in, wire_out, wants_roots=wants_roots).run()
    except KeyboardInterrupt:
        return
