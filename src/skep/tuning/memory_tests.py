"""Tests of what a bank knows: questions with the answers that must come, and questions that must stay without one.

Read from YAML (extra `yaml`) or JSON and run by `skep test`, in CI after every import, merge or change of model. A
question is asked by `recall`, as anybody would ask it; nothing is written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from skep.errors import InvalidInputError
from skep.text.yaml_text import read_yaml

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.model import Hit, Recalled


WITHIN = 5
TOLD = ("strong", "likely")
"""The levels of hits that count as an answer."""


class Question(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One question and what must become of it."""

    ask: str
    expect: str | list[str] = []
    """Texts, each of which must stand in one of the first hits."""
    never: str | list[str] = []
    """Texts that must stand in none of them."""
    within: int = WITHIN
    """How many hits are looked at."""
    silent: bool = False
    """No hit may be strong or likely."""
    scope: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if self.within < 1:
            raise ValueError("`within` must be 1 or more")
        if self.silent and self.expect:
            raise ValueError("a question is either silent or expects something")
        if not (self.silent or self.expect or self.never):
            raise ValueError("a question needs `expect`, `never` or `silent: true`")


class Suite(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of questions."""

    questions: list[Question]


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one question."""

    ask: str
    passed: bool
    why: str = ""
    """What was missing or too much; empty where it passed."""
    found: tuple[str, ...] = ()
    """The first hits, each with its level and id."""


def read_suite(path: Path) -> Suite:
    """The questions of a file.

    Raises:
        InvalidInputError: It cannot be read as such; the message says where.
        MissingExtraError: It is YAML, and there is nothing here that reads it.
    """
    try:
        text = path.read_text("utf-8")
        if path.suffix.lower() == ".json":
            return msgspec.json.decode(text, type=Suite)
        return msgspec.convert(_yaml(text, path), type=Suite)
    except FileNotFoundError:
        raise InvalidInputError(
            f"there is no file {path}; it holds the questions that `skep test` asks"
        ) from None
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise InvalidInputError(
            f"{path} must hold `questions:` with a list, each with `ask` and `expect`, `never` or `silent`: {error};"
            " see docs/how-to/memory-tests.md"
        ) from error


def _yaml(text: str, path: Path) -> Any:
    try:
        return read_yaml(text, f"Reading {path} as YAML")
    except ValueError as error:
        raise InvalidInputError(f"{path} is no valid YAML: {error}") from None


def ask_all(bank: MemoryBank, suite: Suite) -> list[Tested]:
    """Every question of a suite, asked."""
    return [_asked(bank, question) for question in suite.questions]


def _asked(bank: MemoryBank, question: Question) -> Tested:
    scope: Any = question.scope
    hits: Recalled = bank.recall(
        question.ask, limit=question.within, scope=scope, include_shared=scope is not None
    )
    texts = [f"{hit.memory.title or ''} {hit.memory.text}".casefold() for hit in hits]
    told = [hit for hit in hits if hit.level in TOLD]
    why: list[str] = []
    if question.silent and told:
        why.append(f"should be silent, and says: {told[0].memory.text}")
    for text in _several(question.expect):
        if not any(text.casefold() in one for one in texts):
            why.append(f"no {text!r} among the first {question.within}")
    for text in _several(question.never):
        if any(text.casefold() in one for one in texts):
            why.append(f"{text!r} is among the first {question.within}")
    found = tuple(map(_line, hits)) if why else ()
    return Tested(ask=question.ask, passed=not why, why="; ".join(why), found=found)


def _several(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _line(hit: Hit) -> str:
    return f"{hit.level} [{hit.memory.id}] {hit.memory.text}"
