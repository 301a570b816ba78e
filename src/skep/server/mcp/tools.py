"""The tools of the default profile, and the tools of learning and judging that `full` adds.

A model reads their docstrings. No client answers questions of a server by itself, so doubtful pairs are offered to
the agent as ordinary work: `pending_judgements` asks, `resolve_judgement` answers; `maintain` asks a judge that the
user named instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta

from skep.integrations.capture import AGENTS, REVIEW
from skep.integrations.hooks import age, clip, standing
from skep.model import RELATIONS, Graph, Kind, Memory, Remembered, Scope
from skep.retrieval.recall_config import Expand
from skep.server.mcp.render import (
    by_words,
    conflict_line,
    found_nothing,
    hit_line,
    ids,
    memory_line,
    page,
    pair_line,
    read_cursor,
)
from skep.server.mcp.session import STATS, addresses
from skep.server.mcp.tool_calls import IS_ID, Call, Tool, ToolError, tool

if TYPE_CHECKING:
    from skep.bank.bank import Bank

MAX_RESULTS: Final = 100
NOTHING_YET: Final = "nothing found: nothing is stored yet. remember stores what a later session will need."
"""What a model is never to store. A person's address or number may be what is to be remembered."""

Id = Annotated[str, Meta(description="Id of a memory, as shown in brackets.", min_length=1, extra=IS_ID)]
Ids = Annotated[list[str], Meta(description="Ids of memories, as shown in brackets.", extra=IS_ID)]
Text = Annotated[
    str, Meta(description="What to remember: one self-contained statement, in plain words.", min_length=1)
]
Unit = Annotated[float, Meta(ge=0, le=1)] | None
Tags = Annotated[list[str], Meta(description="Labels, such as python or deploy.")]
ScopeArgument = Annotated[
    Scope | None, Meta(description="Whom it is for. Leave out for memories that everybody shares.")
]
Within = Annotated[
    Scope | None,
    Meta(description="Only what is for this user, project or session, and what is for everybody."),
]
When = Annotated[str | None, Meta(description="ISO date or time.")]
Budget = Annotated[int, Meta(description="Size limit of the answer.", ge=50, le=100_000)]
Cursor = Annotated[
    str | None, Meta(description="From the last line of the previous answer, to get the rest.")
]
Limit = Annotated[int, Meta(ge=1, le=MAX_RESULTS)]


def remember(
    call: Call,
    *,
    text: Text,
    kind: Annotated[
        Kind,
        Meta(
            description="fact: what is so. episode: what happened. procedure: how to do something. "
            "document: a piece of a file."
        ),
    ] = "fact",
    title: str | None = None,
    tags: Tags = [],  # noqa: B006 - read only
    domain: Annotated[str | None, Meta(description="Field it belongs to, such as billing.")] = None,
    scope: ScopeArgument = None,
    source: Annotated[
        str | None, Meta(description="Where it comes from: a path, an address, a person.")
    ] = None,
    confidence: Unit = None,
    importance: Unit = None,
    valid_from: When = None,
    valid_to: When = None,
    metadata: Annotated[dict[str, Any] | None, Meta(description="Anything else, to filter by.")] = None,
    key: Annotated[
        str, Meta(description="Your name for it; what has it in this scope is revised.", min_length=1)
    ]
    | None = None,
    on_conflict: Annotated[
        Literal["warn", "supersede", "raise", "ignore"] | None,
        Meta(
            description="If it contradicts or repeats a stored memory; warn, if the bank does not say. warn: store it "
            "and report. supersede: replace what is outdated, confirm what is repeated. raise: refuse. "
            "ignore: do not look."
        ),
    ] = None,
) -> str:
    """Store one memory for later sessions. Use it for decisions, preferences, corrections, how something
    works, what failed and why; not for what the code or the conversation already shows. One statement per
    call, with names and dates spelled out. Keys and passwords are taken out. The answer lists stored memories
    that it contradicts or repeats: decide which one holds."""
    from skep.text import redaction

    bank = call.bank()
    given: dict[str, Any] = {"text": text, "title": title, "tags": tags, "domain": domain, "source": source}
    if metadata is not None:
        given["metadata"] = metadata
    fields, secrets = redaction.redact_fields(given, redaction.SECRETS)
    waits = bank.setting(REVIEW) == AGENTS
    stored = bank.remember(
        **fields,
        kind=kind,
        scope=scope,
        confidence=confidence,
        importance=importance,
        valid_from=valid_from,
        valid_to=valid_to,
        key=key,
        on_conflict="warn" if waits else on_conflict,  # what waits replaces nothing yet
        agent=client_name(call),
    )
    touch(call, stored.memory.id, *(conflict.existing.id for conflict in stored.conflicts))
    lines = [_done(stored)]
    if waits and stored.action == "stored":
        bank.mark(stored.memory.id, "quarantined", "waits for a person")
        lines.append("it waits until a person says yes with `skep review`; no recall finds it before")
    if secrets or stored.redactions:
        lines.append("left out: " + ", ".join(dict.fromkeys((*secrets, *stored.redactions))))
    now = bank.engine.now()
    lines += [f"- {conflict_line(conflict, now)}" for conflict in stored.conflicts]
    if stored.conflicts and stored.action == "stored":
        lines.append(_advice(stored))
    return "\n".join(lines)


