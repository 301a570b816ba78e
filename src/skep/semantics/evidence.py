"""Sentences as knowledge: which of them are worth keeping, and which are evidence for a fact.

>>> telling("Ana: We deploy with the blue-green script")
True
>>> [telling(said) for said in ("Thanks, that worked!", "user: run the tests", "It is raining today", "I'll look")]
[False, False, False, False]

A sentence is worth keeping if it tells something by itself, later, and to somebody who was not there. Greetings,
requests, plans, feelings, guesses, what holds today only, and a "he" or "this" without its noun are not.

>>> supports("Deploys need two approvals", "Note from the audit: deploys need two approvals, as ever", similarity=0.9)
True
>>> supports("Deploys need two approvals", "If the budget is cut, deploys need two approvals", similarity=0.9)
False

Evidence has a direction (entailment): who says more than a fact supports it, who says less does not. It is strict: what
is asked, planned, doubted or conditional is no evidence, nor is the same said of somebody or something else. Lifecycle
steps call this; it is a function of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from skep.embedding.static_table import bundled_table
from skep.runtime import lazy
from skep.semantics import lexicon as lx
from skep.semantics.pair_judge import Pair, Verdict, judge_many, opposites
from skep.semantics.parse_text import Text, analyse
from skep.semantics.reported_speech import LABEL, as_statement, speaker

LEAST, EXCLAIMED = 2, 4
"""A sentence needs so many words that carry meaning, an exclamation more; who speaks of themselves is one of them."""


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


@lru_cache(maxsize=8192)
def telling(sentence: str) -> bool:
    """True if a sentence tells something that is worth knowing by itself."""
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


AGAINST, SURE = 0.7, 0.9
"""Probabilities from which a sentence speaks against a fact, and from which it says the same in other words."""
MOST_SENTENCES = 16
"""Of a longer text only so many sentences are looked at."""
_SENTENCE = re.compile(r"((?<=[.!?。！？])\s+|\n+)")
_SHORTENED = re.compile(
    r"\b(?:(?:approx|dr|mr|mrs|ms|prof|st|vs|cf|e\.g|i\.e)(?P<any>)|(?:[ap]\.m|etc|inc|ltd|corp|u\.s|u\.k)(?P<small>)"
    r"|(?:no|nr|fig|sec|eq|vol|pp|ca|max|min|ver)(?P<number>))\.$",
    re.IGNORECASE,
)
"""Words with a full stop after which a sentence goes on: whatever follows, if it is a small letter, or a number."""
_OCCASION = re.compile(
    r"[\s,;(]+(?:(?:on|in|at|during) )?(?:the )?(?:day|night|week|run|attempt|try|round|time) #?\d+\)?[.!]?$",
    re.IGNORECASE,
)
"""How a sentence in the past may end that tells which time something happened."""
_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
"""Code that stands in a text."""
_ASKS = ("?", "？")
UNSURE = (
    lx.HEDGES
    | lx.MOODS[0]
    | lx.MOODS[2]
    | lx.word_set(
        """whether unless or versus vs only except instead supposedly allegedly reportedly
        think thinks thought believe believes believed guess guesses guessed doubt doubts doubted wonder wonders
        wondered suppose supposes imagine imagined dream dreamt wish wishes wished hoped planned planning
        propose proposes proposed suggest suggests suggested consider considers considered considering
        discuss discussed discussing debate debated pretend pretended claim claims claimed against"""
    )
)
"""Words that turn a statement into a thought, a plan, a choice or a condition."""
ENDED = lx.word_set("formerly previously longer anymore until used")
"""Words that say that something is over."""


REPEATED = lx.word_set(
    """really actually just currently still simply basically very quite also already indeed presently
    again anew once"""
)
"""Words a fact may have that its evidence need not repeat."""
SPEAKING = (lx.PERSONAL, lx.word_set("he his him"), lx.word_set("she her hers"))
"""Words for the people a sentence may be about; what one of them does is no evidence of what another does."""
HELD = 0.5
"""The share of a fact's words from which a sentence may be about the same."""


