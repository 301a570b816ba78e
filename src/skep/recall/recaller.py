"""Recall on an open bank: the config that applies, the pipeline under one snapshot, conflict marks, a cache of answers.

`bank.read` calls `Recaller`; a hive has one of its own over several banks.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from skep.engine.engine import Engine
from skep.errors import ConfigError, InvalidInputError, WrongTypeError
from skep.filters import Asking, Filter
from skep.model import Hit, Link, Memory, Ranked, Recalled, Stage
from skep.recall.update_order import UpdateOrder
from skep.retrieval.pipeline import Call, run
from skep.retrieval.recall_config import Expand, RecallConfig, configured, from_dict
from skep.retrieval.sources import BankSources
from skep.semantics.find_conflicts import opposed, settled
from skep.semantics.link_graph import CONTRADICTS, MARKED, OPPOSED, UPDATES
from skep.validation import clean_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from skep.engine.embeddings import Asked
    from skep.storage.queries import Present


_pack = msgspec.msgpack.Encoder().encode


class Question(msgspec.Struct, frozen=True):
    """The arguments of one recall, apart from the query."""

    where: Filter
    """As of no time; `at` says what it is at some."""
    limit: int
    config: RecallConfig
    key: bytes
    """What stands for all of it in the keys of answers."""
    current: bool
    """Whether only what holds at the time of asking may be in the answer."""

    def at(self, now: float) -> Filter:
        """The filter as of a time."""
        if self.current:
            return msgspec.structs.replace(self.where, now=now, valid_at=now)
        return msgspec.structs.replace(self.where, now=now)


def made(where: Filter, limit: int, config: RecallConfig, *, current: bool = True) -> Question:
    """A question from a filter of any time; `current` if what it says of validity is meant for the time of asking."""
    current = current and where.valid_at is not None and where.valid_at == where.now
    timeless = msgspec.structs.replace(where, now=0.0, valid_at=None if current else where.valid_at)
    return Question(timeless, limit, config, _pack((timeless, limit, config, current)), current)


if TYPE_CHECKING:
    Singles = NDArray[np.float32]

CONFIG_KEY = "recall/config"
"""The setting that holds the bank's own config; `skep tune deploy` writes it."""
SETTINGS = (CONFIG_KEY, MARKED, OPPOSED)
"""The settings that a recall looks at."""
NARROWING = ("limit", "tags", "kinds")
"""Keys of a deployed config that narrow a recall rather than rank it; arguments of the call override them."""
CHECKED = 10
"""The best hits that are compared with one another."""
DAY = 86_400.0
_unpack = msgspec.msgpack.Decoder().decode
_told, _metadata = attrgetter("signals", "ranks"), attrgetter("memory.metadata")
Reranker = Callable[[str, Sequence[str]], Sequence[float]]


class _Kept(NamedTuple):
    """An answer for as long as it is true, and what its mappings held when it was given."""

    since: float
    until: float
    answer: Recalled
    told: bytes
    """Signals and ranks of each hit."""
    metadata: Sequence[dict[str, Any]]
    """Of the memory of each; nothing where none has any."""


