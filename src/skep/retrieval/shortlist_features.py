"""Echo: words that the first hits share and the query does not have, and how much of them each candidate holds.

What answers a question often shares words with another answer that neither shares with the question.

Home: what most of the first hits belong to, and what else belongs there.

A bank may hold many users, projects and conversations. Where a question is asked of all of them, the first hits tell
which one it is about, and what else is known there is likelier to answer than a like-worded memory from elsewhere.

Parties: whom the texts of a short list are about, or who speaks in them, and which of them a question asks about.

"Ben plays the piano on Sundays" holds most of "What does Ana play on Sundays?" and answers nothing of it. So what
opens with somebody else than the question asks about counts less. And where what is told of others holds clearly more
of the question than everything else does, it was never so, or was so of another: nothing answers it.

Memories that say how to answer: preferences, and standing instructions with the occasion they are for.

"Always name the time zone when I ask about meetings" shares no word with "When do I see Ana?", and is never the answer;
yet whoever answers must know it. So it counts by its meaning, half of it the meaning of its occasion ("meetings"), and
only the nearest one does.

Late interaction: each word of the query against its closest word of the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skep.retrieval.query import terms_of
from skep.runtime import lazy
from skep.text.terms import STOP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Scopes, Tokens


if TYPE_CHECKING:
    Floats = NDArray[np.float64]

VOICES = 5
"""How many of the first hits give their words."""
WORDS = 10
"""How many words are listened for: those of most hits, rare ones first."""
SHARED = 1.0
"""The scores of those that hold a word must add up to more than this share of the best one: a single hit has no say."""
MEMO_TEXTS = 2048
"""Texts whose words are remembered: a bank's first hits come up again and again."""


def voices(texts: Sequence[str], score: Floats, asked: Collection[str]) -> dict[str, float]:
    """The words that the first hits share and the query lacks, each with the scores of those that hold it.

    >>> voices(["red brick roof", "red roof"], np.array([2.0, 1.0]), ["roof"])
    {'red': 1.5}
    """
    out: defaultdict[str, float] = defaultdict(float)
    for text, share in zip(texts, (score / max(float(score[0]), 1e-9)).tolist(), strict=True):
        for word in _words(text).difference(asked):
            out[word] += share
    return {word: share for word, share in out.items() if share > SHARED}


def echo(impacts: Floats, score: Floats) -> Floats:
    """How much of the words each candidate holds, 0..1; one of the first hits is not heard by itself.

    Args:
        impacts: Impact of each word (columns) on each candidate (rows), best first.
        score: The scores of those whose words they are: the first rows.

    >>> echo(np.array([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([2.0, 2.0])).tolist()
    [0.25, 0.25, 1.0]
    """
    count = len(score)
    said = (impacts[:count] > 0) * (score / max(float(score[0]), 1e-9))[:, None]
    whole = np.maximum(said.sum(axis=0), 1e-9)
    heard = impacts.copy()
    heard[:count] *= np.maximum(whole - said, 0.0) / whole
    sums = heard.sum(axis=1)
    return sums / max(float(sums.max(initial=0.0)), 1e-9)


@lru_cache(maxsize=MEMO_TEXTS)
def _words(text: str) -> frozenset[str]:
    return frozenset(terms_of(text)) - STOP


if TYPE_CHECKING:
    Keys = NDArray[np.uint64]

VOTERS = 10
"""How many of the first hits tell what a question is about."""
LEAST = 1e-9
TALK = 0.5
"""What sharing a session counts, as a share of sharing a user and a project."""


def home(scopes: Scopes, score: Floats, *, over_all: bool = False) -> Floats:
    """How far each candidate belongs to what the other first hits belong to, 0..1.5; 0 where all belong to one, or to
    it and to everybody.

    Args:
        scopes: What each candidate belongs to, best first.
        score: The score of each.
        over_all: The question is about several conversations, so that none of them is its home.
    """
    out = np.zeros(len(score))
    for keys, weight in ((scopes.place, 1.0), (scopes.talk, 0.0 if over_all else TALK)):
        if len(keys) and (keys != keys[0]).any() and np.unique(keys[keys > 0]).size > 1:
            out += weight * belonging(keys, score)
    return out


