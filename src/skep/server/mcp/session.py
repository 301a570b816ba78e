"""The server that every transport shares: requests in, results out, subscriptions kept.

`Server` is the offer; `Session` is the state of one client of the session era. A stateless request is answered from
its own envelope and leaves nothing behind. `Watch` tells subscribers of changes by other processes: SQLite says
cheaply that another connection wrote, the log says what; it looks only while somebody listens.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from skep.errors import ClosedError, InvalidInputError, MovedError, NotFoundError, SkepError
from skep.server.mcp.protocol import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    LOG_LEVELS,
    METHOD_NOT_FOUND,
    SERVER_KEY,
    STATELESS_VERSIONS,
    SUBSCRIPTION_KEY,
    Envelope,
    Id,
    Params,
    Request,
    RpcError,
    is_stateless,
    negotiate,
    open_envelope,
)
from skep.server.mcp.tool_calls import (
    NOWHERE,
    Call,
    Cancelled,
    Channel,
    InputRequired,
    Registry,
    Reply,
    ToolError,
    for_a_model,
    no_bank,
)

if TYPE_CHECKING:
    from skep.bank.bank import Bank


INTERVAL: Final = 1.0
"""Seconds between two looks."""
STATS: Final = "memory://stats"


def addresses(memory_id: str) -> tuple[str, str]:
    """The resources that change when a memory does."""
    return f"memory://{memory_id}", f"memory://{memory_id}/history"


class Watch:
    """Looks at the banks of those who listen, and publishes the addresses of what others changed there.

    Args:
        publish: Told the addresses.
        pause: Waits between two looks, for at most so many seconds; true means stop.
        interval: How many seconds.
    """

    def __init__(
        self,
        publish: Callable[[set[str]], None],
        *,
        pause: Callable[[float], bool] | None = None,
        interval: float = INTERVAL,
    ) -> None:
        self._publish = publish
        self._stopped = threading.Event()
        self._pause = pause or self._stopped.wait
        self._interval = interval
        self._lock = threading.Lock()
        self._followed: dict[object, Callable[[], Bank]] = {}
        self._seen: dict[Bank, tuple[int | None, int]] = {}
        """Per bank the version SQLite gave and the last event that is known."""
        self._thread: threading.Thread | None = None

    def follow(self, key: object, bank: Callable[[], Bank]) -> None:
        """From now on look at a bank. What is in it already is not news."""
        found = bank()
        position = _position(found)
        with self._lock:
            self._seen.setdefault(found, position)
            self._followed[key] = bank
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="skep-watch", daemon=True)
                self._thread.start()

    def leave(self, key: object) -> None:
        """Stop looking for this one."""
        with self._lock:
            self._followed.pop(key, None)

    def look(self) -> None:
        """Look once at every bank that somebody follows."""
        with self._lock:
            followed = list(self._followed.values())
        looked: set[Bank] = set()
        for ask in followed:
            try:
                bank = ask()
                changed = self._news(bank) if bank not in looked else set[str]()
            except SkepError:  # not to be read just now: a tool call says why, and the next look may succeed
                continue
            looked.add(bank)
            if changed:
                self._publish(changed)

    def close(self) -> None:
        """End, and wait for a look that is under way."""
        self._stopped.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while not self._pause(self._interval):
            with self._lock:
                if not self._followed:
                    self._thread = None
                    self._seen.clear()
                    return
            self.look()

    def _news(self, bank: Bank) -> set[str]:
        from skep.events import mentioned

        version, last = _position(bank)
        known, seen = self._seen.get(bank, (None, 0))  # a bank that was made meanwhile is new as a whole
        self._seen[bank] = version, last
        if version == known or last == seen:  # whatever is newer this process wrote, and has told itself
            return set()
        events = bank.engine.log.after(seen)
        subjects = {subject for event in events if event.kind != "use" for subject in mentioned(event)}
        changed = {address for subject in subjects for address in addresses(subject)}
        return {*changed, STATS} if changed else changed


def _position(bank: Bank) -> tuple[int, int]:
    """SQLite's data version and the log's last event. The log first: the next look finds an event in between."""
    last = bank.engine.log.last_seq()
    return bank.engine.data_version(), last


SESSION_ONLY: Final = {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
}
STATELESS_ONLY: Final = {"server/discover", "subscriptions/listen"}
SLOW: Final = {"tools/call", "resources/read", "resources/subscribe", "prompts/get", "completion/complete"}
"""Methods that may touch the bank, and so must not hold up the reading of further messages."""
CACHE: Final[dict[str, Params]] = {
    "server/discover": {"ttlMs": 3_600_000, "cacheScope": "public"},
    "tools/list": {"ttlMs": 3_600_000, "cacheScope": "public"},
    "prompts/list": {"ttlMs": 3_600_000, "cacheScope": "public"},
    "resources/templates/list": {"ttlMs": 3_600_000, "cacheScope": "public"},
    "resources/list": {"ttlMs": 3_600_000, "cacheScope": "private"},
    "resources/read": {"ttlMs": 0, "cacheScope": "private"},
}
"""How long a stateless client may keep an answer. What a memory says may change at any moment."""

Send = Callable[[str, Params], None]


Done = TypeVar("Done")


class Hub:
    """The listeners to changed resources."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, tuple[frozenset[str], Send]] = {}

    def listen(self, key: object, uris: frozenset[str], send: Send) -> None:
        """From now on tell `send` of every change to one of `uris`."""
        with self._lock:
            self._listeners[key] = (uris, send)

    def leave(self, key: object) -> None:
        """Stop telling."""
        with self._lock:
            self._listeners.pop(key, None)

    def publish(self, changed: set[str]) -> None:
        """Tell whoever listens to one of the changed resources."""
        with self._lock:
            listeners = list(self._listeners.values())
        for uris, send in listeners:
            for uri in sorted(uris & changed):
                send("notifications/resources/updated", {"uri": uri})


