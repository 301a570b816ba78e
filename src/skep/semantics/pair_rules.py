"""What the words of a pair bear on: two things of which each has its own value, or one thing seen from two sides.

Rules for what word vectors and counts cannot see. All are the same whichever text is given first.

Texts in almost the same words that are about different matters, of which none takes the place of another.

Two identifiers of which the same is said, two things with a letter for a name, two things that were done or that
failed, two things that are forbidden. All rules are the same whichever text is given first.

Texts of which one denies something else than the other says, so that both may hold.

A wish is not what is, what was need not be so now, what one person does another may not do, and who likes dogs may
have none. All rules are the same whichever text is given first.

Whether a relation holds one value at a time, so that a new one takes the place of the old.

Two lists, and what stands between them. Of what is known to hold several at a time ("accepts JSON"), and of what was
done ("hired Tom"), a second is told beside the first. What is known to hold one ("lives in", "the lead is") may be
replaced while nobody looks. The verbs of a language are many, and most are on neither list: those are for a judge.
All rules are the same whichever text is given first.
"""

from __future__ import annotations

from itertools import pairwise

from skep.semantics import lexicon as lx
from skep.semantics.pair_features import Pair
from skep.semantics.parse_text import Text
from skep.text.terms import FAILED, SINGLE


def _sides(*listed: str) -> dict[str, tuple[int, str]]:
    """Every word of some lists of sides, with the number of the list and the first word for that side."""
    ways = [(number, side.split()) for number, line in enumerate(listed) for side in line.split(";")]
    return {word: (number, side[0]) for number, side in ways for word in side}


SIDES = _sides(
    "minimum min; maximum max",
    "wide width; deep depth; long length; tall high height; thick thickness",
    "input inputs; output outputs",
    "upload uploads uploading; download downloads downloading",
    "inbound incoming; outbound outgoing",
    "opens; closes",
    "starts begins; ends finishes stops",
    "arrives; departs leaves",
    "staging; production prod; development dev; test testing; qa; uat; preprod; sandbox; canary; ci",
    "frontend; backend",
    "client clients; server servers",
    "primary; secondary; replica; standby",
    "weekday weekdays; weekend weekends",
)
"""Words that tell the sides of something apart, each with a value of its own."""
_SIDED = frozenset(SIDES)
MEASURED, TIMED = range(5), range(5, 8)
"""Sides that have a number of their own, wherever they stand in a sentence; and those that have a time of their own."""
CANCELLING = frozenset(map(lx.stem, lx.CANCELLERS | {"use", "using"}))
"""What is left out where the same is denied in two ways: "avoid tabs", "do not use tabs"."""
SHORT = 20
"""Words up to which a text says one thing, so that its first words are what it is about."""
OTHER = 0.4
"""The cosine of two words below which they are taken for the names of two things."""


def of_other_sides(pair: Pair) -> bool:
    """Whether the texts are about two sides of something, each with a value of its own: staging and production.

    Where nothing but the side differs, it must be what the sentence is about, and not what it says: "deploy to
    staging" and "deploy to production" do not go together.
    """
    a, b = pair.a, pair.b
    if _SIDED.isdisjoint(a.bag) or _SIDED.isdisjoint(b.bag) or not _short(pair):
        return False
    mine, theirs = _sided(a), _sided(b)
    for group in mine.keys() & theirs.keys():
        here, there = mine[group], theirs[group]
        if not here.keys().isdisjoint(there):
            continue
        if group in (*MEASURED, *TIMED) and not (a.quantities and b.quantities):
            continue
        if pair.ed.lone_swap:
            return group not in TIMED and (pair.ed.head or group in MEASURED)
        if not lx.UPDATE_MARKERS.isdisjoint(a.bag ^ b.bag):
            continue
        return bool(a.bag - b.bag - {*here.values()}) and bool(b.bag - a.bag - {*there.values()})
    return False


def _sided(text: Text) -> dict[int, dict[str, str]]:
    """By list, the sides that a text names, each with the word it has for it."""
    found: dict[int, dict[str, str]] = {}
    for word in SIDES.keys() & text.bag:
        group, side = SIDES[word]
        found.setdefault(group, {})[side] = word
    return found


def of_other_kinds(pair: Pair) -> bool:
    """Whether both begin with one noun under two names, and differ further on: the Berlin office, the Paris office."""
    if pair.ed.blocks < 2 or not pair.ed.head or not _short(pair):
        return False
    (mine, kind), (theirs, same) = _headed(pair.a, pair.rare), _headed(pair.b, pair.rare)
    if kind != same or not kind or mine.startswith(theirs) or theirs.startswith(mine):
        return False
    groups = lx.exclusive_groups()
    return groups.get(lx.stem(mine), -1) == groups.get(lx.stem(theirs), -1)