class Said(NamedTuple):
    """A text that should support a fact; `similarity` is their cosine on the calibrated scale."""

    fact: str
    text: str
    similarity: float


def sentences(text: str) -> list[str]:
    """The sentences of a text, white space trimmed.

    >>> sentences("The limit is approx. 5 GB. Dr. Lee set it at 5 p.m. on Monday.")
    ['The limit is approx. 5 GB.', 'Dr. Lee set it at 5 p.m. on Monday.']
    """
    parts = _SENTENCE.split(text)
    found = [parts[0]]
    for gap, part in zip(parts[1::2], parts[2::2], strict=True):
        if "\n" not in gap and _goes_on(found[-1], part):
            found[-1] += gap + part
        else:
            found.append(part)
    return [part.strip() for part in found if part.strip()]


def _goes_on(before: str, after: str) -> bool:
    """True if the full stop at the end of a part belongs to a shortened word."""
    if not before.endswith("."):
        return False
    found = _SHORTENED.search(before, max(0, len(before) - 8))
    if found is None or found["any"] is not None:
        return found is not None
    return after[:1].islower() if found["small"] is not None else after[:1].isdigit()


@lru_cache(maxsize=4096)
def statements(text: str) -> tuple[str, ...]:
    """The sentences of a text that tell something; questions do not.

    What somebody says of themselves keeps their name, so that it is nobody else's.

    >>> statements("Ana: Hello there. I live in Oslo. How are you?")
    ('Ana: Hello there.', 'Ana: I live in Oslo.')
    """
    found: list[str] = []
    who: str | None = None
    for each in sentences(text)[:MOST_SENTENCES]:
        named = speaker(each)
        who = named or who
        if each.endswith(_ASKS):
            continue
        own = who is not None and named is None and not lx.PERSONAL.isdisjoint(analyse(each).bag)
        found.append(f"{who}: {each}" if own else each)
    return tuple(found)


@lru_cache(maxsize=4096)
def told(text: str) -> tuple[str, ...]:
    """The statements of a text, without the occasion: "failed on run 3" states that it failed.

    >>> told("The backup failed, attempt 3. Why?")
    ('The backup failed',)
    """
    return tuple(dict.fromkeys(_without_occasion(each) for each in statements(text)))


@lru_cache(maxsize=4096)
def worth_keeping(text: str) -> tuple[str, ...]:
    """The statements of a text that are worth knowing by themselves, without the occasion.

    >>> worth_keeping("Hi! Thanks, that worked. The backup to nas3 failed, attempt 3.")
    ('The backup to nas3 failed',)
    """
    return tuple(each for each in told(_FENCED.sub("\n", text)) if telling(each))


def _without_occasion(sentence: str) -> str:
    found = _OCCASION.search(sentence)
    return sentence[: found.start()] if found and _past(analyse(sentence[: found.start()])) else sentence


def supports(fact: str, text: str, *, similarity: float) -> bool:
    """True if a text is evidence for a fact."""
    return supports_many([Said(fact, text, similarity)])[0]


def supports_many(asked: Sequence[Said]) -> list[bool]:
    """`supports` for many pairs; words alone settle most, and the comparer is asked for the rest at once."""
    found = [True] * len(asked)
    open_: list[tuple[int, list[tuple[Pair, bool]]]] = []
    for place, each in enumerate(asked):
        parts = sentences(each.fact)
        found[place] = bool(parts)
        for part in parts:
            ways = [
                (Pair(part, said, each.similarity), whole)
                for said in statements(each.text)
                if (whole := _may(analyse(part), analyse(said))) is not None
                and not _owned(part, as_statement(said), _clauses(analyse(part), as_statement(said)))
            ]
            if not ways:
                found[place] = False
                break
            if not any(whole for _, whole in ways):
                open_.append((place, ways))
    open_ = [(place, ways) for place, ways in open_ if found[place]]
    pairs = list(dict.fromkeys(pair for _, ways in open_ for pair, _ in ways))
    verdicts = dict(zip(pairs, judge_many(pairs), strict=True))
    for place, ways in open_:
        found[place] = found[place] and any(_says(verdicts[pair]) for pair, _ in ways)
    return found


