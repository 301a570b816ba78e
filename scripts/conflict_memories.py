"""Made pairs that look like what agents remember: preferences, settings, people, rules, dates, counts."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

VALUES: dict[str, str] = {
    "person": "Ana|Bob|Chen Wei|Dmitri|Elena|Farid|Grace Kim|Hiro|Ines|Jonas|Keisha|Luca|Maria|Nadia|Omar|Priya",
    "city": "Rome|Oslo|Berlin|Austin|Lisbon|Kyoto|Toronto|Nairobi|Lima|Seoul|Prague|Dublin|Cairo|Denver|Hanoi",
    "company": "Acme|Globex|Initech|Umbrella|Hooli|Stark Industries|Northwind|Contoso|Vandelay|Soylent",
    "tool": "ruff|flake8|pylint|black|mypy|eslint|prettier|biome|gofmt|clang-tidy|rubocop|shellcheck",
    "database": "PostgreSQL|MySQL|SQLite|MongoDB|Redis|Cassandra|DynamoDB|MariaDB|Oracle|CockroachDB",
    "language": "Python|Rust|Go|Java|Kotlin|TypeScript|Ruby|Swift|Elixir|Scala|Haskell|Zig",
    "framework": "Django|Flask|FastAPI|Rails|Spring|Express|Svelte|React|Vue|Angular|Laravel|Phoenix",
    "cloud": "AWS|Azure|GCP|Hetzner|DigitalOcean|Fly.io|Heroku|Cloudflare|Fastly|Linode",
    "colour": "red|blue|green|yellow|orange|purple|pink|brown|black|white|grey|teal",
    "food": "pizza|sushi|pasta|tacos|ramen|curry|falafel|dumplings|paella|pancakes",
    "drink": "coffee|tea|orange juice|beer|water|lemonade|wine|kombucha",
    "pet": "dog|cat|parrot|hamster|rabbit|goldfish|turtle",
    "sport": "tennis|football|chess|climbing|swimming|basketball|rowing|cycling|yoga",
    "day": "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday",
    "month": "January|February|March|April|May|June|July|August|September|October|November|December",
    "count": "2|3|4|5|6|8|10|12|15|20|24|30|48|50|64|100|128|256|500|1000",
    "small": "two|three|four|five|six|seven|eight|nine|ten",
    "size": "8 GB|16 GB|32 GB|64 GB|128 GB|512 MB|1 TB",
    "time": "9 am|10:30|noon|2 pm|3 pm|4:15 pm|18:00|midnight",
    "date": "2024-03-01|2024-04-15|2025-01-31|2023-11-20|March 3|April 12|June 30|September 9|2 May|14 July",
    "version": "3.10|3.11|3.12|18|20|22|2.0|1.4.2|5.1|7.0.3",
    "money": "$500|$1,200|$3,500|$20,000|$45,000|€300|€8,000|2 million dollars",
    "role": "designer|engineer|manager|nurse|teacher|lawyer|chef|pilot|accountant|analyst",
    "status": "done|blocked|in review|planned|cancelled|in testing|paused|released",
    "project": "Atlas|Borealis|Cobalt|Dune|Ember|Falcon|Glacier|Horizon|the billing service|the mobile app",
    "purpose": "linting|formatting|type checking|testing|deployment|logging|documentation|code review|caching",
    "format": "JSON|YAML|TOML|XML|CSV|Parquet|Markdown",
    "channel": "email|Slack|phone|text message|Teams|Discord",
    "relation": "brother|sister|boss|neighbour|daughter|cousin|mentor|partner",
    "thing": "the API|the search index|the login page|the build|the backup job|the parser|the scheduler",
}

# Each line: wordings of one relation, separated by "=". {s:kind} is the subject, {v:kind} the value.
FACTS = """
{s:person} lives in {v:city} = {s:person}'s home is in {v:city} = {s:person} resides in {v:city}
{s:person} works at {v:company} = {s:person} is employed by {v:company} = {s:person}'s employer is {v:company}
{s:person} works as a {v:role} = {s:person} is a {v:role} by profession
{s:person} was born in {v:city} = the birthplace of {s:person} is {v:city}
{s:person}'s favourite food is {v:food} = the food {s:person} likes best is {v:food}
{s:person} is allergic to {v:food} = {s:person} has an allergy to {v:food}
{s:person}'s birthday is on {v:date} = {s:person} was born on {v:date}
Use {v:tool} for {s:purpose} = For {s:purpose}, use {v:tool} = {s:purpose} is done with {v:tool}
We use {v:database} for {s:project} = {s:project} uses {v:database} = {s:project} stores its data in {v:database}
{s:project} is written in {v:language} = the language of {s:project} is {v:language}
{s:project} runs on {v:cloud} = {s:project} is hosted on {v:cloud}
{s:project} is {v:status} = the status of {s:project} is {v:status}
{s:project} is built with {v:framework} = the framework of {s:project} is {v:framework}
The deadline of {s:project} is {v:date} = {s:project} is due on {v:date}
The budget of {s:project} is {v:money} = {s:project} has a budget of {v:money}
{s:person} leads {s:project} with {v:count} people = the team of {s:person} on {s:project} has {v:count} members
The lead of {s:project} is {v:person} = {s:project} is led by {v:person}
The timeout of {s:thing} is {v:count} seconds = {s:thing} times out after {v:count} seconds
{s:thing} retries {v:count} times = {s:thing} makes {v:count} retries
{s:thing} has {v:size} of memory = the memory of {s:thing} is {v:size}
{s:thing} requires Python {v:version} = Python {v:version} is required by {s:thing}
{s:thing} returns {v:format} = the output of {s:thing} is {v:format}
{s:thing} is deployed on {v:day} = deployments of {s:thing} happen every {v:day}
The weekly meeting about {s:project} is on {v:day} = We meet about {s:project} on {v:day} every week
The standup for {s:project} is at {v:time} = {s:project} has its standup at {v:time}
My favourite colour is {v:colour} = the colour I like most is {v:colour}
My name is {v:person} = I am called {v:person}
I live in {v:city} = my home is in {v:city}
I work as a {v:role} = my job is {v:role}
I have {v:small} children = I am a parent of {v:small} children
I moved to {v:city} in {s:month} = in {s:month} I relocated to {v:city}
The user prefers {v:channel} over other channels = the preferred channel of the user is {v:channel}
The user's preferred language is {v:language} = the user prefers to write {v:language}
The user drinks {v:drink} in the morning = in the morning the user has {v:drink}
The user's {s:relation} is called {v:person} = the name of the user's {s:relation} is {v:person}
The user plays {v:sport} on {s:day} = on {s:day} the user plays {v:sport}
Default branch of {s:project} is kept for {v:count} days = {s:project} keeps its default branch for {v:count} days
Set the page size of {s:thing} to {v:count} = the page size of {s:thing} should be {v:count}
Log files of {s:thing} are kept for {v:count} days = {s:thing} keeps log files for {v:count} days
The capital budget moves to {v:city} = {v:city} receives the capital budget
"""
UPDATES = (
    "{} now", "As of today, {}", "Now {}", "Since last week, {}", "Update: {}", "{}, changed recently",
    "Correction: {}", "{} from now on",
)  # fmt: skip
DENIALS = (
    "It is no longer true that {}", "It is not the case that {}", "{} is not true", "{}, not anymore",
    "We stopped this: {}", "Forget that {}",
)  # fmt: skip
_SLOT = re.compile(r"\{([sv]):(\w+)\}")


def _fill(wording: str, chosen: dict[str, str]) -> str:
    text = _SLOT.sub(lambda m: chosen[f"{m[1]}:{m[2]}"], wording)
    return text[0].upper() + text[1:]


def _draw(wordings: list[str], rng: random.Random) -> dict[str, str]:
    slots = {f"{side}:{kind}": kind for w in wordings for side, kind in _SLOT.findall(w)}
    return {slot: rng.choice(VALUES[kind].split("|")) for slot, kind in slots.items()}


def _redraw(chosen: dict[str, str], side: str, rng: random.Random) -> dict[str, str]:
    out = dict(chosen)
    for slot, old in chosen.items():
        if slot.startswith(side):
            out[slot] = rng.choice([v for v in VALUES[slot[2:]].split("|") if v != old])
    return out


def memories(count: int, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """Pairs with their label, for any `count`."""
    facts = [[w.strip() for w in line.split(" = ")] for line in FACTS.strip().splitlines()]
    for _ in range(count):
        wordings = rng.choice(facts)
        chosen = _draw(wordings, rng)
        first = _fill(rng.choice(wordings), chosen)
        second = wordings[0] if rng.random() < 0.4 else rng.choice(wordings)
        if rng.random() < 0.5:
            first = _fill(second, chosen)
        kind = rng.choices(("same", "value", "denied", "subject", "other"), (30, 32, 8, 16, 14))[0]
        has_subject = any(slot.startswith("s") for slot in chosen)
        if kind == "same":
            yield first, _fill(rng.choice(wordings), chosen), "duplicate"
        elif kind == "value":
            text = _fill(second, _redraw(chosen, "v", rng))
            if rng.random() < 0.3:
                text = rng.choice(UPDATES).format(text[0].lower() + text[1:] if rng.random() < 0.5 else text)
            yield first, text, "contradiction"
        elif kind == "denied":
            yield first, rng.choice(DENIALS).format(_fill(second, chosen)), "contradiction"
        elif kind == "subject" and has_subject:
            other = _redraw(chosen, "s", rng)
            yield first, _fill(second, other if rng.random() < 0.6 else _redraw(other, "v", rng)), "neutral"
        else:
            others = rng.choice([f for f in facts if f is not wordings])
            kept = _draw(others, rng)
            kept |= {k: v for k, v in chosen.items() if k in kept}
            yield first, _fill(rng.choice(others), kept), "neutral"