def _done(stored: Remembered) -> str:
    """The result of a write, in words that leave no doubt which memory holds now."""
    if stored.action == "confirmed":
        return f"already known as [{stored.memory.id}], which is confirmed; nothing new is stored"
    if stored.action == "revised":
        return f"revised [{stored.memory.id}], which has that key"
    return f"stored [{stored.memory.id}]" + (" in place of:" if stored.action == "superseded" else "")


def _advice(stored: Remembered) -> str:
    """Advice about conflicts, with the ids that it needs."""
    new = stored.memory.id
    for conflict in stored.conflicts:
        if conflict.kind == "duplicate":
            return f"Both are kept. To keep one: revise(id={new!r}, replaced_by={conflict.existing.id!r})."
    old = stored.conflicts[0].existing.id
    return (
        f"Both are kept. If the older no longer holds: revise(id={old!r}, replaced_by={new!r}). If both hold:"
        f" resolve(id={old!r}, other={new!r}, decision='KEEP_BOTH')."
    )


def recall(
    call: Call,
    *,
    query: Annotated[str, Meta(description="A question or a few words.", min_length=1)],
    limit: Annotated[int, Meta(description="5 if not said, or as deployed.", ge=1, le=MAX_RESULTS)]
    | None = None,
    kind: Kind | None = None,
    tags: Annotated[list[str], Meta(description="Only memories with all of these.")] = [],  # noqa: B006
    domain: str | None = None,
    scope: Within = None,
    since: When = None,
    until: When = None,
    valid_at: When = None,
    metadata: Annotated[
        dict[str, Any] | None, Meta(description='Conditions, as {"lang": "en", "price": {"$lt": 5}}.')
    ] = None,
    include_superseded: Annotated[
        bool, Meta(description="Also what was replaced, marked as outdated.")
    ] = False,
    expand: Annotated[Expand | None, Meta(description="Also follow links from the hits.")] = None,
    max_tokens: Budget = 1000,
    cursor: Cursor = None,
) -> str:
    """Find stored memories that answer a question, best first. Call it before you start a task, and before
    you assume a preference, a convention or a past decision. It returns the nearest memories even if none
    of them is an answer: then say that you do not know. Lines marked with ! are outdated, contested or stale:
    check them before you rely on them."""
    bank = call.bank()
    found = bank.recall(
        query,
        limit=limit,
        kind=kind,
        tags=tags,
        domain=domain,
        scope=scope,
        include_shared=scope is not None,
        since=since,
        until=until,
        valid_at=valid_at,
        metadata=metadata,
        include_superseded=include_superseded,
        expand=expand,
    )
    now = bank.engine.now()
    lines = [hit_line(hit, now) for hit in found.hits]
    lines = [*by_words(found.reason), *lines] if lines else lines
    empty = found_nothing(found.reason) if lines or bank.find(limit=1).memories else NOTHING_YET
    return page(lines, max_tokens, start=read_cursor(cursor), empty=empty)