def _says(verdict: Verdict) -> bool:
    return verdict.kind == "same" and verdict.probability >= SURE


def against(fact: str, text: str, *, similarity: float) -> bool:
    """True if some sentence of a text does not let a fact stand."""
    about = analyse(fact)
    near = [said for said in statements(text) if _share(about, analyse(said)) >= HELD]
    return any(
        each.kind in ("updates", "contradicts") and each.probability >= AGAINST
        for each in judge_many([Pair(fact, said, similarity) for said in near])
    )


def _share(fact: Text, said: Text) -> float:
    """The share of a fact's words that a sentence holds."""
    return sum(stem in said.stem_bag for stem in fact.told) / max(1, len(fact.told))


def _may(fact: Text, said: Text) -> bool | None:
    """True if a sentence holds every word of a fact; None if it cannot support it, whatever it means."""
    if _share(fact, said) < HELD or fact.question or said.question:
        return None
    more = said.bag - fact.bag
    if not UNSURE.isdisjoint(more) or not ENDED.isdisjoint(more):
        return None
    if not lx.MOODS[1].isdisjoint(more) and not _past(fact):
        return None
    if _others(fact, said):
        return None
    if not set(fact.quantities.values()) <= set(said.quantities.values()):
        return None
    names = {stem for each in (fact, said) for stem, c in zip(each.stems, each.capital, strict=True) if c}
    mine = [stem for stem in fact.told if stem in names]
    if not set(mine) <= said.stem_bag or _in_order(mine) != _in_order(s for s in said.told if s in set(mine)):
        return None
    if any(fact.told.count(stem) > said.told.count(stem) > 0 for stem in fact.told):
        return False  # "rap rock" is no "rock music" because "music" stands elsewhere, too
    return all(_as_said(fact, said, i) for i in fact.content if not _repeated(fact, i))


def _others(fact: Text, said: Text) -> bool:
    """True if two sentences are about different people, as far as "I", "he" and "she" tell."""
    mine, theirs = (
        {i for i, words in enumerate(SPEAKING) if not words.isdisjoint(t.bag)} for t in (fact, said)
    )
    return bool(mine and theirs) and mine.isdisjoint(theirs)


def _repeated(fact: Text, place: int) -> bool:
    """True if a word says only that something happened again."""
    word = fact.words[place]
    return word in REPEATED or (word == "more" and place > 0 and fact.words[place - 1] == "once")


def _in_order(stems: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(stems))


def _past(text: Text) -> bool:
    return not lx.MOODS[1].isdisjoint(text.bag) or any(
        text.words[i].endswith("ed") or lx.lemma(text.words[i])[1] for i in text.content
    )


def _as_said(fact: Text, said: Text, place: int) -> bool:
    """True if a word of a fact stands in a sentence too, negated as there or not."""
    stem, negated = fact.stems[place], fact.negated[place]
    return any(s == stem and n == negated for s, n in zip(said.stems, said.negated, strict=True))


AGAINST_IT = lx.word_set(
    """afraid hate hates hated dislike dislikes stops stopped quit quits sell sold lose lost drop dropped left
    remove removed replace replaced reject rejected refuse refused abandoned learning taking studies lack lacks"""
)
"""Words beside which somebody or something has little to do with what a clause names."""
CONDITIONS = lx.word_set("if unless whether formerly previously anymore used")
MILD = lx.word_set("only except against versus vs instead")
"""Of the words that make a choice or a condition, those that a report may hold beside what it tells."""
_CLAUSE = re.compile(r"(?<=[,;:])\s+|\s+(?=(?:but|because|since|so|until|after|before)\b)")
SUBSTANCE = 0.7
"""The share of a fact's words that a report must hold; of a verb it need not, for it names things, not relations."""
AKIN = 0.35
"""Similarity of two words, on the calibrated scale, from which one stands for half of the other."""