def belonging(keys: Keys, score: Floats) -> Floats:
    """The share that each key has among the first hits, by the squares of their scores; nobody votes for itself.

    What has no key (0) belongs to everybody, so that it counts as much as what counts most, and no more.

    >>> belonging(np.array([7, 7, 8, 0], dtype=np.uint64), np.array([2.0, 2.0, 2.0, 1.0])).round(2).tolist()
    [0.5, 0.5, 0.0, 0.5]
    """
    listed: list[int] = keys.tolist()
    first: list[float] = (np.maximum(score[:VOTERS], 0.0) ** 2).tolist()
    votes = [vote if key else 0.0 for key, vote in zip(listed, first, strict=False)]
    sums: dict[int, float] = {}
    for key, vote in zip(listed, votes, strict=False):
        sums[key] = sums.get(key, 0.0) + vote
    total = max(sum(votes), LEAST)
    share = [sums.get(key, 0.0) / total for key in listed]
    for place, vote in enumerate(votes):
        if listed[place]:
            share[place] = max(sums[listed[place]] - vote, 0.0) / max(total - vote, LEAST)
    most = max(share, default=0.0)
    return np.array([part if key else most for key, part in zip(listed, share, strict=True)])


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
PARTY_MEMO_TEXTS = 8192
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


@lru_cache(maxsize=PARTY_MEMO_TEXTS)
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


@lru_cache(maxsize=PARTY_MEMO_TEXTS)
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


SHORT = 300
"""Characters up to which a text can be a standing instruction: a long one has other things to say."""
CLEAR = 0.2
"""Calibrated cosine from which a standing instruction counts in full."""
PREFERENCE = 0.2
"""What a preference counts where advice is asked, as a share of a standing instruction."""
GUIDANCE_MEMO_TEXTS = 8192
"""Texts of which it is remembered what they are: a bank's texts come up again and again."""

_order = lazy(
    r"^.{0,40}?\b(?:always|never|please|make sure|be sure|remember to|don['’]t|do not|from now on)\b",
    re.IGNORECASE,
)
_occasion = lazy(
    r"\b(?:when(?:ever)?|if|(?:every|each|any) ?time) (?:i|we|you|someone|anyone|a user|the user|users)\b"
    r"(?:['’]m|['’]re| am| are| is)? (?:ask|mention|want|need|request|talk|discuss|bring|say|tell|send|write|work)"
    r"\w*(?: (?:about|for|on|of|to|up)\b)*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_preference = lazy(
    r"\b(?:prefer(?:s|red|ence|ences)?|rather than|would rather)\b|['’]d rather\b", re.IGNORECASE
)
_advice = lazy(r"\b(?:suggest\w*|recommend\w*|should (?:i|we)|would you)\b", re.IGNORECASE)


def guidance(
    question: str, texts: Sequence[str], cosine: Floats, occasions: Mapping[int, float] | None = None
) -> Floats:
    """How much each text tells of the way to answer, 0..1.

    Args:
        question: The query as asked.
        texts: The texts of the short list.
        cosine: Their calibrated cosines with the query; nan where there is none.
        occasions: The same for the occasion alone of each standing instruction, by its place, where that is known.

    >>> texts = ["Always give page numbers when I ask about books", "I prefer print to screens", "It rains"]
    >>> guidance("Which books would you recommend?", texts, np.array([0.1, 0.1, 0.1])).tolist()
    [0.5, 0.2, 0.0]
    """
    out = np.zeros(len(texts))
    if asks_advice(question):
        out[[states_preference(text) for text in texts]] = PREFERENCE
    standing = list(occasions) if occasions is not None else places(texts)
    if standing:
        near = cosine[standing]
        if occasions is not None:
            apart = np.array(list(occasions.values()))
            near = np.where(np.isnan(apart), near, (near + apart) / 2)
        near = np.nan_to_num(near)
        nearest = int(near.argmax())
        out[standing[nearest]] = max(out[standing[nearest]], min(1.0, float(near[nearest]) / CLEAR))
    return out


def places(texts: Sequence[str]) -> list[int]:
    """Which of the texts are standing instructions."""
    return [place for place, text in enumerate(texts) if is_standing(text)]


def asks_advice(question: str) -> bool:
    """Whether a question is for a suggestion."""
    return _advice.search(question) is not None


@lru_cache(maxsize=GUIDANCE_MEMO_TEXTS)
def states_preference(text: str) -> bool:
    """Whether a text says what someone likes better."""
    return _preference.search(text) is not None


def occasion(text: str) -> str:
    """What a standing instruction is for.

    >>> occasion("Never use tabs when I ask for Python code.")
    ' Python code.'
    """
    found = _occasion.search(text)
    return "" if found is None else found.group(1)


