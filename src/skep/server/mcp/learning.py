"""Tools that close the loop: how a task went, what worked before, and the questions that rules cannot
decide."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from skep.server.mcp.call import Call
from skep.server.mcp.render import ids
from skep.server.mcp.tools import touch


def report_outcome(
    call: Call,
    *,
    task: Annotated[str, Meta(description="What was to be done, in one sentence.", min_length=1)],
    success: bool,
    used: Annotated[
        list[str], Meta(description="Ids of the memories that were relied on, as shown in brackets.")
    ] = [],  # noqa: B006 - read only
    task_type: Annotated[str | None, Meta(description="Kind of task, such as deploy or bugfix.")] = None,
    domain: str | None = None,
) -> str:
    """Report how a task went and which memories it relied on. Memories that helped are trusted more, those
    that misled less, and what worked can be recommended next time. Call it once per task, when you know the
    result."""
    bank: Any = call.bank()
    outcome = bank.learn(task, success, used=used, task_type=task_type, domain=domain)
    touch(call, *used)
    how = "success" if success else "failure"
    return f"recorded {how} [{outcome.id}]" + (f"; counted for {ids(used)}" if used else "")
