"""What a query asks for, understood without a model: its words, names, phrases and times.

Identifiers need nothing here: words are cut so that they stay whole and can be found by their parts.

What a text says about itself without a model: its subject, and the kinds of answer it can give.

Quoted phrases: what stands in quotes in a query is looked for word for word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from skep.runtime import lazy
from skep.text.terms import STOP, joined_terms, query_terms, terms

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import NDArray

    from skep.retrieval.candidates import Call, Candidates
    from skep.text.dates import Span


if TYPE_CHECKING:
    Wants = Literal["time", "person", "place", "number", "reason", "thing"]

_quoted = lazy(r"\"([^\"]{2,})\"|“([^”]{2,})”|`([^`]{2,})`|(?<!\w)'([^']{2,}?)'(?!\w)")
_name = lazy(r"\b[A-Z][\w'’-]*(?:\.[A-Z])*\.?(?: (?:of |the |de |van |von |al |el )?[A-Z][\w'’-]*)*")
_blanks = lazy(r"\s+")
_compound = lazy(r"(?=[\d@./_-]*[^\W\d_])[^\W_]+(?:[@./_-]+[^\W_]+)+|\b(?:[^\W\d_]+\d|\d+[^\W\d_])[^\W_]*")
_former = lazy(
    r"\b(?:previous(?:ly)?|formerly|originally|initially|used to|earlier|before|at first|history|historical(?:ly)?|"
    r"over time|evolve[ds]?|back then|past)\b"
)
_perhaps_former = lazy(
    r"\b(?:former|original|initial|(?<!how )(?<!years )(?<!year )old(?:er)?|first|change[ds]?)\b"
)
"""Words that tell of before as well, unless what they go with is called so: an initial capacity, a first aid kit."""
_presently = lazy(r"\b(?:now|nowadays|currently|today|these days|at the moment|at present)\b")
_past = lazy(r"\b(?:did|was|were|had|used to|(?:has|have) .*\b(?:been|done|made))\b")
_over_all = lazy(r"\b(?:in total|altogether|between|total|different|across|combined|overall)\b")
_asks: tuple[tuple[re.Pattern[str], Wants], ...] = (
    (
        lazy(r"\bwhen\b|\bhow long ago\b|\b(?:what|which)\b.{0,24}\b(?:date|day|time|year|month|deadline)\b"),
        "time",
    ),
    (
        lazy(
            r"\bhow (?:many|much|long|old|often|far|big|large|tall|high)\b|\b(?:what|which)\b.{0,40}\b(?:number|"
            r"percentage|percent|rate|amount|budget|price|cost|score|accuracy|size|limit|count|total|version|quota)\b"
        ),
        "number",
    ),
    (lazy(r"\bwho(?:m|se)?\b"), "person"),
    (lazy(r"\bwhere\b|\b(?:what|which) (?:city|country|place|town)\b"), "place"),
    (lazy(r"\bwhy\b|\bwhat (?:caused|motivated|reason)\b"), "reason"),
)
_whether = lazy(
    r"(?:(?:and|but|so|or|please),? )*(?:is|are|am|do|does|has|have|can|will|would|should|must|may)(?:n['’]t)?\b"
)
_which = lazy(r"\b(?:wh(?:at|ich|om?|ose|en|ere|y)|how)\b")
_OPENERS = """
    what when where which who whom whose why how is are was were do does did has have had can could should
    would will in on at for from the a an and or if please tell give show list name describe explain
    summarize my your i we before after during since
"""
_openers = frozenset(_OPENERS.split())
"""Words that are capitalised only because they open a sentence."""
_ANYTHING = """
    happen happened happening do done go going goes went new news anything everything something thing things events
    say said tell told talk talked discuss discussed mention mentioned note notes noted remember memories show list
    please much stuff
