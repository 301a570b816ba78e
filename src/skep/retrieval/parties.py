"""Parties: whom the texts of a short list are about, or who speaks in them, and which of them a question asks about.

"Ben plays the piano on Sundays" holds most of "What does Ana play on Sundays?" and answers nothing of it. So what
opens with somebody else than the question asks about counts less. And where what is told of others holds clearly more
of the question than everything else does, it was never so, or was so of another: nothing answers it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.patterns import lazy
from skep.tuples import NamedTuple
from skep.words import STOP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

PARTY = 3
"""So many texts of a short list a name must open to be that of a party."""
NICKNAME = 3
"""Letters from which the beginning of a name stands for it: "Mel" for "Melanie"."""
BESIDE = 0.75
"""How far a text is another's that also tells of whom the question asks about, or asks: "I saw Ana", "Do you play?"."""
GLANCE = 1000
"""Characters of a text that are looked at."""
OPENING = 80
"""Of which the first few tell how it opens."""
MEMO_TEXTS = 8192
"""Texts of which that is remembered: a bank's texts come up again and again."""

_through = lazy(
    r"['’]s? (?:\w+ )?(?:friend|brother|sister|mother|mom|father|dad|parent|son|daughter|child|kid|wife|husband|spouse|"
    r"fianc\w+|ex|partner|boyfriend|girlfriend|cousin|uncle|aunt|grand\w+|neighbou?r|colleague|co-?worker|boss|manager|"
    r"teammate|roommate|flatmate|landlord|teacher|coach|doctor|team|company|employer|dog|cat|pet)(?:s|ren)?\b|"
    r"\bwho(?:m|se)?\b",
    re.IGNORECASE,
)
"""A question for somebody by way of whom it names."""
_DOING = "do|does|did|is|are|was|were|has|have|had|can|could|will|would|should|shall|might|may|must"
_opening = lazy(r"([^\W\d_]{2,})(?: ([^\W\d_]+))?")
_word = lazy(r"[^\W\d_]+")
_NOBODY = """
    everyone everybody anyone anybody someone somebody nobody people never always please today tomorrow yesterday
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december dr mr mrs ms prof
    er sie es wir ihr man der die das ein eine el ella ellos ellas lo la los las un una
    il elle ils elles nous vous le les
"""
_nobody = STOP | frozenset(_NOBODY.split())
"""Words that open a sentence with a capital and are no name."""
_roles = frozenset(["user", "assistant", "human", "agent", "system", "bot", "customer", "client", "owner"])
"""Who may be the very one that a question names; only where they speak they are others."""


class Parties(NamedTuple):
    """Who opens the texts of a short list."""

    heads: list[str]
    """The word that opens each; see `opening`."""
    named: frozenset[str]
    """Those of the parties that the question asks about."""
    others: frozenset[str]
    """The rest of them."""


def parties(query: str, names: Sequence[str], texts: Sequence[str]) -> Parties | None:
    """Whom some texts are about; None where they are of fewer than two parties, or the question asks about none or all.

    Args:
        query: What is asked.
        names: What is capitalised in it.
        texts: The short list.
    """
    openings = [opening(text[:OPENING]) for text in texts]
    heads = [word for word, _ in openings]
    frequent = [word for word, times in Counter(heads).items() if word and times >= PARTY]
    if len(frequent) < 2 or _through.search(query):
        return None
    asked = {_plain(word) for word in _word.findall(query)}
    called = {word for name in names for word in _word.findall(name) if len(word) >= NICKNAME}
    named = {word: forms for word in frequent if (forms := _forms(word, asked, called))}
    if not named or len(named) == len(frequent):
        return None
    if not any(_asked_about(form).search(query) for forms in named.values() for form in forms):
        return None
    whole = "\n".join(text[:GLANCE] for text in texts)
    if not all(_is_name(word, whole, known=not called.isdisjoint(forms)) for word, forms in named.items()):
        return None
    after = {then for word, then in openings if word in named and then}
    alike = {word for word, then in openings if then in after}
    speakers = {text[:OPENING].partition(":")[0] for text in texts}
    if speakers.issuperset(named):
        alike |= speakers
    else:
        frequent = [word for word in frequent if word.lower() not in _roles]
    others = frozenset(
        word for word in frequent if word not in named and _is_name(word, whole, known=word in alike)
    )
    return Parties(heads, frozenset(named), others) if others else None


