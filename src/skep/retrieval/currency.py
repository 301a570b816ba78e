"""Changed values: "the budget was raised to $75", "the new deadline of April 5", "has now reached 165".

Read from patterns of plain English, and only for questions for a number or a time: a verb of change, up to a few words,
"to", "at" or "of", and the value; or "new", "updated" and the like before it; or "now" and "reached" right before it.
What a value changed by ("raised by 30 %") is not what it is.

Currency: of memories that answer for the same thing the newest comes first, the others are marked.

Without a model, two memories are rivals when

- they hold the same words of the query and are worded alike, but each has a word the other lacks: the same
  sentence with another value ("lives in Rome", "lives in Oslo"); or
- the newer one tells of a change ("now", "moved to", "raised") and shares the subject; this weaker rule applies
  only to short texts, to questions about the present, and only against the best hit; or
- the question asks for a value that holds now (a number, a time), both hold such a value, and the newer one ranks close
  to the best hit and holds its words of the query; or ranks less close, and says of words of the query that their value
  has changed. Again only against the best hit.

Copies, which have the same words, trade places in the same way, and none of them is marked: each is as true as the
others.

Where the relation holds several values at a time ("speaks French", "speaks German") the older is not marked. Two texts
that begin with two names of a kind and differ further on ("libfoo: library for X", "libbar: library for Y") are about
two things, and no rivals, unless the newer one tells of a change ("the new endpoint is"). Neither are two things that
have a letter for a name ("team A", "team B"), nor two reports of something that failed.

What was replaced still answers, through what replaced it: a question in the words of the old finds the new.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from skep.retrieval import candidates as stage
from skep.retrieval.query import terms_of as terms_reading
from skep.runtime import lazy
from skep.text.dates import MONTH
from skep.text.terms import FAILED, SEVERAL, SINGLE, STOP, terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.candidates import Call, Candidates, Columns


BEFORE, AFTER = 60, 40
"""Characters around a changed value, within its sentence, that say of what it is one."""
MEMO_TEXTS = 2048

_VERBS = """
    adjust bring bump chang climb correct cut decreas delay doubl drop extend expand fall grow halv improv increas
    jump lower mov postpon push rais reduc reschedul revis ris set shift shorten shrink switch trim tripl updat upgrad
"""
_IRREGULAR = "brought|fallen|fell|gone|grew|grown|halved|risen|rose|set|shrunk|went|cut"
_verb = "|".join(
    f"{verb}+(?:ed|ing)" if verb[-1] in "pmt" else f"{verb}(?:ed|ing)" for verb in _VERBS.split()
)
_NUMBER = (
    r"(?:[$€£]? ?\d[\d.,]*(?:%|\b)|"
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred)\b)"
)
_MONTH = MONTH + r"\.?"
_TIME = (
    rf"(?:{_MONTH} \d{{1,2}}\b|\b\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|\b\d{{4}}(?:-\d\d-\d\d)?\b|"
    r"\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|"
    r"\b(?:tomorrow|tonight|next (?:week|month|year))\b)"
)


def _pattern(value: str) -> re.Pattern[str]:
    about = r"(?:about |around |over |just |the |nearly |almost |only )?"
    return lazy(
        rf"\b(?:{_verb}|{_IRREGULAR})\b(?: [\w'’$%-]+){{0,8}}? (?:to|at|of) {about}{value}"
        rf"|\b(?:new|newly|updated|revised|latest)(?: [\w'’-]+){{0,4}}? {about}{value}"
        rf"|\b(?:now|reached|reaching|hit)(?: (?:reached|hit|at|is|stands at|have|has|up to|down to))? {about}{value}"
    )


_end = lazy(r"[.!?]\s|\n")
_changed = {"number": _pattern(_NUMBER), "time": _pattern(_TIME)}


@lru_cache(maxsize=MEMO_TEXTS)
def around_changes(kind: str, text: str) -> frozenset[str]:
    """The words around every value of a kind (number, time) that a text says has changed.

    >>> sorted(around_changes("number", "The snack budget was raised to $75."))
    ['$75', '75', 'budget', 'rais', 'snack']
    >>> sorted(around_changes("number", "The snack budget of $75 was raised by half."))
    []
    """
    if kind not in _changed:
        return frozenset()
    lowered = text.lower()
    held: set[str] = set()
    for match in _changed[kind].finditer(lowered):
        start, end = match.span()
        before = _end.split(lowered[max(0, start - BEFORE) : start])[-1]
        after = _end.split(lowered[end : end + AFTER])[0]
        held.update(terms(before + lowered[start:end] + after))
    return frozenset(held) - STOP


def of_a_namesake(names: Sequence[str], text: str) -> bool:
    """Whether a text holds a part of a name, and not the whole: "Project Atlas" where Project Echo is asked for.

    >>> of_a_namesake(["Project Echo"], "Project Atlas costs more"), of_a_namesake(["Project Echo"], "It costs more")
    (True, False)
    """
    held = frozenset(terms(text))
    for name in names:
        parts = [term for term in terms(name) if term not in STOP]
        if 0 < sum(part in held for part in parts) < len(parts):
            return True
    return False


if TYPE_CHECKING:
    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

REACH = 10
"""How many of the first hits are looked at."""
ALIKE = 0.3
"""Shared words, as a part of all words of both, from which two memories are worded alike."""
TOUCHING = 0.1
"""The same for a memory that tells of a change."""
SHARED = 0.4
"""Which part of the query's words, by rarity, both must hold for a change to concern the other."""
SHORT = 25
"""Terms of a text up to which a change is read from it."""
CLOSE = 0.5
"""How near to the best hit's score one must be for a change to concern it."""