class Session:
    """The state of one client between its requests."""

    def __init__(self, notify: Send = lambda _method, _params: None) -> None:
        self.notify = notify
        """Reaches the client outside of any request."""
        self.envelope: Envelope | None = None
        self.log_level: str | None = None
        self.subscriptions: set[str] = set()
        self.roots: list[str] | None = None
        """The addresses of the folders the client works in; None until it has said."""
        self.roots_asked = False
        self.roots_settled = threading.Event()
        self.roots_settled.set()
        """Cleared while the client has been asked for its folders and has not answered."""


class Server:
    """The offer of one process: tools, resources and prompts over a bank."""

    def __init__(
        self,
        registry: Registry,
        *,
        version: str,
        name: str = "skep",
        instructions: str = "",
        bank: Callable[[Call, Session], Bank] | None = None,
        watch_seconds: float = INTERVAL,
    ) -> None:
        self.registry = registry
        self.hub = Hub()
        self.watch = Watch(self.hub.publish, interval=watch_seconds)
        self.info: Params = {"name": name, "title": name, "version": version}
        self.instructions = instructions
        self._bank = bank
        self._handlers: dict[str, Callable[[Call, Session], Params]] = {
            "ping": lambda _call, _session: {},
            "server/discover": self._discover,
            "tools/list": self._list("tools", [t.wire() for t in registry.tools.values()]),
            "tools/call": self._call_tool,
            "resources/list": self._list(
                "resources", [r.wire() for r in registry.resources if not r.template]
            ),
            "resources/templates/list": self._list(
                "resourceTemplates", [r.wire() for r in registry.resources if r.template]
            ),
            "resources/read": self._read,
            "prompts/list": self._list("prompts", [p.wire() for p in registry.prompts.values()]),
            "prompts/get": self._prompt,
        }
        if registry.logging:
            self._handlers["logging/setLevel"] = self._set_level
        if registry.complete is not None:
            self._handlers["completion/complete"] = self._complete

    def close(self) -> None:
        """Stop whatever works in the background."""
        self.watch.close()

    def capabilities(self) -> Params:
        """The capabilities that `initialize` announces."""
        found: Params = {"tools": {}}
        if self.registry.resources:
            found["resources"] = {"subscribe": True}
        if self.registry.prompts:
            found["prompts"] = {}
        if self.registry.logging:
            found["logging"] = {}
        if self.registry.complete is not None:
            found["completions"] = {}
        return found

    def envelope(self, session: Session, request: Request) -> Envelope:
        """Decide in which revision a request is answered, or refuse it.

        Raises:
            RpcError: It belongs to no session and carries no envelope, or its method is not of its era.
        """
        method = request.method
        if method == "initialize" or (not is_stateless(request.params) and session.envelope is None):
            if method in ("initialize", "ping"):
                return Envelope(negotiate(request.params.get("protocolVersion")), {}, {})
            if method in STATELESS_ONLY or method in self._handlers or method in SESSION_ONLY:
                return open_envelope(request.params)
            raise _unknown(method)
        if is_stateless(request.params):
            envelope = open_envelope(request.params)
            if method in SESSION_ONLY:
                raise _unknown(method)
            return envelope
        if method in STATELESS_ONLY:
            return open_envelope(request.params)
        return cast("Envelope", session.envelope)

    def answer(
        self, session: Session, request: Request, channel: Channel, *, envelope: Envelope | None = None
    ) -> Params:
        """Answer one request.

        Raises:
            RpcError: It is refused.
            Cancelled: The client withdrew it; nothing must be sent.
        """
        envelope = envelope or self.envelope(session, request)
        call = Call(
            channel=channel,
            envelope=envelope,
            params=request.params,
            bank=lambda call: self._bank_of(call, session),
            log_level=session.log_level,
        )
        if request.method == "initialize":
            return self._initialize(envelope, session, request.params)
        if request.method in ("resources/subscribe", "resources/unsubscribe"):
            return self._subscribe(call, session, leave=request.method.endswith("unsubscribe"))
        handler = self._handlers.get(request.method)
        if handler is None:
            raise _unknown(request.method)
        call.reads = request.method != "tools/call"
        try:
            result = handler(call, session)
        except InputRequired as question:
            result = {"resultType": "input_required", "inputRequests": question.requests}
            if question.state is not None:
                result["requestState"] = question.state
        if call.touched:
            self.hub.publish(call.touched)
        call.check()
        return self._shape(request.method, result) if envelope.stateless else result

    def writes(self, request: Request) -> bool:
        """True if later requests of the same client wait for this one, so that they see its writes."""
        name: Any = request.params.get("name")
        found = self.registry.tools.get(name) if isinstance(name, str) else None
        return request.method == "tools/call" and found is not None and not (found.reads or found.long)

    def guarded(self, work: Callable[[], Params]) -> Params:
        """Run `work`; a defect of ours ends this one request with an internal error, never the server."""
        try:
            return work()
        except (RpcError, Cancelled):
            raise
        except Exception as error:  # the edge of a worker: one bad request must not end the others
            import traceback

            traceback.print_exc(file=sys.stderr)
            raise RpcError(
                INTERNAL_ERROR, f"internal error: {type(error).__name__}; see the server's log"
            ) from error

    def _bank_of(self, call: Call, session: Session) -> Bank:
        return self._bank(call, session) if self._bank is not None else no_bank()

    def _follow(self, key: object, session: Session) -> None:
        """Watch the bank of a session for changes by others."""
        if self._bank is None:
            return
        envelope = session.envelope or Envelope(STATELESS_VERSIONS[-1], {}, {})
        quiet = msgspec.structs.replace(envelope, capabilities={})
        call = Call(
            channel=NOWHERE, envelope=quiet, params={}, bank=lambda call: self._bank_of(call, session)
        )
        call.reads = True
        try:
            self.watch.follow(key, call.bank)
        except SkepError as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error

    def leave(self, key: object) -> None:
        """Close a subscription."""
        self.hub.leave(key)
        self.watch.leave(key)

    def listen(
        self, request: Request, key: object, send: Callable[[str, Params], None], session: Session
    ) -> None:
        """Open a stateless subscription; `send` carries its notifications until `leave(key)`.

        Raises:
            RpcError: The request is not well formed.
        """
        wanted: Any = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise RpcError(INVALID_PARAMS, "notifications must be an object")
        uris: Any = cast("Params", wanted).get("resourceSubscriptions")
        known = [
            uri for uri in cast("list[Any]", uris if isinstance(uris, list) else []) if isinstance(uri, str)
        ]
        honoured: Params = {"resourceSubscriptions": known} if known and self.registry.resources else {}
        tag = {SUBSCRIPTION_KEY: request.id}
        if honoured:
            self._follow(key, session)
        send("notifications/subscriptions/acknowledged", {"_meta": tag, "notifications": honoured})
        if honoured:
            self.hub.listen(
                key, frozenset(known), lambda method, params: send(method, {"_meta": tag, **params})
            )

    def closed(self, identity: Id) -> Params:
        """The result that ends a subscription from our side."""
        result = self._shape("subscriptions/listen", {})
        cast("Params", result["_meta"])[SUBSCRIPTION_KEY] = identity
        return result

    def _shape(self, method: str, result: Params) -> Params:
        shaped: Params = {"resultType": "complete", **result}
        if shaped["resultType"] == "complete":
            shaped.update(CACHE.get(method, {}))
        meta: Any = shaped.get("_meta", {})
        shaped["_meta"] = {**cast("Params", meta), SERVER_KEY: self.info}
        return shaped

    def _initialize(self, envelope: Envelope, session: Session, params: Params) -> Params:
        if not isinstance(params.get("protocolVersion"), str):
            raise RpcError(INVALID_PARAMS, "initialize needs protocolVersion, a string")
        client: Any = params.get("clientInfo")
        capabilities: Any = params.get("capabilities")
        session.envelope = Envelope(
            envelope.version,
            cast("Params", client) if isinstance(client, dict) else {},
            cast("Params", capabilities) if isinstance(capabilities, dict) else {},
        )
        result: Params = {
            "protocolVersion": envelope.version,
            "capabilities": self.capabilities(),
            "serverInfo": self.info,
        }
        if self.instructions:
            result["instructions"] = self.instructions
        return result

    def _discover(self, _call: Call, _session: Session) -> Params:
        result: Params = {"supportedVersions": list(STATELESS_VERSIONS), "capabilities": self.capabilities()}
        if self.instructions:
            result["instructions"] = self.instructions
        return result

    def _list(self, key: str, items: list[Params]) -> Callable[[Call, Session], Params]:
        def handler(call: Call, _session: Session) -> Params:
            if call.params.get("cursor") is not None:
                raise RpcError(INVALID_PARAMS, "unknown cursor; this list has one page")
            return {key: items}

        return handler

    def _call_tool(self, call: Call, _session: Session) -> Params:
        name: Any = call.params.get("name")
        found = self.registry.tools.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(self.registry.tools)
            raise RpcError(INVALID_PARAMS, f"Unknown tool: {name!r}; there are {known}")
        call.reads = found.reads
        try:
            return _on_the_file_there_is(call, lambda: found.call(call, call.params.get("arguments"))).wire()
        except ToolError as error:
            return Reply(text=str(error), failed=True).wire()
        except SkepError as error:
            return Reply(text=for_a_model(error), failed=True).wire()

    def _read(self, call: Call, _session: Session) -> Params:
        uri: Any = call.params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, "resources/read needs uri, a string")
        for resource in self.registry.resources:
            parts = resource.match(uri)
            if parts is not None:
                try:
                    read = partial(resource.read, call, uri, **parts)
                    contents = _on_the_file_there_is(call, read)
                except NotFoundError as error:
                    reason = f"Resource not found: {for_a_model(error)}"
                    raise RpcError(INVALID_PARAMS, reason, {"uri": uri}) from error
                except ToolError as error:
                    raise RpcError(INVALID_PARAMS, f"Resource not found: {error}", {"uri": uri}) from error
                except InvalidInputError as error:
                    raise RpcError(INVALID_PARAMS, for_a_model(error), {"uri": uri}) from error
                except SkepError as error:
                    raise RpcError(INTERNAL_ERROR, for_a_model(error)) from error
                return {"contents": [{"uri": uri, "mimeType": resource.mime, **contents}]}
        raise RpcError(INVALID_PARAMS, "Resource not found", {"uri": uri})

    def _prompt(self, call: Call, _session: Session) -> Params:
        name: Any = call.params.get("name")
        found = self.registry.prompts.get(name) if isinstance(name, str) else None
        if found is None:
            raise RpcError(
                INVALID_PARAMS, f"Unknown prompt: {name!r}; there are {', '.join(self.registry.prompts)}"
            )
        raw: Any = call.params.get("arguments")
        given = {
            key: str(value) for key, value in cast("Params", raw if isinstance(raw, dict) else {}).items()
        }
        missing = [key for key, _, required in found.arguments if required and not given.get(key)]
        if missing:
            raise RpcError(INVALID_PARAMS, f"prompt {name} needs {', '.join(missing)}")
        try:
            messages = _on_the_file_there_is(call, lambda: found.render(call, given))
            return {"description": found.description, "messages": messages}
        except (ToolError, SkepError) as error:
            raise RpcError(INTERNAL_ERROR, str(error)) from error

    def _complete(self, call: Call, _session: Session) -> Params:
        reference: Any = call.params.get("ref")
        argument: Any = call.params.get("argument")
        if (
            not isinstance(reference, dict)
            or not isinstance(argument, dict)
            or self.registry.complete is None
        ):
            raise RpcError(INVALID_PARAMS, "completion/complete needs ref and argument, both objects")
        values = self.registry.complete(cast("Params", reference), cast("Params", argument))
        return {"completion": {"values": values[:100], "total": len(values), "hasMore": len(values) > 100}}

    def _set_level(self, call: Call, session: Session) -> Params:
        level: Any = call.params.get("level")
        if level not in LOG_LEVELS:
            raise RpcError(INVALID_PARAMS, f"level must be one of {', '.join(LOG_LEVELS)}")
        session.log_level = level
        return {}

    def _subscribe(self, call: Call, session: Session, *, leave: bool) -> Params:
        uri: Any = call.params.get("uri")
        if not isinstance(uri, str):
            raise RpcError(INVALID_PARAMS, "uri must be a string")
        (session.subscriptions.discard if leave else session.subscriptions.add)(uri)
        if session.subscriptions:
            self._follow(session, session)
            self.hub.listen(session, frozenset(session.subscriptions), session.notify)
        else:
            self.leave(session)
        return {}


def _on_the_file_there_is(call: Call, work: Callable[[], Done]) -> Done:
    """Do something; a second time if it only reads and the file was replaced after its bank was looked up.

    By then the bank is opened anew. Another call may have closed the one that was open in the meantime. What writes is
    not done twice: a part of it may have been written before.
    """
    try:
        return work()
    except (MovedError, ClosedError):
        if not call.reads:
            raise
        return work()


def _unknown(method: str) -> RpcError:
    return RpcError(METHOD_NOT_FOUND, "Method not found", {"method": method})
