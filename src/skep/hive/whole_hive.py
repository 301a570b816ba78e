"""The whole hive, read by one agent as if it were one bank.

`WholeHive` is a `Bank` whose look-ups reach every member; for conflicts, strategies, outcomes and counts it asks each
of them once with a typed frame, wherever it runs. A copy counts once, and each answer says who was silent. Called by
`agent_bank`. It writes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank.bank import Bank
from skep.bank.bank_file import BankStatus
from skep.bank.read import every
from skep.events import order, voided
from skep.filters import Filter
from skep.hive.hive_recall import faded
from skep.hive.member_calls import Listed
from skep.hive.members import outcomes_of
from skep.hive.messages import Ask, OutcomesAnswer, OutcomesQuery, StatusAnswer, StatusQuery
from skep.model import CURRENT, Conflict, Event, Link, Memory, Outcome, Scope, ScopeLike
from skep.replication.version_vectors import Versions
from skep.semantics.find_conflicts import CANDIDATE, age, comparable, judge, whole_words, worth_comparing
from skep.storage.memory_rows import searched_text
from skep.text.terms import query_terms
from skep.validation import clean_call, clean_count, clean_number, clean_scope, clean_text

if TYPE_CHECKING:
    from skep.engine.embeddings import Progress
    from skep.hive.agent_bank import AgentBank
    from skep.hive.hive_recall import Heard
    from skep.lifecycle.learn import Recommendation
    from skep.recall.recaller import Recaller
    from skep.semantics.link_graph import Direction


STRATEGIES = 50
"""The number of strategies are looked at for a task, by words and by meaning."""
SUMMED = ("held", "reembedding", "size_bytes", "index_bytes", "links")


class HiveStatus(BankStatus, frozen=True, kw_only=True):
    """Counts and sizes of a hive, as one of its agents sees it; a memory counts once, however many copies there are.

    In a sharded hive, what was dismissed in review never reached its owners, and is not counted.
    """

    asked: int = 1
    missing: tuple[str, ...] = ()
    """Members that did not answer in time, or not sensibly."""
    completeness: float = 1.0
    """The share of the hive's memories that could be counted."""


class Near(msgspec.Struct, frozen=True):
    """A memory that was found for a text."""

    memory: Memory
    words: float
    similarity: float


