"""Whether a sentence tells something that is worth knowing by itself, later, and to somebody who was not there.

>>> telling("Ana: We deploy with the blue-green script")
True
>>> [telling(said) for said in ("Thanks, that worked!", "user: run the tests", "It is raining today", "I'll look")]
[False, False, False, False]

Much of what is said again and again is none of that: greetings and thanks, requests, what somebody is about to do or
feels, guesses, what holds today only, and what begins with a "he" or a "this" that nothing in the sentence explains.
"""

from __future__ import annotations

from functools import lru_cache

from skep.patterns import lazy
from skep.semantics import lexicon as lx
from skep.semantics.reading import analyse

LEAST, EXCLAIMED = 2, 4
"""A sentence needs so many words that carry meaning, an exclamation more; who speaks of themselves is one of them."""

_NAME = r"[^\W\d_][\w.'-]{0,30}"
LABEL = lazy(rf"\s*(?P<name>(?:{_NAME}[ \t]){{0,2}}{_NAME})(?:[ \t]\([^()\n]{{1,40}}\))?[ \t]?:(?=\s)")
"""What stands before a colon at the beginning of a line: "Ana Lee: ", "user (web): "."""
ROLES = lx.word_set("user assistant human ai agent customer support client caller bot system me")
NOBODY = lx.word_set(
    """note notes reminder reminders fyi todo fixme info memo fact important update updates warning error ps tip result
    results again summary decision question answer log status hint caution example remember deadline owner"""
)


def _one_of(phrases: str) -> str:
    """The alternatives of a pattern, from phrases with semicolons between them; longer ones are tried first."""
    held = sorted((" ".join(phrase.split()) for phrase in phrases.split(";")), key=len, reverse=True)
    return f"(?:{'|'.join(held)})"


