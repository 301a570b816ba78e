"""Recall over a hive: every member is asked once, everything is ranked once, and the answer says how much
was heard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from skep.hive.scatter import Heard
from skep.hive.tracing import tracer
from skep.hive.union import Members, Union
from skep.model import CURRENT, Hit, Link, Recalled, Stage
from skep.recall.marking import Opposed, at_least, conflicts_marked, newest_first, opposes, shortened
from skep.recall.question import made
from skep.recall.search import Recaller
from skep.retrieval.config import RecallConfig
from skep.retrieval.succession import MOST
from skep.semantics.links import CONTRADICTS, MARKED, OPPOSED, UPDATES
from skep.storage.rows import searched_text

if TYPE_CHECKING:
    from skep.embedding.base import Embedder
    from skep.engine import Engine
    from skep.hive.policy import HivePolicy
    from skep.recall.question import Question
    from skep.recall.search import Reranker
    from skep.storage.base import Filter

COUNTED = ("confirmations", "trust", "usage")


class Answer(Recalled, frozen=True, kw_only=True):
    """What a hive answers: hits, and how much of it was heard."""

    completeness: float = 1.0
    """The share of the hive's memories that could have been in the answer."""
    asked: int = 1
    answered: int = 1
    missing: tuple[str, ...] = ()
    """Members that did not answer in time, or not sensibly."""
    faults: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    candidates: int = 0
    """How many memories the members sent, each counted once."""
    same: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict[str, tuple[str, ...]])
    """Per hit, other memories that say exactly the same and were left out."""


class Asked(Members, Protocol):
    """The members, and what was heard of them."""

    @property
    def heard(self) -> Heard:
        """How much of the hive took part."""
        ...


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What a recall over a hive needs to know of it."""

    scatter: Callable[[], Asked]
    embedder: Any
    trust: Callable[[str | None], float]
    policy: Any
    fitting: Callable[[str], tuple[str, ...]]
    used: Callable[[Mapping[str, Sequence[str]]], None]
    share: Callable[[int], int] = int
    """How many of so many candidates each member is asked for."""


class HiveRecaller(Recaller):
    """Answers queries over a hive; in the place of the recaller of one bank."""

    one_bank = False

    def __init__(self, engine: Engine, asking: Asking) -> None:
        super().__init__(engine)
        self._asking = asking

    def answer(
        self,
        query: str,
        question: Question,
        now: float,
        *,
        reranker: Reranker | None = None,
        explain: bool = False,
        count_uses: bool = True,
    ) -> Answer:
        """Answer one query."""
        config, limit = question.config, question.limit
        with tracer.span("hive.recall", limit=limit) as span:
            answer, homes = ask_hive(
                self._asking,
                query,
                question.at(now),
                config,
                limit=limit,
                reranker=reranker,
                explain=explain,
                opposed=self.opposed,
                relations=self._told(config),
            )
            span.note(hits=len(answer.hits), completeness=round(answer.completeness, 4))
        if count_uses and answer.hits:
            per_home: dict[str, list[str]] = {}
            for hit in answer.hits:
                per_home.setdefault(homes.get(hit.memory.id, ""), []).append(hit.memory.id)
            self._asking.used(per_home)
        return answer

    def _told(self, config: RecallConfig) -> tuple[str, ...]:
        """The relations that tell of hits which do not go together; those that the hive holds no link of are left out.

        The settings that say so go to every member, so that nobody has to be asked.
        """
        wanted = ((OPPOSED, CONTRADICTS), (MARKED if config.currency else "", UPDATES))
        return tuple(rel for key, rel in wanted if key and self._engine.setting(key))


class PlainRecaller(Recaller):
    """Answers from one bank; over the hive's own way where trust counts, which follows derivations there."""

    one_bank = False

    def __init__(self, engine: Engine, bank: Recaller, asking: Asking) -> None:
        super().__init__(engine)
        self._bank = bank
        self._policy: HivePolicy = asking.policy
        self._hive = HiveRecaller(engine, asking)

    def answer(self, query: str, question: Question, now: float, **options: Any) -> Answer:
        """Answer one query."""
        answers = self._hive if question.config.weights.get("trust", 0.0) > 0 else self._bank
        where = question.at(now)
        if (fading := faded(where, self._policy)) is not where:
            question = made(fading, question.limit, question.config)
        found = answers.answer(query, question, now, **options)
        return found if isinstance(found, Answer) else _whole(found)