def revise(
    call: Call,
    *,
    id: Id,
    text: Annotated[str | None, Meta(description="The corrected statement.")] = None,
    title: str | None = None,
    tags: Annotated[list[str] | None, Meta(description="Replaces all labels.")] = None,
    domain: str | None = None,
    confidence: Unit = None,
    importance: Unit = None,
    valid_to: When = None,
    expected_version: Annotated[int, Meta(description="Only if it still has this version.", ge=1)]
    | None = None,
    replaced_by: Annotated[
        str | None,
        Meta(
            description="Id of the newer memory that holds instead; this one leaves every recall.",
            extra=IS_ID,
        ),
    ] = None,
) -> str:
    """Correct a stored memory, or mark it as replaced by a newer one. What it said before stays in its
    history, so nothing is lost. Only the fields you pass change."""
    given: dict[str, Any] = {
        "text": text,
        "title": title,
        "tags": tags,
        "domain": domain,
        "confidence": confidence,
        "importance": importance,
        "valid_to": valid_to,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    left_out: tuple[str, ...] = ()
    if text is not None:
        changes["text"], left_out = without_secrets(text)
    if not changes and replaced_by is None:
        raise ToolError("nothing to revise; pass text, another field, or replaced_by")
    bank = call.bank()
    memory: Memory = bank.get(id)
    if changes:
        memory = bank.revise(id, expected_version=expected_version, **changes)
    if replaced_by is not None:
        memory = bank.supersede(id, replaced_by)
        touch(call, replaced_by)
    touch(call, id)
    note = f"\nleft out: {', '.join(left_out)}" if left_out else ""
    return "revised " + memory_line(memory, bank.engine.now()) + note


def forget(
    call: Call,
    *,
    ids: Ids,
    dry_run: Annotated[bool, Meta(description="Only say what would be erased.")] = False,
    derived: Annotated[
        bool, Meta(description="Also what was derived from them or merged with them.")
    ] = False,
) -> str:
    """Erase memories for good, from every copy; nothing brings them back. Use it when the user asks for
    something to be forgotten, or for secrets stored by mistake. For what is merely outdated use revise."""
    if not ids:
        raise ToolError("nothing to forget; pass at least one id")
    receipt = call.bank().forget(ids, dry_run=dry_run, derived=derived)
    if not dry_run:
        touch(call, *receipt.memories)
    verb = "would erase" if receipt.dry_run else "erased"
    places = ", ".join(f"{place} {count}" for place, count in receipt.erased.items() if count)
    told = f"{verb} {ids_text(receipt.memories)}" + (f" ({places})" if places else "")
    repeats = (*receipt.derived, *receipt.copies)
    if repeats:
        told += f"\nmay still say the same: {ids_text(repeats)}; derived=true erases those too"
    return told + "".join(f"\nnot reached: {place}" for place in receipt.unreached)


def link(
    call: Call,
    *,
    src: Id,
    dst: Annotated[str | None, Meta(description="Leave out to show.", extra=IS_ID)] = None,
    rel: Annotated[str, Meta(description=f"{', '.join(RELATIONS)}, or a word of your own.")] | None = None,
    strength: Annotated[float, Meta(ge=0, le=1)] = 1.0,
    verb: Annotated[
        Literal["add", "remove", "show"], Meta(description="show: what src is linked to, and how.")
    ] = "add",
    depth: Annotated[int, Meta(description="Steps to show.", ge=1, le=5)] = 1,
) -> str:
    """Connect two memories, so that finding one leads to the other; or remove a link, or show the links of one.
    The same link twice is one link."""
    bank = call.bank()
    if verb == "show":
        return page(linked_lines(bank, bank.neighbors(src, rel, depth=depth)), 1500, empty="no links")
    if dst is None:
        raise ToolError(f"{verb} needs dst, the memory that src is linked to")
    touch(call, src, dst)
    if verb == "remove":
        count = bank.unlink(src, dst, rel)
        return f"removed {count} link{'' if count == 1 else 's'}"
    made = bank.link(src, dst, rel=rel or "related", strength=strength)
    return f"linked [{made.src}] {made.rel} [{made.dst}]"


def linked_lines(bank: Bank, found: Graph) -> list[str]:
    """Links, the memories at their ends, and the ends that are gone."""
    now = bank.engine.now()
    lines = [f"[{edge.src}] {edge.rel} [{edge.dst}]" for edge in found.links]
    lines += [memory_line(memory, now) for memory in found.memories.values()]
    return lines + [f"[{gone}] is gone" for gone in found.dangling]


def resolve(
    call: Call,
    *,
    id: Annotated[str | None, Meta(description="Only conflicts of this memory.", extra=IS_ID)] = None,
    other: Annotated[
        str | None, Meta(description="With id and a decision: settle these two.", extra=IS_ID)
    ] = None,
    decision: Annotated[
        Literal["SUPERSEDED", "KEEP_BOTH", "MERGE", "CONTRADICTION"] | None,
        Meta(
            description="SUPERSEDED: the newer replaces the older. KEEP_BOTH: both hold. MERGE: they say the same. "
            "CONTRADICTION: one is wrong and it is not clear which."
        ),
    ] = None,
    max_tokens: Budget = 1500,
    cursor: Cursor = None,
) -> str:
    """Memories that repeat, update or contradict each other: list them, or settle two. What is settled does not
    come up again; nothing is deleted, and undo takes it back. When in doubt: KEEP_BOTH."""
    bank = call.bank()
    if decision is not None:
        if id is None or other is None:
            raise ToolError("a decision needs id and other, the two memories it is about")
        count = bank.resolve_judgement(id, other, decision, client_name(call))
        touch(call, id, other)
        return f"{decision} on [{id}] and [{other}]; {count} events"
    lines = [pair_line(one) for one in bank.find_conflicts(id, progress=call.progress)]
    return page(lines, max_tokens, start=read_cursor(cursor), empty="no conflicts")


def memory_status(call: Call) -> str:
    """How many memories there are, of which kinds, where they are kept, and what waits to be decided. Use
    it to check that memory works, not to search."""
    bank = call.bank()
    status = bank.status()
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(status.by_kind.items()) if count)
    lines = [f"{status.memories} memories" + (f" ({kinds})" if kinds else "")]
    other = {
        name: count for name, count in status.by_status.items() if name not in ("active", "pending") and count
    }
    if other:
        lines.append("set aside: " + ", ".join(f"{count} {name}" for name, count in sorted(other.items())))
    if status.pending:
        lines.append(f"{status.pending} not embedded yet; found by their words until then")
    waiting = len(bank.pending_judgements())
    if waiting:
        lines.append(f"{waiting} pairs wait for a decision: pending_judgements")
    size = f", {status.size_bytes // 1024} KiB" if status.path else ""  # no file has none
    lines.append(f"{status.links} links, {status.events} events{size}")
    lines.append(f"bank: {status.path or f'{call.place}, which the first remember makes'}")
    return "\n".join(lines)


