"""Closed English word lists by which `parse_text` and `evidence` read a sentence: negators, numbers, units, moods.

Written by hand. The comparer of memories (`pair_judge`) does without them.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache

DATA = os.path.join(os.path.dirname(__file__), "data")


def word_set(words: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(words.split())


STOP: frozenset[str] = (
    word_set("""a an the this that these those some any each every such own same so than too very just also
    is are was were be been being am do does did doing done has have had having
    will would shall should can could may might must ought
    i me my mine myself we us our ours you your yours he him his she her hers it its itself they them their theirs
    of in on at by for from to into onto with about as up down over under between through during
    and or but if then else because while when where which who whom whose what how why there here
    get got gets one ones s t d ll re ve m not no nor""")
)

NEGATORS: frozenset[str] = (
    word_set("""not no never none nobody nothing nowhere neither nor cannot without hardly scarcely barely rarely seldom
    zero nil nope""")
)

CANCELLERS: frozenset[str] = (
    word_set("""revert reverts reverted reverting undo undoes undid undone rollback cancel cancels cancelled canceled
    fail fails failed refuse refuses refused deny denies denied avoid avoids avoided avoiding lack lacks lacked
    lacking stop stops stopped forbid forbids forbidden prevent prevents prevented prohibit prohibits prohibited
    unable unlike false untrue wrong incorrect myth ban bans banned except excluding quit quits
    don't dont refrain refrains unlikely absence absent reject rejects rejected drop drops dropped""")
)

SENTENCE_ENDS: frozenset[str] = word_set(". ; ? !")

CLAUSE_ENDS: frozenset[str] = word_set(": ( ) but however although though because while")

HEDGES: frozenset[str] = word_set(
    "may might could maybe perhaps possibly probably likely seems seem sometimes often usually some many"
)

QUESTION_WORDS: frozenset[str] = word_set(
    "what how why who whom whose which where when is are do does did can could should would will has have am"
)

WH_WORDS: frozenset[str] = word_set("what how why who whom whose which where when")

PERSONAL: frozenset[str] = word_set("i my we our me us")

MOODS: tuple[frozenset[str], ...] = (
    word_set("would could should might must may want wants wanted hope hopes plan plans try trying if"),
    word_set("was were had did used been"),
    word_set("will shall going"),
)
"""Words that shift when or whether something holds; one group in only one of two texts keeps them apart."""

MONTHS: frozenset[str] = word_set(
    """january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep oct nov dec"""
)

_SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"""

NUMBER_WORDS: dict[str, float] = {
    word: float(value)
    for word, value in zip(_SMALL.split(), (*range(21), 30, 40, 50, 60, 70, 80, 90), strict=True)
} | {"dozen": 12.0, "half": 0.5, "couple": 2.0, "pair": 2.0, "twice": 2.0, "once": 1.0}

MULTIPLIERS: dict[str, float] = {
    "hundred": 1e2,
    "thousand": 1e3,
    "k": 1e3,
    "million": 1e6,
    "mln": 1e6,
    "billion": 1e9,
    "bn": 1e9,
    "trillion": 1e12,
}


def _units() -> dict[str, tuple[str, float]]:
    table = {
        "bytes": {
            "b byte bytes": 1,
            "kb kib kilobyte kilobytes": 2**10,
            "mb mib megabyte megabytes": 2**20,
            "gb gib gigabyte gigabytes gig gigs": 2**30,
            "tb tib terabyte terabytes": 2**40,
        },
        "metre": {
            "mm millimetre millimetres millimeter millimeters": 1e-3,
            "cm centimetre centimetres centimeter centimeters": 1e-2,
            "m metre metres meter meters": 1,
            "km kilometre kilometres kilometer kilometers": 1e3,
            "inch inches": 0.0254,
            "ft foot feet": 0.3048,
            "yd yard yards": 0.9144,
            "mi mile miles": 1609.344,
        },
        "gram": {
            "mg milligram milligrams": 1e-3,
            "g gram grams": 1,
            "kg kilo kilos kilogram kilograms": 1e3,
            "tonne tonnes ton tons": 1e6,
            "oz ounce ounces": 28.349523,
            "lb lbs pound pounds": 453.59237,
        },
        "second": {
            "ns nanosecond nanoseconds": 1e-9,
            "us microsecond microseconds": 1e-6,
            "ms msec millisecond milliseconds": 1e-3,
            "s sec secs second seconds": 1,
            "min mins minute minutes": 60,
            "h hr hrs hour hours": 3600,
            "day days": 86400,
            "week weeks": 604800,
            "month months": 2629746,
            "year years yr yrs": 31556952,
        },
        "litre": {
            "ml millilitre milliliter": 1e-3,
            "l litre litres liter liters": 1,
            "gallon gallons": 3.785412,
        },
        "hertz": {"hz hertz": 1, "khz": 1e3, "mhz": 1e6, "ghz": 1e9},
        "watt": {"w watt watts": 1, "kw kilowatt kilowatts": 1e3, "mw megawatt megawatts": 1e6},
        "ratio": {"% percent pct pc": 1},
        "money": {"$ dollar dollars usd": 1},
        "euro": {"€ euro euros eur": 1},
        "sterling": {"£ gbp": 1},
    }
    return {
        word: (dimension, float(factor))
        for dimension, names in table.items()
        for words, factor in names.items()
        for word in words.split()
    }


UNITS: dict[str, tuple[str, float]] = _units()
"""Unit word to its dimension and its size in that dimension's base unit."""