def of_other_subjects(pair: Pair) -> bool:
    """Whether the texts differ in what they begin with and in one number: logs kept for a week, traces for a month."""
    ed = pair.ed
    if not _short(pair) or not ed.head or not (ed.blocks == ed.replaced == 2):
        return False
    (subjects, values), (al, a, b) = ed.swapped, (pair.al, pair.a, pair.b)
    numbers = {a.stems[i] for i in a.quantities}, {b.stems[i] for i in b.quantities}
    lone = all(len(side) == 1 for side in (*subjects, *values))
    if not lone or not any({values[0][0]} <= x and {values[1][0]} <= y for x, y in (numbers, numbers[::-1])):
        return False
    if a.told[:1] == b.told[:1] or {a.told[0], b.told[0]} != {subjects[0][0], subjects[1][0]}:
        return False
    return max(al.best_a[0], al.best_b[0]) < OTHER and b.told[0] not in lx.synonyms(a.told[0])


def _short(pair: Pair) -> bool:
    return max(len(pair.a.words), len(pair.b.words)) <= SHORT


def _headed(text: Text, rare: frozenset[str]) -> tuple[str, str]:
    """The name, or word of a closed group, that a text begins with and the noun after it; nothing if there is none."""
    start = 1 if text.words[:1] in lx.DEFINITE else 0
    head = text.words[start : start + 2]
    if len(head) < 2 or head[1] in lx.STOP or not head[1].isalpha() or not head[0].isalpha():
        return "", ""
    named = text.capital[start] or text.stems[start] in rare or lx.stem(head[0]) in lx.exclusive_groups()
    return (head[0], text.stems[start + 1]) if named else ("", "")


def other_in_office(pair: Pair) -> bool:
    """Whether one is said to be what only one can be, and then another: "Maria is the lead", "Tom is the lead"."""
    a, b = pair.a, pair.b
    if (
        not (pair.ed.lone_swap and pair.ed.head)
        or a.words[1:] != b.words[1:]
        or a.words[1:3] != ("is", "the")
    ):
        return False
    first = a.words[0], b.words[0]
    return not any(word in lx.STOP or word in lx.NEGATORS or not word.isalpha() for word in first)


def other_of_a_closed_group(pair: Pair) -> bool:
    """Whether the texts are one sentence with one day, month, colour or place in a row replaced after its beginning."""
    ed = pair.ed
    if not ed.lone_swap or ed.head or pair.a.words[0] in lx.INDEFINITE:
        return False
    return any(swap.exclusive for swap in pair.al.swaps) and all(len(side) == 1 for side in ed.swapped[0])


def denied_twice(pair: Pair) -> bool:
    """Whether both deny the same, one with "not" or "never", the other with a word such as "avoid" or "forbidden"."""
    a, b = pair.a, pair.b
    if a.negations + b.negations != 1 or a.cancels + b.cancels != 1:
        return False
    if {(a.negations, a.cancels), (b.negations, b.cancels)} != {(1, 0), (0, 1)}:
        return False
    return {*a.told} - CANCELLING == {*b.told} - CANCELLING


def seen_from_the_other_side(pair: Pair) -> bool:
    """Whether a comparison is turned round with the opposite word: "a is faster than b", "b is slower than a"."""
    a, b = pair.a, pair.b
    if "than" not in a.bag or "than" not in b.bag or len(pair.al.opposites) != 1:
        return False
    ((one, other),) = pair.al.opposites
    if a.stem_bag ^ b.stem_bag != frozenset((one, other)) or a.negations != b.negations:
        return False
    (left, right), (far_left, far_right) = _around(a, one), _around(b, other)
    here, there = left - far_left, right - far_right
    return bool(here) and bool(there) and here == far_right - right and there == far_left - left


def _around(text: Text, compared: str) -> tuple[set[str], set[str]]:
    """The stems before and after "than", but for the word that compares."""
    middle = text.words.index("than")
    before, after = text.stems[:middle], text.stems[middle + 1 :]
    return {*before} - {compared}, {*after} - {compared}


