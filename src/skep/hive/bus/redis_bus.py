"""RedisBus (`bus: redis://…`): members in any process talk through Redis or Valkey, by publish and subscribe.

It keeps nothing: what is published while a process is away is lost, as on every bus, and repair brings it. One
thread reads; it alone touches the connection of the subscriptions. Opened by `bus_urls`.
"""

from __future__ import annotations

import importlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from skep.errors import HubAwayError, MissingExtraError, SyncError
from skep.hive.bus.bus import matches
from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.network import NetworkSwitchboard
from skep.hive.capabilities import Pass
from skep.hub.hub import AWAY_SECONDS
from skep.hub.hub_urls import shown

PAUSE = 0.02
"""Seconds that the reader waits for a message before it looks for new subscriptions."""
Heard = Callable[[str, bytes], None]
logger = logging.getLogger("skep.hive.bus")


class RedisPipe:
    """Bytes by subject through a Redis server."""

    def __init__(self, url: str) -> None:
        try:
            redis: Any = importlib.import_module("redis")
        except ImportError as error:
            raise MissingExtraError("a Redis bus", "redis") from error

        self._url = shown(url)
        self._errors: Any = redis.exceptions
        self._client: Any = redis.Redis.from_url(url, socket_connect_timeout=3, socket_keepalive=True)
        try:
            self._client.ping()
        except self._errors.AuthenticationError as error:
            raise SyncError(f"{self._url} refused the login ({error}); check user and password") from error
        except self._errors.RedisError as error:
            raise self._away(error) from error
        self._pubsub: Any = self._client.pubsub()
        self._handlers: dict[bytes, Heard] = {}
        self._wanted: queue.Queue[tuple[str, Heard | None, threading.Event]] = queue.Queue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._read, name="skep-redis", daemon=True)
        self._thread.start()

    def _away(self, error: Exception) -> HubAwayError:
        return HubAwayError(
            f"no Redis or Valkey answers at {self._url} ({error}); start one, or check the address"
        )

    def publish(self, subject: str, data: bytes) -> None:
        """Send; the server has it when this returns."""
        try:
            self._client.publish(subject, data)
        except self._errors.RedisError as error:
            raise self._away(error) from error

    def subscribe(self, subject: str, heard: Heard) -> Callable[[], None]:
        """Call `heard` for each message; what is returned ends it."""
        self._ask(subject, heard)
        return lambda: self._ask(subject, None)

    def _ask(self, subject: str, heard: Heard | None) -> None:
        done = threading.Event()
        self._wanted.put((subject, heard, done))
        if not self._closing.is_set() and not done.wait(AWAY_SECONDS):
            raise self._away(TimeoutError("a subscription was not taken"))

    def flush(self) -> None:
        """Nothing is kept back: a call returns when the server has it."""

    def _read(self) -> None:
        """Take subscriptions and messages in turn; after a break the client subscribes again by itself."""
        while not self._closing.is_set():
            try:
                self._take_subscriptions()
                if not self._pubsub.subscribed:
                    time.sleep(PAUSE)
                    continue
                message = self._pubsub.get_message(timeout=PAUSE)
            except self._errors.RedisError as error:
                logger.warning("%s is away (%s); it is tried again", self._url, error)
                self._closing.wait(0.5)
                continue
            if message is not None:
                self._hand_on(message)

    def _take_subscriptions(self) -> None:
        while True:
            try:
                subject, heard, done = self._wanted.get_nowait()
            except queue.Empty:
                return
            wild, name = "*" in subject or ">" in subject, _pattern(subject)
            if heard is None:
                self._handlers.pop(name, None)
                (self._pubsub.punsubscribe if wild else self._pubsub.unsubscribe)(name)
            else:
                self._handlers[name] = _exact(subject, heard) if wild else heard
                (self._pubsub.psubscribe if wild else self._pubsub.subscribe)(name)
                self._until_taken(name)
            done.set()

    def _until_taken(self, name: bytes) -> None:
        """Wait for the server's word that it has a subscription; messages that come before are handed on."""
        until = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < until:
            message = self._pubsub.get_message(timeout=PAUSE)
            if message is None:
                continue
            if message["type"] in ("subscribe", "psubscribe") and message["channel"] == name:
                return
            self._hand_on(message)

    def _hand_on(self, message: dict[str, Any]) -> None:
        if message["type"] not in ("message", "pmessage"):
            return
        heard = self._handlers.get(message["pattern"] or message["channel"])
        if heard is not None:
            try:
                heard(message["channel"].decode(), message["data"])
            except Exception:  # where a handler starts; the reader goes on
                logger.exception("a message on %s could not be dealt with", message["channel"])

    def close(self) -> None:
        """Release the connections."""
        self._closing.set()
        self._thread.join(2.0)
        self._pubsub.close()
        self._client.close()


def _pattern(subject: str) -> bytes:
    """A subject as Redis matches it; too wide, for `*` there goes across dots."""
    return subject.replace(">", "*").encode()


def _exact(subject: str, heard: Heard) -> Heard:
    return lambda given, data: heard(given, data) if matches(subject, given) else None


class RedisBus(MemberBus):
    """A bus through Redis or Valkey."""

    def __init__(self, url: str, member: str = "", *, capability: Pass | None = None) -> None:
        super().__init__(member, NetworkSwitchboard(RedisPipe(url), capability=capability))
