"""Changes of names that are told by a verb: somebody moved, left, took over, or switched from one thing to another.

>>> moves_on("We switched from Jenkins to GitHub Actions", "We use Jenkins for CI")
True
>>> moves_on("We switched from Jenkins to GitHub Actions", "Jenkins is written in Java")
False

The two texts share no form, so comparing them as wholes says nothing. The newer one has to tell the change in one of a
few ways, and the older has to be a short text that says how it was: of the same one, or with the same thing named.
"""

from __future__ import annotations

import re
from functools import lru_cache

from skep.semantics import lexicon as lx
from skep.tuples import NamedTuple

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
_WORD = re.compile(r"[\w.+#/-]*\w")
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
    what = [word for word in _WORD.findall(told["what"].lower()) if word not in lx.STOP]
    return Move(
        form, _OURS.get(who, who), told["old"].lower(), told["new"].lower(), tuple(map(lx.stem, what))
    )


def moves_on(newer: str, older: str) -> bool:
    """Whether one text tells that what the other says is so no longer."""
    return any(_concerns(move, older) for move in moves(newer))


def _concerns(move: Move, older: str) -> bool:
    """Whether an older text says how it was before a change, of the same one or of the same thing."""
    words = _WORD.findall(older.lower())
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