VALUE_CLOSE = 0.75
"""How near to the best hit's score one must be to hold another value of the same thing."""
VALUE_SHARED = 0.7
"""Which part of the best hit's words of the query, by rarity, such a one must hold."""
CHANGED_CLOSE, CHANGED_SHARED = 0.5, 0.3
"""The same two where it says that the value has changed."""
BESIDE = 2
"""Words of the query that must stand beside a changed value."""
HEAD = 120
"""Characters within which a text says what it is about."""

LATEST = frozenset(("last", "latest", "newest", "first", "still"))
"""Words that leave room for one failure."""
_letter = lazy(r"(?:(?:[Ii]n|[Oo]n|[Ff]or|[Tt]he|[Oo]ur) )*([^\W\d_]{2,}) ([A-Z])\b")
_word = lazy(r"[^\W_][\w'.+-]*\w|[^\W_]")
_change = lazy(
    r"\b(?:now|no longer|not any ?more|instead|any ?more|new(?:ly)?|latest|current(?:ly)?|chang(?:ed|es|ing)|"
    r"updat(?:ed|es)|(?:up|down)grad(?:ed|es)|mov(?:ed|ing) (?:to|into|from)|migrat(?:ed|ing)|switch(?:ed|ing)|"
    r"transfer(?:red|ring)|replac(?:ed|es|ing)|raised|lowered|increased|decreased|reduced|expanded|extended|"
    r"adjusted|revised|promoted|succeeded|appointed|stepped down|reached|improved to|recently|"
    r"renamed|rescheduled|postponed|delayed|pushed|"
    r"final(?:ized|ised)?|correct(?:ed|ion)|actually|turns out|from .{1,40} to)\b"
)


class Facts(NamedTuple):
    """What is known of the first candidates, best first."""

    matched: Bools
    """Which query words (columns) each one holds."""
    idf: Floats
    """How rare each query word is."""
    texts: Sequence[str]
    created_at: Floats
    score: Floats
    present: bool = True
    """The query asks for what holds now."""
    holding: Bools | None = None
    """Which texts hold a value of the kind the query asks for; None where it asks for no value."""
    rows: Ints | None = None
    """Which was written first, where the times are equal."""
    wants: str = "thing"
    """The kind of value that is asked for."""
    asked: frozenset[str] = frozenset()
    """The words of the query."""
    names: Sequence[str] = ()
    """The names in it."""
    over_all: bool = False
    """It asks for a sum, a difference or a count over several memories."""
    apart: Callable[[int, set[int]], set[int]] | None = None
    """Which of some are of other people than one of them, and so no rivals of it."""
    sides: Sequence[Bools] = ()
    """Which are headed with what the query names, hold a phrase of it, are of a time it names, or hold a part of one of
    its identifiers. Two that differ in one of these are no rivals: they are not about the same."""


