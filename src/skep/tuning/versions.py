"""Deployed versions, as they stand in the bank.

Every deployment writes two registers in one transaction: `recall/config`, which `Bank.recall` reads, and a
record under `tuning/version/` that says who deployed what and why. Readers see the old config or the new
one.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

from skep.bank import Bank
from skep.tuning.evaluate import Circumstances
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.metrics import Overall
from skep.tuning.search_config import SearchConfig, config_hash, recall_settings

RECALL_CONFIG = "recall/config"
KEY = "tuning/version/"


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment. Number 0 is the state before the first."""

    number: int
    action: Literal["deploy", "rollback"]
    config: SearchConfig | None
    """What was deployed; None is the bank's own default."""
    hash: str
    author: str
    reason: str
    at: float
    of: int | None = None
    """For a rollback: the version it returned to."""
    forced: bool = False
    overridden: tuple[str, ...] = ()
    """Findings that a forced deployment went over."""
    on: Circumstances | None = None
    results: Overall | None = None
    """On the holdout."""
    baseline: Overall | None = None
    """What was deployed before, on the same holdout."""
    mark: float | None = None
    """The best nUDCG since the last forced deployment, in the same circumstances."""


def history(bank: Bank) -> list[Version]:
    """Every deployment, oldest first."""
    kept: dict[str, Any] = bank.settings(KEY)
    found = (msgspec.convert(value, Version) for value in kept.values())
    return sorted(found, key=lambda version: version.number)


def active(bank: Bank) -> Version | None:
    """The version that recalls use now: the newest one whose config is in place; None when there is none."""
    current: object = bank.setting(RECALL_CONFIG)
    for version in reversed(history(bank)):
        if _settings_of(version.config) == current:
            return version
    return None


def version_of(bank: Bank, number: int) -> Version:
    """A version by its number."""
    versions = history(bank)
    for version in versions:
        if version.number == number:
            return version
    known = ", ".join(str(version.number) for version in versions) or "none"
    what = f"there is no version {number}"
    raise RefusedError([Finding(code="unknown-version", file="", what=what, fix=f"versions: {known}")])


def put(bank: Bank, version: Version) -> None:
    """Write a version and make its config the one in use; all of it or nothing.

    A deployment that came first is not overwritten: it takes the number, and this one is refused.
    """
    key = f"{KEY}{version.number:06d}"

    def still_free() -> None:
        if bank.setting(key) is not None:
            what = f"version {version.number} was deployed by somebody else just now"
            fix = "look at `skep tune history` and deploy again"
            raise RefusedError([Finding(code="deployed-meanwhile", file="", what=what, fix=fix)])

    bank.engine.write(
        [
            ("setting", {"key": key, "value": msgspec.to_builtins(version)}),
            ("setting", {"key": RECALL_CONFIG, "value": _settings_of(version.config)}),
        ],
        check=still_free,
    )


def next_number(bank: Bank) -> int:
    """The number the next version will have."""
    versions = history(bank)
    return versions[-1].number + 1 if versions else 1


def make_version(
    bank: Bank,
    config: SearchConfig | None,
    *,
    number: int,
    action: Literal["deploy", "rollback"],
    author: str,
    reason: str,
    **details: Any,
) -> Version:
    """A version, not yet written."""
    return Version(
        number=number,
        action=action,
        config=config,
        hash=config_hash(config) if config else "",
        author=author,
        reason=reason,
        at=bank.engine.now(),
        **details,
    )


def _settings_of(config: SearchConfig | None) -> Any:
    """The recall settings as they come back from the bank."""
    if config is None:
        return None
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(recall_settings(config))))
