"""Recognises an episode in which somebody asked and nobody knew. Pure; ranking and capture call it.

"User: Do we have the VAT id? Assistant: I don't have a VAT id stored." shares every word with the next question of
that kind and answers none. The rule reads speakers' labels, or a report ("Asked the bot for the PIN, it had none").
When in doubt, an episode holds knowledge: an answer that goes on ("I don't know the port, but the host is db4"), a
statement of the user besides the question, or a later turn that tells the value each make it an ordinary episode.
"""

from __future__ import annotations

import re
from functools import lru_cache

from skep.runtime import lazy

LONGEST = 4_000
"""Characters of the longest text that is read; a longer one is taken to hold something."""

SHORT = 8
"""Words of a sentence beside a question ("I'm at the cash machine.") that is taken to tell nothing worth keeping."""

_USER = "user|human|me|nutzer(?:in)?|benutzer(?:in)?|usuari[oa]|utilisat(?:eur|rice)|utente|question|frage|q"
_ASSISTANT = (
    "assistant|assistente?|asistente|assistante|ai|ki|bot|chatbot|agent|model|claude|chatgpt|gemini"
    "|copilot|answer|antwort"
)
_LABEL = lazy(
    rf"(?:^|(?<=[\s\"'”.?!)]))(?:(?P<user>{_USER})"
    rf"|(?P<assistant>{_ASSISTANT}))(?:\s?\([^()\n]{{1,40}}\))?\s?:\s",
    re.IGNORECASE,
)
_PARTS = lazy(r"(?<=[.!?;。])[\"'”)]*\s+|\n+|\s[–—-]\s")
_CLAUSES = lazy(
    r",\s*(?=(?:but|only|though|however|yet|aber|nur|jedoch|pero|solo|mais|ma|però)\b)", re.IGNORECASE
)
_KEPT = (
    r"(?:stored|saved|noted|recorded|registered|written down|on (?:file|record)|in (?:the |my "
    r"|our |your |its |this )?(?:\w+ )?"
    r"(?:notes?|memory|memories|records?|history|bank)|told me|known to me|(?:been |ever "
    r"|was ever )?(?:shared|told|mentioned|given|provided)"
    r"|at hand|the things i remember|i(?:'ve| have) (?:stored|saved|on record)|i know of"
    r"|what i(?:'ve| have) stored)"
)
_UNKNOWN = lazy(
    "|".join(
        (
            r"^(?:no idea|not (?:stored|known|noted|recorded|that i know)|no (?:record|note"
            r"|information|entry)|unknown|none (?:stored|saved)|don'?t know|dunno)\b",
            r"\bi (?:really |still |also |currently |honestly |simply )?(?:do not|don't|did not"
            r"|didn't|cannot|can't|could not"
            r"|couldn't|am unable to|was unable to|never)(?: \w+)? (?:know|have|find|recall"
            r"|remember|see|tell|say|receive|hold)\b",
            r"\bi (?:haven't|have not|hadn't|have never|never)(?: \w+)? (?:been (?:told|given)"
            r"|got|any|a|received|heard|seen)\b",
            r"\bi(?:'ve| have| had| find| found| see)(?: got)? (?:no|none|nothing|nobody)\b",
            r"\bi(?:'m| am| was) (?:not (?:sure|aware|certain)|unaware|(?:never|not) (?:told"
            r"|given|informed))\b",
            r"\byou (?:haven't|have not|never|didn't|did not)(?: \w+){0,2} (?:told?|tell"
            r"|mention(?:ed)?|gave|given?|shared?"
            r"|said|say|saved?|stored?|noted?|specif(?:y|ied))\b",
            r"\bthere(?:'s| is| was| are| were|'re) (?:no|nothing|none|not)\b[^.!?]{0,80}?\b(?:"
            + _KEPT
            + r"|for that|you've told)\b",
            r"(?:^|\b)(?:no|none|nothing|nobody)\b[^.!?]{0,80}?\b" + _KEPT + r"\b",
            r"\b(?:isn't|is not|aren't|are not|wasn't|was not|hasn't|has not|haven't"
            r"|doesn't appear|does not appear|isn't something)\b"
            r"[^.!?]{0,60}?\b(?:" + _KEPT + r"|i have)\b",
            r"\bich (?:weiß|weiss|kenne|habe|finde|hab)\b[^.!?]{0,60}?\b(?:nicht|nichts|keine?[nrms]?)\b",
            r"\b(?:keine?[nrms]?|nichts)\b[^.!?]{0,60}?\b(?:gespeichert|notiert|bekannt"
            r"|hinterlegt|gefunden|vermerkt)\b",
            r"\bno (?:lo )?(?:tengo|s[eé]|encuentro|recuerdo|consta|hay|me has dicho)\b",
            r"\bje (?:ne |n')(?:\w+ )?(?:sais|ai|trouve|connais|me souviens"
            r"|dispose)\b[^.!?]{0,40}?\b(?:pas|aucune?|rien)\b",
            r"\bnon (?:lo )?(?:ho|so|trovo|conosco|ricordo|risulta|mi hai)\b",
        )
    ),
    re.IGNORECASE,
)
_ASKS = lazy(
    r"\?|^\W*(?:wh(?:at|ich|o|om|ose|ere|en|y)|how|do|does|did|is|are|was|were|can|could|has|have"
    r"|will|on (?:what|which)"
    r"|in (?:what|which)|tell me|remind me|give me|look up|any idea|do you know|was|wer|wo|wann"
    r"|wie|welche[rsnm]?"
    r"|wieviel|qu[eé]|qui[eé]n|cu[aá]l|cu[aá]ndo|d[oó]nde|quel(?:le)?|qui|quand|o[uù]|combien"
    r"|quale?|chi|quando|dove)\b",
    re.IGNORECASE,
)
_HARMLESS = lazy(
    r"^\W*(?:(?:i(?:'m| am) )?(?:sorry|afraid|apologies|unfortunately|hmm?|ok(?:ay)?|leider"
    r"|lo siento|désolée?|mi dispiace)\W*"
    r"|(?:please |maybe |perhaps |better |just )?(?:ask|check|look|try|see|tell|let|send|share"
    r"|contact|search|give|say|consult|call|phone)\b"
    r"|(?:you )?(?:may|might|could|can|should|want|would|shall|will) (?:you|i|need|ask|check|want"
    r"|like|try|find|look|have to)\b"
    r"|(?:if|once|when|as soon as) you\b|i(?:'ll| will| can| could| would)\b|(?:that|it"
    r"|this)'?s? (?:not|isn't|is not)\b"
    r"|frag|schau|bitte|wenn du|si me|pregunta|si tu|demande|se me|chiedi)",
    re.IGNORECASE,
)
"""A sentence that begins so apologises, defers or offers; it tells nothing, as long as no number stands in it."""
_TELLS = lazy(
    r"\d|\b(?:it|that|he|she|they|this)(?:'s| is| was|'re| are| were)\b(?!.*\b(?:somewhere"
    r"|typical|fine|ok|pity|strange|odd)\b)"
    r"|\b(?:note|remember|save|store|write) (?:it|that|this|down)\b|\b(?:merk|speicher|notier)\b"
    r"|\b(?:found it|turns out|is now|got it from)\b",
    re.IGNORECASE,
)
"""A later turn that tells the value after all, or says to keep it."""
_A_VALUE = lazy(r"\w+ \w+.*\d|\d.*\w+ \w+")
"""A clause that says something about a number."""
_REPORT = lazy(
    r"\b(?:asked|wanted to know|was asked|asking|wollte wissen|fragte|gefragt|preguntó|a demandé"
    r"|ha chiesto)\b",
    re.IGNORECASE,
)
_REPORTED_UNKNOWN = lazy(
    r"\b(?:assistant|bot|app|agent|tablet|ai|it|i|assistent|asistente|claude|he|she)\b[^.!?]{0,40}?\b(?:"
    r"(?:had|has|have|found|finds|knew|got)(?: back that it had)? (?:no|none|nothing)\b"
    r"|(?:did not|didn't|does not|doesn't) (?:know|have)\b|(?:could not|couldn't|cannot) (?:find"
    r"|say|tell)\b|hadn't (?:any|one|a)\b"
    r"|(?:had|has) (?:no|none|nothing)\b|wusste (?:es |das )?nicht|hatte (?:nichts"
    r"|keine?[nrms]?)\b|no (?:lo )?(?:sabía|tenía)\b)"
    r"|\bno (?:information|note|record|entry)\b|\b(?:no|none|nothing)\b[^.!?]{0,60}?\b" + _KEPT + r"\b",
    re.IGNORECASE,
)