def _whole(found: Recalled) -> Answer:
    """The answer of the one bank there is."""
    return Answer(hits=found.hits, reason=found.reason, trace=found.trace, withheld=found.withheld)


def faded(where: Filter, policy: HivePolicy) -> Filter:
    """A filter that reckons with how fast confidence fades in a hive."""
    if policy.ttl is None:
        return where
    return msgspec.structs.replace(where, decay_per_day=24 * policy.decay_per_hour)


def ask_hive(
    asking: Asking,
    query: str,
    where: Filter,
    config: RecallConfig,
    *,
    limit: int,
    reranker: Reranker | None = None,
    explain: bool = False,
    opposed: Opposed = opposes,
    relations: Sequence[str] = (),
) -> tuple[Answer, dict[str, str]]:
    """The answer, and the member each candidate came from. Links of relations asked for cost one more round."""
    from skep.retrieval.pipeline import run

    policy: HivePolicy = asking.policy
    scatter = asking.scatter()
    where = faded(where, policy)
    weighted = {name for name, weight in config.weights.items() if weight > 0}
    union = Union(
        scatter,
        asking.embedder,
        trust=asking.trust,
        texts=config.late > 0 or config.close > 0 or reranker is not None,
        vectors=config.select != "none" or config.currency or config.contrast > 0 or config.peers > 0,
        counters=bool(weighted.intersection(COUNTED)) or config.recency_basis == "last_used_at",
        budget=policy.budget(limit),
        share=asking.share,
        boosted=asking.fitting(query),
        boost=policy.domain_boost,
        former=MOST if config.currency and where.statuses == CURRENT else 0,
    )
    most = at_least(limit, config)
    found = run(query, config, union, where.now, where=where, limit=most, reranker=reranker, explain=explain)
    shown = tuple(hit for hit in found.hits if hit.memory.id)
    embedder: Embedder = asking.embedder
    told = union.links([hit.memory.id for hit in shown]) if relations and len(shown) > 1 else []
    linked: dict[str, list[Link]] = {rel: [link for link in told if link.rel == rel] for rel in relations}
    if linked.get(UPDATES):
        shown = newest_first(query, shown, lambda _ids: linked[UPDATES])

    def vectors(hits: Sequence[Hit]) -> Any:
        return embedder.embed([searched_text(hit.memory.title, hit.memory.text) for hit in hits])

    shown = conflicts_marked(
        shown,
        vectors=vectors if embedder.instant else None,
        calibrate=embedder.calibrate,
        now=where.now,
        opposed=opposed,
        linked=linked.get(CONTRADICTS, ()),
        query=query if config.currency else None,
    )
    trace = found.trace
    if len(shown) > limit < most:
        trace = (*trace, Stage(name="limit", kept=limit, cut=len(shown) - limit)) if explain else trace
        shown = shortened(shown, limit)
    kept = {hit.memory.id for hit in shown}
    heard = scatter.heard
    answer = Answer(
        hits=shown,
        reason=_reason(found.reason, union.problem, heard),
        trace=trace,
        completeness=heard.completeness,
        asked=heard.asked,
        answered=heard.answered,
        missing=heard.missing,
        faults=heard.faults,
        candidates=union.size,
        same={name: tuple(others) for name, others in union.same.items() if name in kept},
    )
    return answer, union.homes()


def _reason(reason: str, problem: str, heard: Heard) -> str:
    silent = heard.asked - heard.answered
    note = f"{silent} of {heard.asked} members did not answer" if heard.completeness < 1.0 else ""
    return "; ".join(filter(None, (reason, problem, note)))