LETTER = 4
"""Words within which a text names a thing by a letter, if it is about that: "in the team A we use tabs"."""
PLACES = 2
"""In how many places two reports of a failure may differ, such as a file and a line in it."""
_OPENING = lx.word_set("in on at for with the our my your his her their its")
"""Words that may stand before the name of what a text is about."""
_PLACES = lx.word_set("in at on of from when while during")
"""Words that say where or when an error is."""
_LATEST = SINGLE | lx.word_set("last latest newest first still")
"""Words that leave room for one failure."""


def has_digit(word: str) -> bool:
    """Whether a word is more than letters."""
    return any(map(str.isdigit, word))


def one_at_a_time(pair: Pair, kind: str, said_from: int) -> bool:
    """Whether what is said can be of one thing of a kind alone: the default port, our gate, the version that runs."""
    a, b = pair.a, pair.b
    if not SINGLE.isdisjoint(a.bag & b.bag):
        return True
    said = a.words[said_from:]
    return said == b.words[said_from:] and (kind in lx.VERSIONED or said[:1] in lx.DEFINITE)


def of_other_letters(pair: Pair) -> bool:
    """Whether the texts are about two things of a kind, told apart by a letter: team A and team B, options, plans."""
    a, b = pair.a, pair.b
    least = min(LETTER, len(a.words), len(b.words))
    at = next((i for i in range(least) if a.words[i] != b.words[i]), 0)
    if not at or not _letters(a, b, at):
        return False
    *opening, kind = a.words[:at]
    if not _OPENING.issuperset(opening) or not kind.isalpha() or kind in lx.STOP or kind in lx.SAYING:
        return False
    return not one_at_a_time(pair, kind, at + 2)


def _letters(a: Text, b: Text, at: int) -> bool:
    """Whether letters stand at a place of which one at least can be no word."""
    mine, theirs = a.words[at], b.words[at]
    if not (len(mine) == len(theirs) == 1 and mine.isalpha() and theirs.isalpha()):
        return False
    return a.capital[at] or b.capital[at] or mine not in "ai" or theirs not in "ai"


def of_other_identifiers(pair: Pair) -> bool:
    """Whether the texts say the same of two identifiers: node20 and node22 "is old", or DB_HOST and DB_PORT."""
    swapped = pair.ed.swapped[0] if pair.ed.lone_swap else ()
    if not swapped or not all(len(side) == 1 and _is_identifier(side[0]) for side in swapped):
        return False
    return pair.ed.head or all(
        side[0] in _spoken_of(text) for side, text in zip(swapped, (pair.a, pair.b), strict=True)
    )


def _spoken_of(text: Text) -> tuple[str, ...]:
    """The words before the one by which a sentence begins to say something, or up to the name after a kind."""
    words = text.words
    said = next((i for i, word in enumerate(words) if word in lx.SAYING), 0)
    start = int(words[:1] in lx.DEFINITE)
    kind = words[start : start + 1]
    named = start + 2 if kind and (start or kind[0] in lx.NAMED) and len(words) > start + 2 else 0
    return words[: max(said, named)]


def _is_identifier(word: str) -> bool:
    return word[0].isalpha() and (has_digit(word) or "_" in word or "." in word)


def of_other_happenings(pair: Pair) -> bool:
    """Whether each text tells what was done, which nothing that was done later undoes: "Fixed a bug in the parser"."""
    a, b = pair.a.words, pair.b.words
    return a[:1] == b[:1] and a[:1] != () and a[0] in lx.DONE and a != b and pair.ed.replaced > 0


def of_other_failures(pair: Pair) -> bool:
    """Whether each text tells in the same words of something that failed, here of one thing and there of another.

    How often, or when alone, is told of one failure: "failed 3 times", "failed 5 times".
    """
    a, b = pair.a, pair.b
    if not 0 < pair.ed.blocks == pair.ed.replaced <= PLACES or not _LATEST.isdisjoint(a.bag | b.bag):
        return False
    if not _failed(a) or not _failed(b) or a.negations != b.negations or pair.al.opposites:
        return False
    counted = {text.stems[i] for text in (a, b) for i in text.quantities}
    return any(not counted.issuperset(side) for both in pair.ed.swapped for side in both)


def _failed(text: Text) -> bool:
    """Whether a text tells that something failed, or of an error somewhere."""
    words = text.words
    if not FAILED.isdisjoint(text.bag):
        return True
    return any(
        (word in lx.FAULTS or word.endswith(("error", "exception"))) and after in _PLACES
        for word, after in pairwise(words)
    )