class Renewed(NamedTuple):
    """An order in which newer values come first, and which candidates are outdated by one above them."""

    order: Ints
    outdated: Bools


def renew(facts: Facts) -> Renewed:
    """Let the members of each group of rivals share the group's places, newest first.

    `outdated` follows the old positions. Of equal times the one written later is the newer, where that is known.
    """
    count = len(facts.texts)
    order, outdated = list(range(count)), [False] * count
    free = set(order)
    words = _Words(facts.texts)
    age = _ages(facts)
    for leader, group in _same_words(facts.matched).items():
        if leader not in free:
            continue
        rivals = _reworded(leader, [place for place in group if place > leader and place in free], words)
        if leader == 0 and facts.present:
            rivals |= _value_changed(facts, words) | _other_values(facts, age)
        rivals = {place for place in rivals if not words.of_two_things(leader, place)}
        for side in facts.sides:
            rivals = {place for place in rivals if side[place] == side[leader]}
        if facts.apart is not None and rivals:
            rivals -= facts.apart(leader, rivals)
        if not rivals:
            continue
        places = sorted({leader, *rivals})
        free.difference_update(places)
        newest_first = sorted(places, key=age.__getitem__)
        newest = words.of(newest_first[0]).held
        for place, newer in zip(places, newest_first, strict=True):
            order[place] = newer
            mine = words.of(place).held
            outdated[place] = (
                age[place] > age[newest_first[0]] and mine != newest and not _may_both_hold(mine, newest)
            )
    return Renewed(np.array(order, dtype=np.int64), np.array(outdated, dtype=bool))


def _ages(facts: Facts) -> list[int]:
    """Places by age: 0 for the newest; equal where neither time nor the order of writing tells them apart."""
    rows = facts.rows.tolist() if facts.rows is not None else [0] * len(facts.texts)
    moments = list(zip((-facts.created_at).tolist(), (-row for row in rows), strict=True))
    ranked = {moment: place for place, moment in enumerate(sorted(set(moments)))}
    return [ranked[moment] for moment in moments]


class Worded(NamedTuple):
    """A text as words."""

    held: frozenset[str]
    """The distinct words that mean something."""
    terms: int
    """How many terms the text has."""


class Thing(NamedTuple):
    """What a text is about, as far as how it begins tells."""

    head: tuple[str, ...]
    """The first two words that mean something."""
    rest: str
    """The text after the first of them."""
    letter: tuple[str, ...]
    """The kind and the letter where it begins with a thing that has a letter for a name: "team A"."""
    failed: bool
    """Whether it tells of one failure among others."""


