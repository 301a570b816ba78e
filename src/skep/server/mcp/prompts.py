"""Two ready-made requests: one for the start of a task, one for the end of a session."""

from __future__ import annotations

from skep.server.mcp.call import Call
from skep.server.mcp.protocol import Params
from skep.server.mcp.registry import Prompt
from skep.server.mcp.render import hit_line, page

INSTRUCTIONS = (
    "Long-term memory shared across sessions. Before a task, recall what is known about it; do not guess "
    "preferences, conventions or past decisions. Remember what a later session will need: decisions and "
    "their reasons, preferences, corrections, what failed. When memories conflict, decide which holds. After "
    "a task, report_outcome with the ids that were used."
)
"""Shown to the model by clients that pass server instructions on."""

FOUND_TOKENS = 1500


def _recall_first(call: Call, given: dict[str, str]) -> list[Params]:
    task = given["task"]
    bank = call.bank()
    now = bank.engine.now()
    lines = [hit_line(hit, now) for hit in bank.recall(task, limit=10).hits]
    known = page(lines, FOUND_TOKENS, empty="nothing is stored about it yet")
    return [
        _user(
            f"Task: {task}\n\nWhat memory says about it:\n{known}\n\n"
            "Lines marked with ! may no longer hold; check them first. Then do the task. If you learn "
            "something that a later session will need, remember it, and report_outcome when you are done."
        )
    ]


def _end_of_session(_call: Call, given: dict[str, str]) -> list[Params]:
    focus = f" Look above all at: {given['focus']}." if given.get("focus") else ""
    return [
        _user(
            "This session ends. Look back over it and call remember once for each thing a later session "
            "will need: decisions and their reasons, preferences and corrections of the user, how something "
            f"turned out to work, what failed and why.{focus} Leave out what the code already says and what "
            "held only today. Recall first, so that you revise what changed instead of repeating it. Then "
            "call report_outcome for the task, with the ids of the memories that helped or misled you."
        )
    ]


def _user(text: str) -> Params:
    return {"role": "user", "content": {"type": "text", "text": text}}


PROMPTS: tuple[Prompt, ...] = (
    Prompt(
        name="recall_first",
        title="Recall first",
        description="Start a task with what memory knows about it.",
        arguments=(("task", "What is to be done", True),),
        render=_recall_first,
    ),
    Prompt(
        name="end_of_session",
        title="End of session",
        description="Look back over a session and keep what a later one will need.",
        arguments=(("focus", "What to look at above all", False),),
        render=_end_of_session,
    ),
)