def another(found: Parties, texts: Sequence[str]) -> Floats:
    """How far each text is another's than the question asks about, 0..1.

    >>> texts = ["Ana: I sing", "Ben: I play", "Ben: Do you sing, Ana?"] + ["Ana: So", "Ben: Yes"] * 4
    >>> another(parties("What does Ana play?", ["Ana"], texts), texts)[:3].tolist()
    [0.0, 1.0, 0.75]
    """
    return np.array(
        [
            _share(text[:GLANCE], found.named, speaks=text.startswith(f"{head}:"))
            if head in found.others
            else 0.0
            for head, text in zip(found.heads, texts, strict=True)
        ]
    )


def _share(text: str, named: Iterable[str], *, speaks: bool) -> float:
    told = any(word in text and (not speaks or word in _called(word).sub("", text)) for word in named)
    return BESIDE if told or "?" in text else 1.0


def _forms(word: str, asked: set[str], called: set[str]) -> set[str]:
    """How a question names a party, with or without accents: by the name or by its beginning; empty if it does not."""
    plain = _plain(word)
    forms = {each for each in called if _begins(plain, _plain(each)) or _begins(_plain(each), plain)}
    return forms or ({word} if plain in asked else forms)


def _begins(longer: str, shorter: str) -> bool:
    return len(shorter) >= NICKNAME and longer.startswith(shorter)


@lru_cache(maxsize=MEMO_TEXTS)
def _plain(word: str) -> str:
    """A word without capitals and accents."""
    return "".join(
        sign for sign in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(sign)
    )


@lru_cache(maxsize=256)
def _asked_about(word: str) -> re.Pattern[str]:
    """What finds in a question that it is about somebody: what they do, what is theirs, or it opens with them."""
    return re.compile(rf"\b(?:{_DOING})(?:n['’]t)? {word}\b|\b{word}['’]s?(?!\w)|^{word}\b", re.IGNORECASE)


@lru_cache(maxsize=256)
def _called(word: str) -> re.Pattern[str]:
    """What finds a name by which a speaker calls somebody, as in "Thanks, Ana!": nothing is told of them by that."""
    return re.compile(rf"(?:[,.!:]|\b(?:[Hh]ey|[Hh]i|[Hh]ello|[Tt]hanks)) {word}(?=[,.!])")


@lru_cache(maxsize=MEMO_TEXTS)
def opening(text: str) -> tuple[str, str]:
    """The word that opens a text and the one after it; empty without a capital, and for words that open any sentence.

    >>> opening("Ana sings"), opening("Ana's cat sleeps"), opening("The cat sleeps"), opening("cats sleep")
    (('Ana', 'sings'), ('Ana', ''), ('', ''), ('', ''))
    """
    found = _opening.match(text)
    if found is None or not found[1][0].isupper() or found[1].lower() in _nobody:
        return "", ""
    return found[1], found[2] or ""


def _is_name(word: str, texts: str, *, known: bool) -> bool:
    """Whether a word is a name wherever it stands: never in small letters, and once where no sentence opens.

    `known` says that it need not stand there: the question has it as a name, it is followed by what follows whom the
    question asks about, or both speak.
    """
    within, small = _seen(word)
    return (known or within.search(texts) is not None) and small.search(texts) is None


@lru_cache(maxsize=256)
def _seen(word: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """What finds a word within a sentence, or what is its own, and what finds it in small letters.

    The word comes first in both: what begins with a literal is found many times as fast.
    """
    low = word.lower()
    return (
        re.compile(rf"{word}(?:(?:(?<=[^\W\d_] {word})|(?<=[^\W\d_], {word}))\b|(?<![^\n]{word})['’]s\b)"),
        re.compile(rf"{low}(?<!\w{low})\b"),
    )
