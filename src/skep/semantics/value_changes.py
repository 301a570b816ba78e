"""Announced changes: texts that say in passing that a value is another one now.

>>> revises("I've adjusted the snack budget to $75, any ideas?", "I put $50 aside as my snack budget for Friday")
True
>>> revises("I've adjusted the snack budget to $75, any ideas?", "I put $50 aside as my book budget for Friday")
False

Long texts that revise one number share little else with those that held the old one, so comparing them as wholes says
nothing. Here one of them has to announce the change ("extended to May 20", "the new April 25 deadline"), name what
changed, and the other has to hold another value of the same kind beside the same words.

Changes of names that are told by a verb: somebody moved, left, took over, or switched from one thing to another.

>>> moves_on("We switched from Jenkins to GitHub Actions", "We use Jenkins for CI")
True
>>> moves_on("We switched from Jenkins to GitHub Actions", "Jenkins is written in Java")
False

The two texts share no form, so comparing them as wholes says nothing. The newer one has to tell the change in one of a
few ways, and the older has to be a short text that says how it was: of the same one, or with the same thing named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from skep.semantics import lexicon as lx
from skep.text.dates import MONTH

_VALUE = re.compile(
    r"(?P<money>[$€£]\s?\d[\d,]*(?:\.\d+)?(?:[kmb]n?\b| ?(?:million|billion)\b)?)"
    rf"|(?P<date>\b{MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?\b(?:[-–]\d{{1,2}}\b)?)"
    r"|(?P<time>\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b)"
    r"|(?P<percent>\b\d+(?:\.\d+)?(?: ?%| percent\b))"
    r"|(?P<span>(?<![\w.$€£#-])\d+(?:\.\d+)?(?:[-–]\d+)? ?(?:minute|hour|day|week|month|year)s?\b)"
    r"|(?P<count>(?<![\w.$€£#/-])(?!(?:19|20)\d\d\b)\d[\d,]*(?:\.\d+)?(?![\w%/:-]|\.\d))",
    re.IGNORECASE,
)
_AHEAD = rf"(?=[$€£\d]|{MONTH} \d)"
_ABOUT = r"(?:(?:about|around|over|just|now|at least|a total of) )?"
_VERB = (
    r"(?:increased|decreased|raised|lowered|reduced|extended|shortened|moved|moving|shifted|rescheduled|postponed"
    r"|pushed|adjusted|updated|changed|revised|expanded|bumped|upgraded|dropped|cut)"
)
_KIND = r"(?:new|updated|revised|increased|extended|adjusted|reduced|rescheduled)"
_ANNOUNCED = (
    # "adjusted the snack budget to $75"; "the deadline was extended to May 20"
    re.compile(rf"(?<!already )\b{_VERB}\b(?P<what>[^.!?;,]{{0,60}}?)\bto {_ABOUT}{_AHEAD}", re.IGNORECASE),
    # "the new sprint deadline of April 5"
    re.compile(
        rf"(?<!already )\b{_KIND}\b(?P<what>(?:(?!\b{_KIND}\b)[^.!?;,]){{1,50}}?)\b(?:of|is|to) {_ABOUT}{_AHEAD}",
        re.IGNORECASE,
    ),
    # "the new April 25 deadline"
    re.compile(rf"\b{_KIND} {_AHEAD}", re.IGNORECASE),
    # "the savings, which have now reached $900"
    re.compile(rf"\b(?:has|have) (?:now )?(?:reached|grown to|risen to)(?P<what>) {_AHEAD}", re.IGNORECASE),
)
_LIKELY = re.compile(rf"\b(?:{_VERB}|{_KIND}|reached|grown|risen)\b", re.IGNORECASE)
_HINTS = re.compile(r"(?:ed|ing|ew|ut|own|sen)(?![a-z])")
"""How all of those end, in small letters; found in a third of the time, where a text is ASCII."""
_DIGIT = re.compile(r"\d")
_FROM = re.compile(rf"\bfrom {_AHEAD}", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?", re.IGNORECASE)
_STOPS = re.compile(r"[.!?;](?=\s|$)")
_MONTHS = re.compile(MONTH + r"$")
_EMPTY = (
    lx.STOP
    | lx.NEGATORS
    | lx.UPDATE_MARKERS
    | lx.word_set(
        """new recent recently original previous current additional extra first last total number amount starting set
        i've i'm it's we've we're i'd i'll try trying understand know think want need help make find found saw
        noticed"""
    )
)
_LINKING = lx.word_set("with for of in on from at into by after before during through per")
"""Words behind which a thing is described further."""
BEFORE, AFTER = 6, 5
"""Telling words before and after a value that belong to it."""
BESIDES = 2
"""Telling words that two texts share besides, where what changed is named by one word alone."""


class Change(NamedTuple):
    """One announced change."""

    kind: str
    value: str
    was: str | None
    """The old value, where it is told."""
    thing: tuple[str, ...]
    """The stems that name what changed; the last is the noun."""
    described: tuple[str, ...]
    """Stems that describe it further."""
    names: frozenset[str]
    """Words with a capital in the sentence that tells it."""
    words: tuple[str, ...]
    """The words that name what changed and describe it, as they stand there."""


def revises(newer: str, older: str) -> bool:
    """Whether one text announces another value of something that the other holds a value of."""
    changes = announced(newer)
    return bool(changes) and any(_concerns(change, older, newer) for change in changes)


def asks_for(query: str, newer: str) -> bool:
    """Whether a question names something that a text announces a change of; of any text that announces none, it does.

    >>> asks_for("What is my snack budget?", "I raised it: the new snack budget is $75")
    True
    >>> asks_for("Who comes to the party?", "I raised it: the new snack budget is $75")
    False
    """
    changes = announced(newer)
    named = {*_stems(query)}
    return not changes or any(change.thing[-1] in named for change in changes)


@lru_cache(maxsize=4096)
def announced(text: str) -> tuple[Change, ...]:
    """The changes of values that a text announces; most texts announce none.

    >>> [(change.value, change.thing) for change in announced("The deadline was extended to May 20.")]
    [('may20', ('deadlin',))]
    """
    if not _DIGIT.search(text) or (text.isascii() and not _HINTS.search(text.lower())):
        return ()
    if not _LIKELY.search(text):
        return ()
    found: list[Change] = []
    for pattern in _ANNOUNCED:
        for match in pattern.finditer(text):
            value = _VALUE.match(text, match.end())
            if value is not None:
                change = _change(text, match, value)
                if change.thing:
                    found.append(change)
    return tuple(dict.fromkeys(found))


def _change(text: str, match: re.Match[str], value: re.Match[str]) -> Change:
    after = _STOPS.split(text[value.end() : value.end() + 60])[0].partition(",")[0]
    named = match.groupdict().get("what")
    was: str | None = None
    if named is None:
        phrases = [after]
        after = ""
    else:
        told = _FROM.search(named)
        if told is not None:
            old = _VALUE.match(named, told.end())
            was = _plain(old.group()) if old is not None else None
            named = named[: told.start()]
        before = _STOPS.split(text[max(0, match.start() - 90) : match.start()])[-1]
        phrases = [named, *reversed(before.split(","))]  # what changed may stand before the verb
    none: tuple[list[str], list[str]] = [], []
    thing, described = next((split for split in map(_split, phrases) if split[0]), none)
    described = [*described, *_telling(after)[:3]]
    start = max((at.end() for at in _STOPS.finditer(text, 0, match.start())), default=0)
    return Change(
        kind=str(value.lastgroup),
        value=_plain(value.group()),
        was=was,
        thing=tuple(map(lx.stem, thing)),
        described=tuple(map(lx.stem, described)),
        names=_names(text[start : value.start()]),
        words=(*thing, *described),
    )


def _split(phrase: str) -> tuple[list[str], list[str]]:
    """The words that name a thing, and those that describe it: "Zoom call with the director" is a Zoom call."""
    parts: list[list[str]] = [[]]
    for word in _WORD.findall(phrase.lower()):
        if word in _LINKING:
            parts.append([])
        elif _tells(word):
            parts[-1].append(word)
    held = [part for part in parts if part]
    if not held:
        return [], []
    return held[0][-3:], [*held[0][:-3], *(word for part in held[1:] for word in part)]


def _tells(word: str) -> bool:
    return word not in _EMPTY and word not in _LINKING and len(word) > 2 and not _MONTHS.match(word)


def _telling(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if _tells(word)]


def _names(sentence: str) -> frozenset[str]:
    """Words with a capital that do not begin a sentence."""
    words = _WORD.findall(sentence)
    return frozenset(word.lower() for word in words[1:] if word[0].isupper() and _tells(word.lower()))


def _stems(text: str) -> list[str]:
    return [*map(lx.stem, _telling(text))]


def _plain(value: str) -> str:
    return value.lower().replace(" ", "").replace(",", "").rstrip(".")


def _concerns(change: Change, older: str, newer: str) -> bool:
    """Whether the older text holds another value of what changed."""
    if change.value in _plain(older):
        return False  # it knew already
    known = {word.lower() for word in _WORD.findall(older)}
    if not known.issuperset(change.names if len(change.thing) == 1 else change.names & {*change.words}):
        return False  # of somebody else
    *_, noun = change.thing
    for kind, value, near in _values(older):
        if kind != change.kind or value == change.value or noun not in near:
            continue
        if change.was is not None:
            if value == change.was:
                return True
            continue
        if kind == "count":
            continue  # a bare number may count anything
        if len(change.thing) > 1:
            if change.thing[-2] in near:
                return True
        elif change.described:
            if not near.isdisjoint(change.described):
                return True
        elif kind != "percent" and _besides(older, newer, change) >= BESIDES:
            return True
    return False


def _besides(older: str, newer: str, change: Change) -> int:
    return len((set(_stems(older)) & set(_stems(newer))) - {*change.thing})


def _values(text: str) -> Iterator[tuple[str, str, set[str]]]:
    """Every value of a text: its kind, itself, and the stems beside it."""
    for value in _VALUE.finditer(text):
        before = _STOPS.split(text[max(0, value.start() - 70) : value.start()])[-1]
        following = _stems(_STOPS.split(text[value.end() : value.end() + 60])[0])
        yield (
            str(value.lastgroup),
            _plain(value.group()),
            {*_stems(before)[-BEFORE:], *following[:AFTER]},
        )


_NAME = r"[\w.+#/-]*\w(?: [A-Z](?:[\w.+#-]*\w)?){0,2}(?!\w)"
_PROPER = r"[A-Z](?:[\w.+#-]*\w)?(?: [A-Z](?:[\w.+#-]*\w)?){0,2}(?!\w)"
_WHO = rf"(?P<who>I|We|{_PROPER})(?:'ve|'s| has| have)?(?: just| recently| finally| now)?"
_VERBS = re.compile(
    r"switched|migrated|moved|changed|relocated|renamed|t(?:ook|akes) over|replace|succeed|left|quit"
)
_FORMS = (
    # "We switched from Jenkins to GitHub Actions", "We moved the CI from Jenkins to GitHub Actions"
    ("from", re.compile(
        rf"^(?P<who>[\w'-]+)[^.!?;]*? ?\b(?:switched|migrated|moved|changed)(?P<what>(?: [\w'-]+){{0,4}}?)"
        rf" from (?P<old>{_NAME}) to (?P<new>{_NAME})"
    )),
    # "We renamed master to main"
    ("named", re.compile(
        rf"\brenamed (?P<what>(?:[\w'-]+ ){{0,3}}?)(?:from )?(?P<old>{_NAME}) to (?P<new>{_NAME})"
    )),
    # "Carla took over from Bob as team lead"
    ("office", re.compile(
        rf"(?P<new>{_PROPER}) (?:has |have )?(?:(?:took|takes|taken) over from|replace[ds]|succeed(?:s|ed))"
        rf" (?P<old>{_PROPER}) as (?P<what>[\w' -]+)"
    )),
    # "Ana left Acme and joined Globex"
    ("work", re.compile(rf"^{_WHO} (?:left|quit) (?P<old>{_PROPER})(?P<new>)(?P<what>)")),
    # "I moved to Munich in September"
    ("home", re.compile(
        rf"^{_WHO} (?:moved|relocated) (?:back |over |away )?to (?P<new>{_PROPER})(?P<old>)(?P<what>)"
        r"(?! (?:team|group|department|office|squad|role))"
    )),
)  # fmt: skip
_STATES = {
    "from": re.compile(r"\b(?:is|are|am|uses?|runs?|lives?|works?|hosts?|deploys?|stores?|keeps?|on)\b"),
    "named": re.compile(r"\b(?:is|are|called|named)\b"),
    "office": re.compile(r"\b(?:is|leads?|works?)\b"),
    "work": re.compile(r"\b(?:works?|is employed|am employed)\b(?= (?:at|for|with|by)\b)"),
    "home": re.compile(r"\b(?:lives?|living|resides?|based)\b(?= in [A-Z])"),
}
"""How an older text says how it was, by the way in which the change is told."""
_PARTS = lx.word_set(
    "sales marketing product security engineering finance legal support operations design research hr"
)
"""Parts of a company, to which people move who live where they lived."""
_LONG_AGO = re.compile(r"\b(?:ago|when|once|originally|as a|in (?:19|20)\d\d)\b")
"""What says that somebody moved at a time that may lie before all that is known of them."""
_MOVING_WORD = re.compile(r"[\w.+#/-]*\w")
_OURS = {"our": "we", "my": "i"}
LONGEST = 14
"""Words up to which an older text says one thing."""


class Move(NamedTuple):
    """One change that is told."""

    form: str
    who: str
    old: str
    new: str
    what: tuple[str, ...]
    """The stems of what it is a change of, where that is told."""

    @property
    def words(self) -> tuple[str, ...]:
        """By which older texts are found that it may concern."""
        home = ("live", "lives", "living") if self.form == "home" else ()
        return (
            *self.old.split(),
            *self.what,
            *(() if self.old and self.form != "work" else (self.who,)),
            *home,
        )


@lru_cache(maxsize=4096)
def moves(text: str) -> tuple[Move, ...]:
    """The changes of names that a text tells of; most tell of none.

    >>> [(move.old, move.new) for move in moves("We renamed master to main")]
    [('master', 'main')]
    """
    if not _VERBS.search(text):
        return ()
    found = ((form, pattern.search(text)) for form, pattern in _FORMS)
    return tuple(_move(form, match) for form, match in found if match and not _elsewhere(form, match, text))


def _elsewhere(form: str, match: re.Match[str], text: str) -> bool:
    """Whether somebody moved to another part of a company, and not to another place; or long ago."""
    return form == "home" and (match["new"].lower() in _PARTS or _LONG_AGO.search(text) is not None)


def _move(form: str, match: re.Match[str]) -> Move:
    told = match.groupdict()
    who = (told.get("who") or "").lower()
    what = [word for word in _MOVING_WORD.findall(told["what"].lower()) if word not in lx.STOP]
    return Move(
        form, _OURS.get(who, who), told["old"].lower(), told["new"].lower(), tuple(map(lx.stem, what))
    )


def moves_on(newer: str, older: str) -> bool:
    """Whether one text tells that what the other says is so no longer."""
    return any(_moving_concerns(move, older) for move in moves(newer))


def _moving_concerns(move: Move, older: str) -> bool:
    """Whether an older text says how it was before a change, of the same one or of the same thing."""
    words = _MOVING_WORD.findall(older.lower())
    if len(words) > LONGEST or not _STATES[move.form].search(older) or not lx.NEGATORS.isdisjoint(words):
        return False
    said = f" {' '.join(words)} "
    if f" {move.old} " not in (said if move.old else "  ") or (move.new and f" {move.new} " in said):
        return False
    if move.what:
        return {*map(lx.stem, words)}.issuperset(move.what)
    if move.form == "named":
        return any(f" {verb} {move.old} " in said for verb in ("is", "are", "called", "named"))
    first = " ".join(words[: len(move.who.split())])
    return bool(move.who) and _OURS.get(first, first) == move.who
