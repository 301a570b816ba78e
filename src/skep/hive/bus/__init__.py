"""How members of a hive talk: the protocol, and the in-process implementation."""

from __future__ import annotations

from skep.hive.bus.base import (
    BackPressureError,
    BadSubjectError,
    Bus,
    Consumer,
    ConsumerConfig,
    Delivery,
    Inbox,
    StreamConfig,
    Subscription,
)
from skep.hive.bus.local import LocalBus

__all__ = [
    "BackPressureError",
    "BadSubjectError",
    "Bus",
    "Consumer",
    "ConsumerConfig",
    "Delivery",
    "Inbox",
    "LocalBus",
    "StreamConfig",
    "Subscription",
]
