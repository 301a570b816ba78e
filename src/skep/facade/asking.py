"""How something is asked: what a call says beside the words of its question, and the filter that it comes to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from skep.errors import InvalidInputError, OutOfRangeError, WrongTypeError
from skep.model import CURRENT, KINDS, REPLACED, STATUSES, Scope
from skep.spelling import spelt
from skep.storage.base import Filter
from skep.validation import (
    Time,
    clean_choice,
    clean_count,
    clean_flag,
    clean_number,
    clean_scope,
    clean_tags,
    clean_text,
    clean_time,
    refuse_inverted,
)

if TYPE_CHECKING:
    from skep.config import Settings
    from skep.facade.base import ScopeLike

_LISTS: Any = (tuple, list)
_GROUPS: Any = (tuple, list, set, frozenset)
"""What a call may hold tags in, and groups of them; a union written out would be made at every call."""


class Asking(msgspec.Struct, frozen=True):
    """What `recall` and `rank` are told beside the words of a question, as it was said and not checked."""

    scope: ScopeLike | None
    limit: int | None
    kind: str | Iterable[str] | None
    tags: Iterable[str | Sequence[str]]
    domain: str | None
    agent: str | None
    include_shared: bool
    min_confidence: float | None
    min_importance: float | None
    since: Time | None
    until: Time | None
    valid_at: Time | None
    include_superseded: bool
    preset: str | None
    config: Mapping[str, Any] | None
    expand: Any

    def spelt(self, *more: Any) -> bytes | None:
        """What stands for all of it, and for something more; see `spelling`."""
        scope, *others = msgspec.structs.astuple(self)
        if type(scope) is Scope:
            return spelt((*others, msgspec.structs.astuple(scope), None, *more))
        return spelt((*others, None, scope, *more))

    def most(self, deployed: Mapping[str, Any]) -> int:
        """How many hits are wanted at most, in a bank that has deployed something."""
        return clean_count("limit", deployed.get("limit", 5) if self.limit is None else self.limit, 1, 10_000)

    def where(self, settings: Settings, now: float, deployed: Mapping[str, Any]) -> Filter:
        """What may be in the answer at some time, in a bank that has deployed something."""
        usual: Mapping[str, Any] = {}
        if self.kind is None and not self.tags:  # a call that says what it wants is not narrowed
            usual = deployed
        where = checked_filter(
            settings,
            now,
            kind=usual.get("kinds") if self.kind is None else self.kind,
            status=(*CURRENT, *REPLACED)
            if clean_flag("include_superseded", self.include_superseded)
            else CURRENT,
            tags=self.tags,
            domain=self.domain,
            agent=self.agent,
            scope=self.scope,
            include_shared=self.include_shared,
            since=self.since,
            until=self.until,
            valid_at=self.valid_at,
            min_confidence=self.min_confidence,
            min_importance=self.min_importance,
            current=True,
        )
        if usual.get("tags"):
            where = msgspec.structs.replace(where, tags=tuple(tuple(group) for group in usual["tags"]))
        return where


def checked_filter(
    settings: Settings,
    now: float,
    *,
    kind: object = None,
    status: object = None,
    tags: object = None,
    domain: object = None,
    agent: object = None,
    scope: object = None,
    include_shared: object = False,
    since: Time | None = None,
    until: Time | None = None,
    valid_at: Time | None = None,
    min_confidence: object = None,
    min_importance: object = None,
    current: bool = False,
    **_others: object,
) -> Filter:
    """A checked filter; what is not given narrows nothing, and what is no condition is another's to look at.

    `current` admits what is valid now.
    """
    label = settings.label_limit
    after = None if since is None else clean_time("since", since)
    before = None if until is None else clean_time("until", until)
    refuse_inverted(after, before, "since", "until")
    return Filter(
        scope=None if scope is None else clean_scope("scope", scope, label, asked=True),
        include_shared=clean_flag("include_shared", include_shared),
        kinds=() if kind is None else _several("kind", kind, label, KINDS),
        statuses=CURRENT if status is CURRENT else _several("status", status, label, STATUSES) or CURRENT,
        tags=_tag_groups("tags", tags, settings) if tags else (),
        domains=() if domain is None else _several("domain", domain, label),
        agents=() if agent is None else _several("agent", agent, label),
        since=after,
        until=before,
        valid_at=(now if current else None) if valid_at is None else clean_time("valid_at", valid_at),
        min_confidence=None
        if min_confidence is None
        else clean_number("min_confidence", min_confidence, 0.0, 1.0),
        min_importance=None
        if min_importance is None
        else clean_number("min_importance", min_importance, 0.0, 1.0),
        now=now,
    )


def _several(name: str, value: Any, label: int, choices: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """One text or several, each among the choices where there are some."""
    if value is None:
        return ()
    if not isinstance(value, str | Iterable) or isinstance(value, bytes | Mapping):
        kind = type(cast("object", value)).__name__
        raise WrongTypeError(f"{name} must be a string or a list of strings, got {kind}", field=name)
    values = (value,) if isinstance(value, str) else tuple(cast("Iterable[object]", value))
    return tuple(clean_choice(name, v, choices) if choices else clean_text(name, v, label) for v in values)


def _tag_groups(field: str, value: Any, settings: Settings) -> tuple[tuple[str, ...], ...]:
    """Tags to look for: every one of those given, and at least one of each list among them."""
    if not isinstance(value, _LISTS) and (
        isinstance(value, str) or not isinstance(value, Iterable) or isinstance(value, Mapping)
    ):
        return tuple((tag,) for tag in clean_tags(field, value, settings))
    groups: dict[tuple[str, ...], None] = {}
    for each in cast("Iterable[Any]", value):
        if isinstance(each, _GROUPS):
            group = clean_tags(field, sorted(each, key=str), settings)  # pyright: ignore
            if not group:
                raise InvalidInputError(
                    f"{field} holds an empty list, which nothing can match; leave it out", field=field
                )
        else:
            group = (clean_text(field, each, settings.label_limit),)
        groups[group] = None
    if len(groups) > settings.tags_limit:
        raise OutOfRangeError(
            f"{field} holds {len(groups)}, over the limit of {settings.tags_limit}; leave some out",
            field=field,
        )
    return tuple(groups)
