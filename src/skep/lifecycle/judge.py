"""Judges that decide about pairs of memories which rules leave open: rules, a language model, or a callable.

All queued pairs go to a judge in one batch, with what it cost. The answer is checked; what is missing or makes no
sense is asked for once more, and then both memories are kept, which is always safe. The judgement queue calls this; it
touches no bank.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, cast, get_args

import msgspec

from skep.errors import JudgeError, LLMError
from skep.llm.language_model import LLM, tokens_of
from skep.model import Memory
from skep.runtime import lazy

Decision = Literal["MERGE", "KEEP_BOTH", "CONTRADICTION", "SUPERSEDED"]
DECISIONS: tuple[str, ...] = get_args(Decision)


_NUMBERED = lazy(
    r"\s*(?:the\s+)?(?P<what>[^\W\d_]\w*(?:\s[^\W\d_]\w*)?)[\s#-]{1,3}(?P<number>\d[\w.-]*)", re.IGNORECASE
)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Two memories and what the rules thought of them."""

    older: Memory
    newer: Memory
    kind: str
    similarity: float
    confidence: float

    @property
    def key(self) -> str:
        """The same for the same two memories."""
        return "|".join(sorted((self.older.id, self.newer.id)))


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """The verdicts of a judge, case by case; None where there is no usable one."""

    decisions: tuple[Decision | None, ...]
    tokens: int = 0
    money: float = 0.0
    problem: str = ""
    """What was wrong with the answer, in words."""


class Judge(Protocol):
    """Decides a batch of cases.

    A judge that costs money may have `price_per_million` (tokens), one that costs nothing `free = True`; limits of
    tokens and money follow them.
    """

    name: str

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """One decision per case, in order."""
        ...


class RulesJudge:
    """No model: a likely update replaces, a likely contradiction is one, and the rest is kept. Nothing is merged.

    Two of a series ("user 7 is an admin", "user 8 is an admin") are two things, however alike they are.
    """

    name = "rules"
    free = True

    def __init__(self, *, sure: float = 0.75) -> None:
        self.sure = sure

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """See the class."""
        return Verdicts(decisions=tuple(self._one(case) for case in cases))

    def _one(self, case: Case) -> Decision:
        if case.confidence < self.sure or _of_a_series(case.older.text, case.newer.text):
            return "KEEP_BOTH"
        if case.kind == "update":
            return "SUPERSEDED"
        return "CONTRADICTION" if case.kind == "contradiction" else "KEEP_BOTH"


def _of_a_series(a: str, b: str) -> bool:
    """True if two texts begin with different numbers of one kind of thing: "user 7 …" and "user 8 …"."""
    one, other = _NUMBERED.match(a), _NUMBERED.match(b)
    if one is None or other is None:
        return False
    return one["what"].lower() == other["what"].lower() and one["number"] != other["number"]


class CallableJudge:
    """Any function from cases to decisions."""

    name = "callable"

    def __init__(self, decide: Callable[[Sequence[Case]], Sequence[str]]) -> None:
        self._decide = decide

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """See the class."""
        given = cast("object", self._decide(cases))
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise JudgeError(
                f"the judge gave {type(given).__name__}, not one decision per pair; both memories are kept"
            )
        answers = list(cast("Sequence[object]", given))
        unknown = [answer for answer in answers if answer is not None and known_word(answer) is None]
        problem = (
            f"{unknown[0]!r:.60} is none of {', '.join(DECISIONS)}; both memories are kept" if unknown else ""
        )
        return Verdicts(decisions=tuple(known_word(answer) for answer in answers), problem=problem)


PROMPT = """You keep the memory of an AI agent clean. For each numbered pair of memories decide one of:
MERGE: both say the same thing; one copy is enough.
KEEP_BOTH: both can be true at once, or you are not sure.
CONTRADICTION: they cannot both be true and it is unclear which holds.
SUPERSEDED: the newer one replaces the older one.
Answer with JSON alone: {"decisions": [{"pair": 1, "decision": "..."}]}

"""