@lru_cache(maxsize=8192)
def is_unanswered(text: str) -> bool:
    """True if a text is a session that asked something and got no answer.

    >>> is_unanswered("User: which port has the broker? Assistant: I don't have a port for the broker stored.")
    True
    >>> is_unanswered("User: which port has the broker? Assistant: I don't know the old one, but it is 1883 now.")
    False
    """
    if len(text) > LONGEST:
        return False
    text = text.replace("’", "'")
    turns = _turns(text)
    if not turns:
        return _reported(text)
    asked = knew_nothing = False
    for speaker, said in turns:
        if speaker == "assistant":
            if not asked or not _knows_nothing(said):
                return False
            knew_nothing = True
        elif not knew_nothing:
            if not _only_asks(said):
                return False
            asked = True
        elif not said.rstrip().endswith("?") and _TELLS.search(said):
            return False
    return knew_nothing


def _turns(text: str) -> list[tuple[str, str]]:
    """The labelled turns of a text; what stands before the first label of an assistant was asked."""
    labels = list(_LABEL.finditer(text))
    if not any(label["assistant"] for label in labels):
        return []
    turns: list[tuple[str, str]] = []
    before = text[: labels[0].start()].strip()
    if before:
        turns.append(("user", before))
    for label, after in zip(labels, [*labels[1:], None], strict=True):
        said = text[label.end() : after.start() if after else len(text)].strip()
        turns.append(("assistant" if label["assistant"] else "user", said))
    return turns