class _Words:
    """The words of the candidates, taken apart when first asked for."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._kept: dict[int, Worded] = {}

    def of(self, place: int) -> Worded:
        """The words of one of them."""
        found = self._kept.get(place)
        if found is None:
            found = self._kept[place] = _worded(self._texts[place])
        return found

    def of_two_things(self, place: int, other: int) -> bool:
        """Whether two of them are about two things of a kind; what tells of a change is about the same."""
        mine, theirs = self._texts[place], self._texts[other]
        if not _of_two_things(_thing(mine), _thing(theirs), same=self.of(place).held == self.of(other).held):
            return False
        return not (tells_of_change(mine) or tells_of_change(theirs))


@lru_cache(maxsize=2048)
def _worded(text: str) -> Worded:
    found = terms_reading(text)
    return Worded(frozenset(found) - STOP, len(found))


@lru_cache(maxsize=2048)
def _thing(text: str) -> Thing:
    """Asked of rivals alone: most candidates are none, and it takes longer than their words."""
    begun = [match for match in _word.finditer(text[:HEAD].casefold()) if match[0] not in STOP][:2]
    rest = text[begun[0].end() :].casefold() if begun else ""
    named = _letter.match(text)
    short = _worded(text).terms <= SHORT
    said = frozenset(match[0] for match in _word.finditer(text.casefold())) if short else STOP
    return Thing(
        tuple(match[0] for match in begun),
        rest,
        () if named is None else (named[1].casefold(), named[2]),
        not said.isdisjoint(FAILED) and said.isdisjoint(SINGLE | LATEST),
    )


def _same_words(matched: Bools) -> dict[int, list[int]]:
    """For every candidate that holds a word of the query, in order: those that hold exactly the same ones."""
    count, width = matched.shape
    held = matched.tobytes()
    groups: dict[bytes, list[int]] = {}
    for place in range(count):
        groups.setdefault(held[place * width : (place + 1) * width], []).append(place)
    groups.pop(bytes(width), None)
    return dict(sorted((place, group) for group in groups.values() for place in group))


@lru_cache(maxsize=2048)
def tells_of_change(text: str) -> bool:
    """Whether a text says that something is no longer as it was.

    >>> tells_of_change("The limit was raised to 500"), tells_of_change("The limit is 100")
    (True, False)
    """
    return _change.search(text.lower()) is not None


def _reworded(leader: int, others: Sequence[int], words: _Words) -> set[int]:
    """Those worded like the leader, with another value, and copies of it."""
    out: set[int] = set()
    mine = words.of(leader).held if others else frozenset[str]()
    size = len(mine)
    for other in others:
        theirs = words.of(other).held
        shared, whole = len(mine & theirs), len(theirs)
        revised = size > shared < whole and shared >= ALIKE * (size + whole - shared)
        if revised or size == shared == whole:
            out.add(other)
    return out


def _of_two_things(mine: Thing, theirs: Thing, *, same: bool) -> bool:
    """Whether two texts begin with another name for the same kind of thing, and say something else of it.

    Or with another letter for one, or tell of two failures. `same` says that they have the same words.
    """
    if mine.failed and theirs.failed and not same:
        return True
    if mine.letter and theirs.letter and mine.letter[0] == theirs.letter[0]:
        return mine.letter != theirs.letter
    if len(mine.head) < 2 or len(theirs.head) < 2 or mine.head[0] == theirs.head[0]:
        return False
    return mine.head[1] == theirs.head[1] and mine.rest != theirs.rest


def _may_both_hold(mine: frozenset[str], theirs: frozenset[str]) -> bool:
    """Whether two texts name different values of a relation that holds several; of numbers it holds one."""
    several, single = _several()
    if (mine & theirs).isdisjoint(several) or not (mine | theirs).isdisjoint(single):
        return False
    return not any(map(str.isdigit, "".join(mine ^ theirs)))


@lru_cache(maxsize=1)
def _several() -> tuple[frozenset[str], frozenset[str]]:
    """As terms: words of relations that hold several values, and words that leave room for one."""
    return (
        frozenset(terms_reading(" ".join(sorted(SEVERAL)))),
        frozenset(terms_reading(" ".join(sorted(SINGLE)))),
    )


def _value_changed(facts: Facts, words: _Words) -> set[int]:
    """Those that share the best hit's subject where the newer of the two tells of a change."""
    mine = words.of(0)
    if mine.terms > SHORT:
        return set()
    weight = facts.matched @ facts.idf
    both = (facts.matched & facts.matched[0]) @ facts.idf
    enough = facts.score >= CLOSE * facts.score[0]
    enough &= both >= SHARED * np.maximum(np.maximum(weight, weight[0]), 1e-9)
    made = facts.created_at.tolist()
    out: set[int] = set()
    for other in np.flatnonzero(enough).tolist():
        newer = other if made[other] > made[0] else 0
        if other == 0 or not tells_of_change(facts.texts[newer]):
            continue
        theirs = words.of(other)
        shared = len(mine.held & theirs.held)
        if theirs.terms <= SHORT and shared >= TOUCHING * (len(mine.held) + len(theirs.held) - shared):
            out.add(other)
    return out


def _other_values(facts: Facts, age: Sequence[int]) -> set[int]:
    """Newer ones that hold a value for what the best hit holds one for, as a question for a value wants it."""
    if facts.holding is None or not facts.holding[0]:
        return set()
    both = (facts.matched & facts.matched[0]) @ facts.idf / max(float(facts.matched[0] @ facts.idf), 1e-9)
    score = facts.score / max(float(facts.score[0]), 1e-9)
    newer = facts.holding & (np.array(age) < age[0])
    rivals = set(np.flatnonzero(newer & (score >= VALUE_CLOSE) & (both >= VALUE_SHARED)).tolist())
    if facts.over_all:
        return rivals
    further = np.flatnonzero(newer & (score >= CHANGED_CLOSE) & (both >= CHANGED_SHARED)).tolist()
    return rivals | {place for place in further if _tells_of_another_value(facts, place)}


