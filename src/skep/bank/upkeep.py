"""Verbs of upkeep, learning and passive recall: maintain, judge, learn, recommend, outcomes, stats, stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skep.bank.open_bank import OpenBank, Sees
from skep.engine.embeddings import Progress
from skep.errors import InvalidInputError, WrongTypeError
from skep.events import voided
from skep.model import Event, Hit, Outcome, Recalled, ScopeLike
from skep.validation import (
    clean_call,
    clean_count,
    clean_flag,
    clean_id,
    clean_ids,
    clean_lines,
    clean_mapping,
    clean_number,
    clean_scope,
    clean_text,
    public_text,
)

if TYPE_CHECKING:
    from skep.lifecycle.judge import Case, Judge
    from skep.lifecycle.learn import Effect, Learned, Recommendation
    from skep.lifecycle.maintain import MaintainConfig
    from skep.lifecycle.maintenance_run import MaintainReport
    from skep.recall.memory_stream import Stream


SUCCESS = {"success": True, "failure": False, "succeeded": True, "failed": False}


class UpkeepVerbs(OpenBank):
    """Maintain, judge, learn, recommend, outcomes, stats, search_memory, stream."""

    def maintain(
        self,
        config: MaintainConfig | None = None,
        *,
        dry_run: bool = False,
        judge: Judge | Callable[[Sequence[Case]], Sequence[str]] | None = None,
        distil: Callable[[Sequence[Sequence[str]]], Sequence[str | None]] | None = None,
        progress: Progress | None = None,
    ) -> MaintainReport:
        """Keep the bank clean: embed, extract, weigh evidence, resolve conflicts, merge, expire, derive again.

        Running it twice changes nothing the second time. `dry_run` shows the plan and asks no model. `distil` is given
        groups of texts, oldest first, and gives one text for each, or None; if it fails, the report says so.
        """
        from skep.lifecycle.judge import CallableJudge
        from skep.lifecycle.maintain import MaintainConfig, maintain

        if config is not None and not isinstance(config, MaintainConfig):  # pyright: ignore
            raise WrongTypeError(
                f"config must be a MaintainConfig, got {type(config).__name__}", field="config"
            )
        clean_flag("dry_run", dry_run)
        clean_call("distil", distil)
        clean_call("progress", progress)
        if judge is not None and not hasattr(judge, "decide"):
            clean_call("judge", judge)
            judge = CallableJudge(judge)  # type: ignore[arg-type]
        if not dry_run and self._engine.leftover():
            self._engine.truncate_wal()
        return maintain(
            self._engine,
            config,
            dry_run=dry_run,
            judge=judge,  # type: ignore[arg-type]
            distil=distil,
            progress=progress,
        )

    def pending_judgements(self) -> list[Case]:
        """Pairs of memories that rules could not decide on."""
        from skep.lifecycle.judgement_queue import pending

        return pending(self._engine)

    def resolve_judgement(self, a: str, b: str, decision: str, by: str | None = None) -> int:
        """Decide a pair: MERGE, KEEP_BOTH, CONTRADICTION or SUPERSEDED; the number of events written."""
        from skep.lifecycle.judgement_queue import resolve

        return len(
            resolve(
                self._engine,
                clean_id(a, "a"),
                clean_id(b, "b"),
                clean_text("decision", decision, 100),
                self.actor if by is None else public_text("by", by, 500),
            )
        )

    def learn(
        self,
        task: str,
        outcome: str | bool | float,
        *,
        used: str | Iterable[str] = (),
        steps: Iterable[str] = (),
        metrics: Mapping[str, float] | None = None,
        task_type: str | None = None,
        domain: str | None = None,
        lesson: str | None = None,
        scope: ScopeLike | None = None,
        agent: str | None = None,
        recalled: Recalled | None = None,
    ) -> Learned:
        """Record how a task went: it moves the confidence of what was used and leaves a procedure behind.

        Args:
            task: What was to be done.
            outcome: `"success"` or `"failure"`, a truth value, or a grade from 0.0 to 1.0.
            used: Ids of the memories that were used; one alone may be given as it is.
            steps: What was done, in order, one line each: `"run_tests(unit)"`, `"push(main) failed: refused"`. What the
                steps of successes and failures tell is compared by `skep.agent.strategies`.
            metrics: Figures worth keeping.
            task_type: The kind of task, for recommending.
            domain: The field.
            lesson: What was learnt, in words; without it, a success is summed up from what was used.
            scope: Whom the lesson is for.
            agent: Who did it.
            recalled: What a recall showed (and withheld) for this task, to estimate what each memory is worth.
        """
        from skep.lifecycle.learn import learn

        success = SUCCESS.get(outcome) if isinstance(outcome, str) else outcome
        if not isinstance(success, bool | float) or not 0 <= success <= 1:
            raise InvalidInputError(
                f"outcome must be 'success' or 'failure', or a grade from 0.0 to 1.0, got {outcome!r}",
                field="outcome",
            )
        limit = self._engine.settings.text_limit
        if recalled is not None and not isinstance(recalled, Recalled):  # pyright: ignore
            raise WrongTypeError(
                f"recalled must be what `recall` gave, got {type(recalled).__name__}", field="recalled"
            )
        said, _ = self._cleaned({"text": task, "title": lesson}, True)
        task, lesson = said["text"], said["title"]

        def redact(line: str) -> str:
            return public_text("steps", self._cleaned({"text": line}, True)[0]["text"], limit)

        figures: Mapping[str, Any] = {} if metrics is None else clean_mapping("metrics", metrics)
        return learn(
            self._engine,
            public_text("task", task, limit),
            success=success if isinstance(success, bool) else float(success),
            used=clean_ids("used", used),
            steps=[redact(line) for line in clean_lines("steps", steps)],
            metrics={k: clean_number(f"metrics.{k}", v, -1e300, 1e300) for k, v in figures.items()},
            task_type=None if task_type is None else public_text("task_type", task_type, 500),
            domain=None if domain is None else public_text("domain", domain, 500),
            lesson=None if lesson is None else public_text("lesson", lesson, limit),
            scope=None if scope is None else clean_scope("scope", scope, 500),
            agent=None if agent is None else public_text("agent", agent, 500),
            shown=[hit.memory.id for hit in recalled] if recalled is not None else (),
            withheld=recalled.withheld if recalled is not None else (),
            withhold=recalled.withhold if recalled is not None else None,
        )

    def recommend(
        self,
        task: str,
        k: int = 3,
        *,
        domain: str | None = None,
        scope: ScopeLike | None = None,
        include_shared: bool = True,
    ) -> list[Recommendation]:
        """The strategies that worked for tasks like this one, with the record behind each."""
        from skep.lifecycle.learn import recommend

        return recommend(
            self._engine,
            clean_text("task", task, self._engine.settings.text_limit),
            k=clean_count("k", k, 1, 1000),
            domain=None if domain is None else clean_text("domain", domain, 500),
            scope=None if scope is None else clean_scope("scope", scope, 500, asked=True),
            include_shared=clean_flag("include_shared", include_shared),
        )

    def outcomes(
        self,
        memory_id: str | None = None,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> list[Outcome]:
        """The outcomes in which a memory was used, oldest first; without an id, all of them.

        With a scope, those in which only memories of that scope were used.
        """
        from skep.lifecycle.learn import outcome_of

        sees = self._sees(scope, include_shared)
        if memory_id is not None:
            self._seen(memory_id, sees)
        return [outcome_of(event) for event in self._outcome_events(memory_id) if self._shown(event, sees)]

    def stats(self, *, scope: ScopeLike | None = None, include_shared: bool = False) -> dict[str, Any]:
        """Counts of outcomes: all, by success, by domain and by kind of task; with a scope, of that scope.

        `redacted` says how often each kind of secret or personal data was taken out before something was stored.
        """
        told = self._tallied(self.outcomes(scope=scope, include_shared=include_shared))
        return told | {"redacted": self._redacted(self._sees(scope, include_shared))}

    def _redacted(self, sees: Sees | None) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for event in self._engine.log.redacted():
            if self._shown(event, sees):
                counts.update(event.body["redacted"])
        return dict(sorted(counts.items()))

    def _tallied(self, outcomes: Sequence[Outcome]) -> dict[str, Any]:
        by_domain: dict[str, list[int]] = {}
        by_type: dict[str, list[int]] = {}
        for outcome in outcomes:
            for tally, name in ((by_domain, outcome.domain), (by_type, outcome.task_type)):
                entry = tally.setdefault(name or "-", [0, 0])
                entry[0] += outcome.success
                entry[1] += 1
        wins = sum(outcome.success for outcome in outcomes)
        return {
            "outcomes": len(outcomes),
            "successes": wins,
            "success_rate": wins / len(outcomes) if outcomes else None,
            "trajectories": sum(bool(outcome.steps) for outcome in outcomes),
            "by_domain": {name: {"successes": s, "of": n} for name, (s, n) in sorted(by_domain.items())},
            "by_task_type": {name: {"successes": s, "of": n} for name, (s, n) in sorted(by_type.items())},
        }

    def utility(self, *, scope: ScopeLike | None = None, include_shared: bool = False) -> list[Effect]:
        """The effect on success of each memory that was sometimes withheld, with intervals."""
        from skep.lifecycle.learn import effects

        found = effects(self._outcome_events())
        sees = self._sees(scope, include_shared)
        if sees is None:
            return found
        memories = self._known(effect.memory for effect in found)
        return [one for one in found if one.memory in memories and sees(memories[one.memory])]

    def _outcome_events(self, memory_id: str | None = None) -> Sequence[Event]:
        """Every outcome (in which a memory was used, if one is named) that was not undone, oldest first."""
        if memory_id is None:
            return self._engine.log.outcomes()
        events = self._engine.log.of(memory_id)
        undone = voided(events)
        return [event for event in events if event.kind == "outcome" and event.id not in undone]

    def search_memory(
        self,
        query: str,
        search_type: str = "both",
        limit: int = 5,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
    ) -> tuple[Hit, ...]:
        """The agent's tool: search `facts`, `episodes` or `both`; at least somewhat sure, and diverse."""
        from skep.recall.memory_stream import search_memory

        where = self._filter(scope=scope, include_shared=include_shared, valid_at=self._engine.now())
        query = clean_text("query", query, self._engine.settings.text_limit)
        limit = clean_count("limit", limit, 1, 1000)
        return search_memory(self._recall, query, where, search_type=search_type, limit=limit)

    def stream(
        self,
        *,
        scope: ScopeLike | None = None,
        include_shared: bool = False,
        turns: int = 2,
        inline: bool = False,
    ) -> Stream:
        """Passive recall: `observe` each turn, and `context` has what the turns before call to mind."""
        from skep.recall.memory_stream import Stream

        def where() -> Any:
            return self._filter(scope=scope, include_shared=include_shared, valid_at=self._engine.now())

        where()  # a scope that cannot be asked for is refused here, not in the background
        turns, inline = clean_count("turns", turns, 1, 1000), clean_flag("inline", inline)
        return Stream(self._recall, where, turns=turns, inline=inline)
