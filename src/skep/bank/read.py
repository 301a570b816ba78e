"""Verbs that read memories: get, find, recall, rank, find_conflicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from skep.bank.open_bank import OpenBank
from skep.engine.embeddings import Progress
from skep.errors import InvalidInputError, WrongTypeError
from skep.filters import Asking
from skep.model import CURRENT, STATUSES, Conflict, Memory, Ranked, Recalled, Scope, ScopeLike, html_table
from skep.semantics import find_conflicts as conflict_search
from skep.text.terms import query_terms
from skep.validation import (
    Time,
    clean_call,
    clean_count,
    clean_flag,
    clean_number,
    clean_text,
    clean_time,
    clean_words,
)

if TYPE_CHECKING:
    from random import Random

    from skep.bank.memory_bank import ExpandOptions, MemoryBank
    from skep.retrieval.recall_config import Expand, RecallConfig


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

    def _repr_html_(self) -> str:
        rows = [(m.text, m.kind, m.status, f"{m.created:%Y-%m-%d}", m.id) for m in self.memories]
        return html_table(f"{len(self)} memories", ("memory", "kind", "status", "learnt", "id"), rows)


def every(bank: MemoryBank, **conditions: Any) -> Iterator[Memory]:
    """Every memory that meets the conditions of `find`, newest first."""
    cursor: str | None = None
    while True:
        page = bank.find(**conditions, limit=1000, cursor=cursor)
        yield from page
        if (cursor := page.cursor) is None:
            return


class ReadVerbs(OpenBank):
    """Get, find, recall, rank, find_conflicts."""

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
        metadata: Mapping[str, Any] | None = None,
        key: str | Iterable[str] | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Memories that meet every condition, newest first, a page at a time. `text` asks for all of its words.

        `status=None` finds every status. `metadata` asks for values as in `recall`, `key` for the names that
        callers gave.
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
            metadata=metadata,
            key=key,
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
        found = self._engine.find(
            where, limit=limit + 1, before_row=int(cursor) if cursor else None, terms=words
        )
        more = str(found[limit - 1][0]) if len(found) > limit else None
        return Page(memories=tuple(memory for _row, memory in found[:limit]), cursor=more)

    def scopes(self, scope: ScopeLike | None = None, *, include_shared: bool = False) -> dict[Scope, int]:
        """The scopes there are, and how many current memories are of each; with `scope`, of those it admits."""
        return self._engine.scopes(self._filter(scope=scope, include_shared=include_shared))

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
        scope, among the memories of that scope; `include_shared` adds those that have none. Of more than 5,000 memories
        the nearest pairs from 0.5 on are compared, two per memory on average. `progress` is told how many pairs are
        done, and of how many.
        """
        threshold = clean_number("threshold", threshold, 0.0, 1.0)
        contradiction_fn = clean_call("contradiction_fn", contradiction_fn)
        contradiction_fn = contradiction_fn or self._engine.settings.contradiction_fn
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
        memories = [memory for _row, memory in self._engine.find(where, limit=1 << 40)]
        return conflict_search.scan(
            self._engine,
            memories,
            threshold=threshold,
            contradiction_fn=contradiction_fn,
            progress=progress,
            shared=shared,
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
        metadata: Mapping[str, Any] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: RecallConfig | Mapping[str, object] | None = None,
        expand: bool | Expand | ExpandOptions | None = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
        withhold: float = 0.0,
        rng: Random | None = None,
        explain: bool = False,
    ) -> Recalled:
        """The memories that fit a question, best first, each with its level; if there are none, the reason why.

        Args:
            query: A question or a few words.
            limit: At most this many; 5, or what the deployed config says.
            kind: Only these kinds.
            tags: Only memories with all of these tags; a list among them asks for at least one of its tags.
            domain: Only this domain.
            agent: Only what this agent wrote.
            scope: Only memories of exactly this scope; `"*"` in a part stands for anything, `"docs/*"` for docs and
                whatever is below. A tuple is a namespace: `("docs", "2026")`, or `("docs", "*")`.
            include_shared: With a scope: also memories that have none.
            min_confidence: Only memories at least this sure today.
            min_importance: Only memories at least this important.
            metadata: Only memories whose metadata hold these values: `{"lang": "en"}`, `{"price": {"$lt": 5}}`. The
                operators are `$eq`, `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in` and `$nin`; a mapping leads further in.
            since: Only memories made at or after this time.
            until: Only memories made before this time.
            valid_at: What held at this time (`valid_from`, `valid_to`), as far as it is known now; now, if not said.
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
        explain = explain is not False and clean_flag("explain", explain)
        share = clean_number("withhold", withhold, 0.0, 1.0)
        asking = Asking(
            scope, limit, kind, tags, domain, agent, include_shared, min_confidence, min_importance, since, until,
            valid_at, include_superseded, preset, config, expand, metadata,
        )  # fmt: skip
        found: Recalled = self._ask("recall", query, asking, as_of, reranker, {"explain": explain})
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
        metadata: Mapping[str, Any] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        valid_at: Time | None = None,
        as_of: Time | None = None,
        include_superseded: bool = False,
        preset: str | None = None,
        config: RecallConfig | Mapping[str, object] | None = None,
        expand: bool | Expand | ExpandOptions | None = None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None = None,
    ) -> Ranked:
        """The ids that `recall` would answer with, in its order and with its scores, but no memory; and no use counts.

        The arguments are those of `recall`. Where the way to rank asks for no text, counter or link (the presets
        `semantic`, `hybrid`, `rrf` and `stream`, or words alone), the index answers and nothing is read from the file;
        with any other it saves little.
        """
        asking = Asking(
            scope, limit, kind, tags, domain, agent, include_shared, min_confidence, min_importance, since, until,
            valid_at, include_superseded, preset, config, expand, metadata,
        )  # fmt: skip
        return self._ask("rank", query, asking, as_of, reranker, {})

    def _ask(
        self,
        verb: Literal["recall", "rank"],
        query: str,
        asking: Asking,
        as_of: Time | None,
        reranker: Callable[[str, Sequence[str]], Sequence[float]] | None,
        more: dict[str, Any],
    ) -> Any:
        """Check a question and have it answered; `more` holds the arguments of one of the verbs alone."""
        query = clean_text("query", query, self._engine.settings.text_limit)
        recaller = self._recall
        if reranker is not None:
            from skep.retrieval.rerankers import counted

            reranker = counted(clean_call("reranker", reranker))
        if as_of is not None:
            limit = asking.most(recaller.deployed() if asking.preset is None else {})
            then = msgspec.structs.asdict(asking) | {"limit": limit, "reranker": reranker}
            return getattr(self.as_of(clean_time("as_of", as_of)), verb)(query, **then, **more)
        now = self._engine.now()
        answer: Any = recaller.answer if verb == "recall" else recaller.rank
        return answer(query, recaller.asked(asking, now), now, reranker=reranker, **more)


def _refuse_other(rng: object) -> None:
    from random import Random

    if not isinstance(rng, Random):
        raise WrongTypeError(f"rng must be a random.Random, got {type(rng).__name__}", field="rng")


def _withholding(found: Recalled, share: float, rng: Random | None) -> Recalled:
    from random import Random

    from skep.lifecycle.learn import withhold

    shown, withheld = withhold(found.hits, share, rng or Random())
    return msgspec.structs.replace(found, hits=shown, withheld=withheld, withhold=share)