def _tells_of_another_value(facts: Facts, place: int) -> bool:
    """Whether a text says that the value asked for has changed."""
    text = facts.texts[place]
    beside = facts.asked & around_changes(facts.wants, text)
    return len(beside) >= BESIDE and not of_a_namesake(facts.names, text)


SHARE = 0.8
"""What the words and the meaning of a replaced memory count for the one that replaced it."""
MOST = 20
"""How many replaced memories are looked at by words, and how many by meaning."""
FIRST = 20
"""A replaced memory is followed if it would stand among so many first candidates, by words or by meaning."""


def followed(found: Candidates, call: Call) -> Candidates:
    """The candidates, and what replaced memories that match; each counts by the better of the two."""
    terms = call.asked.terms if call.config.k_words or call.vector is None else ()
    pool = call.sources.replaced(terms, call.vector, call.where, MOST)
    if pool is None or not len(pool.rows):
        return found
    former = stage.of_pool(pool, call)
    worth = np.flatnonzero(
        (SHARE * former.words > _among_the_first(found.columns.words))
        | (SHARE * former.cosine > _among_the_first(found.columns.cosine))
    )
    if not len(worth):
        return found
    former = stage.taken(former, worth)
    heirs = _heirs(former.rows, call)
    if not (heirs >= 0).any():
        return found
    columns = _inherited(_with(found.columns, heirs, call), former, heirs)
    speaking = int(np.count_nonzero(columns.former >= 0))
    if not speaking:  # each is a better candidate by itself
        return found
    joined = len(columns.rows) - len(found.columns.rows)
    by_matches = call.config.matched_terms and call.vector is None
    rated = stage.rate_by_matches(columns, call) if by_matches else stage.rate(columns, call)
    rated = replace(rated, trace=found.trace).ordered()
    return rated.noted("succession", note=f"{speaking} by what they replaced, {joined} of them joined")


def _among_the_first(values: Floats) -> float:
    """What a candidate needs to stand among the first by words or by meaning."""
    known = values[values == values]  # noqa: PLR0124
    return float(np.partition(known, -FIRST)[-FIRST]) if len(known) > FIRST else 0.0


def _heirs(rows: Ints, call: Call) -> Ints:
    """The row of what is current in place of each row; -1 where that is gone or the filter does not admit it."""
    at = call.sources.heirs(rows)
    ids = sorted({each for each in at if each is not None})
    admitted: dict[str | None, int | None] = dict(
        zip(ids, call.sources.rows_of(ids, call.where), strict=True)
    )
    found = [admitted.get(each) for each in at]
    return np.array([-1 if row is None else row for row in found], dtype=np.int64)


def _with(columns: Columns, rows: Ints, call: Call) -> Columns:
    """The columns with these rows among them."""
    fresh = sorted(set(rows[rows >= 0].tolist()) - set(columns.rows.tolist()))
    if not fresh:
        return columns
    terms = call.asked.terms if call.config.k_words or call.vector is None else ()
    joined = call.sources.lookup(np.array(fresh, dtype=np.int64), terms, call.vector)
    return stage.join(columns, stage.of_pool(joined, call))


def _inherited(columns: Columns, former: Columns, heirs: Ints) -> Columns:
    """The columns in which each heir has the better of its own and of the best that it replaced."""
    words, cosine, best = columns.words.copy(), columns.cosine.copy(), columns.former.copy()
    place = {row: at for at, row in enumerate(columns.rows.tolist())}
    for at in _best_last(former.words, former.cosine):
        if heirs[at] < 0:
            continue
        heir = place[int(heirs[at])]
        more, nearer = SHARE * former.words[at], SHARE * former.cosine[at]
        if more > words[heir] or nearer > _known(cosine[heir]):
            words[heir], cosine[heir] = max(more, words[heir]), np.fmax(nearer, cosine[heir])
            best[heir] = former.rows[at]
    return columns.but(words=words, cosine=cosine, former=best)


def _known(cosine: float) -> float:
    """A cosine, or the least there is where there is none."""
    return cosine if cosine == cosine else -1.0  # noqa: PLR0124


def _best_last(words: Floats, cosine: Floats) -> Sequence[int]:
    """The places from the least to the best by words, then by meaning."""
    return np.lexsort((np.fmax(cosine, -1.0), words)).tolist()