def of_other_prohibitions(pair: Pair) -> bool:
    """Whether both begin by forbidding something, and not the same: "Do not edit a.ts", "Do not edit b.ts"."""
    a, b = pair.a.words, pair.b.words
    forbids = a[:2] == b[:2] == ("do", "not") or a[:1] == b[:1] == ("never",)
    return forbids and pair.ed.lone_swap and not pair.al.opposites and lx.LINKING_VERBS.isdisjoint(pair.a.bag)


NEAR = 0.6
"""The cosine of two words from which one may deny what the other says."""
WISHES = lx.word_set(
    """would could might may want wants wanted hope hopes hoping plan plans planning try tries trying wish wishes
    dream dreams intend intends if"""
)
DUTIES = lx.word_set("should must ought can")
AHEAD = lx.word_set("will shall")
PAST = lx.word_set("was were had did")
HAVING = lx.word_set("have has had having own owns owned got with")
_BE = lx.word_set("is are am be been being has have having a an the")
_BIDDING = lx.word_set("do never always avoid use no only please")
"""Words with which a text begins that tells somebody what to do."""
_PEOPLE = lx.word_set("i we he she they you")
_WHOSE = lx.word_set("my our his her their your")
_ARTICLES = _WHOSE | lx.word_set("the a an this that its")
_BETWEEN = lx.word_set(
    "really ever always even yet currently any a an the been be being very so to longer that just"
)
"""Words that may stand between a negation and what it denies."""


def denies_another(pair: Pair) -> bool:
    """Whether one text denies something else than the other says: a wish, what was, of another, by another verb."""
    a, b = pair.a, pair.b
    return (
        _of_other_moods(a, b)
        or _of_other_people(a, b)
        or _denies_unsaid(a, b, pair.al.best_a)
        or _denies_unsaid(b, a, pair.al.best_b)
        or _denies_the_opposite(pair)
    )


def _of_other_moods(a: Text, b: Text) -> bool:
    """Whether only one tells of a wish, of what was, of what will be, or of what should be."""
    if any(words.isdisjoint(a.bag) != words.isdisjoint(b.bag) for words in (WISHES, AHEAD)):
        return True
    if _was(a) != _was(b) or _in_the_past(a, b) or _in_the_past(b, a):
        return True
    mine, theirs = DUTIES.isdisjoint(a.bag), DUTIES.isdisjoint(b.bag)
    plain = a if mine else b
    return mine != theirs and _BIDDING.isdisjoint(plain.words[:1])


def _was(text: Text) -> bool:
    """Whether a text says that something was."""
    return not PAST.isdisjoint(text.bag) or ("used", "to") in {*pairwise(text.words)}


def _in_the_past(text: Text, other: Text) -> bool:
    """Whether a text tells in the past what the other tells otherwise: "played the piano", "do not play"."""
    if _was(other):
        return False
    past = {
        lx.lemma(word)[0]
        for before, word in pairwise(text.words)
        if lx.lemma(word)[1] and before not in _BE and before not in lx.NEGATORS and word not in other.bag
    }
    return not past.isdisjoint(lx.lemma(word)[0] for word in other.bag)


def _of_other_people(a: Text, b: Text) -> bool:
    """Whether one tells of the speaker or of somebody, and the other of somebody else: "I ...", "my kids ..."."""
    mine, theirs = _who(a), _who(b)
    if not mine or not theirs or mine == theirs:
        return False
    if mine in _PEOPLE or theirs in _PEOPLE:
        return True
    return a.words[0] in _WHOSE and b.words[0] in _WHOSE


def _who(text: Text) -> str:
    """Of whom or what a text tells, where it begins with that."""
    words = text.words
    if words[:1] and words[0] in _ARTICLES:
        return lx.stem(words[1]) if len(words) > 1 else ""
    if not words or _who_else(words[0]):
        return ""
    return words[0]


def _who_else(word: str) -> bool:
    """Whether a first word names nobody."""
    return word in _BIDDING or (word in lx.STOP and word not in _PEOPLE) or not word.isalpha()


def _denies_unsaid(text: Text, other: Text, nearest: list[float]) -> bool:
    """Whether what comes after "not" has nothing in the other text that it could deny: "have no dogs", "like dogs"."""
    for i, word in enumerate(text.words):
        if word in ("not", "never", "dont"):
            at = next((j for j in range(i + 1, len(text.words)) if text.words[j] not in _BETWEEN), 0)
            if at and not _answered(text, at, other, nearest):
                return True
        if word == "no" and i and text.words[i - 1] in HAVING and HAVING.isdisjoint(other.bag):
            return True
    return False