OPPOSITES: str = """
always never; everyone nobody; everybody nobody; everything nothing; all none; all no; every no; some no;
both neither; both only; many few; most few; more less; more fewer; before after; with without; in out;
on off; up down; above below; over under; inside outside; yes no; true false; allow deny; allow forbid;
allow block; allow disallow; allow prevent; enable disable; enabled disabled; start stop; begin end;
open close; open closed; add remove; create delete; insert delete; include exclude; accept reject;
accept refuse; approve reject; love hate; like dislike; like hate; love dislike; enjoy hate; enjoy dislike;
prefer avoid; prefer dislike; use avoid; keep drop; keep remove; keep discard; buy sell; win lose;
won lost; bought sold; pass fail; succeed fail; success failure; rise fall; rose fell; increase decrease;
increase reduce; increase decline; raise lower; gain lose; gain loss; grow shrink; expand shrink;
grow fall; grow decline; grew fell; grew shrank; grew declined;
upgrade downgrade; push pull; send receive; give take; import export; read write; sync async;
synchronous asynchronous; manual automatic; public private; local remote; internal external;
static dynamic; mutable immutable; required optional; mandatory optional; safe unsafe; safe dangerous;
valid invalid; legal illegal; possible impossible; able unable; available unavailable; agree disagree;
agree refuse; alive dead; live dead; married single; married unmarried; male female; man woman; men women;
boy girl; boys girls; husband wife; father mother; brother sister; son daughter; young old; new old;
newer older; early late; earlier later; first last; fast slow; faster slower; quick slow; high low;
higher lower; large small; larger smaller; big small; big little; bigger smaller; long short;
longer shorter; tall short; wide narrow; thick thin; deep shallow; heavy light; hot cold; warm cool;
wet dry; full empty; hard soft; hard easy; difficult easy; simple complex; strong weak; rich poor;
cheap expensive; good bad; better worse; best worst; happy sad; right wrong; right left; correct incorrect;
clean dirty; light dark; bright dark; loud quiet; quiet noisy; sit stand; sitting standing; standing lying;
sleep wake; asleep awake; sleeping awake; walk run; walking running; awake sleeping; arrive leave;
enter exit; enter leave; stay leave; remain leave; forward backward; front back; top bottom; north south;
east west; day night; morning evening; summer winter; friend enemy; ally enemy; war peace; attack defend;
positive negative; major minor; maximum minimum; max min; majority minority; ancient modern; old modern;
domestic foreign; indoor outdoor; indoors outdoors; urban rural; single multiple; together alone;
together separately; same different; similar different; identical different; known unknown; famous unknown;
common rare; often rarely; usually rarely; frequently rarely; guilty innocent; vegetarian meat; vegan meat;
tabs spaces; merge rebase; support oppose; supports opposes; supported opposed; activate inhibit;
activates inhibits; promote inhibit; promotes inhibits; promote suppress; induce inhibit; induce suppress;
upregulate downregulate; upregulated downregulated; stimulate inhibit; enhance reduce; enhance impair;
improve worsen; improve impair; present absent; presence absence; appear disappear; remember forget;
lock unlock; connect disconnect; load unload; attach detach; install uninstall; subscribe unsubscribe;
hire fire; hired fired; join leave; joined left; join quit; work leave; works left;
worked left; employed unemployed; married divorced; borrow lend; ascend descend;
tighten loosen; build destroy; build demolish; save waste; save spend; save delete; show hide;
visible hidden; ask answer; teach learn; follow lead; laugh cry; smile frown; love despise;
interesting boring; exciting boring; beautiful ugly; brave cowardly; generous stingy; polite rude;
honest dishonest; permanent temporary; partial full; partially fully; partial complete;
incomplete complete; never sometimes; never often; never once; never already; only also; least most;
exactly approximately; online offline; wireless wired; busy idle; busy free; finish begin;
finished started; black white; dead living; empty crowded; deserted crowded
"""

