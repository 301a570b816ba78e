"""A made bank with planted copies and near misses, the same for the same seed.

Every original is filled from a sentence of this file. A *copy* says the same: spelling, contractions, articles, number
words, conjuncts in another order, a phrase moved to the front, a filler word, an opening such as "Note:", or a synonym.
A *near miss* shares almost every word and says something else: another value, number or name, the contrary, another
time, a condition, roles exchanged. Merging a near miss, or two originals, is wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

VALUES: dict[str, str] = {
    "who": "Amara|Bjorn|Carmen|Diego|Esther|Felix|Greta|Hassan|Irina|Jamal|Kofi|Leila|Mateo|Noor|Olga|Pavel|Rosa|Samir",
    "place": "Lagos|Geneva|Tampere|Boston|Quito|Osaka|Leeds|Perth|Porto|Riga|Turin|Accra|Bergen|Izmir|Malmo|Dakar",
    "service": "the invoice service|the gateway|the crawler|the report worker|the image resizer|the mail relay|"
    "the ledger|the session store|the feature flag service|the audit trail|the payment bridge|the event bus",
    "store": "Postgres|Redis|SQLite|Kafka|Elasticsearch|DuckDB|ClickHouse|Cassandra|RabbitMQ|MinIO",
    "lang": "Python|Rust|Go|Java|Kotlin|TypeScript|Ruby|Elixir|Scala|Swift",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "month": "January|February|March|April|June|July|August|September|October|November",
    "n": "3|4|5|6|7|8|9|12|14|18|20|30|40|60|90",
    "dish": "lasagne|ramen|pierogi|jollof rice|moussaka|biryani|gazpacho|ceviche|goulash|couscous",
    "hobby": "pottery|climbing|bird watching|chess|sailing|gardening|archery|calligraphy|fencing|knitting",
    "item": "bicycle|camera|guitar|telescope|tent|sewing machine|kayak|record player|drone|accordion",
    "client": "Orchard Foods|Delta Freight|Marlow Bank|Pinecrest Hotels|Vega Optics|Halden Paper|Sable Media",
}

SENTENCES: tuple[str, ...] = (
    "{who} bought a {item} from {client} in {month}",
    "{who} moved to {place} with two friends in {month}",
    "{who} is allergic to nuts and shellfish",
    "{who} needs help with the {item} on {day}",
    "{who} started learning {hobby} last summer",
    "{who} wants to visit {place} after the exams in {month}",
    "{who} often cooks {dish} for the neighbours on {day}",
    "{who} doesn't eat meat or fish at work",
    "{who} fixed the broken {item} at the workshop in {place}",
    "{who} teaches {hobby} to children at the school in {place}",
    "{who} finished the report about {client} before the meeting on {day}",
    "{who} has a big garden and a small pond behind the house",
    "{who} prefers short answers and clear examples in every reply",
    "{who}'s favourite film is about {hobby} in {place}",
    "{who} chose {dish} for the party in {month}",
    "{who} gets angry when the train to {place} is late",
    "The doctor told {who} to rest for {n} days after the operation",
    "{who} runs {n} kilometres in the park before breakfast",
    "{service} keeps its data in {store}",
    "{service} answers within {n} seconds under normal load",
    "{service} is written in {lang} and deployed with containers",
    "{service} sends an error to the team when {store} is down",
    "{service} doesn't retry requests that time out after {n} seconds",
    "{service} needs at least {n} workers in production",
    "{service} was rewritten in {lang} during the spring",
    "Backups of {service} are kept for {n} days in {place}",
    "The tests of {service} take about {n} minutes on the build server",
    "We deploy {service} every {day} after the stand-up",
    "We can't change {service} without a review from {who}",
    "{who} owns the budget and the schedule of {service}",
    "The big customers of {client} get a discount in {month}",
    "{client} pays its bills within {n} days of delivery",
    "{client} wants a quick answer about the contract before {day}",
    "The contract with {client} ends in {month} after {n} months",
    "The main office of {client} is near the station in {place}",
    "{client} buys {n} licences for its employees at the start of {month}",
    "The team speaks {lang} and French at the meetings with {client}",
    "The road to {place} is closed for repairs in {month}",
    "Use {store} for the queue and {lang} for the workers",
    "Always write the tests before the code in {service}",
    "Ask {who} before you remove old records from {store}",
    "Logs and metrics of {service} go to {store} in {place}",
    "The error page of {service} shows the phone number of {who}",
    "The garden party of {client} takes place at the lake near {place}",
)

SYNONYMS: tuple[tuple[str, str], ...] = (
    ("bought", "purchased"), ("started", "began"), ("often", "frequently"), ("fixed", "repaired"),
    ("finished", "completed"), ("big", "large"), ("film", "movie"), ("chose", "picked"), ("children", "kids"),
    ("answers", "replies"), ("sends", "dispatches"), ("an error", "a failure"), ("needs", "requires"),
    ("kept", "retained"), ("take", "last"), ("change", "modify"), ("customers", "clients"),
    ("quick", "fast"), ("ends", "finishes"), ("main", "primary"), ("near", "close to"), ("buys", "purchases"),
    ("employees", "staff"), ("start", "beginning"), ("road", "street"), ("closed", "shut"), ("repairs", "mending"),
    ("remove", "delete"), ("old", "outdated"), ("shows", "displays"), ("angry", "furious"), ("help", "assistance"),
    ("doctor", "physician"), ("told", "instructed"), ("wants", "wishes"), ("at least", "a minimum of"),
    ("job", "task"), ("house", "home"), ("prefers", "favours"), ("keeps", "stores"), ("moved", "relocated"),
)  # fmt: skip
"""Everyday exchanges, written without a look at what the rules know; some are loose on purpose."""
NUMBERS = {
    "3": "three", "4": "four", "5": "five", "6": "six", "7": "seven", "8": "eight", "9": "nine", "12": "twelve",
    "14": "fourteen", "18": "eighteen", "20": "twenty", "30": "thirty", "40": "forty", "60": "sixty", "90": "ninety",
}  # fmt: skip
SHORT = {"doesn't": "does not", "can't": "cannot", "don't": "do not", "isn't": "is not"}
SPELLED = {
    "favourite": "favorite",
    "neighbours": "neighbors",
    "kilometres": "kilometers",
    "licences": "licenses",
}
OPENINGS = ("Note: {}", "Remember that {}", "Also, {}", "FYI: {}", "Just so you know, {}", "Please note that {}",
            "{} (confirmed)", "By the way, {}", "Reminder: {}", "{}, as said before")  # fmt: skip
FILLERS = ("really", "currently", "actually", "just", "still")
MOVABLE = re.compile(
    r"^(.{10,}) ((?:in|on|at|for|during|after|before|with|within|every|last|under) [^,.]{3,40})$"
)


def _lower(text: str) -> str:
    named = text.split(" ", 1)[0].rstrip("'s").lower() not in (
        "the",
        "we",
        "use",
        "always",
        "ask",
        "backups",
        "logs",
    )
    return text if named else text[0].lower() + text[1:]


def _swap(text: str, pairs: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str | None:
    for old, new in pairs:
        if re.search(rf"\b{re.escape(old)}\b", text):
            return re.sub(rf"\b{re.escape(old)}\b", new, text, count=1)
    return None


def _spelling(text: str, rng: random.Random) -> str | None:
    return rng.choice(
        (text + ".", text.lower(), text + "!", f"  {text} .", _swap(text, [*SPELLED.items()]) or text + ".")
    )


def _contraction(text: str, _rng: random.Random) -> str | None:
    return _swap(text, [*SHORT.items()])


def _article(text: str, rng: random.Random) -> str | None:
    found = [m for m in re.finditer(r"\b(the|a) ", text) if m.start() > 0]
    if not found:
        return None
    place = rng.choice(found)
    return text[: place.start()] + text[place.end() :]


def _number(text: str, _rng: random.Random) -> str | None:
    found = re.search(r"\b\d+\b", text)
    return text[: found.start()] + NUMBERS[found[0]] + text[found.end() :] if found else None


def _conjuncts(text: str, _rng: random.Random) -> str | None:
    found = re.search(r"\b(nuts|meat|logs|budget) (and|or) (?:the )?(\w+)\b", text, re.IGNORECASE)
    if not found:
        return None
    swapped = f"{found[3]} {found[2]} {found[1].lower()}"
    return text[: found.start()] + (swapped if found.start() else swapped.capitalize()) + text[found.end() :]


def _front(text: str, _rng: random.Random) -> str | None:
    found = MOVABLE.match(text)
    return f"{found[2][0].upper()}{found[2][1:]}, {_lower(found[1])}" if found else None


def _filler(text: str, rng: random.Random) -> str | None:
    found = re.search(r" (is|was|has|needs|wants|prefers|keeps|gets|runs|owns|pays|teaches) ", text)
    if not found:
        return None
    word = rng.choice(FILLERS)
    after = found[1] in ("is", "was", "has")
    return (
        text[: found.end() if after else found.start() + 1]
        + word
        + " "
        + text[found.end() if after else found.start() + 1 :]
    )


def _opening(text: str, rng: random.Random) -> str | None:
    return rng.choice(OPENINGS).format(_lower(text))


def _synonym(text: str, rng: random.Random) -> str | None:
    known = [(a, b) for a, b in SYNONYMS if re.search(rf"\b{re.escape(a)}\b", text)]
    return _swap(text, [rng.choice(known)]) if known else None


COPIES: dict[str, Callable[[str, random.Random], str | None]] = {
    "contraction": _contraction, "article": _article, "number word": _number, "conjuncts": _conjuncts,
    "synonym": _synonym, "filler": _filler, "fronted phrase": _front, "opening": _opening, "spelling": _spelling,
}  # fmt: skip
"""In the order in which several of them are made."""

CONTRARY = (("is", "is not"), ("keeps", "does not keep"), ("needs", "does not need"), ("bought", "did not buy"),
            ("Always", "Never"), ("before", "after"), ("doesn't", "does"), ("wants", "does not want"),
            ("big", "small"), ("often", "rarely"), ("can't", "can"), ("owns", "does not own"))  # fmt: skip
TENSE = (("needs", "needed"), ("wants", "wanted"), ("keeps", "kept"), ("is", "was"), ("pays", "paid"),
         ("owns", "owned"), ("teaches", "taught"), ("bought", "will buy"), ("prefers", "preferred"))  # fmt: skip
CONDITIONS = (
    "{} unless it rains",
    "{} except on holidays",
    "Maybe {}",
    "{} only if {who} agrees",
    "{} and leaves the rest",
)
SISTERS = (("summer", "winter"), ("children", "teachers"), ("school", "museum"), ("garden", "kitchen"),
           ("budget", "roadmap"), ("main", "second"), ("tests", "docs"), ("phone number", "address"),
           ("contract", "invoice"), ("queue", "cache"), ("days", "weeks"), ("seconds", "minutes"),
           ("film", "song"), ("neighbours", "parents"), ("stand-up", "review"), ("error", "summary"))  # fmt: skip


def _other_value(sentence: str, slots: dict[str, str], rng: random.Random) -> str | None:
    kinds = re.findall(r"\{(\w+)\}", sentence)
    kind = rng.choice(kinds) if kinds else None
    if kind is None:
        return None
    others = [v for v in VALUES[kind].split("|") if v != slots[kind]]
    return _fill(sentence, slots | {kind: rng.choice(others)})


def _exchanged(text: str, _rng: random.Random) -> str | None:
    names = [w for w in VALUES["who"].split("|") + VALUES["client"].split("|") if w in text]
    if len(names) != 2:
        return None
    a, b = names
    return text.replace(a, "\0").replace(b, a).replace("\0", b)


def near_miss(sentence: str, slots: dict[str, str], rng: random.Random) -> tuple[str, str] | None:
    """A text that almost says the same, and the name of the difference."""
    text = _fill(sentence, slots)
    ways: list[tuple[str, Callable[[], str | None]]] = [
        ("value", lambda: _other_value(sentence, slots, rng)),
        ("contrary", lambda: _swap(text, rng.sample(CONTRARY, len(CONTRARY)))),
        ("tense", lambda: _swap(text, rng.sample(TENSE, len(TENSE)))),
        (
            "condition",
            lambda: rng.choice(CONDITIONS).format(_lower(text), who=rng.choice(VALUES["who"].split("|"))),
        ),
        ("sister word", lambda: _swap(text, rng.sample(SISTERS, len(SISTERS)))),
        ("exchanged", lambda: _exchanged(text, rng)),
    ]
    name, way = rng.choice(ways)
    other = way()
    return (other, name) if other and other != text else None


def _fill(sentence: str, slots: dict[str, str]) -> str:
    text = re.sub(r"\{(\w+)\}", lambda m: slots[m[1]], sentence)
    return text[0].upper() + text[1:]


class Planted(NamedTuple):
    """One text of the made bank."""

    text: str
    origin: int
    """Texts with the same number say the same."""
    edit: str
    """`original`, the kind of copy, or `not:` and the kind of near miss."""


def planted(originals: int, seed: int = 0, *, edits: int = 1) -> list[Planted]:
    """Originals, a copy of most of them, and a near miss of many; shuffled, no text twice.

    Args:
        originals: How many different things are said.
        seed: Of every choice made.
        edits: How many changes a copy carries.
    """
    rng = random.Random(seed)
    out: list[Planted] = []
    seen: set[str] = set()
    number = 0
    kinds = list(COPIES)
    while number < originals:
        sentence = rng.choice(SENTENCES)
        slots = {kind: rng.choice(VALUES[kind].split("|")) for kind in re.findall(r"\{(\w+)\}", sentence)}
        text = _fill(sentence, slots)
        if text.lower() in seen:
            continue
        seen.add(text.lower())
        out.append(Planted(text, number, "original"))
        for _ in range(20):
            names = sorted(rng.sample(kinds, edits), key=kinds.index)
            copy: str | None = text
            for name in names:
                copy = COPIES[name](copy, rng) if copy is not None else None
            if copy is not None and copy != text and copy not in seen:
                seen.add(copy)
                out.append(Planted(copy, number, " + ".join(names)))
                break
        number += 1
        miss = near_miss(sentence, slots, rng)
        if miss is not None and miss[0].lower() not in seen:
            seen.add(miss[0].lower())
            out.append(Planted(miss[0], number, f"not: {miss[1]}"))
            number += 1
    rng.shuffle(out)
    return out