class Recaller:
    """Answers queries on one engine, remembering recent answers for as long as nothing changes.

    What threads share here is touched only inside a snapshot, that is, under the connection's lock. A lock of its
    own would be taken before that one by some and after it by others.
    """

    one_bank = True
    """Whether the index of this engine knows every memory that may be in an answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._decided = partial(settled, engine)
        """Of pairs of memories, those of which somebody has decided that both stay."""
        self._answers: OrderedDict[Any, _Kept] = OrderedDict()
        self._position: tuple[int, int] | None = None
        """Of the bank, when the answers were given."""
        self.cache_hits = 0
        self._checked = "", ""
        """The config that was looked at last, and why it cannot be used."""

    def without_erased(self, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        """Hits that were found before, less what was forgotten here since; asks nothing of the file."""
        erased = self._engine.erased
        if erased.isdisjoint(hit.memory.id for hit in hits):
            return hits
        return tuple(hit for hit in hits if hit.memory.id not in erased)

    def deployed(self) -> dict[str, Any]:
        """The config that `skep tune deploy` has put in force, with the filters it sets by default (`NARROWING`).

        One that cannot be used counts as none: `unusable` says why, every answer says so, and so does `doctor`.
        """
        value = self._engine.present(*SETTINGS).settings[CONFIG_KEY]
        return {} if value is None or self._unusable(value) else msgspec.json.decode(value) or {}

    def unusable(self) -> str:
        """The reason why the bank's own config cannot be used; empty where it can."""
        return self._unusable(self._engine.present(*SETTINGS).settings[CONFIG_KEY])

    def _unusable(self, value: str | None) -> str:
        if value is None:
            return ""
        if self._checked[0] != value:
            config = msgspec.json.decode(value)
            self._checked = value, _unusable(config) if config else ""
        return self._checked[1]

    def config(
        self,
        preset: str | None = None,
        config: Mapping[str, Any] | RecallConfig | None = None,
        expand: Any = None,
        deployed: Mapping[str, Any] | None = None,
    ) -> RecallConfig:
        """The config of one recall: the call's own fields, over the bank's config, over the preset."""
        if isinstance(
            config, RecallConfig
        ):  # what follows from it is kept, and its weights are the caller's to change
            chosen = msgspec.structs.replace(config, weights=dict(config.weights))
        else:
            chosen = self._merged(preset, config, deployed)
        if expand is None or (expand is False and chosen.expand is None):
            return chosen
        if expand is False:
            return msgspec.structs.replace(chosen, expand=None)
        how = (chosen.expand or Expand()) if expand is True else expand
        if isinstance(how, Mapping):
            how = from_dict({"expand": dict(cast("Mapping[str, Any]", how))}).expand
        if not isinstance(how, Expand):
            raise ConfigError(
                f"expand must be true, false or a mapping with relations, depth, cap, decay, not {how!r}"
            )
        return msgspec.structs.replace(chosen, expand=how)

    def _merged(
        self, preset: str | None, config: Mapping[str, Any] | None, deployed: Mapping[str, Any] | None
    ) -> RecallConfig:
        """The three layers as one config."""
        bank: Mapping[str, Any] = {}
        if preset is None:
            bank = deployed if deployed is not None else self.deployed()
        model = not self._engine.embeddings.embedder.instant
        ranking = {name: value for name, value in bank.items() if name not in NARROWING}
        return configured(preset or "default", ranking or None, config, model=model)

    def asked(self, asking: Asking, now: float) -> Question:
        """The checked form of a question that is asked at some time, but for its words."""
        deployed = self.deployed() if asking.preset is None else {}
        where, limit = asking.checked(self._engine.settings, now, deployed)
        preset = None if asking.preset is None else clean_text("preset", asking.preset, 100)
        if asking.config is not None and not isinstance(asking.config, Mapping | RecallConfig):  # pyright: ignore
            raise WrongTypeError(
                f"config must be a mapping or a RecallConfig, got {type(asking.config).__name__}",
                field="config",
            )
        current = asking.valid_at is None
        return self.question(where, limit, preset, asking.config, asking.expand, deployed, current=current)

    def question(
        self,
        where: Filter,
        limit: int,
        preset: str | None = None,
        config: Mapping[str, Any] | RecallConfig | None = None,
        expand: Any = None,
        deployed: Mapping[str, Any] | None = None,
        *,
        current: bool = True,
    ) -> Question:
        """The question of a call without its words: filter, limit and config.

        Args:
            where: What may be in the answer.
            limit: At most so many hits.
            preset: A named way to rank.
            config: Fields that override it.
            expand: How to follow links.
            deployed: The bank's own config, where that has been read already.
            current: Whether a filter for what is valid is for the time of asking, whenever that is.
        """
        return made(where, limit, self.config(preset, config, expand, deployed), current=current)

    def run(
        self,
        query: str,
        where: Filter,
        *,
        limit: int,
        preset: str | None = None,
        config: Mapping[str, Any] | RecallConfig | None = None,
        count_uses: bool = True,
    ) -> Recalled:
        """Answer one query, asked in a way of its own."""
        question = self.question(where, limit, preset, config)
        return self.answer(query, question, where.now, count_uses=count_uses)

    def answer(
        self,
        query: str,
        question: Question,
        now: float,
        *,
        reranker: Reranker | None = None,
        explain: bool = False,
        count_uses: bool = True,
    ) -> Recalled:
        """Answer one query."""
        key = (query, question.key, explain)
        embeddings, config = self._engine.embeddings, question.config
        asked: Asked | None = None
        if embeddings.ready() and config.k_vectors:  # it is waited for while nothing is held
            with self._engine.lock:
                before = self._engine.present(*SETTINGS)
                kept = self._recent(key, now, before)
            asked = embeddings.asked(query, before) if kept is None or reranker is not None else None

        def answered(scorer: Reranker | None) -> Recalled:
            with self._engine.snapshot():
                present = self._engine.present(*SETTINGS)
                kept = self._recent(key, now, present) if reranker is None else None
                if kept is not None:
                    self.cache_hits += 1
                    return _apart(kept)
                where = question.at(now)
                found, passing = self._answer(
                    query, where, question.limit, config, scorer, explain, asked, present
                )
                if not (passing or present.passing or reranker is not None):
                    self._keep(key, found, query, where, config, present)
                return found

        if reranker is None:
            answer = answered(None)
        else:
            from skep.retrieval.rerankers import in_two_passes

            answer = in_two_passes(answered, query, reranker)
        if count_uses and answer.hits:
            self._engine.note_uses([hit.memory.id for hit in answer.hits])
        return answer

    def rank(self, query: str, question: Question, now: float, *, reranker: Reranker | None = None) -> Ranked:
        """The order that `answer` gives; no use is counted."""
        found = self.answer(query, question, now, reranker=reranker, count_uses=False)
        return Ranked(
            ids=tuple(hit.memory.id for hit in found.hits),
            scores=tuple(hit.score for hit in found.hits),
            reason=found.reason,
        )

    def _answer(
        self,
        query: str,
        where: Filter,
        limit: int,
        config: RecallConfig,
        reranker: Reranker | None,
        explain: bool,
        asked: Asked | None,
        present: Present,
    ) -> tuple[Recalled, bool]:
        """Run the pipeline; also whether the answer may be another one soon, though nothing is written.

        Call inside a snapshot, so that everything it reads is of one moment.
        """
        sources = BankSources(self._engine, present.active)
        sources.index.refresh(present.turn)
        active = present.active
        if asked is not None and asked.space and active is not None and active.fingerprint != asked.space:
            asked = None  # another model took over while it was waited for: the pipeline asks that one
        vector = None if asked is None else asked.vector
        if asked is not None and vector is None:  # asked in vain: it is not asked again under the lock
            config = msgspec.structs.replace(config, k_words=config.k_words or config.k_vectors, k_vectors=0)
        reader = self._engine.reader
        updates = UpdateOrder(
            self._update_links if present.settings[MARKED] else None,
            self._decided,
            reader.known if reader is not None else None,
        )

        def marked(hits: tuple[Hit, ...], call: Call) -> tuple[Hit, ...]:
            linked = self._opposed_by_links(hits) if present.settings[OPPOSED] else ()
            return conflicts_marked(
                hits, call.vectors_of, call.scale, now=where.now, linked=linked, decided=self._decided
            )

        found = run(
            query,
            config,
            sources,
            where.now,
            where=where,
            limit=limit,
            vector=vector if vector is not None and vector.any() else None,
            reranker=reranker,
            updates=updates,
            marks=marked,
            explain=explain,
        )
        asked = sources.asked or asked
        reason, trace = found.reason, found.trace
        if broken := self._unusable(present.settings[CONFIG_KEY]):
            reason = _both(reason, f"the bank's own recall config is left out: {broken}; see `skep doctor`")
        if asked is not None and asked.reason:
            reason = _both(reason, asked.reason)
            if explain:
                trace = (Stage(name="embedder", kept=0, note=asked.reason), *trace)
        if reason or trace:
            found = msgspec.structs.replace(found, reason=reason, trace=trace)
        return found, asked is not None and asked.passing

    def _update_links(self, ids: Sequence[str]) -> Sequence[Link]:
        """Links that say that something updates memories; few banks hold any."""
        return self._engine.links_to(ids, UPDATES)

    def _opposed_by_links(self, hits: Sequence[Hit]) -> Sequence[Link]:
        """Links that say that hits contradict something; few banks hold any."""
        return self._engine.links_to([hit.memory.id for hit in hits], CONTRADICTS) if hits else ()

    def _recent(self, key: Any, now: float, present: Present) -> _Kept | None:
        """A recent answer, if nothing was written since and it is not too old to be true."""
        position = (present.head, present.last_seq)
        if position != self._position:
            self._answers.clear()
            self._position = position
        kept = self._answers.get(key)
        if kept is None or not kept.since <= now < kept.until:
            return None
        self._answers.move_to_end(key)
        return kept

    def _keep(
        self, key: Any, answer: Recalled, query: str, where: Filter, config: RecallConfig, present: Present
    ) -> None:
        """Remember an answer to a question that was asked at some time; finding it may have taken a while."""
        now, settings = where.now, self._engine.settings
        first, last = present.boundary
        until = last if first <= now < last else self._engine.next_boundary(now)
        until = min(now + settings.cache_seconds, until)
        bar = config.min_confidence if where.min_confidence is None else where.min_confidence
        until = _fades(answer, bar, where.decay_per_day, until)
        if config.temporal != "off":  # the times that it names have a say
            from skep.text.dates import holds_until

            until = min(until, holds_until(query, now))
        if until <= now:
            return
        self._answers[key] = _kept(now, until, answer)
        while len(self._answers) > settings.cache_entries:
            self._answers.popitem(last=False)