"""
_anything = frozenset(_ANYTHING.split())
"""Words of a question that leave open what it is about: "what did we talk about last week?"."""
_plain_word = lazy(r"(?<!['’])\b[^\W_]+")
_framing = lazy(
    r"""
    \b(?:(?:list|(?:tell|give|show)\ me|walk\ me\ through|describe|recount)\ )?(?:the\ )?(?:order|sequence)
        \ in\ which\ (?:i|we)\ (?:brought\ up|mentioned|discussed|talked\ about|raised|asked\ about|covered)\b
    | \b(?:different|various|key|main)\ (?:aspects|concepts|topics)\ (?:of|related\ to|about|in|regarding)\b
    | \b(?:throughout|across|over|in|from|through|during)\ (?:all\ (?:of\ )?)?(?:our|my|these)
        \ (?:conversations?|discussions?|sessions|chats|exchanges)\b
    | \bin\ (?:chronological\ )?order\b(?!\ to\b)
    | \b(?:mention|list|name|include|give)\ only\ (?:and\ only\ )?\w+\ (?:items?|things?|points?|entries)\b
    | \b(?:give(?:\ me|\ us)?|provide(?:\ me\ with)?|write|make|want|need)\ (?:an?|the)\ (?:\w+\ )?
        (?:summary|overview|recap)\ of(?:\ (?:how|what|everything|all)\b)?
    | \bsummari[sz]e(?:\ (?:how|what|everything|all)\b)?
    | \b(?:we|i)(?:['’]ve|\ have)\ (?:covered|discussed|talked\ about|brought\ up|mentioned)\b
    | \bso\ far\b
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What says how to answer, and not about what."""
_framed = lazy(
    r"\border\b|sequence|aspects|concepts|topics|summar|overview|recap|conversation|discuss|session|chat|"
    r"exchange|so far|covered|talked|brought|mentioned|only"
)
"""Without one of these, nothing of the kind can be there."""


class Query(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A query as the pipeline sees it."""

    text: str
    about: str
    """The text without what only says how to answer."""
    phrases: tuple[str, ...] = ()
    """What stood in quotes."""
    names: tuple[str, ...] = ()
    """Capitalised names, apart from the word that opens the sentence."""
    spans: tuple[Span, ...] = ()
    """Times it names, relative ones resolved against now."""
    wants: Wants = "thing"
    former: bool = False
    """It asks for what held before, or for how things changed."""
    perhaps_former: tuple[str, ...] = ()
    """Terms by which it does so as well, unless they are part of what it asks about."""
    present: bool = True
    """It is not about the past by its verb."""
    over_all: bool = False
    """It asks for a sum, a difference or a count over several memories."""
    time_alone: bool = False
    """It asks for whatever there is of a time ("what happened last month?")."""

    @property
    def terms(self) -> tuple[str, ...]:
        """The distinct index terms to look up, found when somebody asks: a search by meaning alone does not."""
        kept: dict[str, tuple[str, ...]] = vars(self)  # `cached_property` takes a lock before Python 3.12
        if "terms" not in kept:
            kept["terms"] = tuple(query_terms(self.about))
        return kept["terms"]

    def of_before(self, texts: Sequence[str]) -> bool:
        """Whether it asks for what held before, given what the first hits say.

        Where two of them hold the word that says so, it is part of what both are about.
        """
        if self.former or not self.perhaps_former:
            return self.former

        return sum(set(terms_of(text)).issuperset(self.perhaps_former) for text in texts) < 2

    def names_time_of(self, moment: float) -> bool:
        """Whether the moment lies in a time that it names."""
        return any(span.holds(moment) for span in self.spans)


def plain(text: str) -> Query:
    """A query as nothing but its words."""
    return Query(text=text, about=text)


def understand(text: str, now: float) -> Query:
    """Read a query.

    >>> q = understand('When did Ana deploy "blue green" with store_sync in May 2023?', 1.7e9)
    >>> q.wants, q.names, q.phrases, q.spans[0].text
    ('time', ('Ana', 'May'), ('blue green',), 'may 2023')
    """
    from skep.text.dates import spans

    lowered = text.lower()
    about = subject_matter(text)
    named = spans(text, now)
    return Query(
        text=text,
        about=about,
        phrases=_phrases(text),
        names=names(text),
        spans=named,
        wants=_wanted(lowered),
        former=_former.search(lowered) is not None,
        perhaps_former=_perhaps_before(lowered),
        present=_past.search(lowered) is None,
        over_all=_over_all.search(lowered) is not None,
        time_alone=bool(named) and _leaves_open(lowered, [span.text for span in named]),
    )


def _perhaps_before(lowered: str) -> tuple[str, ...]:
    if _presently.search(lowered) is not None:
        return ()
    return tuple(term for word in _perhaps_former.findall(lowered) for term in query_terms(word))


def asks_whether(text: str) -> bool:
    """Whether a question is to be answered with yes or no, of what is so now.

    >>> [asks_whether(each) for each in ("Is the API public?", "API public?", "What is public?", "Was it public?")]
    [True, True, False, False]
    """
    lowered = text.lower().strip()
    if _whether.match(lowered):
        return True
    return lowered.endswith("?") and not _which.search(lowered) and not _past.search(lowered)


def _leaves_open(lowered: str, times: Sequence[str]) -> bool:
    """Whether a question, but for the times it names, does not say what it is about."""
    rest = " ".join(lowered.split())
    for time in times:
        rest = rest.replace(time, " ")
    return all(word in STOP or word in _anything for word in _plain_word.findall(rest))


def subject_matter(text: str) -> str:
    """A question without what only says how to answer; the whole of it where nothing else would be left.

    >>> subject_matter("Can you list the order in which I brought up my garden across our conversations?")
    'Can you my garden ?'
    """
    if _framed.search(text.lower()) is None:
        return text
    rest = _blanks.sub(" ", _framing.sub(" ", text)).strip()
    return rest if any(term not in STOP for term in query_terms(rest)) else text


def _phrases(text: str) -> tuple[str, ...]:
    if not any(quote in text for quote in "\"“`'"):
        return ()
    return tuple(part for match in _quoted.finditer(text) for part in match.groups() if part)


def identifiers(text: str) -> frozenset[str]:
    """The index terms of the identifiers in a text, whole and in parts: tickets, paths, addresses, names of code.

    >>> sorted(identifiers("what is the quota of ana@x.org in db_main?"))
    ['ana', 'ana@x.org', 'db', 'db_main', 'main', 'org', 'x', 'x.org']
    """
    return frozenset(term for match in _compound.finditer(text) for term in query_terms(match.group()))


def _wanted(lowered: str) -> Wants:
    if "wh" not in lowered and "how" not in lowered:  # no pattern is without
        return "thing"
    for pattern, kind in _asks:
        if pattern.search(lowered):
            return kind
    return "thing"


def names(text: str) -> tuple[str, ...]:
    """Capitalised names in a text, without the plain word that opens it.

    >>> names("Where does Dr. Aisha Patel work since May?")
    ('Dr. Aisha Patel', 'May')
    """
    if text == text.lower():
        return ()
    found: dict[str, None] = {}
    for match in _name.finditer(text):
        words = match.group().split()
        while words and words[0].lower().rstrip("'s") in _openers:
            words.pop(0)
        name = " ".join(words).removesuffix("'s").removesuffix("’s").rstrip(".")
        if name and name.lower() not in STOP:
            found[name] = None
    return tuple(found)


if TYPE_CHECKING:
    Floats = NDArray[np.float64]

HEAD_CHARS = 100
HEAD_TERMS = 6
"""A subject stands among the first words of a text, or is its speaker."""
MEMO_TEXTS = 8192
"""Texts of which it is remembered what they say: a bank's texts come up again and again."""
MEMO_HITS = 2048
"""The same of first hits, whose terms are remembered."""

_time = lazy(
    r"\b(?:\d{4}|january|february|march|april|may|june|july|august|september|october|november|december|"
    r"yesterday|today|tonight|tomorrow|ago|(?:mon|tues|wednes|thurs|fri|satur|sun)day|weekend|"
    r"(?:last|next|this) (?:week|month|year|night|summer|winter|spring|fall|autumn))\b"
)
_number = lazy(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|once|twice)\b"
)
_apart = lazy(r"[\W_]+")
READERS = {"time": _time, "number": _number}
"""What a text in small letters must hold to answer a question for it."""


def subject(names: Sequence[str], texts: Sequence[str]) -> Floats:
    """The share of the words of the query's names that open each text.

    >>> subject(["Ana Reyes"], ["Ana Reyes likes tea", "Tea was bought by Ana"]).tolist()
    [1.0, 0.5]
    """
    asked = {term for name in names for term in terms(name) if term not in STOP}
    if not asked:
        return np.zeros(len(texts))
    found = [len(asked & _head(text[:HEAD_CHARS])) for text in texts]
    return np.array(found, dtype=np.float64) / len(asked)


def author(query: str, authors: Sequence[str]) -> Floats:
    """Whether the query names the agent that wrote each memory, word for word; 0 for all where one wrote them all.

    >>> author("What do team B and storage plan?", ["storage", "team_b", "team_c", "ops-storage", ""]).tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0]
    """
    names = set(authors)
    if len(names) < 2:
        return np.zeros(len(authors))
    asked = f" {joined_terms(query)} "
    held = {name for name in names if _read_name(name).strip() and _read_name(name) in asked}
    return np.array([name in held for name in authors], dtype=np.float64)


def wanted(kind: str, texts: Sequence[str]) -> Floats:
    """Whether each text could answer a question for a time or a number."""
    return np.array([_holds(kind, text) for text in texts], dtype=np.float64)


@lru_cache(maxsize=MEMO_HITS)
def terms_of(text: str) -> tuple[str, ...]:
    """`terms` of one of the first hits: several stages ask for them."""
    return tuple(terms(text))


@lru_cache(maxsize=MEMO_TEXTS)
def _read_name(author: str) -> str:
    """The words of an agent's name, with a blank on either side."""
    return f" {joined_terms(_apart.sub(' ', author))} "


@lru_cache(maxsize=MEMO_TEXTS)
def _head(start: str) -> frozenset[str]:
    """The first terms of a text."""
    return frozenset(terms(start)[:HEAD_TERMS])


@lru_cache(maxsize=MEMO_TEXTS)
def _holds(kind: str, text: str) -> bool:
    return READERS[kind].search(text.lower()) is not None


WIDELY = 300
"""So many candidates by words are looked at for a query with phrases: those that hold the words of one in another order
count as much by words."""


def quoted(found: Candidates, texts: Sequence[str], call: Call, unit: float) -> Candidates:
    """The candidates, those that hold a phrase of the query lifted.

    Args:
        found: Best first.
        texts: What each of them says.
        call: The recall; it has phrases.
        unit: What a weight of 1 adds to a score.
    """
    held = holding(call.asked.phrases, texts)
    if not held.any():
        return found.noted("phrases", note="held by none")
    lifted = found.lifted(unit * call.config.phrase * held, phrase=held)
    return lifted.noted("phrases", note=f"{int(np.count_nonzero(held))} hold one word for word")


def holding(phrases: Sequence[str], texts: Sequence[str]) -> Floats:
    """Which share of some phrases each text holds word for word; case, blanks and the form of letters do not count.

    >>> holding(["blue green"], ["A Blue  Green deploy", "green and blue", "a blue greenhouse"]).tolist()
    [1.0, 0.0, 0.0]
    """
    wanted = [folded for phrase in phrases if (folded := _folded(phrase))]
    if not wanted:
        return np.zeros(len(texts))
    telling = [max(each.split(), key=len) for each in wanted]
    return np.array([_share(text, wanted, telling) for text in texts])


def _share(text: str, wanted: Sequence[str], telling: Sequence[str]) -> float:
    """Which share of the wanted phrases a text holds; `telling` is a word of each, without which it is not held."""
    if text.isascii():  # whatever else a text is made of, folding may change
        small = text.lower()
        if not any(word in small for word in telling):
            return 0.0
    folded = _folded(text)
    return sum(_phrase_holds(folded, each) for each in wanted) / len(wanted)


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).strip(",.;:!?").strip()


def _phrase_holds(text: str, phrase: str) -> bool:
    """Whether a phrase stands in a text, and neither begins nor ends inside a word."""
    at = text.find(phrase)
    while at >= 0:
        end = at + len(phrase)
        begins = at == 0 or not (text[at - 1].isalnum() and phrase[0].isalnum())
        if begins and (end == len(text) or not (text[end].isalnum() and phrase[-1].isalnum())):
            return True
        at = text.find(phrase, at + 1)
    return False
