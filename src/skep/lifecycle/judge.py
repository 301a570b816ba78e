"""Judges that decide about pairs of memories which rules leave open: rules, an endpoint, a command, or a callable.

All queued pairs go to a judge in one batch: a prompt on the standard input of the user's own agent, or one request
to an address, with what it cost. The answer is checked; what is missing or makes no sense is asked for once more, and
then both memories are kept, which is always safe. The judgement queue calls this; it touches no bank.
"""

from __future__ import annotations

import http.client
import json
import math
import re
import subprocess
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, cast, get_args

import msgspec

from skep.embedding.remote import opener
from skep.errors import ConfigError, JudgeError
from skep.model import Memory
from skep.runtime import lazy
from skep.text.terms import count_tokens


class FailedError(RuntimeError):
    """A program gave no answer; the message says why."""


def ask(command: Sequence[str], prompt: str, timeout: float) -> str:
    """The answer of a program; raises `FailedError`, or `subprocess.TimeoutExpired` if it takes too long."""
    try:
        done = subprocess.run(
            list(command),
            input=prompt,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = str(error.stderr or "").strip().splitlines()
        raise FailedError(
            f"exit status {error.returncode}" + (f": {said[-1][:200]}" if said else "")
        ) from error
    except OSError as error:
        raise FailedError(str(error)) from error
    return done.stdout


WIDE = 1.72
"""What a sign outside ASCII takes at most, on average."""
LONGEST = 1 << 23
"""The most bytes of an answer that are read."""

Style = Literal["openai", "anthropic"]


def tokens_of(text: str) -> int:
    """About what a text takes; rather too much, where it is not written in Latin letters, than too little."""
    plain = text.encode("ascii", "ignore").decode()
    return count_tokens(plain) + math.ceil(WIDE * (len(text) - len(plain)))


class Said(NamedTuple):
    """The answer and its cost. Without a text, `problem` says in words what was wrong with the answer."""

    text: str | None
    tokens: int
    problem: str = ""


class Endpoint:
    """Any OpenAI-compatible or Anthropic endpoint.

    Args:
        url: Such as `http://localhost:11434/v1/chat/completions` or `https://api.anthropic.com/v1/messages`. Where it
            sends on to another address, that is not followed: the key is meant for this one.
        model: The model's name.
        key: The API key, if one is needed.
        style: The shape of the request; by default Anthropic's for an address that ends in `/messages`.
        price_per_million: What a million tokens cost, to count the money spent.
        timeout: How many seconds an answer may take.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key: str | None = None,
        style: Style | None = None,
        price_per_million: float = 0.0,
        timeout: float = 60.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"{url.partition('?')[0]!r} is no address; write it like http://localhost:11434/v1/chat/completions"
            )
        key = key.strip() if key else None
        if key and not (key.isascii() and key.isprintable()):
            raise ConfigError("the key of the endpoint holds a sign that no key has; copy it again")
        self.url, self._model, self._key, self._timeout = url, model, key, timeout
        self._shown = url.partition("?")[0]  # what follows may be a secret
        self._style = style or ("anthropic" if self._shown.rstrip("/").endswith("/messages") else "openai")
        self.price_per_million = price_per_million

    def ask(self, prompt: str, most: int) -> Said:
        """One request; the answer may take `most` tokens.

        Raises:
            FailedError: There was no answer, and nothing was spent.
        """
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": most,
            "temperature": 0,
        }
        headers = {"content-type": "application/json"}
        if self._style == "anthropic":
            headers |= {"x-api-key": self._key or "", "anthropic-version": "2023-06-01"}
        elif self._key:
            headers["authorization"] = f"Bearer {self._key}"
        request = urllib.request.Request(self.url, json.dumps(body).encode(), headers)
        try:
            with opener.open(request, timeout=self._timeout) as response:
                answer: bytes = response.read(LONGEST + 1)
        except (TimeoutError, http.client.IncompleteRead) as error:  # the question is read, and paid for
            return Said(None, tokens_of(prompt), f"{self._shown} did not answer in time ({error})")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise FailedError(f"{self._shown} did not answer: {error}") from error
        if len(answer) > LONGEST:
            return Said(None, tokens_of(prompt) + most, f"the answer of {self._shown} does not end")
        tokens: int | None = None
        try:
            data: Any = json.loads(answer)
            tokens = self._billed(data.get("usage"))
            text = self._text_of(data)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
            said = prompt + answer.decode(errors="replace")
            what = f"the answer of {self._shown} has an unknown shape ({error!r})"
            return Said(None, tokens or tokens_of(said), what)
        return Said(text, tokens or tokens_of(prompt) + tokens_of(text))

    def cost(self, tokens: int) -> float:
        """The price of so many tokens."""
        return tokens * self.price_per_million / 1_000_000

    def _text_of(self, data: Any) -> str:
        if self._style == "anthropic":
            return "".join(part["text"] for part in data["content"] if "text" in part)
        return str(data["choices"][0]["message"]["content"] or "")

    def _billed(self, usage: object) -> int | None:
        if self._style == "anthropic":
            cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
            return billed(usage, "input_tokens", "output_tokens", *cached)
        return billed(usage, "total_tokens") or billed(usage, "prompt_tokens", "completion_tokens")


def billed(usage: object, *names: str) -> int | None:
    """The tokens that an endpoint says were used, the counts of these names together; None if it does not say.

    >>> billed({"input_tokens": 5, "output_tokens": 7}, "input_tokens", "output_tokens")
    12
    >>> billed({"total_tokens": "many"}, "total_tokens") is None
    True
    """
    given = cast("dict[str, object]", usage) if isinstance(usage, dict) else {}
    counts = [given.get(name) or 0 for name in names]
    if not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 53 for n in counts):
        return None
    return sum(cast("list[int]", counts)) or None


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
