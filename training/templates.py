"""Plain pairs of memories made from patterns: one value replaced, one subject replaced, denied, reordered, repeated.

The pairs of the topic files are told freely. Memories that agents write are often plain ("The API listens on port
8080"), and there the place of the change decides: a new value is an update, another subject is another matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

PEOPLE = ["Alba", "Bodil", "Cem", "Dinah", "Eero", "Fatou", "Gregor", "Hanne", "Ilja", "Jutta"]
CITIES = ["Lyon", "Tampere", "Porto", "Graz", "Leeds", "Split", "Gdynia", "Ghent"]
TOOLS = ["Drone", "CircleCI", "Woodpecker", "GoCD", "Concourse", "TeamCity"]
PLACES = [
    ("staging", "production"),
    ("the EU cluster", "the US cluster"),
    ("the iPhone build", "the Android build"),
    ("the kitchen", "the bathroom"),
    ("plot 3", "plot 4"),
    ("the day shift", "the night shift"),
    ("Windows", "macOS"),
    ("the left pump", "the right pump"),
    ("the old flat", "the new flat"),
    ("the junior team", "the senior team"),
    ("my mother", "my father"),
    ("the guest network", "the office network"),
]
VALUES = [
    ("{} listens on port {}", ["8080", "9191", "5433", "7000"]),
    ("{} has {} GB of memory", ["8", "16", "24", "64"]),
    ("The limit of {} is {} requests a minute", ["60", "90", "250"]),
    ("{} costs {} euros a month", ["19", "24", "31", "40"]),
    ("{} opens at {}", ["7:30", "8:00", "9:15", "10:00"]),
    ("{} is on version {}", ["3.1", "3.4", "4.0", "5.2"]),
    ("The deadline for {} is {}", ["3 May", "17 May", "9 June", "1 July"]),
    ("{} meets on {}", ["Mondays", "Tuesdays", "Thursdays"]),
    ("{} is painted {}", ["green", "grey", "white", "ochre"]),
    ("The contact for {} is {}", PEOPLE[:5]),
    ("{} is run by {}", PEOPLE[5:]),
    ("{} is hosted in {}", CITIES[:4]),
    ("{} is built with {}", TOOLS[:4]),
    ("Backups of {} are kept for {} days", ["14", "30", "45"]),
    ("{} is cleaned every {} weeks", ["2", "3", "6"]),
    ("The contract of {} ends in {} weeks", ["4", "6", "10", "13"]),
    ("{} gives up after {} tries", ["2", "3", "5", "8"]),
    ("{} weighs {} kilos", ["4", "5", "12"]),
    ("{} closes at {} in the evening", ["7", "8", "9"]),
    ("{} holds {} people", ["40", "55", "120"]),
    ("Every run of {} takes {} minutes", ["11", "17", "26"]),
    ("The password hint of {} is {}", ["harbour", "lantern", "walnut"]),
]
SUBJECTS = ["The booking API", "The greenhouse", "The choir", "The parcel service", "Our blog", "The archive"]
PERSONAL = [
    ("{} lives in {}", CITIES),
    ("{} works at {}", ["Nordlicht", "Fabrik 9", "Opaline"]),
    ("{}'s phone number ends in {}", ["4471", "9020", "3358"]),
    ("{} is {} years old", ["31", "32", "47"]),
    ("{}'s favourite tea is {}", ["rooibos", "assam", "mint"]),
    ("{} drives a {}", ["Skoda", "Dacia", "Volvo"]),
    ("{} sits in room {}", ["2.14", "3.07", "1.22"]),
    ("{} reports to {}", ["Solveig", "Marek", "Noor"]),
]
OFFICES = [
    ("The CEO is {}", ["Ines Falk", "Tomás Rey", "Wu Lan"]),
    ("{} is the team lead", ["Pia Moser", "Sam Okoro"]),
    ("The treasurer of the club is {}", ["Ruth Adler", "Jan Kok"]),
    ("Our landlord is {}", ["Mr Bauer", "Ms Iqbal"]),
    ("The on-call engineer is {}", ["Lena", "Deniz", "Pavel"]),
    ("The favourite colour of Max is {}", ["teal", "red"]),
    ("The fence is {}", ["blue", "brown", "black"]),
    ("The wifi password is {}", ["moonfish", "7gables"]),
    ("The meeting is on {}", ["Monday", "Wednesday", "Friday"]),
    ("The gate code is {}", ["5521", "0917", "3340"]),
    ("Standup is at {}", ["9:30", "10", "10:15"]),
    ("The budget is {}", ["$4,000", "$6,500", "9,000 euros"]),
]
OFFICE_CHANGES = ["{} now", "From May on, {}", "{} again", "Since the spring {}"]
RELATIONS = [
    "{} lives in Porto",
    "{} works at Opaline",
    "{} likes fado",
    "{} has two cats",
    "{} is 47 years old",
    "{} drives a Skoda",
    "{} was born in June",
    "{} cooks on Sundays",
    "{} studies law",
    "{} needs an invoice",
]
FACTS = [
    "The {} has 32 GB of memory",
    "The {} runs Debian 12",
    "The {} stands in the cellar",
    "The {} was bought in 2021",
    "The {} is backed up every night",
    "The {} belongs to the design team",
    "The {} needs a new fan",
]
SERIES = [
    ("user {} is an admin", ["3", "4", "9"]),
    ("Ticket {} is closed", ["118", "131"]),
    ("Port {} is open", ["443", "8443"]),
    ("Shelf {} holds seeds", ["A", "B"]),
    ("Revenue in {} was 3 million", ["2021", "2022"]),
    ("On {} the run failed", ["Monday", "Tuesday"]),
    ("Invoice {} is unpaid", ["2024-17", "2024-19"]),
]
SEVERAL = [
    ("{} speaks {}", ["Dutch", "Basque", "Turkish"]),
    ("{} has visited {}", CITIES[4:]),
    ("{} plays {}", ["the oboe", "handball", "chess"]),
    ("{} is allergic to {}", ["hazelnuts", "latex", "celery"]),
    ("{} likes {}", ["plum cake", "fado", "long walks"]),
    ("{} bought {}", ["a tent", "two lamps", "a rake"]),
]
RULES = [
    ("Use {} for {}", ["poetry", "uv", "hatch"], ["packaging", "virtual environments"]),
    ("Use {} for {}", ["quill", "obsidian", "vim"], ["drafts", "minutes"]),
    ("Use {} for {}", ["pandas", "sqlite", "awk"], ["reports", "the ledger"]),
    ("Take {} for {}", ["oat milk", "butter", "lard"], ["the dough", "frying"]),
    ("Use {} when {}", ["tmux", "nohup", "a container"], ["training models", "syncing folders"]),
    ("We pay {1} by {0}", ["cheque", "card", "direct debit"], ["the rent", "suppliers"]),
    ("Call {} about {}", ["Farid", "the bank", "reception"], ["refunds", "keys"]),
    ("{} is our tool for {}", ["Figma", "Penpot", "paper"], ["mock-ups", "wireframes"]),
    ("Prefer {} for {}", ["trains", "the ferry", "video calls"], ["site visits", "interviews"]),
    ("Use {} for {}", ["eslint", "oxlint", "biome"], ["linting", "the frontend checks"]),
    ("We use {} for {}", ["Redis", "Memcached", "Dragonfly"], ["sessions", "rate limits"]),
    ("{} is used for {}", ["Terraform", "Pulumi", "OpenTofu"], ["the network", "the DNS zones"]),
    ("Store {1} in {0}", ["S3", "the NAS", "Minio"], ["uploads", "nightly dumps"]),
    ("Send {1} with {0}", ["Postmark", "Mailgun", "SES"], ["receipts", "password mails"]),
    ("Format {1} with {0}", ["prettier", "dprint", "biome"], ["the templates", "the stylesheets"]),
    ("Deploy with {} from {}", ["helm", "kustomize", "plain manifests"], ["the main branch", "release tags"]),
    ("Write {1} in {0}", ["Kotlin", "Java", "Scala"], ["new services", "the tests"]),
    ("Book {1} through {0}", ["the portal", "the agency", "Ilse"], ["trains", "hotel rooms"]),
]
DENIED = [
    ("The lift is working", "The lift is not working"),
    ("Guests may park in the yard", "Guests may not park in the yard"),
    ("The museum is open on Sundays", "The museum is closed on Sundays"),
    ("Logs are encrypted", "Logs are not encrypted"),
    ("The tests need a database", "The tests don't need a database"),
    ("Caching is enabled", "Caching is disabled"),
    ("The invoice has been paid", "The invoice has not been paid"),
    ("Dogs are allowed", "Dogs are forbidden"),
    ("Always rebase before merging", "Never rebase before merging"),
    ("Jutta eats fish", "Jutta never eats fish"),
    ("The endpoint is public", "The endpoint is private"),
    ("The oven heats evenly", "The oven doesn't heat evenly"),
    ("Commit the lock file", "Don't commit the lock file"),
    ("Ilja passed the exam", "Ilja failed the exam"),
    ("Squash commits on merge", "Do not squash commits on merge"),
    ("The feed is sorted", "The feed is unsorted"),
    ("Run migrations automatically", "Never run migrations automatically"),
    ("Lock the shed", "Leave the shed unlocked"),
]
OTHER_RULES = [
    ("Use httpx", "Do not use requests"),
    ("Write docstrings", "Do not write comments"),
    ("Pin dependencies", "Never pin transitive dependencies by hand"),
    ("Water the tomatoes", "Don't water the cacti"),
    ("Use UTC in the database", "Don't use local time in logs"),
    ("Call Hanne first", "Do not call Gregor"),
    ("Prefer composition", "Avoid inheritance"),
    ("Squash feature branches", "Never squash release branches"),
    ("Take the bus", "Don't take the tram"),
    ("Eat before training", "Don't drink coffee after five"),
]
TOLD = [
    ("We use {} for {}", "We moved from {} to {} for {}"),
    ("We use {} for {}", "We switched {2} from {0} to {1}"),
    ("{1} runs on {0}", "{2} is on {1} now, no longer on {0}"),
    ("{1} goes through {0}", "{1} replaced {0} for {2}"),
    ("{1} is handled by {0}", "{1} has taken over {2} from {0}"),
    ("{0} is in charge of {1}", "{0} left, {1} does {2} now"),
    ("We do {1} with {0}", "For {2} it's {1} since the spring"),
    ("{0} for {1}", "{1} instead of {0} for {2}"),
]
MOVED = [
    ("{} lives in {}", ["{0} moved from {1} to {2}", "{0} has moved to {2}", "{0} left {1}"], CITIES),
    (
        "{} works at {}",
        ["{0} switched from {1} to {2}", "{0} quit {1}", "{0} works for {2} now"],
        ["Opaline", "Ferrum", "Nordlicht"],
    ),
    (
        "The {} is in {}",
        ["The {0} moved to {2}", "The {0} moved from {1} to {2}", "{2} has the {0} now"],
        CITIES,
    ),
    (
        "The {} is on {}",
        ["The {0} was moved to {2}", "The {0} is cancelled", "The {0} has been postponed to {2}"],
        ["Tuesday", "Thursday", "Saturday"],
    ),
    (
        "The {} runs on {}",
        ["We moved the {0} to {2}", "The {0} was migrated from {1} to {2}", "The {0} was switched off"],
        ["Debian", "Alpine", "FreeBSD"],
    ),
]
MOVERS = [
    PEOPLE[:4],
    PEOPLE[4:8],
    ["warehouse", "head office", "studio", "workshop"],
    ["rehearsal", "review", "fair", "exam"],
    ["wiki", "mail server", "build farm", "shop"],
]
MATTERS = ["CI", "invoices", "the newsletter", "ticket sales"]
TURNED = [
    ("The train goes from {} to {}", CITIES[:3]),
    ("Move the files from {} to {}", ["alpha", "beta", "gamma"]),
    ("{} owes {} forty euros", PEOPLE[:3]),
    ("{} is taller than {}", PEOPLE[3:6]),
    ("{} calls before {} does", TOOLS[:3]),
]


class TemplatePair(NamedTuple):
    """Two texts, the earlier first, what the later does to it, and the group that is left out together."""

    label: str
    earlier: str
    later: str
    writer: str


def template_pairs() -> list[TemplatePair]:
    """All pairs, in a fixed order; a group holds whole patterns, so that one left out has not been seen."""
    return [
        TemplatePair(label, earlier, later, f"t{group % 4}")
        for group, made in enumerate(_patterns())
        for label, earlier, later in made
    ]


def _patterns() -> Iterator[list[tuple[str, str, str]]]:
    for number, (form, values) in enumerate(VALUES):
        made: list[tuple[str, str, str]] = []
        for at, subject in enumerate(SUBJECTS[number % 3 :: 2]):
            one, other = values[at % len(values)], values[(at + 1) % len(values)]
            made += _value(form, subject, one, other)
        for at, (here, there) in enumerate(PLACES[number % 4 :: 4]):
            one, other = values[at % len(values)], values[(at + 1) % len(values)]
            made.append(("both", _sentence(form, here, one), _sentence(form, there, other)))
            made.append(("both", _sentence(form, here, one), _sentence(form, there, one)))
            made.append(("updates", _sentence(form, here, one), _sentence(form, here, other)))
        yield made
    for number, (form, values) in enumerate(PERSONAL):
        who, whom = PEOPLE[number], PEOPLE[(number + 3) % 10]
        made = [pair for a, b in permutations(values[:3], 2) for pair in _value(form, who, a, b)[:2]]
        made += [
            ("both", _sentence(form, who, a), _sentence(form, whom, b))
            for a, b in permutations(values[:3], 2)
        ]
        made += [("both", _sentence(form, who, a), _sentence(form, whom, a)) for a in values[:2]]
        yield made
    for number, (form, values) in enumerate(SEVERAL):
        who = PEOPLE[number]
        yield [
            ("both", _sentence(form, who, a), _sentence(form, who, b)) for a, b in permutations(values[:3], 2)
        ]
    for number, (form, values) in enumerate(OFFICES):
        told = OFFICE_CHANGES[number % 4]
        made = [("updates", form.format(a), form.format(b)) for a, b in permutations(values, 2)]
        low = [
            form.format(b)[0].lower() + form.format(b)[1:] if not form.startswith("{}") else form.format(b)
            for b in values
        ]
        made += [("updates", form.format(values[0]), _upper(told.format(each))) for each in low[1:]]
        yield made
    for start, forms, names in (
        (0, RELATIONS, PEOPLE),
        (1, FACTS, ["build server", "old laptop", "printer"]),
    ):
        for half in (0, 1):
            few = forms[half::2]
            yield [
                (
                    "both",
                    one.format(names[(start + at) % len(names)]),
                    other.format(names[(start + at) % len(names)]),
                )
                for at, (one, other) in enumerate(permutations(few, 2))
            ]
    for form, values in SERIES:
        yield [("both", form.format(a), form.format(b)) for a, b in permutations(values, 2)]
    for form, tools, matters in RULES:
        made = []
        for matter in matters:
            for a, b in permutations(tools, 2):
                one, other = form.format(a, matter), form.format(b, matter)
                made.append(("updates", one, other))
                made.append(("both", one, f"Do not {other[0].lower()}{other[1:]}"))
            one = form.format(tools[0], matter)
            made += [
                ("contradicts", one, f"{no} {one[0].lower()}{one[1:]}") for no in ("Never", "Do not", "Don't")
            ]
            made += [("contradicts", f"{no} {one[0].lower()}{one[1:]}", one) for no in ("Never", "Do not")]
        made += [("both", form.format(tools[0], matters[0]), form.format(tools[1], matters[1]))]
        yield made
    for start in range(0, len(DENIED), 3):
        part = DENIED[start : start + 3]
        yield [("contradicts", *pair) for pair in part] + [("contradicts", no, yes) for yes, no in part]
    yield [("both", *pair) for pair in OTHER_RULES[::2]] + [("both", no, yes) for yes, no in OTHER_RULES[::2]]
    yield [("both", *pair) for pair in OTHER_RULES[1::2]] + [
        ("both", no, yes) for yes, no in OTHER_RULES[1::2]
    ]
    for number, (before, after) in enumerate(TOLD):
        names = TOOLS if number % 2 else PEOPLE
        yield [
            (label, _upper(before.format(a, matter)), _upper(after.format(a, b, told)))
            for at, (matter, other) in enumerate(zip(MATTERS, MATTERS[1:] + MATTERS[:1], strict=True))
            for a, b in ((names[at], names[at + 1]),)
            for label, told in (("updates", matter), ("both", other))
        ]
    for (form, told, values), movers in zip(MOVED, MOVERS, strict=True):
        made = []
        for at, mover in enumerate(movers):
            one, other, whom = values[at % 2], values[2], movers[at - 1]
            earlier = form.format(mover, one)
            made += [("updates", earlier, way.format(mover, one, other)) for way in told]
            made += [("both", earlier, way.format(whom, other, values[1 - at % 2])) for way in told]
        yield made
    for form, values in TURNED:
        yield [("both", form.format(a, b), form.format(b, a)) for a, b in permutations(values, 2)]
    yield _repeats(
        [_sentence(form, SUBJECTS[n % 6], values[0]) for n, (form, values) in enumerate(VALUES[::2])]
    )
    yield _repeats([_sentence(form, PEOPLE[n], values[0]) for n, (form, values) in enumerate(PERSONAL)])


def _value(form: str, subject: str, one: str, other: str) -> list[tuple[str, str, str]]:
    """One subject with another value, plainly and told as a change."""
    before, after = _sentence(form, subject, one), _sentence(form, subject, other)
    return [
        ("updates", before, after),
        ("updates", before, f"{after} now"),
        ("updates", before, f"{after}, not {one} any more"),
    ]


def _repeats(texts: list[str]) -> list[tuple[str, str, str]]:
    made: list[tuple[str, str, str]] = []
    for text in texts:
        low = text[0].lower() + text[1:]
        made += [("same", text, f"{text}."), ("same", text, text.lower()), ("same", text, f"Note: {text}!")]
        made += [("same", text, f"By the way, {low}"), ("same", f"Remember that {low}", text)]
    return made


def _sentence(form: str, subject: str, value: str) -> str:
    if not form.startswith("{}") and subject.startswith("The "):
        subject = subject[0].lower() + subject[1:]
    return _upper(form.format(subject, value))


def _upper(text: str) -> str:
    return text[0].upper() + text[1:]
