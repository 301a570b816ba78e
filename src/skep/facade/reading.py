"""Methods that read memories: get, find, recall, rank, find_conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from skep.engine import Engine, Progress
from skep.errors import InvalidInputError, OutOfRangeError, WrongTypeError
from skep.facade.base import ScopeLike
from skep.facade.history import History
from skep.loading import undisturbed
from skep.model import CURRENT, KINDS, REPLACED, STATUSES, Conflict, Memory, Ranked, Recalled, Scope
from skep.semantics import conflicts as conflict_search
from skep.spelling import spelt
from skep.storage.base import Filter
from skep.validation import (
    Time,
    clean_call,
    clean_choice,
    clean_count,
    clean_flag,
    clean_number,
    clean_scope,
    clean_tags,
    clean_text,
    clean_time,
    clean_words,
    refuse_inverted,
)
from skep.words import query_terms

if TYPE_CHECKING:
    from random import Random

    from skep.config import Settings
    from skep.recall.question import Question
    from skep.recall.search import Recaller


_LISTS: Any = (tuple, list)
_GROUPS: Any = (tuple, list, set, frozenset)
"""What a call may hold tags in, and groups of them; a union written out would be made at every call."""
scope_parts = attrgetter(*Scope.__struct_fields__)
QUESTIONS = 64  # so many ways to ask are remembered
_NOBODYS = Memory(id="", kind="fact", text="")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the memories that `find` found, newest first; `cursor` leads to the rest."""

    memories: tuple[Memory, ...]
    cursor: str | None = None

    def __len__(self) -> int:
        return len(self.memories)

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)

    def __getitem__(self, index: int) -> Memory:
        return self.memories[index]