@lru_cache(maxsize=GUIDANCE_MEMO_TEXTS)
def is_standing(text: str) -> bool:
    """Whether a text is an instruction for every time that something is asked or done.

    >>> is_standing("Never use tabs when I ask for code"), is_standing("I never ask when I am tired")
    (True, False)
    """
    if len(text) > SHORT:
        return False
    if (
        text.isascii()
    ):  # most texts hold none of the words without which there is no occasion, and it is soon seen
        lowered = text.lower()
        if not ("when" in lowered or "if " in lowered or "time " in lowered):
            return False
    return _order.search(text) is not None and _occasion.search(text) is not None


if TYPE_CHECKING:
    Ints = NDArray[np.int64]
    Singles = NDArray[np.float32]

MAX_TOKENS = 256
"""Only the first pieces of a long text are compared."""
NEAR = 0.5
"""Cosine of two pieces from which they count as related; random pieces lie below it."""
LIGHT = 0.3
"""Pieces of the query that weigh less than this share of the heaviest are left out."""
BLOCK = 12
"""Pieces of a text that are looked at together; a stretch is two blocks, about a sentence."""
SAME = 0.99
"""A match from which the text holds the very piece."""


class Matches(NamedTuple):
    """How well each piece of the query is matched in each text, by blocks of consecutive pieces."""

    best: Singles
    """Best match of each query piece (rows) in each block (columns), 0..1; the blocks of a text are neighbours."""
    first: Ints
    """The first block of every text that has any piece."""
    there: NDArray[np.bool_]
    """Which texts have any piece."""
    weights: Floats
    """How much each query piece counts."""


def late_scores(query: str, texts: Sequence[str], table: Tokens) -> Floats:
    """The weighted mean, over the pieces of the query, of the best match among the pieces of each text.

    A match is the cosine above `NEAR`, stretched to [0, 1], so that unrelated words give nothing.

    Args:
        query: The query as asked.
        texts: The texts of the short list.
        table: Pieces, vectors and weights.
    """
    found = matches(query, texts, table)
    return np.zeros(len(texts)) if found is None else whole_texts(found)


def matches(query: str, texts: Sequence[str], table: Tokens) -> Matches | None:
    """The pieces of the query against those of each text; None where there is nothing to compare."""
    asked = list(dict.fromkeys(table.tokens(query)))
    pieces, lengths = table.pieces(texts, MAX_TOKENS)
    if not asked or not pieces.size:
        return None
    weights = table.token_weights(asked).astype(np.float64)
    heavy = weights >= LIGHT * weights.max()
    asked = [piece for piece, keep in zip(asked, heavy.tolist(), strict=True) if keep]
    best = table.closest(asked, pieces, lengths, BLOCK)
    np.maximum(best - NEAR, 0.0, out=best)
    best /= 1.0 - NEAR
    there = lengths > 0
    counts = -(-lengths[there].astype(np.int64) // BLOCK)
    first = np.cumsum(counts) - counts
    return Matches(best, first, there, weights[heavy])


def pooled(text: str, table: Tokens) -> Singles | None:
    """The unit vector of a short text from the table itself; None for a text without a piece."""
    pieces = table.tokens(text)
    if not pieces:
        return None
    whole = table.token_weights(pieces) @ table.token_vectors(pieces)
    return whole / max(float(np.sqrt(whole @ whole)), 1e-9)


def whole_texts(found: Matches) -> Floats:
    """Late interaction proper: every piece of the query at its best place in each text."""
    sums = found.weights @ np.maximum.reduceat(found.best, found.first, axis=1)
    out = np.zeros(len(found.there))
    out[found.there] = sums / found.weights.sum()
    return out


def close_together(found: Matches) -> Floats:
    """The same within the best stretch of two blocks of each text, where pieces that few texts hold count more.

    A long text that holds the words of a query here and there is not about it; one that holds them together is.
    """
    best, first, there, weights = found
    rare = _rarity(len(there))
    held = (np.maximum.reduceat(best, first, axis=1) > SAME).sum(axis=1)
    weighed = weights * rare[held]
    stretch = best.copy()
    np.maximum(best[:, :-1], best[:, 1:], out=stretch[:, :-1])
    last = np.append(first[1:] - 1, best.shape[1] - 1)
    stretch[:, last] = best[:, last]
    sums = np.maximum.reduceat(weighed @ stretch, first) / weighed.sum()
    out = np.zeros(len(there))
    out[there] = sums
    return out


@lru_cache(maxsize=64)
def _rarity(texts: int) -> Floats:
    """How much a piece counts that none, one, two and so on of the texts hold."""
    rare = np.log(1.0 + (texts + 1) / (np.arange(texts + 1) + 0.5))
    rare.flags.writeable = False
    return rare
