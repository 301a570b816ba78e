"""Tokens of a server: a file of who may do what, with hashes in place of the tokens. Made by `skep token`.

A token is 256 random bits, so that one round of SHA-256 hides it. It is shown once. The file is read again whenever it
changes: what is revoked ends at once.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from skep.client.verb_table import RIGHTS, verbs
from skep.clock import system_now
from skep.errors import ConfigError, InvalidInputError, NotFoundError, did_you_mean
from skep.model import Scope

PREFIX: Final = "skep_"
FILE_NAME: Final = "tokens.json"
EVERY_BANK: Final = "*"


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one token opens."""

    name: str
    hash: str
    rights: tuple[str, ...]
    """Rights (`read`, `write`, …) or single verbs."""
    banks: tuple[str, ...] = (EVERY_BANK,)
    scope: Scope | None = None
    """Only memories of this scope, and to read what is shared; None for all."""
    person: bool = False
    """A person holds it: it may decide what waits for one."""
    rate: float | None = None
    """Requests per second; None for the server's own limit."""
    created_at: float = 0.0
    expires_at: float | None = None

    def opens(self, bank: str) -> bool:
        """True if it may be used with a bank."""
        return EVERY_BANK in self.banks or bank in self.banks

    def allows(self, verb: str, right: str) -> bool:
        """True if it has a right, or a verb of its own; `review` counts for a person alone."""
        return (right in self.rights or verb in self.rights) and (right != "review" or self.person)


def digest(secret: str) -> str:
    """The hash under which a token is kept."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def whole_token(secret: str, name: str = "owner") -> Token:
    """A token of a person with every right, as `skep serve` makes up when it starts."""
    return Token(name=name, hash=digest(secret), rights=tuple(RIGHTS), person=True)


def made_up() -> str:
    """A new token."""
    return PREFIX + secrets.token_urlsafe(32)


class TokenFile:
    """The tokens of a server, in a file that its owner alone may read."""

    def __init__(self, path: Path, now: Callable[[], float] = system_now) -> None:
        self.path = path
        self._now = now
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._by_hash: dict[str, Token] = {}

    def add(
        self,
        name: str,
        *,
        rights: Sequence[str],
        banks: Sequence[str] = (EVERY_BANK,),
        scope: Scope | None = None,
        person: bool = False,
        rate: float | None = None,
        seconds: float | None = None,
    ) -> tuple[str, Token]:
        """Make a token; the text, shown this once, and what it opens.

        Raises:
            InvalidInputError: The name is taken or blank, a right is unknown, or it would end before it begins.
        """
        if not name.strip() or any(character.isspace() for character in name):
            raise InvalidInputError(
                "a token needs a name without spaces, such as ci or ana-laptop", field="name"
            )
        refuse_rights(rights)
        if "review" in rights and not person:
            raise InvalidInputError(
                "to review is for people: give --person with the right review, or leave the right out",
                field="rights",
            )
        if not banks or not all(banks):
            raise InvalidInputError("name the banks, or * for every bank", field="banks")
        if seconds is not None and seconds <= 0:
            raise InvalidInputError(
                "a token must be valid for some time; give --expires like 30d", field="expires"
            )
        if rate is not None and rate <= 0:
            raise InvalidInputError("rate must be above 0 requests a second", field="rate")
        secret, now = made_up(), self._now()
        token = Token(
            name=name,
            hash=digest(secret),
            rights=tuple(dict.fromkeys(rights)),
            banks=tuple(dict.fromkeys(banks)),
            scope=scope,
            person=person,
            rate=rate,
            created_at=now,
            expires_at=None if seconds is None else now + seconds,
        )
        with self._lock:
            tokens = self._read()
            if any(known.name == name for known in tokens):
                raise InvalidInputError(
                    f"there is a token {name!r} already; choose another name, or `skep token revoke {name}` first",
                    field="name",
                )
            self._write([*tokens, token])
        return secret, token

    def list(self) -> list[Token]:
        """Every token, oldest first."""
        with self._lock:
            return self._read()

    def revoke(self, name: str) -> Token:
        """Take a token away; servers refuse it from now on.

        Raises:
            NotFoundError: There is none of that name.
        """
        with self._lock:
            tokens = self._read()
            found = next((token for token in tokens if token.name == name), None)
            if found is None:
                raise NotFoundError(
                    f"there is no token {name!r}; {did_you_mean(name, [t.name for t in tokens])}"
                )
            self._write([token for token in tokens if token is not found])
        return found

    def find(self, secret: str) -> Token | None:
        """What a token opens; None for one that is unknown or has expired."""
        return self._valid(digest(secret))

    def holds(self, token: Token) -> bool:
        """True while a token that was found before is neither revoked nor expired."""
        return self._valid(token.hash) is not None

    def _valid(self, hashed: str) -> Token | None:
        self._refresh()
        found = self._by_hash.get(hashed)
        expired = found is not None and found.expires_at is not None and found.expires_at <= self._now()
        return None if expired else found

    def _refresh(self) -> None:
        try:
            there = os.stat(self.path)
            seen = (there.st_mtime_ns, there.st_size, there.st_ino)
        except FileNotFoundError:
            seen = (0, 0, 0)
        if seen != self._seen:
            with self._lock:
                self._by_hash = {token.hash: token for token in self._read()}
                self._seen = seen

    def _read(self) -> list[Token]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=list[Token])
        except FileNotFoundError:
            return []
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self.path} is no file of tokens ({error}); mend it, or move it away and add the tokens again"
            ) from None

    def _write(self, tokens: Sequence[Token]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(tokens)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.path)


def refuse_rights(rights: Sequence[str]) -> None:
    """Raise unless each is a right or a verb."""
    known = (*RIGHTS, *verbs())
    if not rights:
        raise InvalidInputError(
            f"name the rights of the token: {', '.join(RIGHTS)}, or single verbs", field="rights"
        )
    for right in rights:
        if right not in known:
            raise InvalidInputError(
                f"there is no right {right!r}; {did_you_mean(right, known)}", field="rights"
            )
