"""Several texts to one text: by the sentence that stands for the rest, or by a model of the user's.

A language model is asked about all clusters at once. The cost of the batch is
estimated before it is sent, and it is cut to what may be spent; the others wait. What an answer leaves out is asked for
once more. Extraction and reflection call this; it touches no bank.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

from skep.errors import DistilError, InvalidInputError, LLMError
from skep.llm.language_model import LLM, tokens_of
from skep.semantics.evidence import sentences, statements, telling, worth_keeping
from skep.text.terms import query_terms

Distil = Callable[[Sequence[Sequence[str]]], Sequence[str | None]]
"""Groups of texts to one text each, or none; an LLM's batched call, for example."""

SHORTEST = 3
"""Sentences with fewer words that carry meaning are passed over while there are longer ones."""


class Worded(NamedTuple):
    """Texts that a callable made of groups of texts; `problem` says in words why some are missing."""

    texts: list[str | None]
    problem: str = ""


def by_call(distil: Distil, groups: Sequence[Sequence[str]]) -> Worded:
    """The checked texts that a callable makes of groups of texts; None where it found nothing to say.

    Whatever it fails with, the run goes on without it. One that has `fitting` is asked about so many groups only; one
    that has `problem` may say why it left out some.

    Raises:
        InvalidInputError: It gave something else than one text per group.
    """
    fitting = getattr(distil, "fitting", len)
    asked = groups[: fitting(groups)] if groups else ()
    waits = f"the limit allows asking about {len(asked)} of {len(groups)} clusters; the others wait"
    problem = waits if len(asked) < len(groups) else ""
    if not asked:
        return Worded([], problem)
    try:
        given = _called(distil, asked)
    except DistilError as error:
        return Worded([], f"{error}; the next run asks again")
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(asked):  # pyright: ignore
        raise InvalidInputError(
            f"distil must give one text for each of the {len(asked)} groups it is given, in their order",
            field="distil",
        )
    texts = [
        (str(text).strip() or None) if text is not None else None for text in cast("Sequence[Any]", given)
    ]
    left_out = str(getattr(distil, "problem", ""))
    again = f"{left_out}; the next run asks again" if left_out else ""
    return Worded(texts, "; ".join(filter(None, (problem, again))))


def _called(distil: Distil, groups: Sequence[Sequence[str]]) -> object:
    try:
        return distil(groups)
    except DistilError:
        raise
    except Exception as error:  # whatever it is, the run goes on, and the report says what happened
        raise DistilError(f"distil failed ({type(error).__name__}: {error})") from error


def stated(texts: Sequence[str]) -> str | None:
    """The statement closest to all the texts; None if they hold none worth keeping: a question is no fact.

    >>> stated(["The door is shut. Can you open it?", "The door is shut again, why?"])
    'The door is shut.'
    """
    return next(iter(ranked(texts)), None)


def ranked(texts: Sequence[str]) -> list[str]:
    """The statements of texts that are worth keeping, each once, closest to all of them first.

    A sentence scores the share of the words the texts have in common that it holds, over its length's square root,
    so that a short sentence that says it all beats a long one that also says it.
    """
    shared = Counter(term for text in texts for term in set(query_terms(" ".join(worth_keeping(text)))))
    scores: dict[str, float] = {}
    for sentence in dict.fromkeys(each for text in texts for each in worth_keeping(text)):
        words = set(query_terms(sentence))
        weight = sum(shared[word] - 1 for word in words)
        scores[sentence] = weight / math.sqrt(len(words) + 1) if len(words) >= SHORTEST else weight / 1e6
    return sorted(scores, key=lambda sentence: -scores[sentence])


def summary(texts: Sequence[str], *, most: int = 3) -> str:
    """A few sentences that cover what the texts say, in the order they were said. Greedy coverage of shared words.

    Where two say as much, the later one is chosen first. Small talk is passed over if there is anything else.
    """
    weights = Counter(term for text in texts for term in set(query_terms(text)))
    told = [(i, said) for i, text in enumerate(texts) for said in statements(text) if telling(said)]
    candidates = told or [(i, sentence) for i, text in enumerate(texts) for sentence in sentences(text)]
    covered: set[str] = set()
    chosen: list[tuple[int, int, str]] = []
    while candidates and len(chosen) < most:
        gains = [
            sum(weights[w] for w in set(query_terms(s)) - covered) / math.sqrt(len(query_terms(s)) + 1)
            for _i, s in candidates
        ]
        place = max(range(len(candidates)), key=lambda at: (gains[at], at))
        if gains[place] <= 0:
            break
        number, sentence = candidates.pop(place)
        covered |= set(query_terms(sentence))
        chosen.append((number, place, sentence))
    ordered = sorted(chosen, key=lambda item: (item[0], item[1]))
    return " ".join(sentence if sentence[-1] in ".!?。" else sentence + "." for _n, _p, sentence in ordered)


