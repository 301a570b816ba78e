"""ServiceBus (`bus: servicebus://…`): members in any process talk through one topic of Azure Service Bus.

Each process reads a subscription of its own, which holds every message of the topic; what is for others it drops. One
thread sends what is waiting in batches, one reads. A message lives for `LIFE`. It keeps no streams. Opened by
`bus_urls`.

::

    servicebus://KEYNAME:KEY@team.servicebus.windows.net/hive?subscription=ana
"""

from __future__ import annotations

import importlib
import logging
import queue
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from skep.errors import ConfigError, HubAwayError, MissingExtraError, SyncError
from skep.hive.bus.bus import matches
from skep.hive.bus.member_bus import MemberBus
from skep.hive.bus.network import NetworkSwitchboard
from skep.hive.capabilities import Pass
from skep.hub.hub import AWAY_SECONDS
from skep.hub.hub_urls import shown

LIFE = timedelta(seconds=60)
"""Longer than any question waits; what is older when a process comes back is of no use to anybody."""
BATCH = 100
LOOK = 1.0
"""Seconds that the reader waits for a message before it looks whether it is to end."""
PAUSE = 2.0
"""Seconds before a broken line is tried again."""
Heard = Callable[[str, bytes], None]
logger = logging.getLogger("skep.hive.bus")


class ServiceBusPipe:
    """Bytes by subject through a topic."""

    def __init__(self, url: str) -> None:
        try:
            servicebus: Any = importlib.import_module("azure.servicebus")
        except ImportError as error:
            raise MissingExtraError("an Azure Service Bus", "servicebus") from error

        self._library = servicebus
        self._errors = servicebus.exceptions
        self._url = shown(url)
        parts = urlsplit(url)
        given = parse_qs(parts.query)
        topic, name = parts.path.strip("/"), given.get("subscription", [""])[0]
        if not (parts.hostname and parts.username and topic and name):
            raise ConfigError(
                f"{self._url} is no address of a topic; write"
                " servicebus://KEYNAME:KEY@NAMESPACE.servicebus.windows.net/TOPIC?subscription=NAME"
            )
        said = {
            "Endpoint": f"sb://{parts.netloc.rpartition('@')[2]}",
            "SharedAccessKeyName": unquote(parts.username),
            "SharedAccessKey": unquote(parts.password or ""),
        } | ({"UseDevelopmentEmulator": "true"} if "emulator" in parts.query.split("&") else {})
        self._client: Any = servicebus.ServiceBusClient.from_connection_string(
            ";".join(f"{key}={value}" for key, value in said.items()), retry_total=2, retry_backoff_factor=0.2
        )
        once = servicebus.ServiceBusReceiveMode.RECEIVE_AND_DELETE
        self._reader: Any = self._client.get_subscription_receiver(
            topic, name, receive_mode=once, prefetch_count=BATCH
        )
        self._sender: Any = self._client.get_topic_sender(topic)
        self._lock = threading.Lock()
        self._handlers: list[tuple[str, Heard]] = []
        self._waiting: queue.SimpleQueue[tuple[str, bytes] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        try:
            self._sender.__enter__()
            self._reader.__enter__()
        except self._errors.ServiceBusAuthenticationError as error:
            self._client.close()
            raise SyncError(f"{self._url} refused the key ({error}); check its name and rights") from error
        except self._errors.ServiceBusError as error:
            self._client.close()
            raise HubAwayError(
                f"no Service Bus answers at {self._url} ({error}); check the address, the topic and the subscription"
            ) from error
        self._threads = [
            threading.Thread(target=work, name="skep-service-bus", daemon=True)
            for work in (self._read, self._send)
        ]
        for thread in self._threads:
            thread.start()

    def publish(self, subject: str, data: bytes) -> None:
        """Send; wait for nothing."""
        self._waiting.put((subject, data))

    def subscribe(self, subject: str, heard: Heard) -> Callable[[], None]:
        """Call `heard` for each message; what is returned ends it."""
        pair = (subject, heard)
        with self._lock:
            self._handlers = [*self._handlers, pair]

        def end() -> None:
            with self._lock:
                self._handlers = [one for one in self._handlers if one is not pair]

        return end

    def flush(self) -> None:
        """Wait until a message of one's own has come back: then everything sent before it is in the topic."""
        back, subject = threading.Event(), f"skep.flush.{uuid4().hex}"
        end = self.subscribe(subject, lambda _subject, _data: back.set())
        self.publish(subject, b"")
        back.wait(AWAY_SECONDS)
        end()

    def _send(self) -> None:
        while (first := self._waiting.get()) is not None:
            group: list[tuple[str, bytes] | None] = [first]
            while len(group) < BATCH and not self._waiting.empty():
                group.append(self._waiting.get())
            messages = [
                self._library.ServiceBusMessage(one[1], subject=one[0], time_to_live=LIFE)
                for one in group
                if one is not None
            ]
            self._try(lambda messages=messages: self._sender.send_messages(messages))
            if group[-1] is None:
                return

    def _read(self) -> None:
        while not self._closing.is_set():
            self._try(lambda: self._hand_on(self._reader.receive_messages(BATCH, max_wait_time=LOOK)))

    def _try(self, call: Callable[[], None]) -> None:
        """One call; a line that breaks is told of and tried again later, what was on it is lost as on every bus."""
        try:
            call()
        except (
            self._errors.ServiceBusError,
            ValueError,
        ) as error:  # the second: closed meanwhile, or too large
            if not self._closing.is_set():
                logger.warning("%s is away (%s); it is tried again", self._url, error)
                self._closing.wait(PAUSE)

    def _hand_on(self, messages: list[Any]) -> None:
        for message in messages:
            given = str(message.subject or "")
            for subject, heard in self._handlers:
                if matches(subject, given):
                    try:
                        heard(given, b"".join(message.body))
                    except Exception:  # where a handler starts; the reader goes on
                        logger.exception("a message on %s could not be dealt with", given)

    def close(self) -> None:
        """Send what waits, and release the connection."""
        self._waiting.put(None)
        self._threads[1].join(2.0)
        self._closing.set()
        self._threads[0].join(LOOK + 1.0)
        self._client.close()


class ServiceBus(MemberBus):
    """A bus through a topic of Azure Service Bus."""

    def __init__(
        self, url: str, member: str = "", *, capability: Pass | None = None, patience: float = 0.02
    ) -> None:
        super().__init__(
            member, NetworkSwitchboard(ServiceBusPipe(url), capability=capability, patience=patience)
        )
