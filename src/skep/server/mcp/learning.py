"""Tools that close the loop: how a task went, what worked before, and the questions that rules cannot decide.

No client answers questions of a server by itself, so what needs judgement is offered to the agent as
ordinary work: `pending_judgements` asks, `resolve_judgement` answers. Where the user named an agent's
command line as the judge, `maintain` asks that instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta

from skep.integrations.wording import age, clip, standing
from skep.server.mcp.call import Call
from skep.server.mcp.registry import IS_ID, Tool, tool
from skep.server.mcp.render import memory_line, page, read_cursor
from skep.server.mcp.tools import Budget, Cursor, Limit, client_name, touch

CASE_CHARS = 500


def report_outcome(
    call: Call,
    *,
    task: Annotated[str, Meta(description="What was to be done, in one sentence.", min_length=1)],
    success: bool,
    used: Annotated[
        list[str],
        Meta(description="Ids of the memories that were relied on, as shown in brackets.", extra=IS_ID),
    ] = [],  # noqa: B006 - read only
    lesson: Annotated[
        str | None, Meta(description="What to do the same way, or differently, next time.")
    ] = None,
    task_type: Annotated[str | None, Meta(description="Kind of task, such as deploy or bugfix.")] = None,
    domain: str | None = None,
) -> str:
    """Report how a task went and which memories it relied on. Memories that helped are trusted more, those
    that misled less, and what worked can be recommended next time. Call it once per task, when you know the
    result."""
    learnt = call.bank().learn(
        task, success, used=used, task_type=task_type, domain=domain, lesson=lesson, agent=client_name(call)
    )
    touch(call, *learnt.moved)
    lines = [f"recorded {'success' if success else 'failure'} [{learnt.outcome.id}]"]
    lines += [f"[{one}] now has confidence {value:.2f}" for one, value in learnt.moved.items()]
    if learnt.procedure is not None:
        touch(call, learnt.procedure.id)
        lines.append(f"kept as procedure [{learnt.procedure.id}] {clip(learnt.procedure.text, CASE_CHARS)}")
    return "\n".join(lines)


def recommend(
    call: Call,
    *,
    task: Annotated[str, Meta(description="What is to be done.", min_length=1)],
    limit: Limit = 3,
    max_tokens: Budget = 1000,
    cursor: Cursor = None,
) -> str:
    """What worked before for tasks like this one, with the record behind it. Ask before choosing an
    approach."""
    bank = call.bank()
    now = bank.engine.now()
    lines = [f"{memory_line(one.memory, now)}\n  {one.why()}" for one in bank.recommend(task, limit)]
    return page(
        lines, max_tokens, start=read_cursor(cursor), empty="nothing is known to have worked for this"
    )


def pending_judgements(
    call: Call,
    *,
    limit: Limit = 10,
    max_tokens: Budget = 2000,
    cursor: Cursor = None,
) -> str:
    """Pairs of memories on which rules could not decide. For each, read both and call resolve_judgement.
    Decide only from what the two texts say and from what you know for certain."""
    bank = call.bank()
    cases = bank.pending_judgements()
    now = bank.engine.now()
    lines = [
        f"{one.kind}? similarity {one.similarity:.2f}\n"
        f"  older [{one.older.id}] {clip(one.older.text, CASE_CHARS)} ({age(one.older.created_at, now)})"
        + "".join(f" ! {mark}" for mark in standing(one.older))
        + f"\n  newer [{one.newer.id}] {clip(one.newer.text, CASE_CHARS)} ({age(one.newer.created_at, now)})"
        + "".join(f" ! {mark}" for mark in standing(one.newer))
        for one in cases
    ]
    start = read_cursor(cursor)
    return page(lines[: start + limit], max_tokens, start=start, empty="nothing waits to be decided")


def resolve_judgement(
    call: Call,
    *,
    older: Annotated[str, Meta(description="Id of the older memory of the pair.", min_length=1, extra=IS_ID)],
    newer: Annotated[str, Meta(description="Id of the newer memory of the pair.", min_length=1, extra=IS_ID)],
    decision: Annotated[
        Literal["MERGE", "KEEP_BOTH", "CONTRADICTION", "SUPERSEDED"],
        Meta(
            description="MERGE: they say the same. SUPERSEDED: the newer replaces the older. CONTRADICTION: one is "
            "wrong and it is not clear which. KEEP_BOTH: they do not concern each other."
        ),
    ],
) -> str:
    """Decide a pair from pending_judgements. Nothing is deleted, and undo takes it back. When in doubt:
    KEEP_BOTH."""
    count = call.bank().resolve_judgement(older, newer, decision, client_name(call))
    touch(call, older, newer)
    return f"{decision} on [{older}] and [{newer}]; {count} events"


def maintain_with(judge: Sequence[str] | None) -> Callable[..., str]:
    """The tool that cleans up, with the judge that the user named, if any."""

    def maintain(
        call: Call,
        *,
        dry_run: Annotated[bool, Meta(description="Only say what would be done.")] = True,
        max_tokens: Budget = 2000,
    ) -> str:
        """Clean the bank up: merge what is said twice, settle clear conflicts, set aside what is outdated.
        It can take minutes on a large bank. Nothing is deleted, and undo takes each step back."""
        from skep.lifecycle.judge import CommandJudge

        found = call.bank().maintain(
            dry_run=dry_run,
            judge=CommandJudge(judge) if judge and not dry_run else None,
            progress=call.progress,
        )
        if not dry_run:
            touch(call)
        lines = [
            f"{found.changed} action{'' if found.changed == 1 else 's'}"
            + (" planned" if dry_run else f", {found.events} events")
        ]
        for step in found.steps:
            lines += [f"{step.step}: {action}" for action in step.actions]
            if step.note:
                lines.append(f"{step.step}: {step.note}")
        if found.queued:
            lines.append(f"{found.queued} pairs wait for a decision: pending_judgements")
        return page(lines, max_tokens, resumes=False)

    return maintain


def learning_tools(judge: Sequence[str] | None = None) -> list[Tool]:
    """The tools of this module that the full profile adds."""
    return [
        tool(recommend, title="What worked before", reads=True),
        tool(maintain_with(judge), title="Clean up", destroys=True, repeats=True),
        tool(pending_judgements, title="Questions that wait", reads=True),
        tool(resolve_judgement, title="Answer a question", destroys=True, repeats=True),
    ]