class WholeHive(Bank):
    """The reading verbs of a bank, over all that an agent of a hive may see."""

    def __init__(self, agent: AgentBank, recaller: Recaller) -> None:
        super().__init__(agent.engine)
        self.hive = agent.hive
        self._agent = agent
        self._recall = recaller

    def _found(self, memory_id: str) -> Memory:
        return self._agent.get(memory_id)

    def _known(self, memory_ids: Iterable[str]) -> dict[str, Memory]:
        ids, private = tuple(memory_ids), self._agent.private
        engines = [self._engine] if private is None else [private.engine, self._engine]
        found = ((name, engine.get(name)) for engine in engines for name in ids)
        here = {name: memory for name, memory in found if memory is not None}
        return here | self.hive.members.memories([name for name in ids if name not in here])

    def _links_of(self, memory_id: str, rel: str | None, direction: Direction) -> list[Link]:
        found = dict.fromkeys(super()._links_of(memory_id, rel, direction))
        for link in self.hive.members.links_of(memory_id):
            outward, inward = link.src == memory_id, link.dst == memory_id
            right = {"out": outward, "in": inward}.get(direction, outward or inward)
            if right and rel in (None, link.rel):
                found[link] = None
        return list(found)

    def near(self, text: str, where: Filter, limit: int, *, copies: bool = False) -> tuple[list[Near], Heard]:
        """The memories of the whole hive that are nearest to a text; with `copies`, all that say the same."""
        members = self.hive.scatter(self._agent.private)
        sources = self.hive.sources(members, Ask(), limit)
        pool = sources.search(
            query_terms(text), sources.embed(text), faded(where, self.hive.policy), limit, limit
        )
        scores = list(zip(pool.words.tolist(), sources.calibrate(pool.cosine).tolist(), strict=True))
        found: list[Near] = []
        for memory, (words, near) in zip(sources.memories(pool.rows), scores, strict=True):
            same = sources.same.get(memory.id, []) if copies else []
            others = members.fetch(dict.fromkeys(same, "")).memories if same else ()
            similarity = 0.0 if math.isnan(near) else max(0.0, near)
            found += [Near(one, words, similarity) for one in (memory, *others) if one.id]
        return found, members.heard

    def find_conflicts(
        self,
        memory_id: str | None = None,
        *,
        threshold: float = CANDIDATE,
        contradiction_fn: Callable[[Memory, Memory], bool] | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        progress: Progress | None = None,
    ) -> list[Conflict]:
        """Duplicates, contradictions and updates in the whole hive: of one memory, or of all; see `Bank`.

        One question to the hive per memory that is looked at. The list says, as `missing`, who could not be asked.
        """
        if self._agent.alone:
            return super().find_conflicts(
                memory_id,
                threshold=threshold,
                contradiction_fn=contradiction_fn,
                scope=scope,
                include_shared=include_shared,
                progress=progress,
            )
        bar = clean_number("threshold", threshold, 0.0, 1.0)
        clean_call("contradiction_fn", contradiction_fn)
        clean_call("progress", progress)
        sees = self._sees(scope, include_shared)
        shared = sees is None or sees(Memory(id="", kind="fact", text=""))
        missing: set[str] = set()

        def of(memory: Memory) -> list[Conflict]:
            where = Filter(
                scope=Scope() if memory.scope.shared else memory.scope,
                include_shared=shared,
                kinds=(memory.kind,),
                statuses=CURRENT,
            )
            text = searched_text(memory.title, memory.text)
            found, heard = self.near(text, where, self._engine.settings.conflict_candidates, copies=True)
            missing.update(heard.missing)
            return opposed(memory, found, bar, contradiction_fn)

        if memory_id is not None:
            conflicts = of(self._seen(memory_id, sees))
        else:
            memories = list(every(self._agent, scope=scope, include_shared=include_shared))
            conflicts = self._all_opposed(memories, of, progress)
        return Listed(conflicts, asked=len(self.hive.layout.members), missing=missing)

    @staticmethod
    def _all_opposed(
        memories: Sequence[Memory], of: Callable[[Memory], list[Conflict]], progress: Progress | None
    ) -> list[Conflict]:
        """Each pair once; the newer one stands as `memory`."""
        found: dict[frozenset[str], Conflict] = {}
        for number, memory in enumerate(memories, 1):
            for conflict in of(memory):
                older, newer = sorted((conflict.existing, memory), key=age)
                pair = frozenset((older.id, newer.id))
                found.setdefault(pair, msgspec.structs.replace(conflict, existing=older, memory=newer))
            if progress is not None:
                progress(number, len(memories))
        return list(found.values())

    def recommend(
        self,
        task: str,
        k: int = 3,
        *,
        domain: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = True,
    ) -> list[Recommendation]:
        """The strategies that worked for tasks like this one, whoever learnt them; see `Bank.recommend`.

        The list says, as `missing`, who could not be asked.
        """
        from skep.lifecycle.learn import Candidate, best_of, context_match

        if self._agent.alone:
            return super().recommend(task, k, domain=domain, scope=scope, include_shared=include_shared)
        text = clean_text("task", task, self._engine.settings.text_limit)
        wanted = clean_count("k", k, 1, 1000)
        field = None if domain is None else clean_text("domain", domain, 500)
        asked = None if scope is None else clean_scope("scope", scope, 500, asked=True)
        now = self._engine.now()
        where = self._agent.filter(scope=asked, include_shared=include_shared, kind="procedure", valid_at=now)
        found, heard = self.near(text, where, STRATEGIES)
        total, silent = self._counted()
        best = best_of(
            [
                Candidate(one.memory, one.words, context_match(text, one.memory, one.similarity))
                for one in found
            ],
            k=wanted,
            domain=field,
            total=sum(part.trials for part in total),
            now=now,
            links=lambda name: self._links_of(name, None, "both"),
            get=lambda name: self._known([name]).get(name),
        )
        missing = {*heard.missing, *silent}
        return Listed(best, asked=len(self.hive.layout.members), missing=missing)

    def outcomes(
        self, memory_id: str | None = None, *, scope: ScopeLike | None = None, include_shared: bool = False
    ) -> list[Outcome]:
        """The outcomes of the whole hive, oldest first; the list says, as `missing`, who could not be asked."""
        from skep.lifecycle.learn import outcome_of

        sees = self._sees(scope, include_shared)
        if memory_id is not None:
            self._seen(memory_id, sees)
        events = self._outcome_events(memory_id)
        shown = [outcome_of(event) for event in events if self._shown(event, sees)]
        return Listed(shown, asked=events.asked, missing=events.missing)

    def _outcome_events(self, memory_id: str | None = None) -> Listed[Event]:
        query = OutcomesQuery(memory=memory_id)
        told = self.hive.calls.ask(query, OutcomesAnswer)
        parts = list(told.answers.values())
        if self._agent.private is not None:
            parts.append(outcomes_of(self._agent.private, query))
        undone = voided({event.id: event for part in parts for event in part.undos}.values())
        found = {event.id: event for part in parts for event in part.events if event.id not in undone}
        return Listed(sorted(found.values(), key=order), asked=len(told.asked), missing=told.missing)

    def _tallied(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        told = super()._tallied(outcomes)
        if isinstance(outcomes, Listed) and not self._agent.alone:
            told |= {"completeness": outcomes.completeness, "missing": outcomes.missing}
        return told

    def status(self) -> HiveStatus:
        """Counts and sizes of the whole hive, each memory once; path, actor and schema are those of the home bank."""
        home = super().status()
        first = self.hive.calls.ask(StatusQuery(), StatusAnswer)
        parts, missing = self._covered(first.answers, first.missing)
        asked = len(first.asked)
        lost = self.hive.layout.lost(len(missing), asked) if parts else len(missing) / max(1, asked)
        every = [*first.answers.values(), *parts]
        own = None if self._agent.private is None else self._agent.private.status()
        waiting = {name: kind for part in every for name, kind in part.quarantined.items()}
        statuses, kinds = Counter({"quarantined": len(waiting)}), Counter(waiting.values())
        sums, events = Counter[str](), Versions()
        for part in (*every, *(() if own is None else (own,))):
            statuses.update(part.by_status)
            kinds.update(part.by_kind)
            sums.update({name: getattr(part, name) for name in SUMMED})
        for part in every:
            events = events.merged(part.seen)
        return HiveStatus(
            path=home.path,
            memories=statuses["active"] + statuses["pending"],
            pending=statuses["pending"],
            by_status={name: count for name, count in sorted(statuses.items()) if count},
            by_kind=dict(sorted(kinds.items())),
            events=events.count() + (0 if own is None else own.events),
            links=sums["links"],
            actor=home.actor,
            embedder=home.embedder,
            reembedding=sums["reembedding"],
            embed_error=next((part.embed_error for part in every if part.embed_error), None),
            size_bytes=sums["size_bytes"],
            index_bytes=sums["index_bytes"],
            versions=events.vector(),
            schema=home.schema,
            held=sums["held"],
            asked=asked,
            missing=tuple(missing),
            completeness=1.0 - lost if missing else 1.0,
        )

    def _covered(
        self, answers: dict[str, StatusAnswer], missing: Sequence[str]
    ) -> tuple[list[StatusAnswer], Sequence[str]]:
        """Counts that other members give for silent ones; they are asked once more."""
        if not missing or not answers:
            return [], missing
        question = StatusQuery(missing=tuple(missing))
        instead = self.hive.calls.ask(question, StatusAnswer, to=tuple(answers)).answers
        return (list(instead.values()) if len(instead) == len(answers) else []), missing

    def _counted(self) -> tuple[list[StatusAnswer], Sequence[str]]:
        told = self.hive.calls.ask(StatusQuery(), StatusAnswer)
        return [*told.answers.values(), *self._covered(told.answers, told.missing)[0]], told.missing


def opposed(
    memory: Memory,
    found: Iterable[Near],
    threshold: float,
    contradiction_fn: Callable[[Memory, Memory], bool] | None,
) -> list[Conflict]:
    """Conflicts of a memory with its nearest neighbours, surest first."""
    mine = whole_words(searched_text(memory.title, memory.text))
    conflicts: list[Conflict] = []
    for one in found:
        other = one.memory
        if other.id == memory.id or not comparable(other, memory):
            continue
        theirs = whole_words(searched_text(other.title, other.text))
        if one.similarity >= threshold or worth_comparing(mine, theirs, one.similarity):
            conflict = judge(other, memory, one.similarity, contradiction_fn)
            if conflict is not None:
                conflicts.append(conflict)
    return sorted(conflicts, key=lambda c: (-c.confidence, c.existing.id))
