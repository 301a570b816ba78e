"""LLM: one client for services over HTTP, a command and a function.

It keeps a budget, tries again with pauses where a service is busy, holds a deadline over all tries, checks JSON answers
against a type and asks once more where they do not fit. What a model says is text from a stranger: whoever calls this
checks it. Keys and addresses are arguments; an entry point passes its environment to `open_llm`.
"""

from __future__ import annotations

import http.client
import json
import math
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from skep.clock import system_now
from skep.embedding.remote import BUSY, Retry, ollama_address, retry_after
from skep.errors import BudgetError, ConfigError, LLMError, did_you_mean
from skep.llm.budget import AROUND, Budget, Price, Spent, most_tokens
from skep.llm.chat_services import CHAT_SERVICES, LENGTH, ChatService, Part, Question, pieces
from skep.llm.http_call import FAILED, posted
from skep.text.terms import count_tokens

T = TypeVar("T")

WIDE = 1.72
"""What a sign outside ASCII takes at most, on average."""
LONGEST = 1 << 23
"""The most bytes of an answer that are read."""
TIMEOUT = 60.0
ANSWER = 1000
"""The most tokens of an answer, unless the caller says otherwise."""
RETRY = Retry(attempts=3)
USED_UP = ("insufficient_quota", "billing_hard_limit", "credit balance")
"""What a service says when waiting does not help."""