def _unusable(value: object) -> str:
    """The reason why a value is no config; empty where it is one."""
    from skep.config import Settings
    from skep.filters import checked_filter
    from skep.validation import clean_count

    try:
        if not isinstance(value, dict):
            raise ConfigError(f"it must be a mapping, not {type(value).__name__}")
        config = cast("dict[str, Any]", value)
        configured("default", {k: v for k, v in config.items() if k not in NARROWING} or None)
        clean_count("limit", config.get("limit", 5), 1, 10_000)
        checked_filter(Settings(), 0.0, kind=config.get("kinds"), tags=config.get("tags"))
    except (InvalidInputError, ConfigError) as error:
        return str(error)
    return ""


def _both(reason: str, more: str) -> str:
    """Two reasons in one."""
    return f"{reason}; {more}" if reason else more


def _fades(answer: Recalled, bar: float, rate: float, until: float) -> float:
    """When the first of some hits falls below a bar for confidence, if nothing supports it; at most `until`."""
    if bar <= 0 or rate <= 0:
        return until
    days = DAY / rate
    for hit in answer.hits:
        memory = hit.memory
        sure = memory.confidence
        # the logarithm of a number is never below 1 less its reciprocal, which most often is enough to know
        if sure < 1e-9 or memory.last_evidence_at + days * (1 - bar / sure) < until:
            until = min(until, memory.last_evidence_at + days * math.log(max(sure, 1e-9) / bar))
    return until


