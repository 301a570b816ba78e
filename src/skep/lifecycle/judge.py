"""Who decides what rules cannot: rules, an endpoint, an agent's command line, or a callable.

Everything that is queued goes to the judge in one batch. Its answer is checked; what is missing or makes no sense is
asked for once more, and then both memories are kept, which is always safe.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, cast, get_args

import msgspec

from skep.errors import JudgeError
from skep.model import Memory

Decision = Literal["MERGE", "KEEP_BOTH", "CONTRADICTION", "SUPERSEDED"]
DECISIONS: tuple[str, ...] = get_args(Decision)


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
    """No model: an update that is likely enough replaces, a likely duplicate merges, the rest stays."""

    name = "rules"
    free = True

    def __init__(self, *, sure: float = 0.75) -> None:
        self.sure = sure

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """See the class."""
        return Verdicts(decisions=tuple(self._one(case) for case in cases))

    def _one(self, case: Case) -> Decision:
        if case.confidence < self.sure:
            return "KEEP_BOTH"
        if case.kind == "update":
            return "SUPERSEDED"
        return "CONTRADICTION" if case.kind == "contradiction" else "KEEP_BOTH"


class CallableJudge:
    """Any function from cases to decisions."""

    name = "callable"

    def __init__(self, decide: Callable[[Sequence[Case]], Sequence[str]]) -> None:
        self._decide = decide

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """See the class."""
        try:
            given = cast("object", self._decide(cases))
        except Exception as error:  # whatever it is, the run goes on, and the report says what happened
            raise JudgeError(
                f"the judge failed ({type(error).__name__}: {error}); both memories are kept"
            ) from error
        if not isinstance(given, Sequence) or isinstance(given, str):
            raise JudgeError(
                f"the judge gave {type(given).__name__}, not one decision per pair; both memories are kept"
            )
        answers = list(cast("Sequence[object]", given))
        padded = answers[: len(cases)] + [""] * (len(cases) - len(answers))
        return Verdicts(decisions=tuple(_known(answer) for answer in padded))


PROMPT = """You keep the memory of an AI agent clean. For each numbered pair of memories decide one of:
MERGE: both say the same thing; one copy is enough.
KEEP_BOTH: both can be true at once, or you are not sure.
CONTRADICTION: they cannot both be true and it is unclear which holds.
SUPERSEDED: the newer one replaces the older one.
Answer with JSON alone: {"decisions": [{"pair": 1, "decision": "..."}]}