def _answered(text: Text, at: int, other: Text, nearest: list[float]) -> bool:
    """Whether a word that is denied has a word in the other text that says it."""
    word, stem = text.words[at], text.stems[at]
    if word in HAVING:
        return not HAVING.isdisjoint(other.bag)
    if not word.isalpha() or word in other.bag or stem in other.stem_bag:
        return True
    known = lx.lemma(word)[0]
    if any(lx.lemma(w)[0] == known for w in other.bag) or not lx.synonyms(stem).isdisjoint(other.stem_bag):
        return True
    return at in text.content and nearest[text.content.index(at)] >= NEAR


def _denies_the_opposite(pair: Pair) -> bool:
    """Whether the one word that is denied is the opposite of what the other says: "not good", "bad"."""
    a, b = pair.a, pair.b
    if a.negations + b.negations != 1 or len(pair.al.opposites) != 1:
        return False
    denying = a if a.negations else b
    (opposed,) = pair.al.opposites
    return any(
        negated and stem in opposed for stem, negated in zip(denying.stems, denying.negated, strict=True)
    )


SEVERAL = lx.MANY_VALUED | lx.word_set(
    """accept accepts handle handles parse parses import imports ingest ingests collect collects
    emit emits export exports publish publishes sell sells serve serves ship ships deliver delivers offer offers
    raise raises throw throws print prints log logs
    cover covers mention mentions list lists describe describes cite cites represent represents
    integrate integrates interoperate interoperates compatible available translated
    occur occurs appear appears happen happens
    need needs require requires depend depends rely relies
    block blocks reject rejects forbid forbids prevent prevents protect protects
    teach teaches coach coaches mentor mentors help helps sing sings cook cooks bake bakes grow grows
    volunteer volunteers donate donates follow follows sponsor sponsors target targets connect connects
    member friend friends fan good bad afraid familiar known famous"""
)
"""Words whose objects do not replace each other: what takes in, gives out, covers, works with, needs or keeps off."""
SEVERAL_WITH = frozenset(
    (verb, before) for verb in ("work", "works") for before in ("with", "on", "in", "across", "under")
)
"""The same for words that do so before some others only: what works on Linux, but who works at Acme."""
MAY = lx.word_set("can could may might")
"""What is possible does not rule out anything else that is."""
ONE = lx.word_set(
    """live lives living born died start starts begin begins end ends expire expires depart departs arrive arrives
    cost costs weigh weighs last lasts citizen religion"""
)
"""Words that leave room for one value at a time."""
ONE_DONE_TO = lx.word_set(
    """located situated based buried married employed named called titled founded created developed invented
    led headed chaired owned managed directed scheduled planned due set priced rated parked kept"""
)
"""The same for words that do so after "is" or "was" only: what is called Rex, but who called the dentist."""
ONE_WITH = frozenset(
    (verb, before)
    for verbs, words in (("work works", "at for as from"), ("report reports", "to"), ("written", "by in"))
    for verb in verbs.split()
    for before in words.split()
)
"""The same for words that do so before some others only: who works at Acme, but what works on Linux."""
SETTLED = lx.UPDATE_MARKERS | lx.word_set(
    "chose chosen picked selected decided agreed settled joined assigned preferred won elected"
)
"""What is told of the past and leaves room for one value: what was chosen, where somebody went."""
KIN = lx.word_set(
    """brother sister son daughter child kid cousin uncle aunt nephew niece grandson granddaughter friend colleague
    neighbor neighbour roommate student client customer dog cat pet"""
)
"""Of whom there may be two, each with something of their own: "my brother lives in Cork"."""
_HOLDING_BE = lx.word_set("is are am be been being")
_WAS = _HOLDING_BE | {"was", "were"}
_HOLDING_WHOSE = lx.word_set("my our your his her their its s")
_BEFORE_NOUNS = lx.word_set(
    "a an the this that these those my our your his her their its of in on at by for with to"
)
_LIGHT = lx.word_set("in at on of the to by from for") | lx.MONTHS
"""What may stand between "is" and a value."""
_AGAIN = frozenset(f"{day}s" for day in lx.EXCLUSIVE[1])
"""Days on which something is again and again: who trains on Mondays may train on Thursdays too."""
_RUNNING = frozenset((word,) for word in ("run", "runs", "use", "uses"))
"""Words after which a name with a number is that of a version, of which the next takes the place."""
_NOT_COUNTING = lx.word_set("in on since with")
"""Words after which a bare number is a year or a name, and no amount."""