def tokens_of(text: str) -> int:
    """About what a text takes; rather too much, where it is not written in Latin letters, than too little."""
    plain = text.encode("ascii", "ignore").decode()
    return count_tokens(plain) + math.ceil(WIDE * (len(text) - len(plain)))


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a model and what it took."""

    text: str
    tokens_in: int = 0
    tokens_out: int = 0
    money: float = 0.0
    cut: bool = False
    """True if the answer was cut at its longest."""

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out


class _Busy(Exception):
    """Worth another try, after so many seconds; `read` says whether the question was read and so paid for."""

    def __init__(self, problem: str, wait: float | None = None, *, read: bool = False) -> None:
        self.problem, self.wait, self.read = problem, wait, read
        super().__init__(problem)


class _Broken(Exception):
    """An answer came, was paid for, and cannot be used."""

    def __init__(self, problem: str, tokens_in: int | None, tokens_out: int) -> None:
        self.problem, self.tokens_in, self.tokens_out = problem, tokens_in, tokens_out
        super().__init__(problem)


class Source(Protocol):
    """Where answers come from."""

    name: str

    def send(self, question: Question, seconds: float) -> Part:
        """The whole answer."""
        ...

    def stream(self, question: Question, seconds: float) -> Iterator[Part]:
        """The answer piece by piece."""
        ...


class LLM:
    """A language model. Make one with `open_llm`.

    Args:
        source: Where answers come from.
        model: The model's name.
        price: The price of a million tokens, in and out alike or as a `Price`.
        budget: What may be spent; None sets no limit. Several models may share one.
        timeout: Seconds for one call, all tries together.
        retry: Tries and pauses.
        sleep: Called between tries.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        source: Source,
        model: str = "",
        *,
        price: Price | float = 0.0,
        budget: Budget | None = None,
        timeout: float = TIMEOUT,
        retry: Retry = RETRY,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.source, self.model = source, model
        self.price = price if isinstance(price, Price) else Price(input=price, output=price)
        self.budget = budget or Budget(max_tokens=None)
        self.timeout, self._retry, self._sleep, self._clock = timeout, retry, sleep, clock

    @property
    def name(self) -> str:
        """Service and model, such as `ollama:llama3.2`."""
        return f"{self.source.name}:{self.model}" if self.model else self.source.name

    @property
    def spent(self) -> Spent:
        """What was spent from the budget."""
        return self.budget.spent

    def ask(
        self,
        prompt: str,
        *,
        system: str | None = None,
        max_tokens: int = ANSWER,
        schema: Mapping[str, Any] | None = None,
    ) -> Reply:
        """One answer.

        Raises:
            BudgetError: It does not fit into the budget; nothing was asked.
            LLMError: There is no answer; the message says why and what to do.
        """
        question = self._question(prompt, system, max_tokens, schema)
        ends = self._clock() + self.timeout
        paid = 0
        for attempt in range(self._retry.attempts):
            call = _Call(question)
            try:
                with self._held(call):
                    part = call.sent(self.source.send(call.question, max(0.001, ends - self._clock())))
            except _Busy as busy:
                paid += call.tokens
                if attempt + 1 == self._retry.attempts or not self._waited(attempt, busy, ends):
                    tries = f"; gave up after {attempt + 1} tries" if attempt else ""
                    raise LLMError(f"{busy.problem}{tries}", tokens=paid, passing=True) from busy.__cause__
            except _Broken as broken:
                raise LLMError(broken.problem, tokens=paid + call.tokens) from broken.__cause__
            else:
                return Reply(
                    text=part.text,
                    tokens_in=call.tokens_in,
                    tokens_out=call.tokens_out,
                    money=self.price.of(call.tokens_in, call.tokens_out),
                    cut=part.ended in LENGTH,
                )
        raise AssertionError("a loop without a try")

    def ask_json(
        self, prompt: str, kind: type[T], *, system: str | None = None, max_tokens: int = ANSWER
    ) -> T:
        """An answer of a type, checked; where it does not fit, it is asked for once more with what was wrong.

        Args:
            prompt: The question. The schema of the answer is added to it.
            kind: What msgspec can decode: a `Struct`, a `list[...]` and the like.
            system: Standing instructions.
            max_tokens: The most tokens of one answer.
        """
        schema = msgspec.json.schema(kind)
        shape = msgspec.json.encode(schema).decode()
        asked = f"{prompt}\n\nAnswer with JSON alone. Its JSON schema: {shape}"
        tokens, problem = 0, ""
        for _ in range(2):
            again = f"\n\nYour last answer could not be used: {problem}. Answer again." if problem else ""
            try:
                reply = self.ask(asked + again, system=system, max_tokens=max_tokens, schema=schema)
            except BudgetError as error:
                if not problem:
                    raise
                raise LLMError(f"{problem}; and {error}", tokens=tokens) from error
            tokens += reply.tokens
            try:
                return msgspec.convert(found_json(reply.text), kind, strict=False)
            except (msgspec.ValidationError, ValueError) as error:
                problem = "it was cut at its longest" if reply.cut else str(error)[:300]
        raise LLMError(f"{self.name} gave no usable JSON, asked twice: {problem}", tokens=tokens)

    def stream(self, prompt: str, *, system: str | None = None, max_tokens: int = ANSWER) -> Iterator[str]:
        """The answer piece by piece.

        Raises:
            LLMError: Also in the middle, where the answer breaks off. The pieces before were paid for.
        """
        question = self._question(prompt, system, max_tokens, None, stream=True)
        ends = self._clock() + self.timeout
        for attempt in range(self._retry.attempts):
            call, begun = _Call(question), False
            try:
                with self._held(call):
                    for part in self.source.stream(call.question, max(0.001, ends - self._clock())):
                        call.piece(part)
                        if part.problem:
                            raise _Busy(f"{self.name} broke off: {part.problem}", read=True)
                        if part.text:
                            begun = True
                            yield part.text
                    if not call.ended:
                        raise _Busy(f"{self.name} broke off in the middle of its answer", read=True)
                return
            except _Busy as busy:
                if begun or attempt + 1 == self._retry.attempts or not self._waited(attempt, busy, ends):
                    raise LLMError(busy.problem, tokens=call.tokens, passing=True) from busy.__cause__
            except _Broken as broken:
                raise LLMError(broken.problem, tokens=call.tokens) from broken.__cause__

    def _question(
        self,
        prompt: str,
        system: str | None,
        max_tokens: int,
        schema: Mapping[str, Any] | None,
        *,
        stream: bool = False,
    ) -> Question:
        return Question(
            model=self.model, prompt=prompt, system=system, answer=max_tokens, schema=schema, stream=stream
        )

    def _waited(self, attempt: int, busy: _Busy, ends: float) -> bool:
        """Pause before another try; False if the time is over before."""
        wait = self._retry.wait(attempt, busy.wait)
        if self._clock() + wait >= ends:
            return False
        self._sleep(wait)
        return True

    @contextmanager
    def _held(self, call: _Call) -> Generator[None]:
        """Hold a part of the budget while a call runs."""
        question = call.question
        most = most_tokens(question.prompt) + most_tokens(question.system or "") + AROUND
        held = self.budget.reserve(most, question.answer, self.price)
        call.question = msgspec.structs.replace(question, answer=held.answer)
        try:
            yield
        except _Busy as busy:
            if busy.read:
                call.count_question()
            raise
        except _Broken as broken:
            call.tokens_in, call.tokens_out = broken.tokens_in or 0, broken.tokens_out
            if broken.tokens_in is None:
                call.count_question()
            raise
        except GeneratorExit:  # whoever reads a stream may stop: what came until then was paid for
            call.count_question()
            raise
        finally:
            self.budget.settle(held, call.tokens_in, call.tokens_out, self.price)