def _parts(said: str) -> list[str]:
    return [part.strip(" \"'”“") for part in _PARTS.split(said) if part.strip(" \"'”“.")]


def _knows_nothing(said: str) -> bool:
    """True if every sentence of an answer says that nothing is known, apologises or defers, and one says the first."""
    unknown = False
    for part in _parts(said):
        first, *others = _CLAUSES.split(part)
        if _UNKNOWN.search(first):
            unknown = True
        elif not _harmless(first):
            return False
        if not all(_UNKNOWN.search(other) or _defers(other) for other in others):
            return False
        if any(_A_VALUE.search(clause) and not _UNKNOWN.search(clause) for clause in first.split(",")[1:]):
            return False
    return unknown


def _defers(clause: str) -> bool:
    """True if a clause after "but" only sends somebody elsewhere."""
    return _harmless(clause.split(" ", 1)[-1])


def _harmless(part: str) -> bool:
    return part.endswith("?") or (bool(_HARMLESS.match(part)) and not re.search(r"\d", part))


def _only_asks(said: str) -> bool:
    """True if a turn asks, and tells at most a few words besides."""
    parts = _parts(said)
    others = [part for part in parts if not _ASKS.search(part)]
    return len(others) < len(parts) and not any(
        re.search(r"\d", part) or len(part.split()) > SHORT for part in others
    )


def _reported(text: str) -> bool:
    """True if a report in one's own words says that somebody asked and the assistant did not know."""
    parts = _parts(text)
    asked = next((number for number, part in enumerate(parts) if _REPORT.search(part)), None)
    if asked is None or asked > 1:
        return False
    knew_nothing = False
    for part in parts[asked:]:
        if _REPORTED_UNKNOWN.search(part):
            knew_nothing = len(_CLAUSES.split(part)) == 1
            if not knew_nothing:
                return False
        elif knew_nothing and _TELLS.search(part):
            return False
    return knew_nothing and not any(re.search(r"\d{3}", part) for part in parts[asked + 1 :])