TRIES = 2
ANSWER_TOKENS = 80
"""What the answer on one cluster takes at most."""
ANSWER_START = 100
"""What stands around the answers."""
PROMPT = """You keep the memory of an AI agent. Each numbered group holds what was told about one thing, oldest first.
For each group write one short sentence with what they say together, in their words. Where they contradict each other,
the newest counts. Write null where they say nothing that is worth keeping.
Answer with JSON alone: {"texts": [{"group": 1, "text": "..."}]}

"""


def prompt_for(groups: Sequence[Sequence[str]]) -> str:
    """One prompt for every group."""
    return PROMPT + "\n".join(_asked(number, group) for number, group in enumerate(groups, 1))


def _asked(number: int, group: Sequence[str]) -> str:
    return f"Group {number}\n" + "".join(f"- {json.dumps(text, ensure_ascii=False)}\n" for text in group)


def read_answer(answer: str, count: int) -> dict[int, str | None]:
    """The texts in an answer by the place of their group; those it left out are missing.

    >>> read_answer('Sure: {"texts": [{"group": 2, "text": "The door is shut."}, {"group": 3, "text": null}]}', 3)
    {1: 'The door is shut.', 2: None}
    """
    found = re.search(r"\{.*\}", answer, re.DOTALL)
    try:
        data: Any = json.loads(found.group()) if found else {}
        entries: list[Any] = list(data["texts"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DistilError(f"the answer of the model cannot be read ({error!r})") from error
    texts: dict[int, str | None] = {}
    for entry in entries:
        given = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        place, text = given.get("group"), given.get("text")
        if type(place) is int and 1 <= place <= count and (text is None or isinstance(text, str)):
            texts[place - 1] = text
    return texts


class Distiller:
    """Asks about all groups at once, within what may be spent.

    Args:
        llm: The model.
        max_tokens: About how many tokens may be spent, questions and answers, before the rest waits for another run.
        max_money: The same in money, where the model has a price.
    """

    def __init__(
        self,
        llm: LLM,
        *,
        max_tokens: int = 100_000,
        max_money: float = 1.0,
    ) -> None:
        self._llm, self.price_per_million = llm, llm.price.dearest
        self._max_tokens, self._max_money = max_tokens, max_money
        self.tokens = 0
        """About what was spent so far."""
        self.beside: tuple[int, float] = (0, 0.0)
        """Tokens and money that others have spent in the same run, which count towards the limits, too."""
        self.problem = ""
        """Why the last call left out groups that can be asked about again."""

    @property
    def money(self) -> float:
        """The cost."""
        return self.tokens * self.price_per_million / 1_000_000

    def fitting(self, groups: Sequence[Sequence[str]]) -> int:
        """The number of first groups that fit into the rest of the budget."""
        tokens, money = self.tokens + self.beside[0], self.money + self.beside[1]
        left = self._max_tokens - tokens
        if self.price_per_million > 0:
            left = min(left, (self._max_money - money) / self.price_per_million * 1_000_000)
        left -= tokens_of(PROMPT)
        for number, group in enumerate(groups):
            left -= tokens_of(_asked(number + 1, group)) + ANSWER_TOKENS
            if left < 0:
                return number
        return len(groups)

    def __call__(self, groups: Sequence[Sequence[str]]) -> list[str | None]:
        """One text for each group, or none; those the model leaves out twice have none."""
        texts: dict[int, str | None] = {}
        failed: DistilError | None = None
        self.problem = ""
        for _ in range(TRIES):
            missing = [place for place in range(len(groups)) if place not in texts]
            places = missing[: self.fitting([groups[place] for place in missing])]
            if not places:
                self.problem = f"the limit came before {len(missing)} clusters were worded" if missing else ""
                break
            try:
                told = self._told([groups[place] for place in places])
            except DistilError as error:
                failed = error
            else:
                failed = None
                texts |= {places[at]: text for at, text in told.items()}
        if failed is not None:
            if not texts:
                raise failed
            self.problem = str(failed)  # what was worded before has been paid for, and stays
        return [texts.get(place) for place in range(len(groups))]

    def _told(self, groups: Sequence[Sequence[str]]) -> dict[int, str | None]:
        """The texts in one answer, by the place of their group."""
        try:
            reply = self._llm.ask(prompt_for(groups), max_tokens=ANSWER_TOKENS * len(groups) + ANSWER_START)
        except LLMError as error:
            self.tokens += error.tokens
            raise DistilError(f"the model failed ({error})") from error
        self.tokens += reply.tokens
        return read_answer(reply.text, len(groups))