def without_secrets(text: str) -> tuple[str, tuple[str, ...]]:
    """A text without keys, tokens and passwords, and the kinds of what was taken out."""
    from skep.text import redaction

    done = redaction.redact(text, redaction.SECRETS)
    return (done.text, tuple(kind for kind in done.kinds if kind != "private")) if done.found else (text, ())


def ids_text(found: Sequence[str]) -> str:
    """Ids for a sentence, or a word for none."""
    return ids(found) or "nothing"


def client_name(call: Call) -> str | None:
    """The author: the client as it names itself."""
    name = call.envelope.client.get("name")
    return name[:100] if isinstance(name, str) and name.strip() and name.isprintable() else None


def touch(call: Call, *changed: str) -> None:
    """Note which resources a call changed."""
    call.touched.add(STATS)
    for memory_id in changed:
        call.touched.update(addresses(memory_id))


def default_tools() -> list[Tool]:
    """Few enough that a model keeps them in mind."""

    return [
        tool(remember, title="Remember"),
        tool(recall, title="Recall", reads=True),
        tool(revise, title="Revise a memory", repeats=True),
        tool(forget, title="Forget for good", destroys=True, repeats=True),
        tool(link, title="Links of memories", repeats=True),
        tool(resolve, title="Conflicts", repeats=True),
        tool(report_outcome, title="Report how a task went"),
        tool(recommend, title="What worked before", reads=True),
    ]


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
    steps: Annotated[list[str], Meta(description="What you did, in order, as run_tests(unit).")] = [],  # noqa: B006
    lesson: Annotated[
        str | None, Meta(description="What to do the same way, or differently, next time.")
    ] = None,
    task_type: Annotated[str | None, Meta(description="Kind of task, such as deploy or bugfix.")] = None,
    domain: str | None = None,
    grade: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | None,
        Meta(description="How well it went, 0 to 1, where that says more than success."),
    ] = None,
) -> str:
    """Report how a task went and which memories it relied on. Memories that helped are trusted more, those
    that misled less, and what worked can be recommended next time. Call it once per task, when you know the
    result."""
    learnt = call.bank().learn(
        task,
        success if grade is None else grade,
        used=used,
        steps=steps,
        task_type=task_type,
        domain=domain,
        lesson=lesson,
        agent=client_name(call),
    )
    touch(call, *learnt.moved)
    lines = [f"recorded {'success' if learnt.outcome.success else 'failure'} [{learnt.outcome.id}]"]
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
        from skep.lifecycle.judge import LLMJudge
        from skep.llm.language_model import LLM, CommandSource

        found = call.bank().maintain(
            dry_run=dry_run,
            judge=LLMJudge(LLM(CommandSource(judge), timeout=120.0)) if judge and not dry_run else None,
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
        tool(memory_status, title="Memory status", reads=True),
        tool(maintain_with(judge), title="Clean up", destroys=True, repeats=True, long=True),
        tool(pending_judgements, title="Questions that wait", reads=True),
        tool(resolve_judgement, title="Answer a question", destroys=True, repeats=True),
    ]
