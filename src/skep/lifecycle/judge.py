"""Who decides what rules cannot: rules, an endpoint, an agent's command line, or a callable.

Everything that is queued goes to the judge in one batch. Its answer is checked; what is missing or makes no sense is
asked for once more, and then both memories are kept, which is always safe.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, cast, get_args

import msgspec

from skep.errors import JudgeError
from skep.lifecycle.commands import FailedError, ask
from skep.lifecycle.endpoints import Endpoint, tokens_of
from skep.model import Memory
from skep.patterns import lazy

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
    """What a judge said, case by case; None where it said nothing usable."""

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
    """Whether two texts begin with different numbers of one kind of thing: "user 7 …" and "user 8 …"."""
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
    """How many of the first cases can be asked about within what may still be spent, question and answer."""
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
    """What an answer says and cost; one that cannot be read costs the same."""
    try:
        return Verdicts(decisions=read_answer(answer, count), tokens=tokens, money=money)
    except JudgeError as error:
        return Verdicts(decisions=(None,) * count, tokens=tokens, money=money, problem=str(error))


def known_word(value: object) -> Decision | None:
    """The decision that a word stands for; None if it is none."""
    word = str(value).strip().upper()
    return word if word in DECISIONS else None  # type: ignore[return-value]


class EndpointJudge(Endpoint):
    """A model behind an address."""

    name = "endpoint"

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """One request for the whole batch."""
        try:
            said = self.ask(prompt_for(cases), ANSWER_TOKENS * len(cases) + ANSWER_START)
        except FailedError as error:
            raise JudgeError(f"the judge failed ({error}); both memories are kept") from error
        if said.text is None:
            return Verdicts(
                decisions=(None,) * len(cases),
                tokens=said.tokens,
                money=self.cost(said.tokens),
                problem=f"{said.problem}; both memories are kept",
            )
        return _read(said.text, len(cases), tokens=said.tokens, money=self.cost(said.tokens))


class CommandJudge:
    """The user's own agent as a subprocess: the prompt on standard input, the answer on standard output."""

    name = "command"

    def __init__(self, command: Sequence[str], *, timeout: float = 120.0) -> None:
        self._command, self._timeout = list(command), timeout

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """One call of the command for the whole batch."""
        prompt = prompt_for(cases)
        try:
            answer = ask(self._command, prompt, self._timeout)
        except subprocess.TimeoutExpired as error:
            said = f"the judge {self._command[0]!r} did not answer in time ({error.timeout:g} s)"
            return Verdicts(
                decisions=(None,) * len(cases),
                tokens=tokens_of(prompt),
                problem=f"{said}; both memories are kept",
            )
        except FailedError as error:
            raise JudgeError(
                f"the judge {self._command[0]!r} failed ({error}); both memories are kept"
            ) from error
        return _read(answer, len(cases), tokens=tokens_of(prompt) + tokens_of(answer))
