"""Addresses of buses: the transport of a scheme, opened. Called by `hive` and `controller`.

Each transport is imported when it is asked for: each needs a library of its own.
"""

from __future__ import annotations

import importlib
from typing import cast

from skep.errors import ConfigError, did_you_mean
from skep.hive.bus.bus import Bus

LOCAL = "local"
BUSES = {
    "nats": "nats_bus:NatsBus",
    "tls": "nats_bus:NatsBus",
}
"""Per scheme the module and the class; `tls` is NATS with encryption."""


def bus_problem(address: str) -> str:
    """The reason why no bus can be opened at an address; empty if one can."""
    scheme, between, rest = address.partition("://")
    if address == LOCAL or (scheme in BUSES and rest.strip("/")):
        return ""
    if between and scheme not in BUSES:
        return f"{scheme}:// is no bus that skep knows; {did_you_mean(scheme, (LOCAL, *BUSES))}"
    return f"{address!r} is no bus; write {LOCAL}, or an address such as nats://HOST:4222"


def open_bus(address: str, member: str = "") -> Bus:
    """The bus between processes at an address, such as `nats://localhost:4222`."""
    if problem := bus_problem(address):
        raise ConfigError(problem)
    if address == LOCAL:
        from skep.hive.bus.in_process import LocalBus

        return LocalBus(member)
    module, _, name = BUSES[address.partition("://")[0]].partition(":")
    kind = getattr(importlib.import_module(f"skep.hive.bus.{module}"), name)
    return cast("Bus", kind(address, member))
