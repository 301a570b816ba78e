"""Agent: a memory, a name and, if there is one, a language model: learn, answer, act.

It is the object that users and the runner hold. It hands each call to the module that does it, and traces it with the
names of OpenTelemetry's conventions for generative AI. It does not know what kind of bank it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from skep.agent.answers import TOP, Answered, answer
from skep.agent.learn_content import learn_from_content
from skep.agent.loop import Check, Decides, Run, Tool, act, decide_by_record, deciding_with
from skep.clock import Now, system_now
from skep.errors import InvalidInputError
from skep.hive.traces import tracer
from skep.validation import clean_number, clean_text

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.bank.told_facts import Taught
    from skep.hive.traces import Span
    from skep.llm.budget import Spent
    from skep.llm.language_model import LLM
    from skep.model import ScopeLike


class Agent:
    """Somebody who learns, answers and acts, and whose memory gets better by it.

    Args:
        bank: Its memory: a `Bank`, an agent's bank in a hive, or anything else that implements `MemoryBank`.
        name: Its name.
        llm: Its language model; without one it works by rules and records.
        tools: What it can do.
        domain: The field it works in; what it learns belongs there.
        scope: Whose memories it uses and makes.
        withhold: The share of recalls that leaves one hit out, to measure what memory is worth (`bank.utility()`).
        rng: Decides which.
        now: The clock.
    """

    def __init__(
        self,
        bank: MemoryBank,
        name: str = "agent",
        *,
        llm: LLM | None = None,
        tools: Iterable[Tool] = (),
        domain: str | None = None,
        scope: ScopeLike | None = None,
        withhold: float = 0.0,
        rng: Random | None = None,
        now: Now = system_now,
    ) -> None:
        self.bank, self.name, self.llm = bank, clean_text("name", name, 100), llm
        self.tools: tuple[Tool, ...] = tuple(tools)
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise InvalidInputError("two tools have one name; every tool needs its own", field="tools")
        self.domain, self.scope, self._now = domain, scope, now
        self.withhold, self._rng = clean_number("withhold", withhold, 0.0, 1.0), rng or Random()

    def learn_from_content(self, text: str, source: str) -> Taught:
        """Learn the facts of a text; see `skep.agent.learn_from_content`."""
        with self._span("learn_from_content", "upsert_memory") as span:
            told = learn_from_content(
                self.bank, text, source, llm=self.llm, now=self._now, scope=self.scope, domain=self.domain
            )
            self._note(span, told.spent, facts=len(told.facts), passages=len(told.passages))
        return told

    def answer(self, question: str, *, limit: int = TOP) -> Answered:
        """Answer a question with citations, or say plainly that it is not known, and what lies near."""
        question = clean_text("question", question, 10_000)
        with self._span("answer", "search_memory") as span:
            found = answer(
                self.bank,
                question,
                llm=self.llm,
                limit=limit,
                scope=self.scope,
                include_shared=self.scope is not None,
                withhold=self.withhold,
            )
            self._note(span, found.spent, known=found.known, citations=len(found.citations))
        return found

    def act(
        self,
        goal: str,
        *,
        check: Check | None = None,
        task_type: str | None = None,
        max_steps: int = 8,
        decide: Decides | None = None,
    ) -> Run:
        """Work towards a goal: observe, orient, decide, act; then report the outcome to the memory.

        Args:
            goal: What is to be reached.
            check: Whether an answer reaches it, asked of the world and not of the model. Without it success is not
                claimed, and only what failed is learnt.
            task_type: The kind of task, for recommending.
            max_steps: Steps after which it stops.
            decide: Decides each step; by default the model, or the record of what worked before.
        """
        goal = clean_text("goal", goal, 10_000)
        chosen = decide or (decide_by_record if self.llm is None else deciding_with(self.llm))
        with self._span("act", "invoke_agent") as span:
            run = act(
                self.bank,
                goal,
                self.tools,
                decide=chosen,
                check=check,
                max_steps=max_steps,
                name=self.name,
                task_type=task_type,
                domain=self.domain,
                scope=self.scope,
                withhold=self.withhold,
                rng=self._rng,
                llm=self.llm,
            )
            self._note(span, run.spent, steps=len(run.steps), success=run.success, stopped=run.stopped)
        return run

    def _span(self, name: str, operation: str) -> Any:
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": self.name,
            "gen_ai.memory.store.id": self.bank.actor,
        }
        if self.llm is not None:
            attributes["gen_ai.provider.name"] = self.llm.source.name
            attributes["gen_ai.request.model"] = self.llm.model
        return tracer.span(f"agent.{name}", **attributes)

    @staticmethod
    def _note(span: Span, spent: Spent, **found: object) -> None:
        span.note(**found)
        if spent.calls:
            span.attributes["gen_ai.usage.input_tokens"] = spent.tokens_in
            span.attributes["gen_ai.usage.output_tokens"] = spent.tokens_out
