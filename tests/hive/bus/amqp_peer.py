"""An AMQP 1.0 peer with topics and subscriptions, as far as the SDK of Azure Service Bus asks for them.

`python -m tests.hive.bus.amqp_peer HOST:PORT`. It takes every token, keeps nothing on a disk, and makes a subscription
when somebody first reads it.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from typing import Any

from proton import Handler, Message
from proton.handlers import FlowController, Handshaker
from proton.reactor import Container

SMALL = 0xA0


class Subscription:
    """What waits for one reader."""

    def __init__(self) -> None:
        self.waiting: deque[Message] = deque()
        self.readers: list[Any] = []

    def give(self) -> None:
        """Hand out what the readers have asked for."""
        for reader in self.readers:
            while self.waiting and reader.credit > 0:
                reader.send(self.waiting.popleft())


class Peer(Handler):
    """Topics, subscriptions and the node that takes tokens."""

    def __init__(self, address: str) -> None:
        self.handlers = [Handshaker(), FlowController(1000)]
        self._address = address
        self._topics: dict[str, dict[str, Subscription]] = defaultdict(dict)
        self._answers: dict[Any, Any] = {}

    def on_reactor_init(self, event: Any) -> None:
        event.container.listen(self._address)
        print("ready", flush=True)

    def on_link_remote_open(self, event: Any) -> None:
        link = event.link
        if not link.is_sender:
            return
        if link.remote_source.address == "$cbs":
            self._answers[event.connection] = link
            return
        topic, _, name = link.remote_source.address.partition("/Subscriptions/")
        self._topics[_last(topic)].setdefault(name, Subscription()).readers.append(link)

    def on_link_remote_close(self, event: Any) -> None:
        self._forget(event.link)

    def on_transport_closed(self, event: Any) -> None:
        link = event.connection.link_head(0) if event.connection else None
        while link:
            self._forget(link)
            link = link.next(0)

    def _forget(self, link: Any) -> None:
        for subscriptions in self._topics.values():
            for subscription in subscriptions.values():
                subscription.readers = [reader for reader in subscription.readers if reader is not link]

    def on_link_flow(self, _event: Any) -> None:
        for subscriptions in self._topics.values():
            for subscription in subscriptions.values():
                subscription.give()

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if not (link.is_receiver and delivery.readable and not delivery.partial):
            return
        raw = link.recv(delivery.pending)
        link.advance()
        delivery.update(delivery.ACCEPTED)
        delivery.settle()
        if link.remote_target.address == "$cbs":
            asked = _decoded(raw)
            told = {"status-code": 202, "status-description": "Accepted"}
            self._answers[event.connection].send(
                Message(address=asked.reply_to, correlation_id=asked.id, properties=told)
            )
            return
        for subscription in self._topics[_last(link.remote_target.address)].values():
            subscription.waiting.extend(_messages(raw))
            subscription.give()


def _last(address: str) -> str:
    return address.rsplit("/", 1)[-1]


def _decoded(raw: bytes) -> Message:
    message = Message()
    message.decode(raw)
    return message


def _messages(raw: bytes) -> list[Message]:
    """One message, or those of a batch: each a section of data that holds a whole message."""
    found: list[Message] = []
    at = raw.find(b"\x00Su")
    while at >= 0 and raw[at : at + 3] == b"\x00Su":
        kind = raw[at + 3]
        if kind == SMALL:
            length, start = raw[at + 4], at + 5
        else:
            length, start = int.from_bytes(raw[at + 4 : at + 8], "big"), at + 8
        part = raw[start : start + length]
        if not part.startswith(b"\x00S"):  # plain data: the message is no batch
            return [_decoded(raw)]
        found.append(_decoded(part))
        at = start + length
    return found


if __name__ == "__main__":
    Container(Peer(sys.argv[1])).run()
