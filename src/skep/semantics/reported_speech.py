"""Who says a line, and what they say of themselves as a statement about them.

`evidence`, extraction and learning from content call this. It is a function of the text.
"""

from __future__ import annotations

import re

from skep.runtime import lazy
from skep.semantics import lexicon as lx

_NAME = r"[^\W\d_][\w.'-]{0,30}"
LABEL = lazy(rf"\s*(?P<name>(?:{_NAME}[ \t]){{0,2}}{_NAME})(?:[ \t]\([^()\n]{{1,40}}\))?[ \t]?:(?=\s)")
"""What stands before a colon at the beginning of a line: "Ana Lee: ", "user (web): "."""
ROLES = lx.word_set("user assistant human ai agent customer support client caller bot system me")
NOBODY = lx.word_set(
    """note notes reminder reminders fyi todo fixme info memo fact important update updates warning error ps tip result
    results again summary decision question answer log status hint caution example remember deadline owner"""
)


def speaker(line: str) -> str | None:
    """The speaker of a line, if it names one.

    >>> speaker("Ana: I live in Oslo"), speaker("Note: I live in Oslo"), speaker("our limits: none")
    ('Ana', None, None)
    """
    found = LABEL.match(line)
    if found is None:
        return None
    name, words = found["name"], found["name"].split()
    if name.casefold() in ROLES or (
        name.casefold() not in NOBODY and all(word[0].isupper() for word in words)
    ):
        return found.group().strip(" \t:")
    return None


FIRST_PERSON = (
    (r"\bI['’]m\b|\bI am\b", "{who} is"),
    (r"\bI['’]ve\b|\bI have\b", "{who} has"),
    (r"\bI['’]d\b", "{who} would"),
    (r"\bI don['’]?t\b|\bI do not\b", "{who} does not"),
    (r"\b[Mm]y\b", "{whose}"),
    (r"\b(?:mine|myself|me)\b", "{who}"),
)
_HOW = (
    r"((?:(?:always|never|also|often|still|just|sometimes|sort of|kind of|kinda"
    r"|(?!(?:re|f|(?:ap|re|sup|im|com)p|multip)ly)\w+ly) )*)"
)
"""Adverbs before a verb; rely, fly, apply and their like are none."""
_I_DO = lazy(rf"\bI {_HOW}(\w+)")
_UNCHANGED = lazy(
    r"can|could|will|would|shall|should|may|might|must|was|were|had|did|does|is|has|used|and|or|who"
)
_AND_DO = (
    r"(\b{who} (?:\w+ly )?"
    r"(?!(?:can|could|will|would|shall|should|may|might|must|does|did|likes|loves|enjoys|hates|prefers)\b)"
    r"(?:(?! (?:to (?!(?:work|school|bed|town|the|an?|our)\b)[a-z]+"
    r"|who|which|that|they|we|you|he|she|let|help|see|watch|when|if)\b)[^.;:!?]){0,120}?"
    rf" (?:and|but) ){_HOW}(live|work|study|teach|own|speak|play|drive|drink|eat|collect|prefer|like|love|enjoy|hate"
    r"|dislike|avoid|use|follow|cook|take|go|run|walk|read|write|watch|make|keep|want|need|have|do|sell|manage|commute"
    r"|volunteer|grow|raise|travel|wear|sleep|listen|rent(?= an? ))(?= \w)"
)
"""A second verb of the same person: "Ana drives to work and never" take."""


def as_statement(text: str) -> str:
    """A sentence without the label of its speaker; what somebody says of themselves names them.

    >>> as_statement("user: I live in Oslo with my cat."), as_statement("User: we use pnpm here, not npm")
    ("The user lives in Oslo with the user's cat.", 'We use pnpm here, not npm')
    >>> as_statement("Ana: I never drink coffee"), as_statement("Deploys need two approvals")
    ('Ana never drinks coffee', 'Deploys need two approvals')
    >>> as_statement("Ana: I drive to work and never take the bus"), as_statement("Ana: I used to love food and drink")
    ('Ana drives to work and never takes the bus', 'Ana used to love food and drink')
    """
    name = speaker(text)
    label = LABEL.match(text)
    if name is None or label is None:
        return text
    said = text[label.end() :].strip()
    bare = re.sub(r" \(.*\)", "", name)
    who = f"the {bare.casefold()}" if bare.casefold() in ROLES else bare
    for pattern, form in FIRST_PERSON:
        said = re.sub(pattern, form.format(who=who, whose=f"{who}'s"), said)
    said = _I_DO.sub(lambda found: f"{who} {found[1]}{_third_person(found[2])}", said)
    again = _AND_DO.replace("{who}", re.escape(who))
    said = re.sub(again, lambda found: f"{found[1]}{found[2]}{_third_person(found[3])}", said)
    return said[:1].upper() + said[1:]


def _third_person(verb: str) -> str:
    if _UNCHANGED.fullmatch(verb) or lx.lemma(verb)[1]:
        return verb
    if verb == "have":
        return "has"
    if re.search(r"[^aeiou]y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")