PASTS: str = """
became become; began begin; bent bend; bit bite; blew blow; bled bleed; bound bind; bought buy; bred breed; broke
break; brought bring; built build; burnt burn; came come; caught catch; chose choose; clung cling; crept creep; dealt
deal; did do; drank drink; dreamt dream; drew draw; drove drive; dug dig; ate eat; fed feed; felt feel; fell fall;
flew fly; fled flee; forbade forbid; forgave forgive; forgot forget; fought fight; found find; froze freeze; gave
give; got get; grew grow; had have; heard hear; held hold; hid hide; hung hang; kept keep; knelt kneel; knew know;
laid lay; leapt leap; learnt learn; led lead; left leave; lent lend; lit light; lost lose; made make; meant mean; met
meet; paid pay; ran run; rang ring; rebuilt rebuild; rewrote rewrite; rode ride; rose rise; said say; sang sing; sank
sink; sat sit; saw see; sent send; shone shine; shook shake; shot shoot; showed show; slept sleep; slid slide; sold
sell; sought seek; spent spend; spoke speak; sprang spring; stole steal; stood stand; stuck stick; struck strike; swam
swim; swept sweep; swore swear; taught teach; thought think; threw throw; told tell; took take; tore tear; understood
understand; undid undo; went go; wept weep; withdrew withdraw; woke wake; won win; wore wear; wound wind; wove weave;
wrote write; chosen choose; broken break; driven drive; eaten eat; fallen fall; forgotten forget; given give; gone go;
grown grow; hidden hide; known know; rewritten rewrite; seen see; shown show; spoken speak; stolen steal; taken take;
thrown throw; worn wear; written write; begun begin; drawn draw; sung sing; swum swim; done do; drunk drink; flown
fly; frozen freeze
"""
"""Irregular past forms and what they come from."""

PLURALS: str = """children child; people person; men man; women woman; feet foot; teeth tooth; mice mouse; wives wife;
knives knife; lives life; leaves leaf; halves half; shelves shelf; indices index; criteria criterion; matrices matrix"""