"""


def prompt_for(cases: Sequence[Case]) -> str:
    """One prompt for every case."""
    parts = [
        f"Pair {number}\nolder: {json.dumps(case.older.text)}\nnewer: {json.dumps(case.newer.text)}\n"
        for number, case in enumerate(cases, 1)
    ]
    return PROMPT + "\n".join(parts)


PROMPT_CHARACTERS = 3.0
"""Characters per token, on the low side, so that an estimate is rarely exceeded."""
ANSWER_TOKENS = 40
"""What the answer to one pair takes at most."""


def expected_tokens(cases: Sequence[Case]) -> int:
    """About what a batch takes, question and answer; rather too much than too little."""
    return int(len(prompt_for(cases)) / PROMPT_CHARACTERS) + ANSWER_TOKENS * len(cases) if cases else 0


def fitting(cases: Sequence[Case], *, tokens: float, money: float, price_per_million: float) -> int:
    """How many of the first cases can be asked about within what may still be spent."""
    if price_per_million > 0:
        tokens = min(tokens, money / price_per_million * 1_000_000)
    low, high = 0, len(cases)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if expected_tokens(cases[:middle]) <= tokens else (low, middle - 1)
    return low


def read_answer(answer: str, count: int) -> tuple[Decision | None, ...]:
    """The decisions in a judge's answer; None for pairs it left out or decided in words we do not know.

    >>> read_answer('Sure: {"decisions": [{"pair": 2, "decision": "merge"}]}', 2)
    (None, 'MERGE')
    """
    found = re.search(r"\{.*\}", answer, re.DOTALL)
    if found is None:
        raise JudgeError("the judge gave no JSON; both memories of every pair are kept")
    try:
        data: Any = json.loads(found.group())
        entries: list[Any] = list(data["decisions"])
    except (ValueError, KeyError, TypeError) as error:
        raise JudgeError(
            f"the judge's answer cannot be read ({error}); both memories of every pair are kept"
        ) from error
    decisions: list[Decision | None] = [None] * count
    for entry in entries:
        if isinstance(entry, dict):
            given = cast("dict[str, Any]", entry)
            place = given.get("pair")
            if isinstance(place, int) and 1 <= place <= count:
                decisions[place - 1] = _known(given.get("decision"))
    return tuple(decisions)


def _known(value: object) -> Decision | None:
    word = str(value).strip().upper()
    return word if word in DECISIONS else None  # type: ignore[return-value]


class EndpointJudge:
    """Any OpenAI-compatible or Anthropic endpoint, on the standard library.

    Args:
        url: Such as `http://localhost:11434/v1/chat/completions` or `https://api.anthropic.com/v1/messages`.
        model: The model's name.
        key: The API key, if one is needed.
        style: The shape of the request.
        price_per_million: What a million tokens cost, to count the money spent.
    """

    name = "endpoint"

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        style: Literal["openai", "anthropic"] = "openai",
        price_per_million: float = 0.0,
        timeout: float = 60.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise JudgeError(
                f"{url!r} is no address; write it like http://localhost:11434/v1/chat/completions"
            )
        self._url, self._model, self._key = url, model, key
        self._style, self.price_per_million, self._timeout = style, price_per_million, timeout

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """One request for the whole batch."""
        messages = [{"role": "user", "content": prompt_for(cases)}]
        body = {
            "model": self._model,
            "messages": messages,
            "max_tokens": ANSWER_TOKENS * len(cases) + 200,
            "temperature": 0,
        }
        headers = {"content-type": "application/json"}
        if self._style == "anthropic":
            headers |= {"x-api-key": self._key or "", "anthropic-version": "2023-06-01"}
        elif self._key:
            headers["authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as response:
                data: Any = json.load(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise JudgeError(
                f"the judge at {self._url} did not answer ({error}); both memories are kept"
            ) from error
        try:
            usage: Any = data.get("usage") or {}
            if self._style == "anthropic":
                text = "".join(part["text"] for part in data["content"] if "text" in part)
                tokens = int((usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0))
            else:
                text = str(data["choices"][0]["message"]["content"] or "")
                tokens = int(usage.get("total_tokens") or 0)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise JudgeError(
                f"the judge's answer has an unknown shape ({error!r}); both memories are kept"
            ) from error
        return Verdicts(
            decisions=read_answer(text, len(cases)),
            tokens=tokens,
            money=tokens * self.price_per_million / 1_000_000,
        )


class CommandJudge:
    """The user's own agent as a subprocess: the prompt on standard input, the answer on standard output."""

    name = "command"

    def __init__(self, command: Sequence[str], *, timeout: float = 120.0) -> None:
        self._command, self._timeout = list(command), timeout

    def decide(self, cases: Sequence[Case]) -> Verdicts:
        """One call of the command for the whole batch."""
        prompt = prompt_for(cases)
        try:
            done = subprocess.run(
                self._command, input=prompt, capture_output=True, text=True, timeout=self._timeout, check=True
            )
        except subprocess.CalledProcessError as error:
            said = str(error.stderr or "").strip().splitlines()
            why = f"exit status {error.returncode}" + (f": {said[-1][:200]}" if said else "")
            raise JudgeError(
                f"the judge {self._command[0]!r} failed ({why}); both memories are kept"
            ) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise JudgeError(
                f"the judge {self._command[0]!r} failed ({error}); both memories are kept"
            ) from error
        tokens = (len(prompt) + len(done.stdout)) // 4
        return Verdicts(decisions=read_answer(done.stdout, len(cases)), tokens=tokens)
