"""EncryptedHub: any hub that stores, seeing ciphertext alone (`#key=FILE`).

`open_hub` puts it around a hub. An event is sealed as a whole (XSalsa20-Poly1305, by libsodium) and travels in an event
with the same actor, counter and stamp. The hub still sees who writes, when, how much, and that something is forgotten.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from skep.errors import ConfigError, CorruptBankError, MissingExtraError, SyncError
from skep.hub.hub import BATCH, Batch, Hub, decode, encode
from skep.model import Event
from skep.replication.version_vectors import Versions

SEALED = "sealed"
"""The kind of an event that hides another one, and the key of its body. A `forget` keeps its kind: hubs act on it."""
PART = 1 << 22
"""Bytes of a snapshot that are sealed together."""


class EncryptedHub:
    """A hub that holds ciphertext. See `Hub` for the promises."""

    def __init__(self, hub: Hub, key: bytes) -> None:
        """Nothing is asked of the hub yet.

        Args:
            hub: Where everything is stored.
            key: 32 bytes, the same on every machine.
        """
        self._hub = hub
        self._box, self._error = _box(key)
        self.url = hub.url
        self.wait, self.held, self.claim, self.close = hub.wait, hub.held, hub.claim, hub.close
        self.status = hub.status

    def append(self, events: Sequence[Event]) -> None:
        """Seal events and store them."""
        self._hub.append([self._sealed(event) for event in events])

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, opened."""
        batch = self._hub.read(after, limit)
        return msgspec.structs.replace(batch, events=tuple(map(self._opened, batch.events)))

    def erase(self, events: Sequence[Event]) -> None:
        """Put sealed events without text in the place of the stored ones."""
        self._hub.erase([self._sealed(event) for event in events])

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Seal a file part by part, each with its number, and store it."""
        name = os.urandom(16)
        with tempfile.TemporaryDirectory(prefix="skep-") as folder:
            target = Path(folder) / "sealed"
            with source.open("rb") as plain, target.open("wb") as file:
                number, part = 0, plain.read(PART)
                while True:
                    following = plain.read(PART)
                    head = name + number.to_bytes(8, "big") + bytes([not following])
                    sealed = bytes(self._box.encrypt(head + part))
                    file.write(len(sealed).to_bytes(4, "big") + sealed)
                    if not following:
                        break
                    number, part = number + 1, following
            self._hub.put_snapshot(target, seen, position)

    def get_snapshot(self, target: Path) -> str | None:
        """Write the snapshot to a file, opened; all its parts, in their order, or an error."""
        with tempfile.TemporaryDirectory(prefix="skep-") as folder:
            source = Path(folder) / "sealed"
            position = self._hub.get_snapshot(source)
            if position is None:
                return None
            name, number, last = b"", 0, False
            with source.open("rb") as file, target.open("wb") as plain:
                while (size := file.read(4)) and not last:
                    part = self._decrypted(file.read(int.from_bytes(size, "big")))
                    name = name or part[:16]
                    if part[:16] != name or part[16:24] != number.to_bytes(8, "big"):
                        raise self._changed()
                    number, last = number + 1, bool(part[24])
                    plain.write(part[25:])
            if not last:
                raise self._changed()
        return position

    def _sealed(self, event: Event) -> Event:
        content = bytes(self._box.encrypt(encode(event))).hex()
        kind = "forget" if event.kind == "forget" else SEALED
        body: dict[str, Any] = {SEALED: content}
        return Event(actor=event.actor, counter=event.counter, hlc=event.hlc, kind=kind, body=body)

    def _opened(self, event: Event) -> Event:
        content = event.body.get(SEALED)
        if not isinstance(content, str):
            raise SyncError(
                f"{self.url} holds events that are not encrypted; leave #key= out, or begin a new hub"
            )
        found = decode(self._decrypted(bytes.fromhex(content)))
        if (found.actor, found.counter, found.hlc) != (event.actor, event.counter, event.hlc):
            raise self._changed()
        return found

    def _decrypted(self, content: bytes) -> bytes:
        try:
            return bytes(self._box.decrypt(content))
        except (self._error, ValueError) as error:
            raise SyncError(
                f"what {self.url} holds does not open with this key; use the key that the other machines have"
            ) from error

    def _changed(self) -> CorruptBankError:
        return CorruptBankError(f"somebody has changed what lies at {self.url}; nothing of it was taken")


def read_key(path: str) -> bytes:
    """The key in a file: 64 hexadecimal digits, as `openssl rand -hex 32` prints them."""
    try:
        key = bytes.fromhex(Path(path).expanduser().read_text(encoding="utf-8").strip())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the key {path} cannot be read ({error}); make one: openssl rand -hex 32 > FILE"
        ) from error
    if len(key) != 32:
        raise ConfigError(
            f"the key {path} has {len(key)} bytes, not 32; make one: openssl rand -hex 32 > FILE"
        )
    return key


def _box(key: bytes) -> tuple[Any, type[Exception]]:
    try:
        from nacl.exceptions import CryptoError
        from nacl.secret import SecretBox
    except ImportError as error:
        raise MissingExtraError("Encrypting what a hub holds", "sign") from error
    return SecretBox(key), CryptoError