ALIKE: str = """
main primary; main principal; choose pick; choose select; pick select; delete erase; delete remove; remove erase; move
relocate; send dispatch; staff employee; staff personnel; rule guideline; error bug; bug defect; defect fault; issue
problem; task job; firm company; company business; shop store; road street; path route; trip journey; sofa couch;
holiday vacation; phone telephone; tv television; photo picture; photo photograph; picture image; kid child; mum
mother; mom mother; dad father; mum mom; grandma grandmother; grandpa grandfather; glad happy; pleased happy; angry
furious; scared afraid; frightened scared; tired exhausted; ill sick; smart clever; clever intelligent; smart
intelligent; tiny small; little small; fast rapid; quick rapid; slowly gradually; hard difficult; easy simple; odd
strange; weird strange; important crucial; important essential; required mandatory; needed required; necessary
required; correct right; incorrect wrong; false wrong; broken faulty; outdated obsolete; old outdated; begin commence;
launch start; finish complete; end conclude; stop halt; stop cease; quit leave; depart leave; come arrive; obtain get;
obtain acquire; gain obtain; give provide; provide supply; offer provide; show display; inform notify; notify alert;
say state; state declare; speak talk; chat talk; reply respond; answer respond; answer reply; want wish; desire want;
love adore; favour prefer; favor prefer; hate detest; hate loathe; help assist; aid assist; try attempt; use utilise;
use utilize; use employ; create produce; make produce; build construct; construct make; draft write; fix repair; fix
mend; repair mend; fix correct; change alter; change modify; modify alter; adjust modify; replace swap; swap exchange;
link connect; attach connect; check verify; verify confirm; verify validate; examine inspect; search look; find
locate; discover find; detect discover; comprise include; own possess; retain keep; preserve keep; run execute;
execute perform; operate run; allow permit; let allow; forbid prohibit; prohibit ban; avoid evade; raise increase;
boost increase; lower reduce; decrease reduce; shrink reduce; hire employ; recruit hire; teach instruct; tell
instruct; live reside; stay remain; wait await; wash clean; close shut; car automobile; bike bicycle; plane aircraft;
aeroplane plane; airplane plane; house home; home residence; country nation; area region; site location; spot place;
doctor physician; lawyer attorney; pupil student; customer client; buyer customer; guest visitor; friend pal; child
youngster; infant baby; person individual; crew team; meeting session; gift present; prize award; price cost; fee
charge; salary pay; wage pay; money cash; bill invoice; goal aim; goal target; aim target; purpose goal; method
approach; way method; approach way; kind type; sort type; kind sort; part piece; bit piece; amount quantity; total
sum; start beginning; begin start; end finish; finish terminate; outcome result; cause reason; risk danger; danger
hazard; often frequently; regularly often; usually normally; usually typically; normally typically; generally usually;
mostly mainly; mainly primarily; nearly almost; approximately roughly; soon shortly; nowadays currently; later
afterwards; recently lately; finally eventually; however nevertheless; therefore thus; therefore hence; entirely
completely; completely fully; totally completely; exactly precisely; especially particularly; yearly annually; annual
yearly; dinner supper; soda pop; sweets candy; biscuit cookie; petrol gasoline; rubbish garbage; garbage
trash; rubbish trash; film movie; cinema theatre; maths math; pc computer; repository repo; database
db; config configuration; settings configuration; parameter argument; directory folder; dir directory; param
parameter; env environment; doc document; docs documentation; app application; info information; admin administrator;
prod production; dev development; auth authentication
"""
"""Everyday words that may stand for each other in most sentences, beside those of `data/synonyms.txt`."""

_DOUBLED = word_set("bb dd gg mm nn pp rr tt")

_SILENT_E = re.compile(r"[^aeiou]*[aeiou][^aeiouwxy]$")
"""One vowel, one consonant: English would have doubled it, so an "e" was dropped ("hop" from "hoping")."""

_KEEPS_E = re.compile(r"[^aeiou]*[aeiouy][^aeiou]e$")


def _base(word: str) -> str:
    return word[:-1] if len(word) >= 5 and word.endswith("e") and not _KEEPS_E.match(word) else word


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Strip inflection only, so that "running", "runs" and "run" meet, and "runner" stays apart.

    >>> [stem(w) for w in ("running", "lives", "studies", "stopped", "linting", "boxes", "creating", "creates")]
    ['run', 'live', 'study', 'stop', 'lint', 'box', 'creat', 'creat']
    """
    if len(word) <= 3 or word[-1] not in "sgde" or not word.isalpha():
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if not word.endswith(ending) or len(root) < 2 or not any(v in root for v in "aeiouy"):
            continue
        if root[-2:] in _DOUBLED:
            return root[:-1]
        if root.endswith("i"):
            return root[:-1] + "y"
        return root + "e" if _SILENT_E.match(root) else _base(root)
    return _base(word)


def listed(name: str) -> set[tuple[str, str]]:
    """The pairs of stems of a list of words and of those written here, from which `scripts/build_stems.py` makes the
    file that is read."""
    with open(os.path.join(DATA, f"{name}.txt"), encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if not line.startswith("#")]
    written = {"antonyms": OPPOSITES, "synonyms": ALIKE}[name].replace("\n", " ").split(";")
    pairs = (entry.split() for entry in (*written, *lines))
    return {(stem(pair[0]), stem(pair[1])) for pair in pairs if len(pair) == 2}


@lru_cache(maxsize=1)
def _irregular() -> tuple[dict[str, str], dict[str, str]]:
    tables = [dict(entry.split() for entry in listed.split(";")) for listed in (PASTS, PLURALS)]
    return tables[0], tables[1]


@lru_cache(maxsize=65536)
def lemma(word: str) -> tuple[str, bool]:
    """The stem of a word, irregular forms included, and whether it is a past form.

    >>> lemma("bought"), lemma("purchased"), lemma("children")
    (('buy', True), ('purchas', True), ('child', False))
    """
    pasts, plurals = _irregular()
    if word in pasts:
        return stem(pasts[word]), True
    if word in plurals:
        return stem(plurals[word]), False
    return stem(word), len(word) > 4 and word.endswith("ed")
