"""Addresses of buses: the transport of a scheme, opened. Called by `hive` and `controller`.

Each transport is imported when it is asked for: each needs a library of its own.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, cast

from skep.errors import ConfigError, did_you_mean
from skep.hive.bus.bus import Bus

if TYPE_CHECKING:
    from skep.hive.capabilities import Pass

LOCAL = "local"
BUSES = {
    "nats": "nats_bus:NatsBus",
    "tls": "nats_bus:NatsBus",
    "redis": "redis_bus:RedisBus",
    "rediss": "redis_bus:RedisBus",
    "servicebus": "service_bus:ServiceBus",
    "zenoh": "zenoh_bus:ZenohBus",
    "zenoh+quic": "zenoh_bus:ZenohBus",
}
"""Per scheme the module and the class; `tls` is NATS with encryption, `rediss` Redis."""


def bus_problem(address: str) -> str:
    """The reason why no bus can be opened at an address; empty if one can."""
    scheme, between, rest = address.partition("://")
    if address == LOCAL or (scheme in BUSES and rest.strip("/")):
        return ""
    if between and scheme not in BUSES:
        return f"{scheme}:// is no bus that skep knows; {did_you_mean(scheme, (LOCAL, *BUSES))}"
    return f"{address!r} is no bus; write {LOCAL}, or an address such as nats://HOST:4222"


def open_bus(address: str, member: str = "", capability: Pass | None = None) -> Bus:
    """The bus at an address, such as `nats://localhost:4222`.

    Args:
        address: `local`, or a scheme of `BUSES` and what that needs.
        member: The name to speak as.
        capability: What this process may do; each process of the hive then needs one.
    """
    if problem := bus_problem(address):
        raise ConfigError(problem)
    if address == LOCAL:
        from skep.hive.bus.in_process import LocalBus

        return LocalBus(member)
    module, _, name = BUSES[address.partition("://")[0]].partition(":")
    kind = getattr(importlib.import_module(f"skep.hive.bus.{module}"), name)
    return cast("Bus", kind(address, member, capability=capability))
