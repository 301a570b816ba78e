"""The context budget: what of all there is to say fits before the model's answer. Pure.

Recent messages come first and always fit if anything does: of the newest one at least the beginning. Then tool results,
then streamed facts and episodes, then system text in what is left. Nothing is cut in the middle of a memory: a tool
result that is too long is cut between two lines. A memory that does not fit is passed over, and a smaller one after it
may still go in. What was left out is reported, with the reason.
The budget holds for the text as it is rendered, with its heading, bullets and blank lines.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from skep.errors import WrongTypeError
from skep.model import Hit
from skep.recall.memory_stream import StreamContext, as_text
from skep.text.terms import Counter, count_tokens
from skep.validation import clean_call, clean_count

Message = str | Mapping[str, Any]
"""A text, or a message as chat APIs have it: `role`, and `content` as a string or a list of parts."""
TOTAL = 1500
TOOLS = 400
FACTS = 200
EPISODES = 200
HEADING = "What memory says:"
BULLET = "- "
BREAK = "\n\n"
MORE = " …"
FULL = "the whole budget is used up"
SAID, EMPTY = "said already", "nothing but blanks"
_MEMORY = re.compile(r"^(?=\S)", re.MULTILINE)
"""Where a memory of a tool result begins: a line that is not set in."""
_WORD = re.compile(r"\S+")


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Something that did not go in."""

    tier: str
    text: str
    tokens: int
    why: str


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The texts that go before the model, tier by tier, in the order of the tiers."""

    messages: tuple[str, ...] = ()
    tool_results: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    episodes: tuple[str, ...] = ()
    system: str = ""
    tokens: int = 0
    """What `render` takes."""
    left_out: tuple[Left, ...] = ()

    def render(self) -> str:
        """Everything in one text: system, memories, tool results, messages."""
        parts = [self.system] if self.system else []
        if self.facts or self.episodes:
            lines = [HEADING, *(f"{BULLET}{text}" for text in (*self.facts, *self.episodes))]
            parts.append("\n".join(lines))
        parts += [*self.tool_results, *self.messages]
        return BREAK.join(parts)


class _Budget:
    """Tokens that are left, and what did not fit."""

    def __init__(self, total: int, counter: Counter) -> None:
        self.left = total
        self.counter = counter
        self.out: list[Left] = []
        self.begun = False
        self._said: set[str] = set()

    def pay(self, text: str, *, listed: bool = False) -> bool:
        """Take a text if it fits, with what parts it from the rest; `listed` ones stand in a list."""
        tokens = self.counter(self._standing(text, listed=listed))
        if tokens > self.left:
            return False
        self.left -= tokens
        self.begun = True
        return True

    def _standing(self, text: str, *, listed: bool = False) -> str:
        if listed:
            return f"\n{BULLET}{text}"
        return BREAK + text if self.begun else text

    def drop(self, tier: str, text: str, why: str) -> None:
        """Note what did not go in."""
        self.out.append(Left(tier=tier, text=text, tokens=self.counter(text), why=why))

    def fill(self, tier: str, texts: Sequence[str], most: int) -> tuple[str, ...]:
        """The texts of a tier that fit, in order, within its own share and the rest of the whole."""
        share = most
        taken: list[str] = []
        listed = tier in ("facts", "episodes")
        for text in texts:
            if listed and (text in self._said or not text.strip()):
                self.drop(tier, text, SAID if text.strip() else EMPTY)
                continue
            if not listed and (rest := self._over(text, share)):
                text = text[: -len(rest)].rstrip("\n")
                self.drop(tier, rest, f"over the {most} tokens of this tier")
            tokens = self.counter(text)
            if tokens > share:
                self.drop(tier, text, f"over the {most} tokens of this tier")
            elif self.pay(text, listed=listed):
                share -= tokens
                taken.append(text)
                self._said.add(text)
            else:
                self.drop(tier, text, FULL)
        return tuple(taken)

    def _over(self, text: str, share: int) -> str:
        """The lines of a tool result from the first memory on that does not fit, if one before it does.

        Lines that are set in belong to the memory above them.
        """
        most = min(share, self.left)
        if self.counter(self._standing(text)) <= most:
            return ""
        starts = [found.start() for found in _MEMORY.finditer(text)]
        fitting = bisect_right(
            starts, most, key=lambda start: self.counter(self._standing(text[:start].rstrip("\n")))
        )
        return text[starts[fitting - 1] :] if fitting > 1 else ""

    def newest(self, messages: Sequence[str]) -> tuple[str, ...]:
        """The newest messages that fit, of the newest at least the beginning; older ones go as a last resort."""
        taken: list[str] = []
        for message in reversed(messages):
            if not self.pay(message):
                break
            taken.append(message)
        older = messages[: len(messages) - len(taken)]
        if messages and not taken:
            older = messages[:-1]
            beginning, rest = self.cut(messages[-1], more=MORE)
            taken = [beginning] if beginning else []
            self.drop("messages", rest, "cut off: the newest message alone is over the budget")
        for message in older:
            self.drop("messages", message, "older than what fits")
        return tuple(reversed(taken))

    def cut(self, text: str, more: str = "") -> tuple[str, str]:
        """The beginning of a text that fits, at a word if one does, and the rest; `more` stands where it was cut."""
        if self.pay(text):
            return text, ""
        words = [found.end() for found in _WORD.finditer(text)]
        for ends in (words, range(1, len(text))):
            fitting = bisect_right(
                ends, self.left, key=lambda end: self.counter(self._standing(text[:end] + more))
            )
            if fitting:
                end = ends[fitting - 1]
                self.pay(text[:end] + more)
                return text[:end] + more, text[end:].lstrip()
        return "", text


def build_context(
    messages: Sequence[Message] = (),
    tool_results: Sequence[Message | Hit] = (),
    streamed: StreamContext | None = None,
    system: str = "",
    *,
    facts: Sequence[str | Hit] = (),
    episodes: Sequence[str | Hit] = (),
    budget: int = TOTAL,
    counter: Counter | None = None,
) -> Context:
    """Fill a context by priority. What it renders to never takes more than the budget.

    Args:
        messages: Recent messages, oldest first: strings, or mappings with `role` and `content` as chat APIs have them,
            which go in as "role: content". Content may be a list of parts, of which those that are no text are named
            in brackets. Where not even the newest fits, its beginning goes in.
        tool_results: What the agent asked for, most important first; up to 400 tokens. Strings, such mappings, or hits
            of `search_memory`. One that is longer is cut between memories: before a line that is not set in.
        streamed: What `Stream.context()` has; its facts and episodes come before `facts` and `episodes`.
        facts: Streamed facts or hits, best first; up to 200 tokens. What a tool result says goes in once.
        episodes: Streamed episodes or hits, best first; up to 200 tokens.
        system: Instructions, cut at a word to what is left.
        budget: Tokens in all, headings and bullets included.
        counter: How tokens are counted; by default without a tokenizer, see `skep.text.terms`.
    """
    budget = clean_count("budget", budget, 0, 1 << 40)
    count: Counter = clean_call("counter", counter) or count_tokens
    tiers = {
        "messages": _told("messages", messages),
        "tool_results": _told("tool_results", tool_results),
        "facts": _texts("facts", facts),
        "episodes": _texts("episodes", episodes),
    }
    if not isinstance(system, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise WrongTypeError(f"system must be a string, got {type(system).__name__}", field="system")
    if streamed is not None:
        if not isinstance(streamed, StreamContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(
                f"streamed must be what Stream.context() gave, got {type(streamed).__name__}",
                field="streamed",
            )
        tiers["facts"] = [*(hit.memory.text for hit in streamed.facts), *tiers["facts"]]
        tiers["episodes"] = [*(hit.memory.text for hit in streamed.episodes), *tiers["episodes"]]
    for kept_back in (0, budget // 16, budget // 4, budget // 2):
        context = _filled(tiers, system, budget - kept_back, count)
        if context.tokens <= budget:  # a counter may find more in the whole than in its parts
            return context
    return _filled(tiers, system, 0, count)


def _told(field: str, messages: Iterable[Message | Hit]) -> list[str]:
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):  # pyright: ignore
        raise WrongTypeError(
            f"{field} must be a list of strings or of mappings with role and content,"
            f" got {type(cast('object', messages)).__name__}",
            field=field,
        )
    return [
        message.memory.text if isinstance(message, Hit) else as_text(message, field) for message in messages
    ]


def _texts(field: str, texts: Iterable[str | Hit]) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):  # pyright: ignore
        raise WrongTypeError(f"{field} must be a list of strings, got {type(texts).__name__}", field=field)
    found = [text.memory.text if isinstance(text, Hit) else text for text in texts]
    for text in found:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongTypeError(f"{field} must hold strings, got {type(text).__name__}", field=field)
    return found


def _filled(tiers: dict[str, list[str]], system: str, total: int, counter: Counter) -> Context:
    purse = _Budget(total, counter)
    kept = purse.newest(tiers["messages"])
    tools = purse.fill("tool_results", tiers["tool_results"], TOOLS)
    known: tuple[str, ...] = ()
    happened: tuple[str, ...] = ()
    if tiers["facts"] or tiers["episodes"]:
        before = purse.left
        begun = purse.begun
        if purse.pay(HEADING):
            known = purse.fill("facts", tiers["facts"], FACTS)
            happened = purse.fill("episodes", tiers["episodes"], EPISODES)
        else:
            for tier in ("facts", "episodes"):
                for text in tiers[tier]:
                    purse.drop(tier, text, FULL)
        if not known and not happened:
            purse.left, purse.begun = before, begun
    instructions, rest = purse.cut(system) if system else ("", "")
    if rest:
        purse.drop("system", rest, FULL)
    context = Context(messages=kept, tool_results=tools, facts=known, episodes=happened, system=instructions)
    rendered = context.render()
    return msgspec.structs.replace(
        context, tokens=counter(rendered) if rendered else 0, left_out=tuple(purse.out)
    )