def holds_several(pair: Pair, reason: str) -> bool:
    """Whether the relation can have several values at a time, so that a new one need not replace the old."""
    if reason != "value" and not pair.ed.lone_swap:
        return False
    a, b = pair.a, pair.b
    said = a.bag | b.bag
    if not SINGLE.isdisjoint(said):
        return False
    shared = (a.bag | a.stem_bag) & (b.bag | b.stem_bag)
    if reason == "number":
        return not lx.MANY_VALUED.isdisjoint(shared - {"has", "have", "had"})
    if not lx.MANY_VALUED.isdisjoint(shared):
        return True
    if "use" in shared and "for" not in said:
        return True
    if _is_value(pair) or _is_single(a, b):
        return False
    plain = shared - _capitals(a) - _capitals(b)
    if not _AGAIN.isdisjoint(a.bag) and not _AGAIN.isdisjoint(b.bag):
        return True
    if not SEVERAL.isdisjoint(plain) or not MAY.isdisjoint(plain) or _done_in_turn(a, b):
        return True
    return not SEVERAL_WITH.isdisjoint({*pairwise(a.words)} & {*pairwise(b.words)})


def holds_one(pair: Pair, reason: str) -> bool:
    """Whether the relation is known to hold one value, so that the old one may be replaced without asking."""
    a, b = pair.a, pair.b
    if not SINGLE.isdisjoint(a.bag | b.bag) or not lx.UPDATE_MARKERS.isdisjoint(a.bag | b.bag):
        return True
    if any(whose in _HOLDING_WHOSE and who in KIN for whose, who in pairwise(a.words)):
        return False
    if _is_single(a, b) or _is_value(pair):
        return True
    return reason == "number" and not _done_in_turn(a, b) and _amounts(a, b) and _amounts(b, a)


def _is_single(a: Text, b: Text) -> bool:
    """Whether both name a relation that leaves room for one value at a time."""
    both = {*pairwise(a.words)} & {*pairwise(b.words)}
    if not ONE.isdisjoint(a.bag & b.bag) or not ONE_WITH.isdisjoint(both):
        return True
    return any(before in _WAS and word in ONE_DONE_TO for before, word in both)


def _capitals(text: Text) -> set[str]:
    """The words and stems of names, which are no verbs."""
    named = [i for i, capital in enumerate(text.capital) if capital]
    return {text.words[i] for i in named} | {text.stems[i] for i in named}


def _done_in_turn(a: Text, b: Text) -> bool:
    """Whether both tell what was done, and neither that it changed or settled something: "Dana hired Tom"."""
    return SETTLED.isdisjoint(a.bag | b.bag) and not _done(a).isdisjoint(_done(b))


def _done(text: Text) -> set[str]:
    """The words in the past tense that say what somebody or something did, or what was done to it."""
    return {
        word
        for before, word in pairwise(text.words)
        if lx.lemma(word)[1]
        and word not in lx.STOP
        and before not in _HOLDING_BE
        and before not in _BEFORE_NOUNS
    }


def _is_value(pair: Pair) -> bool:
    """Whether the texts say what one thing is, or where, and one name stands in another's place: "the lead is Bob"."""
    a, b = pair.a, pair.b
    least = min(len(a.words), len(b.words))
    at = next((i for i in range(least) if a.words[i] != b.words[i]), 0)
    said = at
    while said and (a.capital[said - 1] or a.words[said - 1] in _LIGHT):
        said -= 1
    if said < 2 or a.words[said - 1] not in ("is", "am"):
        return False
    return any(swap.exclusive for swap in pair.al.swaps) or all(_names(t, at, pair.rare) for t in (a, b))


def _names(text: Text, at: int, rare: frozenset[str]) -> bool:
    """Whether a name, number or identifier stands at a place or right behind."""
    return any(
        text.capital[i] or text.stems[i] in rare or has_digit(text.words[i])
        for i in range(at, min(at + 2, len(text.words)))
    )


def _amounts(text: Text, other: Text) -> bool:
    """Whether the numbers that the other text has not are amounts, and not names: "30 days", not "Python 3.11"."""
    return all(
        bool(quantity.dimension) or _counts(text.words[:i])
        for i, quantity in text.quantities.items()
        if text.stems[i] not in other.stem_bag
    )


def _counts(before: tuple[str, ...]) -> bool:
    """Whether a number after these words is an amount, or the version of what runs: "runs Postgres 16"."""
    if not before or before[-2:-1] in _RUNNING:
        return True
    return before[-1] in lx.STOP and before[-1] not in _NOT_COUNTING