class _Call:
    """What one call took so far; as the service says, else as its texts say."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.tokens_in = self.tokens_out = 0
        self.ended = False
        self._billed = False
        self._text = ""

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def count_question(self) -> None:
        if not self.tokens_in:
            self.tokens_in = tokens_of(self.question.prompt) + tokens_of(self.question.system or "")

    def sent(self, part: Part) -> Part:
        """A whole answer."""
        self.piece(part)
        if part.problem:
            self.count_question()
            raise _Broken(part.problem, self.tokens_in, self.tokens_out)
        return part

    def piece(self, part: Part) -> None:
        """One piece of an answer."""
        self._text += part.text
        if part.tokens_in:
            self.tokens_in = part.tokens_in
        self.count_question()
        if part.tokens_out is not None:
            self.tokens_out, self._billed = part.tokens_out, True
        elif not self._billed and part.text:
            self.tokens_out = tokens_of(self._text)
        self.ended = self.ended or part.ended is not None


def found_json(text: str) -> Any:
    """The first JSON object or list in a text, in a fence or not.

    >>> found_json('Sure!\\n```json\\n{"a": [1]}\\n``` Bye.')
    {'a': [1]}
    """
    decoder = json.JSONDecoder()
    starts = [place for place, sign in enumerate(text[:LONGEST]) if sign in "{["][:50]
    for place in starts:
        try:
            return decoder.raw_decode(text, place)[0]
        except (ValueError, RecursionError):
            continue
    raise ValueError("there is no JSON in it")


class ServiceSource:
    """A service over HTTP."""

    def __init__(self, service: ChatService, key: str | None, base_url: str | None) -> None:
        key = key.strip() if key else None
        if key and not (key.isascii() and key.isprintable()):
            raise ConfigError("the key of the model holds a sign that no key has; copy it again")
        address = base_url or service.url
        if not address.startswith(("http://", "https://")):
            raise ConfigError(
                f"{address.partition('?')[0]!r} is no address; write it like http://localhost:11434/v1/chat/completions"
            )
        self.name = service.name
        self._service, self._url = service, address.rstrip("/")
        self._official = urlsplit(address).hostname == urlsplit(service.url).hostname
        self._shown = address.partition("?")[0]  # what follows may be a secret
        header = service.key_header
        self._headers = {"content-type": "application/json", **service.headers}
        if header and key:
            self._headers[header[0]] = f"{header[1]}{key}"

    def send(self, question: Question, seconds: float) -> Part:
        """The whole answer; see `Source`."""
        question = msgspec.structs.replace(question, stream=False)
        with self._posted(question, seconds) as response:
            answer = response.read(LONGEST + 1)
            if response.length and len(answer) <= LONGEST:
                raise _Busy(f"{self._shown} broke off in the middle of its answer", read=True)
        if len(answer) > LONGEST:
            raise _Broken(f"the answer of {self._shown} does not end", None, question.answer)
        data: Any = None
        try:
            data = json.loads(answer)
            return self._service.read(data)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError, RecursionError) as error:
            part = self._billed(data)
            what = f"the answer of {self._shown} has an unknown shape ({error!r})"
            said = tokens_of(answer[:LONGEST].decode(errors="replace"))
            known = part.tokens_out if part.tokens_out is not None else said
            raise _Broken(what, part.tokens_in, known) from error

    def _billed(self, data: Any) -> Part:
        """What an answer of an unknown shape says that it took."""
        try:
            return self._service.piece(data if isinstance(data, dict) else {})
        except (KeyError, IndexError, TypeError, AttributeError):
            return Part()

    def stream(self, question: Question, seconds: float) -> Iterator[Part]:
        """The answer piece by piece; see `Source`."""
        with self._posted(question, seconds) as response:
            read = 0

            def lines() -> Iterator[bytes]:
                nonlocal read
                while line := response.readline(LONGEST):
                    read += len(line)
                    if read > LONGEST:
                        raise _Broken(f"the answer of {self._shown} does not end", None, question.answer)
                    yield line

            try:
                for data in pieces(lines(), self._service):
                    yield self._service.piece(data)
            except (KeyError, IndexError, TypeError, AttributeError, json.JSONDecodeError) as error:
                raise _Busy(
                    f"{self._shown} sent a piece that cannot be read ({error!r})", read=True
                ) from error

    @contextmanager
    def _posted(self, question: Question, seconds: float) -> Generator[http.client.HTTPResponse]:
        question = msgspec.structs.replace(question, official=self._official)
        body = json.dumps(self._service.body(question)).encode()
        try:
            with posted(self._address(question), body, self._headers, seconds) as response:
                if response.status != 200:
                    self._refused(response)
                yield response
        except TimeoutError as error:  # the question is read, and paid for
            raise _Busy(f"{self._shown} did not answer in time ({error})", read=True) from error
        except (ConnectionRefusedError, socket.gaierror) as error:
            raise LLMError(
                f"{self._shown} did not answer: {error}; is it running, and is the address right?",
                passing=True,
            ) from error
        except (http.client.IncompleteRead, ConnectionError, http.client.BadStatusLine) as error:
            raise _Busy(f"{self._shown} broke off ({type(error).__name__})", read=True) from error
        except FAILED as error:
            raise LLMError(f"{self._shown} did not answer: {error}", passing=True) from error

    def _address(self, question: Question) -> str:
        path = self._service.path(question)
        base, mark, query = self._url.partition("?")
        whole = base.rstrip("/")
        whole = whole if whole.endswith(path) else whole + path
        return f"{whole}{'&' if mark and '?' in whole else mark}{query}"

    def _refused(self, response: http.client.HTTPResponse) -> None:
        said = response.read(500).decode(errors="replace").strip()
        problem = f"{self._shown} answered {response.status} {response.reason}" + (
            f": {said}" if said else ""
        )
        if response.status in BUSY and not any(word in said for word in USED_UP):
            raise _Busy(problem, retry_after(response.headers.get("retry-after"), system_now()))
        raise LLMError(f"{problem}; check the address, the model's name and the key")


class CommandSource:
    """A program of the user's: the question on its standard input, the answer on its standard output."""

    name = "command"

    def __init__(self, command: Sequence[str]) -> None:
        if not command:
            raise ConfigError("name a program, such as 'command:codex exec -'")
        self._command = list(command)

    def send(self, question: Question, seconds: float) -> Part:
        """The whole answer; see `Source`."""
        prompt = f"{question.system}\n\n{question.prompt}" if question.system else question.prompt
        try:
            done = subprocess.run(
                self._command,
                input=prompt,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=seconds,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            said = str(error.stderr or "").strip().splitlines()
            told = f": {said[-1][:200]}" if said else ""
            raise LLMError(f"{self._command[0]!r} failed (exit status {error.returncode}{told})") from error
        except subprocess.TimeoutExpired as error:
            problem = f"{self._command[0]!r} did not answer in time ({error.timeout:g} s)"
            raise _Broken(problem, None, 0) from error
        except OSError as error:
            raise LLMError(f"{self._command[0]!r} failed ({error})") from error
        if len(done.stdout) > LONGEST:
            raise _Broken(f"the answer of {self._command[0]!r} does not end", None, question.answer)
        return Part(text=done.stdout, ended="stop")

    def stream(self, question: Question, seconds: float) -> Iterator[Part]:
        """One piece: programs are read when they have ended."""
        yield self.send(question, seconds)


class FunctionSource:
    """A function from a question to an answer, in this process."""

    name = "function"

    def __init__(self, function: Callable[[str], str]) -> None:
        self._function = function

    def send(self, question: Question, seconds: float) -> Part:
        """The whole answer; see `Source`. A function ends when it ends."""
        del seconds
        prompt = f"{question.system}\n\n{question.prompt}" if question.system else question.prompt
        try:
            text = cast("object", self._function(prompt))
        except Exception as error:
            raise LLMError(
                f"the function that stands for a model failed ({type(error).__name__}: {error})"
            ) from error
        if not isinstance(text, str):
            raise LLMError(f"the function that stands for a model gave {type(text).__name__}, not a text")
        return Part(text=text, ended="stop")

    def stream(self, question: Question, seconds: float) -> Iterator[Part]:
        """One piece."""
        yield self.send(question, seconds)


def open_llm(
    spec: str | Callable[[str], str],
    *,
    key: str | None = None,
    base_url: str | None = None,
    price: Price | float = 0.0,
    budget: Budget | None = None,
    timeout: float = TIMEOUT,
    environ: Mapping[str, str] | None = None,
    retry: Retry = RETRY,
    sleep: Callable[[float], None] = time.sleep,
) -> LLM:
    """A language model by name.

    Args:
        spec: `openai:MODEL` (any address that is compatible, with `base_url`), `anthropic:MODEL`, `gemini:MODEL`,
            `ollama:MODEL`, `command:PROGRAM ARGUMENTS`, or a function from a prompt to an answer.
        key: The key of the service.
        base_url: Another address that speaks the same dialect; the whole address of its endpoint will do.
        price: The price of a million tokens.
        budget: What may be spent.
        timeout: Seconds for one call, all tries together.
        environ: Where keys and addresses are looked up that are not given; entry points pass `os.environ`.
        retry: Tries and pauses.
        sleep: Called between tries.
    """
    if not isinstance(spec, str):
        source: Source = FunctionSource(spec)
        return LLM(source, price=price, budget=budget, timeout=timeout, retry=retry, sleep=sleep)
    name, _, model = spec.partition(":")
    if name == "command":
        try:
            source = CommandSource(shlex.split(model))
        except ValueError as error:
            raise ConfigError(f"{spec!r} cannot be read: {error}") from error
        return LLM(source, price=price, budget=budget, timeout=timeout, retry=retry, sleep=sleep)
    if name not in CHAT_SERVICES:
        raise ConfigError(
            f"there is no language model {spec!r}; {did_you_mean(name, [*CHAT_SERVICES, 'command'])}"
        )
    service = CHAT_SERVICES[name]
    if not model.strip():
        raise ConfigError(f"name a model, such as '{name}:MODEL'")
    given = environ or {}
    key = key or next((given[each] for each in service.key_variables if given.get(each)), None)
    if base_url is None and service.address_variable and (address := given.get(service.address_variable)):
        base_url = ollama_address(address) if name == "ollama" else address
    if service.key_header and not (key or base_url):
        raise ConfigError(
            f"{name} needs a key; set {service.key_variables[0]} for the commands, pass key in a program, or name the"
            " address of a service without one (base_url)"
        )
    return LLM(
        ServiceSource(service, key, base_url),
        model.strip(),
        price=price,
        budget=budget,
        timeout=timeout,
        retry=retry,
        sleep=sleep,
    )
