"""Budget: what a run may spend on a language model, reserved before each call and settled after it.

A call reserves the most it can cost: one token for each byte of the question (no tokenizer in use makes more), and the
longest answer that is asked for. So the limit holds, also where several threads ask at once. Pure but for a lock.
"""

from __future__ import annotations

import threading

import msgspec

from skep.errors import BudgetError, InvalidInputError

AROUND = 64
"""Tokens that a service may put around a question."""
LEAST = 16
"""An answer of fewer tokens is not worth asking for."""
MILLION = 1_000_000


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of a million tokens that go in, and of a million that come out."""

    input: float = 0.0
    output: float = 0.0

    @property
    def dearest(self) -> float:
        """The larger of the two."""
        return max(self.input, self.output)

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """The price of so many tokens.

        >>> Price(input=1.0, output=4.0).of(1_000_000, 500_000)
        3.0
        """
        return (tokens_in * self.input + tokens_out * self.output) / MILLION


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent: calls, tokens in and out, and money where a price is known."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    money: float = 0.0

    @property
    def tokens(self) -> int:
        """Tokens in and out."""
        return self.tokens_in + self.tokens_out

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            calls=self.calls + other.calls,
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            money=self.money + other.money,
        )

    def __sub__(self, other: Spent) -> Spent:
        return Spent(
            calls=self.calls - other.calls,
            tokens_in=self.tokens_in - other.tokens_in,
            tokens_out=self.tokens_out - other.tokens_out,
            money=self.money - other.money,
        )

    def line(self) -> str:
        """In one readable line.

        >>> Spent(calls=2, tokens_in=900, tokens_out=100, money=0.004).line()
        '2 calls, 1,000 tokens (900 in, 100 out), 0.0040 money'
        """
        money = f", {self.money:.4f} money" if self.money else ""
        calls = "1 call" if self.calls == 1 else f"{self.calls} calls"
        return f"{calls}, {self.tokens:,} tokens ({self.tokens_in:,} in, {self.tokens_out:,} out){money}"


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a budget that one call holds while it runs."""

    tokens: int
    money: float
    answer: int
    """The longest answer that may be asked for."""


def most_tokens(text: str) -> int:
    """The most tokens that a text can be: one for each of its bytes.

    >>> most_tokens("tea"), most_tokens("茶")
    (3, 3)
    """
    return len(text.encode("utf-8", "replace"))


class Budget:
    """What a run may spend.

    Args:
        max_tokens: The most tokens, in and out; None sets no limit.
        max_money: The most money, in the currency of the price; None sets no limit.
        max_calls: The most calls; None sets no limit. It stops what loops without spending much.
    """

    def __init__(
        self,
        max_tokens: int | None = 100_000,
        max_money: float | None = None,
        max_calls: int | None = None,
    ) -> None:
        for name, value in (("max_tokens", max_tokens), ("max_money", max_money), ("max_calls", max_calls)):
            if value is not None and not value >= 0:
                raise InvalidInputError(f"{name} must be 0 or more, got {value}", field=name)
        self.max_tokens, self.max_money, self.max_calls = max_tokens, max_money, max_calls
        self._spent = Spent()
        self._held_tokens, self._held_money, self._held_calls = 0, 0.0, 0
        self._lock = threading.Lock()

    @property
    def spent(self) -> Spent:
        """What was spent so far."""
        return self._spent

    def reserve(self, question: int, answer: int, price: Price) -> Held:
        """Hold what a call can cost at most; a long answer is cut to what is left.

        Args:
            question: The most tokens that the question can be.
            answer: The most tokens that the answer may be.
            price: The price of tokens.

        Raises:
            BudgetError: Not even a short answer fits. Nothing was asked.
        """
        with self._lock:
            if self.max_calls is not None and self._spent.calls + self._held_calls >= self.max_calls:
                raise BudgetError(
                    f"the budget of {self.max_calls} calls is used up; raise max_calls to go on"
                )
            if self.max_money is not None and not (price.input or price.output):
                raise BudgetError(
                    "a limit in money needs the price of a million tokens; give the model a price"
                )
            fits = answer
            if self.max_tokens is not None:
                fits = min(fits, self.max_tokens - self._spent.tokens - self._held_tokens - question)
            if self.max_money is not None:
                left = self.max_money - self._spent.money - self._held_money - price.of(question, 0)
                fits = min(
                    fits, int(left * MILLION / price.output) if price.output else (answer if left >= 0 else 0)
                )
            if fits < min(LEAST, answer):
                raise BudgetError(
                    f"the next question may take {question:,} tokens and does not fit into the budget "
                    f"({self._told()}); raise it, or ask for less"
                )
            held = Held(tokens=question + fits, money=price.of(question, fits), answer=fits)
            self._held_tokens += held.tokens
            self._held_money += held.money
            self._held_calls += 1
            return held

    def settle(self, held: Held, tokens_in: int, tokens_out: int, price: Price) -> None:
        """Let go of what a call held, and count what it took."""
        with self._lock:
            self._held_tokens -= held.tokens
            self._held_money -= held.money
            self._held_calls -= 1
            money = price.of(tokens_in, tokens_out)
            self._spent += Spent(calls=1, tokens_in=tokens_in, tokens_out=tokens_out, money=money)

    def _told(self) -> str:
        spent = f"{self._spent.tokens:,} of {self.max_tokens:,} tokens" if self.max_tokens is not None else ""
        money = f"{self._spent.money:.4f} of {self.max_money:.4f} money" if self.max_money is not None else ""
        return ", ".join(filter(None, (spent, money))) + " spent"
