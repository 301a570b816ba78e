"""The context budget: what of all there is to say fits before the model's answer. Pure.

Recent messages come first and always fit if anything does; then tool results, then streamed facts and episodes, then
system text in what is left. Nothing is cut in the middle of a memory; one that does not fit is passed over, and a
smaller one after it may still go in. What was left out is reported, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.recall.stream import StreamContext
from skep.tokens import Counter, count_tokens

TOTAL = 1500
TOOLS = 400
FACTS = 200
EPISODES = 200


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Something that did not go in."""

    tier: str
    text: str
    tokens: int
    why: str


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What goes before the model, tier by tier, in the order of the tiers."""

    messages: tuple[str, ...] = ()
    tool_results: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    system: str = ""
    tokens: int = 0
    left_out: tuple[Left, ...] = ()

    def render(self) -> str:
        """Everything in one text: system, memories, tool results, messages."""
        parts = [self.system] if self.system else []
        if self.facts or self.episodes:
            parts.append(
                "What memory says:\n" + "\n".join(f"- {text}" for text in (*self.facts, *self.episodes))
            )
        parts += [*self.tool_results, *self.messages]
        return "\n\n".join(parts)


class _Budget:
    """Tokens that are left, and what did not fit."""

    def __init__(self, total: int, counter: Counter) -> None:
        self.left = total
        self.counter = counter
        self.out: list[Left] = []

    def fill(self, tier: str, texts: Sequence[str], most: int) -> tuple[str, ...]:
        """What of a tier fits, in order, within its own share and what is left of the whole."""
        share = min(most, self.left)
        taken: list[str] = []
        for text in texts:
            tokens = self.counter(text)
            if tokens <= share:
                share -= tokens
                self.left -= tokens
                taken.append(text)
            else:
                whole = (
                    "the whole budget is used up"
                    if share >= self.left
                    else f"over the {most} tokens of this tier"
                )
                self.out.append(Left(tier=tier, text=text, tokens=tokens, why=whole))
        return tuple(taken)

    def newest(self, messages: Sequence[str]) -> tuple[str, ...]:
        """The newest messages that fit; older ones are dropped only as a last resort."""
        taken: list[str] = []
        for message in reversed(messages):
            tokens = self.counter(message)
            if tokens > self.left:
                break
            self.left -= tokens
            taken.append(message)
        for message in messages[: len(messages) - len(taken)]:
            self.out.append(
                Left(tier="messages", text=message, tokens=self.counter(message), why="older than what fits")
            )
        return tuple(reversed(taken))


def build_context(
    messages: Sequence[str] = (),
    tool_results: Sequence[str] = (),
    streamed: StreamContext | None = None,
    system: str = "",
    *,
    facts: Sequence[str] = (),
    episodes: Sequence[str] = (),
    budget: int = TOTAL,
    counter: Counter = count_tokens,
) -> Context:
    """Fill a context by priority.

    Args:
        messages: Recent messages, oldest first.
        tool_results: What the agent asked for, most important first; up to 400 tokens.
        streamed: What `Stream.context()` has; its facts and episodes come before `facts` and `episodes`.
        facts: Streamed facts, best first; up to 200 tokens.
        episodes: Streamed episodes, best first; up to 200 tokens.
        system: Instructions, cut at a line or word to what is left.
        budget: Tokens in all.
        counter: How tokens are counted.
    """
    purse = _Budget(budget, counter)
    kept = purse.newest(messages)
    tools = purse.fill("tool_results", tool_results, TOOLS)
    if streamed is not None:
        facts = [*(hit.memory.text for hit in streamed.facts), *facts]
        episodes = [*(hit.memory.text for hit in streamed.episodes), *episodes]
    known = purse.fill("facts", facts, FACTS)
    happened = purse.fill("episodes", episodes, EPISODES)
    instructions = _cut(system, purse)
    return Context(
        messages=kept,
        tool_results=tools,
        facts=known,
        episodes=happened,
        system=instructions,
        tokens=budget - purse.left,
        left_out=tuple(purse.out),
    )


def _cut(system: str, purse: _Budget) -> str:
    """System text in what is left: whole, or its first words."""
    if not system:
        return ""
    tokens = purse.counter(system)
    if tokens <= purse.left:
        purse.left -= tokens
        return system
    words = system.split(" ")
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        if purse.counter(" ".join(words[:middle])) <= purse.left:
            low = middle
        else:
            high = middle - 1
    taken = " ".join(words[:low])
    purse.left -= purse.counter(taken)
    rest = " ".join(words[low:])
    purse.out.append(
        Left(tier="system", text=rest, tokens=purse.counter(rest), why="the whole budget is used up")
    )
    return taken