def reports(fact: str, text: str) -> bool:
    """True if some sentence of a text tells of what a fact says, in other words.

    It names the subject, every name and number, and nearly every other word of the fact; it does not deny, doubt or end
    it. How the words hang together is not read, so this counts as evidence, but makes no fact.

    >>> reports("The choir rehearses on Thursdays", "Choir practice was in the small hall, as every Thursday")
    True
    >>> reports("The choir rehearses on Thursdays", "The orchestra rehearses on Thursdays")
    False
    """
    return any(_reports(fact, as_statement(said)) for said in statements(text))


def _reports(fact: str, said: str) -> bool:
    about, read = analyse(fact), analyse(said)
    more = read.bag - about.bag
    if about.question or read.question or not about.content or _others(about, read):
        return False
    mine, shown = ({each.figure for each in one.quantities.values()} for one in (about, read))
    if not mine <= shown or not CONDITIONS.isdisjoint(more):
        return False
    theirs = [read.words[i] for i in read.content]
    subject, found, lost, verbs = about.stems[about.content[0]], set[str](), 0.0, 0
    for i in about.content:
        word, stem = about.words[i], about.stems[i]
        if stem in read.stem_bag or i in about.quantities or i - 1 in about.quantities:
            found.add(stem)
        elif stem == subject or about.capital[i] or any(opposites(word, other) for other in theirs):
            return False
        else:
            lost += 1 - _akin(word, theirs) / 2
            verbs += _may_be_verb(about, i)
    if len(found) < 2 or lost - min(verbs, 1) / 2 > (1 - SUBSTANCE) * len(about.content):
        return False
    rest, clauses = found - {subject}, _clauses(about, said)
    if not _affirmed(about, read, found) or any(_weakened(analyse(each), rest, more) for each in clauses):
        return False
    return not _owned(fact, said, clauses)


def _clauses(fact: Text, said: str) -> list[str]:
    """The clauses of a sentence that name something of what a fact says of its subject."""
    rest = set(fact.told[1:])
    return [each for each in _CLAUSE.split(said) if not rest.isdisjoint(analyse(each).stem_bag)]


def _may_be_verb(fact: Text, place: int) -> bool:
    """True if a word of a fact may be the verb: what follows "is" is one only as a participle."""
    before = fact.words[:place]
    word = fact.words[place]
    return {"is", "are"}.isdisjoint(before) or word.endswith("ed") or lx.lemma(word)[1]


def _affirmed(fact: Text, said: Text, found: set[str]) -> bool:
    """True if a sentence denies what it names of a fact only where the fact does, too."""
    denied, wanted = (
        any(negated and stem in found for stem, negated in zip(each.stems, each.negated, strict=True))
        for each in (said, fact)
    )
    return denied == wanted


def _weakened(clause: Text, found: set[str], more: frozenset[str]) -> bool:
    """True if, before the last word that a clause shares with a fact, something doubts it or takes it back."""
    last = max((i for i, stem in enumerate(clause.stems) if stem in found), default=0)
    return not (more & ((UNSURE - MILD) | AGAINST_IT)).isdisjoint(clause.words[:last])


def _owned(fact: str, said: str, clauses: Sequence[str]) -> bool:
    """True if a fact is about somebody, and a sentence about something of theirs: "Ana sings", "Ana's sister sings"."""
    who = re.match(r"(?i)(?:the )?(\w+)(?:['\u2019]s (\w+))?\b(?! ha(?:s|ve)\b)", fact)
    if who is None:
        return False
    owner, bare = (rf"(?i)\b{who[1]}{end}" for end in ("['\u2019]s ", "\\b(?!['\u2019]s)"))
    if who[2]:
        return bool(re.search(owner, said)) and not re.search(rf"{owner}(?:\w+ )?{who[2]}\b", said)
    named = [each for each in clauses if re.search(owner, each) or re.search(bare, each)]
    return bool(named) and not any(re.search(bare, each) for each in named)


def _akin(word: str, others: Sequence[str]) -> bool:
    """True if one of some words is near another in meaning."""
    if not others:
        return False
    table = bundled_table()
    vectors = table.embed([word, *others])
    return table.calibrate(float((vectors[1:] @ vectors[0]).max())) >= AKIN