_ALONE = _one_of(
    """oh; ah; aw; hm+; haha; hi; hey; hello; thanks; thank you; thx; cheers; sorry; wow; yay; congrats;
    congratulations; yes; yeah; yep; yup; sure; sure thing; ok; okay; alright; right; great; awesome; amazing; cool;
    nice; nice one; perfect; excellent; got it; you got it; no worries; no problem; of course; absolutely;
    definitely; exactly; indeed; well; so; also; and; but; then; anyway; good; understood; done; bye; goodbye;
    you're welcome; you are welcome; sounds good; fair enough; makes sense; please; plus"""
)
OPENING = lazy(
    rf"(?i)(?:{_ALONE}(?:,?[ \t]+(?-i:[A-Z])[\w'-]*)?[ \t]*(?:[,!.;:]+(?:\s+|$)|[\u2013\u2014-]\s+)"
    r"|(?:also|and|but|then|so|please)[ \t]+)+"
)
"""What comes before a sentence says something, or instead of it: "Sure, Ana, "."""
_TALK = _one_of(
    r"""thanks(?! to); thank you; danke; vielen dank; merci; gracias; thx;
    sorry; hi; hey; hello; bye; goodbye; congrats; congratulations; wow; cheers;
    welcome (?:to|back); good (?:luck|job|work|morning|night|evening|afternoon); good to (?:hear|see|know);
    nice (?:to|work|job); great (?:job|work|to|idea|hearing); well done; take care; see (?:you|ya); talk soon;
    talk to you; (?:just )?keep (?:it up|going|up|believing|trying|me posted|in touch); long time no; you too;
    you got this; (?:(?:i|we)(?:'m|'re| am| are) |so |really )*(?:glad|excited|looking forward|happy to);
    sounds like; let me; let us; let's(?! (?:use|always|never|avoid|stick)\b); hope; hopefully; can't wait;
    no (?:changes?|updates?|idea|news)(?:[.!]|$| on | yet| so far); here (?:is|are|you); here's; feel free;
    my pleasure; same here; me too; as (?:requested|you asked);
    if you (?:need|have|want) (?:any|anything|more|further|help|me); if there's anything;
    (?:i )?(?:totally |completely |fully )?(?:agree|appreciate); i (?:see|understand)[.!,]; i couldn't agree;
    your (?:support|help|advice|encouragement|friendship|words); have a (?:good|great|nice|lovely); appreciate;
    stay (?:safe|strong|tuned); go,; you're (?:really |so )?(?:making|doing|amazing|the best);
    (?:i|we) (?:can|could) help"""
)
TALK = lazy(rf"(?i){_TALK}(?![\w-])")
"""How small talk begins."""
POLITE = lazy(
    r"(?i)\b(?:let (?:me|us) know|thanks(?! to)|thank you|means? (?:a lot|so much)"
    r"|(?:sounds?|looks?|feels?) (?:(?:so|really|very|like|a|such) )*"
    r"(?:good|great|awesome|amazing|fun|cool|nice|perfect|interesting|exciting|fantastic|lovely|right))\b"
)
"""What makes small talk of a sentence wherever it stands."""
_DO = _one_of(
    """run; fix; show; tell; explain; help; open; list; give; find; check; look at; look into; try; stop; commit;
    push; retry; rerun; undo; revert; create; add; remove; delete; update; change; refactor; implement; rename;
    summarise; summarize; review; merge; send; read; start; go; do; proceed; continue; wait"""
)
ASKING = lazy(
    r"(?i)(?:(?:can|could|would|will|do|does|did|is|are|was|were|have|has|should|may|shall)(?:n't)?"
    r" (?:you|i|we|it|they|he|she|there|this|that|the)\b"
    rf"|{_DO}(?: (?:the|a|an|it|this|that|these|those|my|our|me|us|again|on|ahead|with (?:it|that|this))\b|[.!]?$))"
)
"""How somebody asks for something, once."""
RULE = lx.word_set(
    "always never before after when whenever every each only first unless must until without instead via using with"
)
"""Words that make a rule of a request: "run the tests before you commit"."""
ABOUT_TO = lazy(
    r"(?i)\b(?:i|we)(?:['\u2019]ll| (?:\w+ly )?will| shall| won't"
    r"|(?:['\u2019]m|['\u2019]re| am| are) (?:now )?going to(?! (?-i:[A-Z])))\b"
)
"""How somebody tells what they are about to do."""
_HOW = _one_of(
    """tired; exhausted; worried; excited; nervous; glad; happy; sad; sorry; hungry; bored; confused; unsure; sure;
    curious; stuck; overwhelmed; anxious; thrilled; back; here; ready; done; fine; ok; okay; late; grateful;
    thankful; wondering; thinking; hoping"""
)
FEELING = lazy(
    r"(?i)\b(?:i|we)(?:['\u2019]m|['\u2019]re| am| are| was| were| feel| felt)"
    rf"(?: (?:so|very|a bit|a little|really|just|still|quite|pretty|kind of|feeling|also|not|too|now))* {_HOW}\b"
)
"""How somebody tells how they are."""
TODAY = lazy(
    r"(?i)\b(?:today|tonight|yesterday|tomorrow|right now|just now|at the moment|a (?:moment|minute|second|while) ago"
    r"|(?:this|last|next) (?:week|weekend|month|morning|afternoon|evening|night"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day))\b"
)
"""Times that mean another day when the sentence is read."""
_DOES = _one_of(
    """is; are; was; were; has; have; had; will; would; should; can; could; may; might; means; makes; made; looks;
    sounds; seems; feels; works; worked; helps; involves; includes; requires; does; did; also; just; way; one;
    allows; gives; provides; ensures"""
)
DANGLING = lazy(
    r"(?i)(?:(?:he|she|they|his|her|hers|their|its|him|them)\b|it(?:['\u2019]s)?\b"
    rf"|(?:this|that|these|those)(?:['\u2019]s| {_DOES})\b)"
)
"""How a sentence begins whose subject was named before it."""
EXPLAINED = lazy(
    r"(?i)it(?:['\u2019]s| is| was| takes| took| costs| needs) .*\b(?:to|that|when|until|before|for) \w+ \w+"
)
"""An "it" that the sentence itself explains: "it takes an hour to restore the backup"."""
CODE = lazy(
    r"\s*(?:[{}<>$|]|```|#!|//|/\*|#include\b|(?:async )?def \w+\(|class \w+[(:{]|import [\w.]+;?$|from [\w.]+ import\b"
    r"|(?:export |const |let |var |function )+\w+\s*[=({:]|return\b.*[()\[\]{};=+]|@\w+(?:\(|$)|\w[\w.]*\(.*\)?;?$)"
    r"|.*(?:[{};]|\):|=>|\() *$"
)
"""What a line of code, a command or data looks like."""
PASSING = (POLITE, ABOUT_TO, FEELING, TODAY)
DOUBTS = lx.word_set(
    """maybe perhaps possibly probably might seem seems seemed think thinks thought guess guesses guessed doubt doubts
    wonder wonders wondered suppose supposes supposedly imagine imagined pretend hope hopes hoped wish wishes wished
    allegedly reportedly rumour rumor"""
)
"""Words that make a guess or a wish of a statement."""


def speaker(line: str) -> str | None:
    """Who speaks in a line, if it says so.

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


@lru_cache(maxsize=8192)
def telling(sentence: str) -> bool:
    """Whether a sentence tells something that is worth knowing by itself."""
    if CODE.match(sentence):
        return False
    label = LABEL.match(sentence)
    said = (sentence[label.end() :] if label else sentence).strip()
    if said[:1] + said.rstrip(".!")[-1:] in ("[]", "()"):
        return False  # what was done while somebody spoke
    opening = OPENING.match(said)
    said = said[opening.end() :] if opening else said
    if not said or TALK.match(said) or any(part.search(said) for part in PASSING):
        return False
    if DANGLING.match(said) and not EXPLAINED.match(said):
        return False
    read = analyse(said)
    if read.question or not DOUBTS.isdisjoint(read.bag):
        return False
    if ASKING.match(said) and RULE.isdisjoint(read.bag):
        return False
    words = [read.words[place] for place in read.content]
    own = not lx.PERSONAL.isdisjoint(read.bag)
    enough = len(words) + own >= (EXCLAIMED if said.endswith("!") else LEAST)
    return enough and (own or any(word[0].isalpha() for word in words))