def _kept(since: float, until: float, answer: Recalled) -> _Kept:
    """An answer, and apart from it whatever a caller could change of it."""
    told = _pack(list(map(_told, answer.hits)))
    metadata: list[dict[str, Any]] = list(map(_metadata, answer.hits))
    return _Kept(since, until, answer, told, list(map(_copied, metadata)) if any(metadata) else ())


def _apart(kept: _Kept) -> Recalled:
    """A kept answer in mappings of its own: what one caller does to them is not seen by the next."""
    replace = msgspec.structs.replace
    hits = [
        replace(
            hit,
            signals=signals,
            ranks=ranks,
            memory=replace(hit.memory, metadata=_copied(metadata)),
        )
        for hit, (signals, ranks), metadata in zip(
            kept.answer.hits, _unpack(kept.told), kept.metadata or repeat(None), strict=False
        )
    ]
    return replace(kept.answer, hits=tuple(hits))


def _copied(metadata: dict[str, Any] | None) -> dict[str, Any]:
    if not metadata:
        return {}
    from copy import deepcopy  # few memories have any

    return deepcopy(metadata)


def conflicts_marked(
    hits: tuple[Hit, ...],
    vectors: Callable[[Sequence[Memory]], Singles],
    calibrate: Callable[[Singles], Singles],
    *,
    now: float,
    linked: Sequence[Link] = (),
    decided: Callable[[Sequence[tuple[str, str]]], set[tuple[str, str]]],
) -> tuple[Hit, ...]:
    """The hits, with a mark on those that contradict or update one another; for a bank and for a hive alike.

    Args:
        hits: Best first; the first few are compared.
        vectors: The unit vectors of memories, one row each; asked for only if some are worth comparing.
        calibrate: Raw cosines on the common scale.
        now: The time of the question; a memory dated later was dated by a clock that was ahead.
        linked: Links that say that memories contradict one another.
        decided: Of pairs of memories, those of which somebody has decided that both stay.
    """
    head = [hit.memory for hit in hits[:CHECKED]]
    pairs = opposed(head, vectors, calibrate, decided, now)
    shown = {hit.memory.id for hit in hits}
    pairs += [(link.src, link.dst) for link in linked if link.src in shown and link.dst in shown]
    found: dict[str, list[str]] = {}
    for pair in pairs:
        for one, other in (pair, pair[::-1]):
            if other not in found.setdefault(one, []):
                found[one].append(other)
    if not found:
        return hits
    replace = msgspec.structs.replace
    return tuple(
        replace(hit, flags=(*hit.flags, "conflict"), conflicts_with=tuple(found[hit.memory.id]))
        if hit.memory.id in found
        else hit
        for hit in hits
    )
