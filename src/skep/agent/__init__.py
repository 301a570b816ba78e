"""Agents on top of a memory: they learn from content, answer with citations, act towards a goal, and run as a process.

An agent works on anything that implements `MemoryBank`: one bank, a hive, or a bank elsewhere. It does not know which.
A language model is optional everywhere; without one the rules do the work, and each result says so.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.agent.agent import Agent
    from skep.agent.answers import Answered, answer
    from skep.agent.learn_content import learn_from_content
    from skep.agent.loop import Decision, Run, Tool


_HOMES = {
    "Agent": "agent",
    "Answered": "answers",
    "Decision": "loop",
    "Run": "loop",
    "Tool": "loop",
    "answer": "answers",
    "learn_from_content": "learn_content",
}

__all__ = ["Agent", "Answered", "Decision", "Run", "Tool", "answer", "learn_from_content"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"skep.agent.{_HOMES[name]}"), name)
