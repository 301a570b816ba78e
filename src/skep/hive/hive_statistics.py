"""Figures of the whole hive as one agent may see them: conflicts, strategies, outcomes, counts.

`Figures` asks every member once with a typed frame, wherever it runs; a copy counts once, and each answer says who was
silent. Called by `agent_bank` and `hive`. It writes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from skep.bank.bank import Bank
from skep.bank.bank_file import BankStatus
from skep.errors import NotFoundError
from skep.events import mentioned, order, voided
from skep.filters import Filter
from skep.hive.hive_recall import faded
from skep.hive.member_calls import Listed
from skep.hive.members import outcomes_of
from skep.hive.messages import Ask, OutcomesAnswer, OutcomesQuery, StatusAnswer, StatusQuery
from skep.model import CURRENT, Conflict, Event, Memory, Outcome, Scope, ScopeLike
from skep.replication.version_vectors import Versions
from skep.semantics.find_conflicts import CANDIDATE, age, comparable, judge, whole_words, worth_comparing
from skep.storage.memory_rows import searched_text
from skep.text.terms import query_terms
from skep.validation import clean_call, clean_count, clean_flag, clean_number, clean_scope, clean_text

if TYPE_CHECKING:
    from skep.engine.embeddings import Progress
    from skep.hive.agent_bank import AgentBank
    from skep.hive.hive import Hive
    from skep.hive.hive_recall import Heard
    from skep.lifecycle.learn import Effect, Recommendation


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


Sees = Callable[[Memory], bool]
"""True if a read may show a memory."""


class Figures:
    """The whole hive in figures, as one agent may see them."""

    def __init__(self, hive: Hive, agent: AgentBank) -> None:
        self.hive = hive
        self._agent = agent

    def sees(self, scope: ScopeLike | None, include_shared: bool) -> Sees | None:
        """The test that a read with a scope puts memories to; None where everything is shown."""
        shared = clean_flag("include_shared", include_shared)
        if scope is None:
            return None
        asked = clean_scope("scope", scope, self._agent.engine.settings.label_limit, asked=True)
        return lambda memory: asked.admits(memory.scope) or (shared and memory.scope.shared)

    def shown_memory(self, memory_id: str, sees: Sees | None) -> Memory:
        """A memory that a read may show. Of what lies outside its scope, a read does not even say that it exists."""
        memory = self._agent.get(memory_id)
        if sees is not None and not sees(memory):
            raise NotFoundError(
                f"there is no memory {memory_id!r} in that scope; ask without a scope, or with include_shared=True"
            )
        return memory

    def shows(self, event: Event, sees: Sees | None) -> bool:
        """True if a read may show an event: only if it may show every memory the event speaks of."""
        if sees is None:
            return True
        subjects = mentioned(event)
        found = self._agent.known(subjects)
        return bool(subjects) and all(name in found and sees(found[name]) for name in subjects)

    def near(self, text: str, where: Filter, limit: int, *, copies: bool = False) -> tuple[list[Near], Heard]:
        """The memories of the whole hive that are nearest to a text; with `copies`, all that say the same."""
        asking = self.hive.asking(lambda: self._agent.private)
        members = asking.members()
        sources = asking.sources(members, Ask(), limit)
        pool = sources.search(
            query_terms(text), sources.embed(text), faded(where, asking.policy), limit, limit
        )
        scores = list(zip(pool.words.tolist(), sources.scale()(pool.cosine).tolist(), strict=True))
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
            return self._agent.home.bank.find_conflicts(
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
        sees = self.sees(scope, include_shared)
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
            found, heard = self.near(
                text, where, self._agent.engine.settings.conflict_candidates, copies=True
            )
            missing.update(heard.missing)
            return _opposed(memory, found, bar, contradiction_fn)

        if memory_id is not None:
            conflicts = of(self.shown_memory(memory_id, sees))
        else:
            conflicts = self._all_opposed(list(self._everything(scope, include_shared)), of, progress)
        return Listed(conflicts, asked=len(self.hive.layout.members), missing=missing)

    def _everything(self, scope: ScopeLike | None, include_shared: bool) -> Iterable[Memory]:
        cursor: str | None = None
        while True:
            page = self._agent.find(scope=scope, include_shared=include_shared, limit=1000, cursor=cursor)
            yield from page
            if page.cursor is None:
                return
            cursor = page.cursor

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
            return self._agent.home.bank.recommend(
                task, k, domain=domain, scope=scope, include_shared=include_shared
            )
        text = clean_text("task", task, self._agent.engine.settings.text_limit)
        wanted = clean_count("k", k, 1, 1000)
        field = None if domain is None else clean_text("domain", domain, 500)
        asked = None if scope is None else clean_scope("scope", scope, 500, asked=True)
        now = self._agent.engine.now()
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
            links=self._agent.links_of,
            get=lambda name: self._agent.known([name]).get(name),
        )
        missing = {*heard.missing, *silent}
        return Listed(best, asked=len(self.hive.layout.members), missing=missing)

    def outcomes(
        self,
        memory_id: str | None = None,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Outcome]:
        """The outcomes of the whole hive, oldest first; see `Bank.outcomes`.

        The list says, as `missing`, who could not be asked.
        """
        from skep.lifecycle.learn import outcome_of

        if self._agent.alone:
            return self._agent.home.bank.outcomes(memory_id, scope=scope, include_shared=include_shared)
        sees = self.sees(scope, include_shared)
        if memory_id is not None:
            self.shown_memory(memory_id, sees)
        events = self._outcome_events(memory_id)
        shown = [outcome_of(event) for event in events if self.shows(event, sees)]
        return Listed(shown, asked=events.asked, missing=events.missing)

    def _outcome_events(self, memory_id: str | None = None) -> Listed[Event]:
        told = self.hive.calls.ask(OutcomesQuery(memory=memory_id), OutcomesAnswer)
        parts = list(told.answers.values())
        if self._agent.private is not None:
            parts.append(outcomes_of("", self._agent.private, OutcomesQuery(memory=memory_id)))
        undone = voided({event.id: event for part in parts for event in part.undos}.values())
        found = {event.id: event for part in parts for event in part.events if event.id not in undone}
        return Listed(sorted(found.values(), key=order), asked=len(told.asked), missing=told.missing)

    def stats(self, scope: ScopeLike | None, *, include_shared: bool) -> dict[str, Any]:
        """Outcomes of the whole hive, counted. `redacted` counts what was taken out before this agent's own member
        stored it.
        """
        outcomes = self.outcomes(scope=scope, include_shared=include_shared)
        home = self._agent.home.bank.stats(scope=scope, include_shared=include_shared)
        told = Bank._tallied(outcomes) | {"redacted": home["redacted"]}  # pyright: ignore[reportPrivateUsage]
        if isinstance(outcomes, Listed):
            told |= {"completeness": outcomes.completeness, "missing": outcomes.missing}
        return told

    def utility(self, scope: ScopeLike | None, *, include_shared: bool) -> list[Effect]:
        """The effect on success of memories that were sometimes withheld."""
        from skep.lifecycle.learn import effects

        found = effects(self._outcome_events())
        sees = self.sees(scope, include_shared)
        if sees is None:
            return found
        memories = self._agent.known([effect.memory for effect in found])
        return [one for one in found if one.memory in memories and sees(memories[one.memory])]

    def status(self) -> HiveStatus:
        """Counts and sizes of the whole hive, each memory once; path, actor and schema are those of the home bank."""
        home = self._agent.home.bank.status()
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


def _opposed(
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