def prompt_for(cases: Sequence[Case]) -> str:
    """One prompt for every case."""
    return PROMPT + "\n".join(_asked(number, case) for number, case in enumerate(cases, 1))


def _asked(number: int, case: Case) -> str:
    older, newer = (json.dumps(memory.text, ensure_ascii=False) for memory in (case.older, case.newer))
    return f"Pair {number}\nolder: {older}\nnewer: {newer}\n"


MARGIN = 1.25
"""What an estimate of the question is multiplied with, so that it is rarely exceeded."""
ANSWER_TOKENS = 40
"""What the answer to one pair takes at most."""
ANSWER_START = 100
"""What stands around the answers."""


def fitting(cases: Sequence[Case], *, tokens: float, money: float, price_per_million: float) -> int:
    """The number of first cases whose questions and answers fit into the rest of the budget."""
    if price_per_million > 0:
        tokens = min(tokens, money / price_per_million * 1_000_000)
    left = tokens - MARGIN * tokens_of(PROMPT) - ANSWER_START
    for number, case in enumerate(cases):
        left -= MARGIN * tokens_of(_asked(number + 1, case)) + ANSWER_TOKENS
        if left < 0:
            return number
    return len(cases)


def read_answer(answer: str, count: int) -> tuple[Decision | None, ...]:
    """The decisions in a judge's answer; None for pairs it left out, decided twice or in words we do not know.

    >>> read_answer('Sure: {"decisions": [{"pair": 2, "decision": "merge"}]}', 2)
    (None, 'MERGE')
    """
    found = re.search(r"\[\s*\{.*\}\s*\]|\{.*\}", answer, re.DOTALL)
    if found is None:
        raise JudgeError("the judge gave no JSON; both memories of every pair are kept")
    try:
        data: Any = json.loads(found.group())
        entries: list[Any] = list(cast("list[Any]", data) if isinstance(data, list) else data["decisions"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise JudgeError(
            f"the judge's answer cannot be read ({error}); both memories of every pair are kept"
        ) from error
    said: list[set[Decision | None]] = [set() for _ in range(count)]
    for entry in entries:
        if isinstance(entry, dict):
            given = cast("dict[str, Any]", entry)
            place = _number(given.get("pair"))
            if 1 <= place <= count:
                said[place - 1].add(known_word(given.get("decision")))
    return tuple(words.pop() if len(words) == 1 else None for words in said)


def _number(value: object) -> int:
    """The number of a pair, written as a number or in quotes; 0 if it is none."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _read(answer: str, count: int, *, tokens: int, money: float = 0.0) -> Verdicts:
    """The text and the cost of an answer; one that cannot be read costs the same."""
    try:
        return Verdicts(decisions=read_answer(answer, count), tokens=tokens, money=money)
    except JudgeError as error:
        return Verdicts(decisions=(None,) * count, tokens=tokens, money=money, problem=str(error))


def known_word(value: object) -> Decision | None:
    """The decision that a word stands for; None if it is none."""
    word = str(value).strip().upper()
    return word if word in DECISIONS else None  # type: ignore[return-value]


class LLMJudge:
    """A language model, asked about the whole batch at once."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.name = llm.source.name
        self.price_per_million = llm.price.dearest

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """One question for the whole batch."""
        try:
            reply = self._llm.ask(prompt_for(cases), max_tokens=ANSWER_TOKENS * len(cases) + ANSWER_START)
        except LLMError as error:
            if not error.tokens:
                raise JudgeError(f"the judge failed ({error}); both memories are kept") from error
            return Verdicts(
                decisions=(None,) * len(cases),
                tokens=error.tokens,
                money=self._llm.price.of(error.tokens, 0),
                problem=f"{error}; both memories are kept",
            )
        return _read(reply.text, len(cases), tokens=reply.tokens, money=reply.money)