class Reading(History):
    """Get, find, recall, rank, find_conflicts."""

    _recaller: Recaller | None = None

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._questions: dict[bytes, Question] = {}  # ways to ask that were found right, by their arguments

    def get(self, memory_id: str) -> Memory:
        """One memory by id, whatever its status."""
        return self._engine.memory(memory_id)

    def find(
        self,
        text: str | None = None,
        *,
        kind: str | Iterable[str] | None = None,
        status: str | Iterable[str] | None = CURRENT,
        tags: Iterable[str | Sequence[str]] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Memories that meet every condition, newest first, a page at a time. `text` asks for all of its words.

        `status=None` finds every status.
        """
        where = self._filter(
            kind=kind,
            status=STATUSES if status is None else status,
            tags=tags,
            domain=domain,
            agent=agent,
            scope=scope,
            include_shared=include_shared,
            since=since,
            until=until,
            valid_at=valid_at,
            min_confidence=min_confidence,
            min_importance=min_importance,
        )
        limit = clean_count("limit", limit, 1, 10_000)
        text = clean_words("text", text, self._engine.settings.text_limit)
        if cursor is not None and not (
            isinstance(cursor, str) and cursor.isascii() and cursor.isdigit() and len(cursor) < 19  # pyright: ignore
        ):
            raise InvalidInputError(
                f"cursor must be one that `find` gave, got {cursor!r:.80}; leave it out to start over",
                field="cursor",
            )
        self._engine.embeddings.begin()
        words = query_terms(text) if text else ()
        if text and not words:
            return Page(memories=())
        found = self._engine.store.find(
            where, limit=limit + 1, before_row=int(cursor) if cursor else None, terms=words
        )
        more = str(found[limit - 1][0]) if len(found) > limit else None
        return Page(memories=tuple(memory for _row, memory in found[:limit]), cursor=more)

    def _filter(
        self,
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
        settings, now = self._engine.settings, self._engine.now()
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

    def find_conflicts(
        self,
        memory_id: str | None = None,
        *,
        threshold: float = conflict_search.CANDIDATE,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        progress: Progress | None = None,
    ) -> list[Conflict]:
        """Duplicates, contradictions and updates among what is stored: of one memory, or in the whole bank.

        Two are compared from a similarity of `threshold` on; those that share most of their words always are. With a
        scope, among the memories of that scope; `include_shared` adds those that have none.
        """
        threshold = clean_number("threshold", threshold, 0.0, 1.0)
        clean_call("contradiction_fn", contradiction_fn)
        clean_call("progress", progress)
        sees = self._sees(scope, include_shared)
        shared = sees is None or sees(_NOBODYS)
        if memory_id is not None:
            return conflict_search.find_for(
                self._engine,
                self._seen(memory_id, sees),
                threshold=threshold,
                contradiction_fn=contradiction_fn,
                shared=shared,
            )
        where = self._filter(scope=scope, include_shared=include_shared)
        memories = [memory for _row, memory in self._engine.store.find(where, limit=1 << 40)]
        return list(
            conflict_search.scan(
                self._engine,
                memories,
                threshold=threshold,
                contradiction_fn=contradiction_fn,
                progress=progress,
                shared=shared,
            )
        )

    def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        kind: str | Iterable[str] | None = None,
        tags: Iterable[str | Sequence[str]] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: Mapping[str, Any] | None = None,
        expand: Any = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
        withhold: float = 0.0,
        rng: Random | None = None,
        explain: bool = False,
    ) -> Recalled:
        """The memories that answer a question, best first; none if nothing does, and the reason why.

        Args:
            query: A question or a few words.
            limit: At most this many; 5, or what the deployed config says.
            kind: Only these kinds.
            tags: Only memories with all of these tags; a list among them asks for at least one of its tags.
            domain: Only this domain.
            agent: Only what this agent wrote.
            scope: Only memories of exactly this scope; `"*"` in a part stands for anything.
            include_shared: With a scope: also memories that have none.
            min_confidence: Only memories at least this sure today.
            min_importance: Only memories at least this important.
            since: Only memories made at or after this time.
            until: Only memories made before this time.
            as_of: Answer as the bank would have at that time.
            include_superseded: Also memories that were replaced.
            preset: A named way to rank; see `docs/reference/recall-config.md`.
            config: Fields of a recall config that override the bank's and the preset's.
            expand: Walk links outward from the hits; True, or a mapping with relations, depth, cap, decay. False walks
                none, whatever the bank's config says.
            reranker: Called with the query and the texts of the short list; gives scores.
            withhold: The share of recalls that leave one hit out at random, to learn what each is worth; hand the
                result to `learn`.
            rng: The source of that randomness.
            explain: Also return what every stage did.
        """
        if rng is not None:
            _refuse_other(rng)
        explain = clean_flag("explain", explain)
        share = clean_number("withhold", withhold, 0.0, 1.0)
        found: Recalled = self._ask(
            "recall", query, limit, kind, tags, domain, agent, scope, include_shared, min_confidence,
            min_importance, since, until, as_of, include_superseded, preset, config, expand, reranker,
            {"explain": explain},
        )  # fmt: skip
        return _withholding(found, share, rng) if share and as_of is None else found

    def rank(
        self,
        query: str,
        *,
        limit: int | None = None,
        kind: str | Iterable[str] | None = None,
        tags: Iterable[str | Sequence[str]] = (),
        domain: str | None = None,
        agent: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        min_confidence: float | None = None,
        min_importance: float | None = None,
        since: Time | None = None,
        until: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: Mapping[str, Any] | None = None,
        expand: Any = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
    ) -> Ranked:
        """The ids that `recall` would answer with, in its order and with its scores, but no memory; and no use counts.

        The arguments are those of `recall`. Where the way to rank asks for no text, counter or link (the presets
        `semantic`, `hybrid`, `rrf` and `stream`, or words alone), the index answers and nothing is read from the file;
        with any other it saves little.
        """
        return self._ask(
            "rank", query, limit, kind, tags, domain, agent, scope, include_shared, min_confidence,
            min_importance, since, until, as_of, include_superseded, preset, config, expand, reranker, {},
        )  # fmt: skip

    def _ask(
        self,
        verb: Literal["recall", "rank"],
        query: str,
        limit: int | None,
        kind: str | Iterable[str] | None,
        tags: Iterable[str | Sequence[str]],
        domain: str | None,
        agent: str | None,
        scope: ScopeLike | None,
        include_shared: bool,
        min_confidence: float | None,
        min_importance: float | None,
        since: Time | None,
        until: Time | None,
        as_of: Time | None,
        include_superseded: bool,
        preset: str | None,
        config: Mapping[str, Any] | None,
        expand: Any,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None,
        more: dict[str, Any],
    ) -> Any:
        """Check a question and have it answered; `more` is what one of the verbs alone is told."""
        query = clean_text("query", query, self._engine.settings.text_limit)
        recaller = self._recall
        deployed = recaller.deployed() if preset is None else {}
        if reranker is not None:
            from skep.retrieval.rerankers import counted

            reranker = counted(clean_call("reranker", reranker))
        if as_of is not None:
            limit = clean_count("limit", deployed.get("limit", 5) if limit is None else limit, 1, 10_000)
            return getattr(self.as_of(clean_time("as_of", as_of)), verb)(
                query, limit=limit, kind=kind, tags=tags, domain=domain, agent=agent, scope=scope,
                include_shared=include_shared, min_confidence=min_confidence, min_importance=min_importance,
                since=since, until=until, include_superseded=include_superseded, preset=preset, config=config,
                expand=expand, reranker=reranker, **more,
            )  # fmt: skip
        parts, mapping = (None, scope) if type(scope) is not Scope else (scope_parts(scope), None)
        told = spelt(
            (
                limit, kind, tags, domain, agent, parts, mapping, include_shared, min_confidence, min_importance,
                since, until, include_superseded, preset, config, expand, deployed,
                self._engine.embeddings.embedder.instant,
            )
        )  # fmt: skip
        question = None if told is None else self._questions.get(told)
        if question is None:
            question = self._question(
                limit, kind, tags, domain, agent, scope, include_shared, min_confidence, min_importance, since, until,
                include_superseded, preset, config, expand, deployed,
            )  # fmt: skip
            if told is not None:
                self._questions = self._questions if len(self._questions) < QUESTIONS else {}
                self._questions[told] = question
        answer: Any = recaller.answer if verb == "recall" else recaller.rank
        return answer(query, question, self._engine.now(), reranker=reranker, **more)

    def _question(
        self,
        limit: int | None,
        kind: str | Iterable[str] | None,
        tags: Iterable[str | Sequence[str]],
        domain: str | None,
        agent: str | None,
        scope: ScopeLike | None,
        include_shared: bool,
        min_confidence: float | None,
        min_importance: float | None,
        since: Time | None,
        until: Time | None,
        include_superseded: bool,
        preset: str | None,
        config: Mapping[str, Any] | None,
        expand: Any,
        deployed: Mapping[str, Any],
    ) -> Question:
        """How something is asked, checked; the arguments are those of `recall`, and what the bank has deployed."""
        preset = None if preset is None else clean_text("preset", preset, 100)
        if config is not None and not isinstance(config, dict):
            _refuse_no_config(config)
        limit = clean_count("limit", deployed.get("limit", 5) if limit is None else limit, 1, 10_000)
        narrowing: Mapping[str, Any] = {}
        if kind is None and not tags:  # a call that says what it wants is not narrowed
            narrowing = deployed
        where = self._filter(
            kind=narrowing.get("kinds") if kind is None else kind,
            status=(*CURRENT, *REPLACED) if clean_flag("include_superseded", include_superseded) else CURRENT,
            tags=tags,
            domain=domain,
            agent=agent,
            scope=scope,
            include_shared=include_shared,
            since=since,
            until=until,
            min_confidence=min_confidence,
            min_importance=min_importance,
            current=True,
        )
        if narrowing.get("tags"):
            where = msgspec.structs.replace(where, tags=tuple(tuple(group) for group in narrowing["tags"]))
        return self._recall.question(where, limit, preset, config, expand, deployed)

    def close(self) -> None:
        """Write what is still in memory and release the file; whatever is asked of the bank then is refused."""
        self._recaller = None
        super().close()

    @property
    def _recall(self) -> Recaller:
        if self._recaller is None:
            with (
                undisturbed()
            ):  # while few frames are open: deeper, their memory is asked for and freed at every call
                import skep.retrieval.pipeline  # noqa: F401  # pyright: ignore[reportUnusedImport]
                from skep.recall.search import Recaller
            self._recaller = Recaller(self._engine)
        return self._recaller


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


def _refuse_no_config(config: object) -> None:
    from skep.retrieval.config import RecallConfig

    if not isinstance(config, Mapping | RecallConfig):
        raise WrongTypeError(
            f"config must be a mapping or a RecallConfig, got {type(config).__name__}", field="config"
        )


def _refuse_other(rng: object) -> None:
    from random import Random

    if not isinstance(rng, Random):
        raise WrongTypeError(f"rng must be a random.Random, got {type(rng).__name__}", field="rng")


def _withholding(found: Recalled, share: float, rng: Random | None) -> Recalled:
    from random import Random

    from skep.lifecycle.utility import withhold

    shown, withheld = withhold(found.hits, share, rng or Random())
    return msgspec.structs.replace(found, hits=shown, withheld=withheld, withhold=share)
