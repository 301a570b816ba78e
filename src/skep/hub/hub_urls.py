"""Addresses of hubs: the implementation of a scheme, the options behind `#`, an address without its password.

`shared_bank` and the command line call `open_hub`. An implementation is imported when it is asked for: each needs
libraries of its own.

::

    postgresql://ana@db.example/team#bank=docs&mode=local
    \\_____________ the hub ________/ \\___ for skep ____/
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

import msgspec

from skep.config import BANK_NAME, HIVE, user_data
from skep.errors import ConfigError, did_you_mean
from skep.validation import BAD

if TYPE_CHECKING:
    from skep.hub.hub import Hub

Mode = Literal["hub", "local"]

HUBS: dict[str, tuple[str, Mode]] = {
    "file": ("folder:FolderHub", "local"),
    "http": ("https:HttpHub", "hub"),
    "https": ("https:HttpHub", "hub"),
    "ssh": ("ssh:SshHub", "local"),
    "git": ("git_refs:GitRefsHub", "local"),
    "s3": ("object_store:ObjectHub", "local"),
    "gs": ("object_store:ObjectHub", "local"),
    "az": ("object_store:ObjectHub", "local"),
    "nats": ("nats:NatsHub", "hub"),
    "tls": ("nats:NatsHub", "hub"),
    "postgres": ("postgres:PostgresHub", "hub"),
    "postgresql": ("postgres:PostgresHub", "hub"),
}
"""Per scheme the class and the write mode that is usual for it. `git+ssh` and the like are looked up as `git`."""

SECRET = re.compile("pass|secret|token|key|signature|credential", re.IGNORECASE)
"""Parameters of an address that are never shown."""


class HubOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an address says behind `#`."""

    mode: Mode
    """`hub`: a write is acknowledged when the hub has it. `local`: when this machine has it; it is sent on later."""
    stale: float | None = None
    """Seconds: a read first asks the hub if the replica has not heard from it for longer. None: never wait for it."""
    bank: str = "main"
    """Which of several banks, where a hub keeps several."""
    name: str = ""
    """The name of this replica, for people; by default the name of the machine."""
    key: str = ""
    """A file with a key: text and snapshots are encrypted before they leave this machine."""


def shown(url: str) -> str:
    """An address as it may be shown and logged: without password, keys and the options of skep.

    >>> shown("postgresql://ana:secret@db:5432/team?sslmode=require&password=x#mode=local")
    'postgresql://ana@db:5432/team?sslmode=require'
    """
    parts = _split(url)
    user, at, host = parts.netloc.rpartition("@")
    query = "&".join(
        part for part in parts.query.split("&") if part and not SECRET.search(part.partition("=")[0])
    )
    return urlunsplit((parts.scheme, f"{user.partition(':')[0]}{at}{host}", parts.path, query, ""))


def path_of(url: str) -> str:
    """The path in an address.

    >>> path_of("file:///var/team%20memory#stale=5")
    '/var/team memory'
    """
    parts = _split(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.strip("/"):
        raise ConfigError(f"{shown(url)} names no folder; write three slashes: file:///path/of/the/folder")
    return path


def options_of(url: str) -> HubOptions:
    """The options of an address.

    >>> options_of("file:///team#mode=hub&stale=5").stale
    5.0
    """
    scheme, _ = _scheme(url)
    given = dict(parse_qsl(_split(url).fragment, keep_blank_values=True))
    known = HubOptions.__struct_fields__
    for name in given:
        if name not in known:
            raise ConfigError(f"{name!r} is no option of a hub's address; {did_you_mean(name, known)}")
    try:
        return msgspec.convert({"mode": HUBS[scheme][1], **given}, HubOptions, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"the options of {shown(url)} cannot be read ({error}); such as #mode=local&stale=5"
        ) from error


def open_hub(url: str) -> Hub:
    """The hub at an address, opened; encrypted if the address names a key."""
    scheme, home = _scheme(url)
    options = options_of(url)  # refused before anything is opened
    if options.key and scheme in ("http", "https", "ssh"):
        raise ConfigError(
            f"{shown(url)} is a bank that reads its own log; leave #key= out, or choose another hub"
        )
    module, _, name = home.partition(":")
    hub: Hub = getattr(importlib.import_module(f"skep.hub.{module}"), name).open(url)
    if not options.key:
        return hub
    from skep.hub.encryption import EncryptedHub, read_key

    return EncryptedHub(hub, read_key(options.key))


def replica_file(url: str, environ: Mapping[str, str]) -> str:
    """Where this machine keeps its replica of the bank at an address."""
    place = f"{shown(url)}#{options_of(url).bank}"
    words = re.sub(r"[^A-Za-z0-9.]+", "-", shown(url)).strip("-")[-60:]
    mark = blake2b(place.encode(), digest_size=6).hexdigest()
    return os.path.join(user_data(environ), "replicas", f"{words}-{mark}", BANK_NAME)


def _split(url: str) -> SplitResult:
    bad = BAD.search(url)
    if bad:
        raise ConfigError(f"an address of a hub holds the character U+{ord(bad.group()):04X}; remove it")
    try:
        return urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url.partition('://')[0]}://… is no address ({error})") from error


def _scheme(url: str) -> tuple[str, str]:
    """The scheme that stands in `HUBS`, and where its class is."""
    given = url.partition("://")[0]
    scheme = given.partition("+")[0].lower()
    if given + "://" == HIVE:
        raise ConfigError(
            f"{shown(url)} is an agent of a hive, and no hub; in Python open it with"
            " `skep.hive.controller.open_agent(address, os.environ)`"
        )
    if scheme not in HUBS:
        raise ConfigError(
            f"{given}:// is no kind of hub that skep knows; {did_you_mean(scheme, HUBS)}."
            " docs/how-to/several-machines.md tells which to choose"
        )
    return scheme, HUBS[scheme][0]
