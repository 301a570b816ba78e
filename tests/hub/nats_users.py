"""Users of a NATS server as its operator hands them out: signed tokens that name what each may publish and hear."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import nacl.signing
import nkeys

KINDS = {
    "operator": nkeys.PREFIX_BYTE_OPERATOR,
    "account": nkeys.PREFIX_BYTE_ACCOUNT,
    "user": nkeys.PREFIX_BYTE_USER,
}
WITHOUT_LIMIT = dict.fromkeys(
    (
        "subs",
        "data",
        "payload",
        "imports",
        "exports",
        "conn",
        "leaf",
        "mem_storage",
        "disk_storage",
        "streams",
        "consumer",
    ),
    -1,
)


class Key:
    """A key pair of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._signing = nacl.signing.SigningKey.generate()
        self.seed = nkeys.encode_seed(bytes(self._signing), KINDS[kind]).decode()
        self.public = nkeys.from_seed(self.seed.encode()).public_key.decode()

    def signed(self, about: Key, claims: dict[str, Any]) -> str:
        """A token about a key."""
        body = {
            "jti": about.public,
            "iat": int(time.time()),
            "iss": self.public,
            "name": about.kind,
            "sub": about.public,
            "nats": {"type": about.kind, "version": 2, **claims},
        }
        head = _plain({"typ": "JWT", "alg": "ed25519-nkey"})
        text = f"{head}.{_plain(body)}"
        return f"{text}.{_base64(self._signing.sign(text.encode()).signature)}"


class Operator:
    """An operator with one account, in which every user may do what is said."""

    def __init__(self) -> None:
        key, system = Key("operator"), Key("account")
        self._account = Key("account")
        streams = {
            "mem_storage": 0,
            "disk_storage": 0,
            "streams": 0,
            "consumer": 0,
        }  # the system account has none
        limits = {self._account: WITHOUT_LIMIT, system: {**WITHOUT_LIMIT, **streams}}
        tokens = [
            f"{one.public}: {key.signed(one, {'limits': {**its, 'wildcards': True}})}"
            for one, its in limits.items()
        ]
        self.config = (
            f"operator: {key.signed(key, {})}\nsystem_account: {system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{ {', '.join(tokens)} }}\n"
        )

    def user(self, folder: Path, *, publish: list[str], hear: list[str]) -> Path:
        """A file of credentials for a new user."""
        key = Key("user")
        limits = {"subs": -1, "data": -1, "payload": -1}
        token = self._account.signed(key, {**limits, "pub": {"allow": publish}, "sub": {"allow": hear}})
        file = folder / f"{key.public[:8]}.creds"
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{key.seed}\n------END USER NKEY SEED------\n"
        )
        return file


def _plain(value: Any) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
