"""Redaction: secrets and personal data, found by their form and taken out before a text is stored. Pure.

A rule is a pattern and, where the form alone does not say enough, a second look at what was found. Forms with a
checksum or a fixed beginning are trusted. What follows a word such as `password` counts only if it looks like a
secret rather than like prose, a placeholder, or code. Every pattern is bounded, or begins where no other attempt
has looked before, so that the work grows with the length of the text and no faster.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from skep.errors import InvalidInputError, WrongTypeError
from skep.private_parts import DEEP, marked, refuse_deep, without_private
from skep.runtime import lazy
from skep.validation import clean_choice, listed

Spot = tuple[int, int]
Look = Callable[[re.Match[str]], "Spot | None"]


class Rule(NamedTuple):
    """One form of one kind. Without a second look, the group `it` (or all of the match) is what was found."""

    kind: str
    pattern: re.Pattern[str]
    look: Look | None = None
    words: tuple[str, ...] = ()
    """A text that holds none of these, whatever their case, need not be searched."""


def luhn(number: str) -> bool:
    """True if the digits pass the check that card numbers pass.

    >>> luhn("4111 1111 1111 1111"), luhn("4111 1111 1111 1112")
    (True, False)
    """
    digits = [int(c) for c in number if c.isdigit()]
    doubled = [d if i % 2 == 0 else (d * 2 if d < 5 else d * 2 - 9) for i, d in enumerate(reversed(digits))]
    return 13 <= len(digits) <= 19 and len(set(digits)) > 1 and sum(doubled) % 10 == 0


ISSUED: Final = re.compile(
    r"(?:4\d{15}(?:\d{3})?|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|3(?:0[0-5]|[689]\d)\d{11}|6(?:011|4[4-9]\d|5\d\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|62\d{14}(?:\d{3})?)"
)
"""The beginnings and lengths of the cards that are in use."""
GROUPED: Final = re.compile(r"\d+|\d{4}([ .-])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|\d{4}([ .-])\d{6}\2\d{4,5}")


def _card(found: re.Match[str]) -> Spot | None:
    number = found.group()
    digits = re.sub(r"\D", "", number)
    right = GROUPED.fullmatch(number) and ISSUED.fullmatch(digits) and luhn(digits)
    return found.span() if right else None


def mod97(iban: str) -> bool:
    """True if an IBAN passes its check.

    >>> mod97("GB82 WEST 1234 5698 7654 32"), mod97("GB82 WEST 1234 5698 7654 33")
    (True, False)
    """
    plain = re.sub(r"\s", "", iban).upper()
    turned = plain[4:] + plain[:4]
    return 15 <= len(plain) <= 34 and int("".join(str(int(c, 36)) for c in turned)) % 97 == 1


def _iban(found: re.Match[str]) -> Spot | None:
    return found.span() if mod97(found.group()) else None


def _phone(found: re.Match[str]) -> Spot | None:
    start, end = found.span("it")
    number = found.string[start:end]
    digits = sum(c.isdigit() for c in number)
    dated = re.match(r"\d{4}-\d{2}-\d{2}", number)
    american = re.match(r"\+1\D{0,2}[2-9]", number) and digits == 11
    right = 7 <= digits <= 15 and not dated and (american or not number.startswith("+1"))
    return (start, end) if right else None


def _address(found: re.Match[str]) -> Spot | None:
    number = found.group()
    right = all(int(part) <= 255 for part in number.split(".")) and not number.startswith(("127.", "0."))
    return found.span() if right else None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PASSWORDS: Final = {"mot de passe"} | _words(
    "password passwd passphrase passcode pwd pass passwort kennwort contraseña contrasena wachtwoord senha"
)
ABOUT: Final = _words(
    """
    age arn auth blank budget char chars check class column count counts dir enabled endpoint entropy env error
    errors expiration expires expiry field fields file flag for form format generator handler hash header hint id
    ids in index input is key_id label len length limit limits list manager map max message min name names needed
    param parser path pattern policy prefix prompt protected provider ref regex required reset rule rules service
    settings size source store strength suffix text title ttl type types uri url usage used validation validator var
    version
    """
)
"""Endings of a name that speaks about a secret instead of holding it: `token_count`, `password_file`."""
PLAIN: Final = _words(
    """
    any argument authentication blank bool boolean bytes changeme char default disabled dummy empty enabled
    encrypted example expired false field file flag foobar generated hashed hidden incorrect input int invalid
    managed manual masked missing must never nil none null number object option optional parameter password
    placeholder plain please private prompt protected public random redacted required sample secret should string
    test text token true undefined unknown unset value varchar void wrong
    """
)
"""Values that say nothing."""
_STANDS_FOR: Final = (
    "$",
    "%",
    "{",
    "[",
    "<",
    "*",
    "(",
    "/",
    "./",
    "../",
    "~/",
    "http://",
    "https://",
    "your",
    "env.",
)
_PATH = lazy(r"[A-Za-z_]\w*(?:(?:\.|->|::)[A-Za-z_]\w*)+")
_VERSION = lazy(r"v?\d+(?:[.:/-]\d+)*[a-z]{0,5}\d{0,2}|0x[0-9a-f]{1,8}|[a-z]{2,5}-?\d{1,4}", re.IGNORECASE)
_WORDY = lazy(r"[A-Za-z]+(?:[-_./:][A-Za-z]+)*(?:[-_.]?\d{1,3})?")
_FILE = lazy(
    r"\S+\.(?:c|cfg|conf|cpp|css|env|go|h|html?|java|js|json|key|md|pem|php|py|rb|rs|sh|toml|ts|tsx|txt|ya?ml)"
)
_HUMPS = lazy(r"[a-z][A-Z]|[A-Z]{2}")
_OPTION = lazy(r"(?:^|\s)--?[\w-]*\Z")
_MACHINE = lazy(r"\b(?:machine[ \t]{1,4}\S{1,253}|default)[ \t]{1,4}\Z")
_SPECIAL: Final = frozenset("!@#$%^*+?~")

ASSIGNED = lazy(
    r"""(?ix) (?P<key> pass(?:word|wort|wd|phrase|code) | (?<=[_-])pass | pwd | secret | token | credential
        | kennwort | contrase[nñ]a | mot[ ]de[ ]passe | wachtwoord | senha
        | (?:api|access|account|auth|encryption|hmac|jwt|license|master|private|session|shared|signing|storage
          |subscription|webhook)[_ -]?key )
    (?P<more> [_-]\w{1,32} | (?-i:[A-Z])\w{0,32} )?
    (?:\\?["'`])?
    (?P<sep> [ \t]{0,4}(?:=>|:=|={1,2}|:)[ \t]{0,4} | [ \t]{1,4}(?:is|was|ist|est|es)[ \t]{1,4}:?[ \t]{0,4}
        | [ \t]{1,4} )
    (?: \\?(?P<quote>["'`]) (?P<quoted> [^"'`\n\\]{3,256} ) (?=\\?(?P=quote))
      | (?P<bare> [^\s"'`,;&<>(){}\[\]|\\]{3,256} ) )"""
)


def assigned(found: re.Match[str]) -> Spot | None:
    """The value given to a name such as `password` or `API_KEY`, if it looks like a secret.

    Prose (`password: must be 8 characters`), placeholders (`token=<yours>`), types and code (`token = self.token`) do
    not. Passwords may be plain words where they stand as a value does: quoted, right after `=`, or alone in a line.
    """
    text, start = found.string, found.start()
    key, more, sep = found["key"].lower(), (found["more"] or "").lower(), found["sep"].strip(" \t:") or ":"
    sep = "is" if sep in ("ist", "est", "es") else sep
    if not found["sep"].strip(" \t"):
        sep = "option"
        if not _OPTION.search(text, max(0, start - 40), start):
            return None
    before = text[start - 1 : start]
    if before.isalpha() and key in ("token", "secret", "credential", "pwd", "pass"):
        camel = before.islower() and text[start].isupper()
        if not (camel or (before.isupper() and found["key"].isupper())):
            return None  # the end of another word
    if more.strip("_-") in ABOUT or re.split(r"[_-]", more)[-1] in ABOUT:
        return None
    quoted = found["quoted"] is not None
    at, end = found.span("quoted" if quoted else "bare")
    value = text[at:end]
    if not quoted:
        if text[end : end + 1] in ("(", "["):
            return None
        value = value.rstrip(".:)?")
        end = at + len(value)
    password = key in PASSWORDS
    return (at, end) if _secret(value, password, sep, quoted, found, end) else None


def _password(found: re.Match[str]) -> Spot | None:
    return assigned(found) if found["key"].lower() in PASSWORDS else None


def _other(found: re.Match[str]) -> Spot | None:
    return None if found["key"].lower() in PASSWORDS else assigned(found)


def _secret(value: str, password: bool, sep: str, quoted: bool, found: re.Match[str], end: int) -> bool:
    """True if a value looks like a secret."""
    low = value.casefold()
    if (
        len(value) < 4
        or low in PLAIN
        or low.startswith(_STANDS_FOR)
        or len(set(low)) < 3
        or ".." in value
        or "…" in value
    ):
        return False
    if not quoted and _PATH.fullmatch(value):
        return False
    if _FILE.fullmatch(low):
        return False
    digits, letters = any(c.isdigit() for c in value), any(c.isalpha() for c in value)
    if " " in value:
        return quoted and (
            found["key"].lower() == "passphrase" or (password and digits and letters and value.count(" ") < 2)
        )
    if not letters:
        return digits and value.isdigit() and ((password and sep != "is") or len(value) >= 20)
    if digits:
        if password:
            return len(value) >= 5 and not (sep == ":" and _VERSION.fullmatch(value) and len(value) < 6)
        return len(value) >= 8 and not _WORDY.fullmatch(value) and not _VERSION.fullmatch(value)
    if _SPECIAL.intersection(value):
        return password and sep not in ("is", "was") and len(value) >= 6
    if not password:
        tight = found["sep"] == "=" and value.isalpha() and value.islower() and not _called(found.string, end)
        return (quoted and len(value) >= 16 and value.isalpha() and _HUMPS.search(value) is not None) or (
            tight and len(value) >= 10
        )
    if len(value) < 6 or re.search(r"passw|passphrase|secret|token|[_.]", low) or sep in ("is", "was"):
        return False
    if quoted:
        return value.isalpha()
    if found["sep"] == "=":
        return not _HUMPS.search(value) and not _called(found.string, end)
    return value.isalpha() and not _HUMPS.search(value[1:]) and _alone(found, end)


def _called(text: str, end: int) -> bool:
    """True if the text goes on there as code does."""
    return text[end : end + 1] in (")", ",", ".", "(", "[", "]", "}")


def _alone(found: re.Match[str], end: int) -> bool:
    """True if a name and its value have a line, or a command line's end, to themselves."""
    text, start = found.string, found.start()
    rest = text[end : end + 80].split("\n", 1)[0].strip(" \t\r\"'`,;")
    if rest and not rest.startswith("-"):
        return False
    if _OPTION.search(text, max(0, start - 40), start):
        return True
    line = text[max(0, start - 80) : start].rpartition("\n")[2]
    return len(line.split()) <= 1


def _random(found: re.Match[str]) -> Spot | None:
    """The token after the name of a scheme, unless it is a word."""
    value = found["it"]
    digits = any(c.isdigit() for c in value)
    cased = any(c.islower() for c in value) and any(c.isupper() for c in value[1:])
    return found.span("it") if digits or cased or (len(value) >= 20 and value.isalnum()) else None


def _logged_in(found: re.Match[str]) -> Spot | None:
    """The password of a login, as `.netrc` has it; "login and password reset" holds none."""
    text, start, value = found.string, found.start(), found["it"]
    looks = any(c.isdigit() for c in value) or not _SPECIAL.isdisjoint(value.rstrip("!?"))
    return found.span("it") if looks or _MACHINE.search(text, max(0, start - 270), start) else None


def _session(found: re.Match[str]) -> Spot | None:
    """The value of a cookie or a signature, unless it reads like code."""
    start, end = found.span("it")
    digits = sum(map(str.isdigit, found["it"]))
    return None if digits < 3 or _called(found.string, end) else (start, end)


ISSUED_BY: Final = (
    r"A3-[A-Z0-9]{6}-[A-Z0-9]{5,6}-[A-Z0-9-]{10,}|ops_eyJ[\w+/]{60,}|p8e-[A-Za-z0-9]{32}|LTAI[A-Za-z0-9]{20}"
    r"|(?:A3T[A-Z0-9]|ABIA|ACCA)[A-Z2-7]{16}|ABSK[\w+/]{100,}|4b1d[A-Za-z0-9]{38}|CLOJARS_[A-Za-z0-9]{60}"
    r"|dapi[a-f0-9]{32}|do[or]_v1_[a-f0-9]{64}|dp\.pt\.[A-Za-z0-9]{43}|duffel_(?:test|live)_[\w=-]{43}"
    r"|dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}|EZ[AT]K[A-Za-z0-9]{54}|EAA[AMC][A-Za-z0-9]{60,}|FLWSECK_TEST-\w{12,}"
    r"|f(?:o1|m1a|m1r|m2)_[\w+/-]{43,}|fio-u-[\w=-]{64}|gl(?:cbt|dt|ffct|ft|imt|agent|oas|ptt|rt|soat)-[\w-]{20,}"
    r"|GR1348941[\w-]{20}|glc_[\w+/]{32,}|glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}|HRKU-AA[\w-]{58}|api_org_[A-Za-z]{34}"
    r"|ico-[a-zA-Z0-9]{32}|ntn_\d{11}\w{35}|secret_[A-Za-z0-9]{43}|sha256~[\w-]{43}|pplx-[a-zA-Z0-9]{48}"
    r"|pscale_(?:tkn|oauth|pw)_[\w=.-]{32,64}|PMAK-[a-fA-F0-9]{24}-[a-fA-F0-9]{34}|pnu_[a-zA-Z0-9]{36}|pul-[a-f0-9]{40}"
    r"|rdme_[a-z0-9]{70}|rubygems_[a-f0-9]{48}|tk-us-[\w-]{48}|xkeysib-[a-f0-9]{64}-\w{16}|sntryu_[a-f0-9]{64}"
    r"|sm_[aps]at_[a-zA-Z0-9]{16}|shippo_(?:live|test)_[a-fA-F0-9]{40}|shp(?:ca|pa|ss)_[a-fA-F0-9]{32}"
    r"|sgp_(?:[a-fA-F0-9]{16}_|local_)?[a-fA-F0-9]{40}|sq0(?:atp|csp)-[\w-]{22,60}|(?:sk|rk)_prod_\w{10,}"
    r"|SK[0-9a-f]{32}|hv[bs]\.[\w-]{90,}|FlyV1 [\w+/-]{40,}|[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"
)
"""Beginnings and lengths of tokens as issuers make them: facts of the rules of gitleaks, commit b58d3f10 (MIT)."""
NOT_SEEDS: Final = frozenset(
    ["the", "and", "for", "not", "was", "but", "has", "are", "our", "his", "her", "its"]
)
"""Words of prose that no list of seed words holds."""


def _seed(found: re.Match[str]) -> Spot | None:
    """The words of a seed phrase, unless they are prose."""
    words = found["it"].split()
    return None if NOT_SEEDS.intersection(words) or len(set(words)) < 10 else found.span("it")


RULES: Final = (
    Rule(
        "private-key",
        lazy(
            r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        words=("-----begin",),
    ),
    Rule("token", words=("eyj",), pattern=lazy(r"(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")),
    Rule(
        "api-key",
        lazy(
            r"(?<![A-Za-z0-9_])(?:sk-(?:ant-|proj-|live-|test-)?[\w-]{20,}|(?:sk|pk|rk)_(?:live|test)_\w{16,}"
            r"|gh[pousr]_\w{36,}|github_pat_\w{50,}|glpat-[\w-]{20,}|xox[abeprs]-[\w-]{10,}|xapp-[\w-]{20,}"
            r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])|AIza[\w-]{35}|ya29\.[\w-]{20,}|npm_\w{36}|pypi-[\w-]{50,}"
            r"|hf_\w{30,}|SG\.[\w-]{20,}\.[\w-]{20,}|dop_v1_\w{60,}|shpat_\w{32}|whsec_\w{24,}|dckr_pat_[\w-]{20,}"
            r"|lin_api_\w{32,}|sntrys_[\w=]{20,}|tskey-\w+-[\w-]{16,}|ATATT3x[\w=-]{40,}|AGE-SECRET-KEY-1[0-9A-Z]{50,}"
            r"|" + ISSUED_BY + ")"
        ),
    ),
    Rule("api-key", words=(":a",), pattern=lazy(r"(?:(?<=bot)|(?<![\w-]))\d{5,16}:A[\w-]{34}(?![\w-])")),
    Rule(
        "secret",
        lazy(
            r"(?i)\b(?:seed|recovery|mnemonic|wallet)(?:[ -](?:seed|phrase|words?|backup|key)){0,3}[ \t]{0,4}"
            r"(?:is|are|was|=|:|-){0,2}\s{0,4}[\"'`]?(?P<it>(?-i:[a-z]{3,8}(?:[ ,\n]{1,4}[a-z]{3,8}){11,23}))\b"
        ),
        _seed,
        ("seed", "recovery", "mnemonic", "wallet"),
    ),
    Rule("api-key", words=("hooks.slack",), pattern=lazy(r"(?<=hooks\.slack\.com/services/)\w+/\w+/\w{16,}")),
    Rule("api-key", words=("/webhooks/",), pattern=lazy(r"(?<=\.com/api/webhooks/)\d{15,20}/[\w-]{30,}")),
    Rule(
        "bearer",
        lazy(
            r"(?i)\b(?:authorization\\?[\"']?[ \t]{0,4}[:=][ \t]{0,4}\\?[\"']?"
            r"(?:(?:basic|bearer|token|apikey|api-key|digest|negotiate)[ \t]{1,4})?|bearer[ \t]{1,4}(?=[\w.~+/-]{16}))"
            r"(?P<it>[\w.~+/-]{8,}={0,3})"
        ),
        _random,
        ("authorization", "bearer"),
    ),
    Rule("password", words=("://",), pattern=lazy(r"(?<=\w://)[^\s:@/\"'<>]{0,64}:[^\s@/\"'<>]{1,256}(?=@)")),
    Rule(
        "password",
        words=("curl",),
        pattern=lazy(
            r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"']{1,64}:(?P<it>[^\s\"'$\[][^\s\"'$]{2,255})"
        ),
    ),
    Rule(
        "password",
        words=("mysql", "login", "sshpass"),
        pattern=lazy(
            r"\b(?:mysql(?:dump|admin)?\b[^\n]{0,120}?\s-p"
            r"|(?:sshpass|(?:docker|podman|helm registry) login)\b[^\n]{0,120}?\s-p ?)"
            r"[\"']?(?P<it>[^\s$\"'\[-][^\s\"']{3,256})"
        ),
    ),
    Rule(
        "password",
        lazy(r"\blogin[ \t]{1,4}\S{1,64}[ \t]{1,4}password[ \t]{1,4}(?P<it>[^\s$<\[{]\S{3,256})"),
        _logged_in,
        ("login",),
    ),
    Rule(
        "token",
        lazy(
            r"(?i)(?<![\w-])(?:(?:j|php)?sess(?:ion)?(?:[_-]?id)?|(?:connect\.)?sid|csrf_?token|x-(?:amz|goog)-signature"
            r"|x-amz-security-token|sig(?:nature)?)=(?P<it>[\w.%~+/:-]{16,2048}={0,2})"
        ),
        _session,
        ("sess", "sid", "csrf", "sig", "x-amz"),
    ),
    Rule("password", ASSIGNED, _password, ("pass", "pwd", "kennwort", "contrase", "wachtwoord", "senha")),
    Rule("secret", ASSIGNED, _other, ("secret", "token", "credential", "key")),
    Rule("card", lazy(r"(?<![\w.-])\d(?:[ .-]?\d){12,18}(?![\w-])(?!\.\d)"), _card),
    Rule("iban", lazy(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"), _iban),
    Rule("iban", lazy(r"\b[a-z]{2}\d{2}[a-z0-9]{11,30}\b"), _iban),
    Rule(
        "email",
        lazy(
            r"(?<![\w.%+/-])(?!git@)[\w%+](?:[\w.%+-]{0,62}[\w%+-])?@(?:[A-Za-z0-9-]{1,63}\.){1,8}"
            r"(?!(?:mount|service|slice|socket|target|timer)\b)[A-Za-z]{2,24}(?![\w-])(?!:[\w/~.])(?!\.\w)"
        ),
    ),
    Rule("ssn", lazy(r"(?<![\w.-])(?!000|666|9)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])(?!\.\d)")),
    Rule(
        "phone",
        lazy(
            r"(?<![\w.@#/=-])(?P<it>\+[1-9]\d{0,2}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){1,4}"
            r"|\([2-9]\d{2}\) ?\d{3}[ .-]\d{4}|(?:1-)?[2-9]\d{2}([.-])\d{3}\2\d{4})(?![\w-])(?!\.\d)"
        ),
        _phone,
    ),
    Rule(
        "phone",
        lazy(
            r"(?<![\w.,@#/=:+-])(?<![\d,;:] )(?P<it>[2-9]\d{2} \d{3} \d{4}|0[1-9]\d{1,3}[ /-]\d{3,4}[ -]?\d{3,5})"
            r"(?![\w-])(?! ?[.,:;]? ?\d)"
        ),
        _phone,
    ),
    Rule(
        "phone",
        lazy(
            r"(?i)\b(?:phone|tel|telephone|telefon|mobile|mobil|cell|fax|whatsapp"
            r"|call(?= (?:me )?(?:at |on )?\(?[2-9]\d\d))"
            r"\b(?:(?: number| no)?[.:]?\s{0,2}(?:is |at |on |me ){0,2})(?P<it>\+?\(?\d[\d ()./-]{6,18}\d)(?![\w-])"
        ),
        _phone,
    ),
    Rule("ip-address", lazy(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w)(?!\.\d)"), _address),
)
"""The rules; an earlier one wins where two overlap."""


KINDS: Final = tuple(dict.fromkeys(rule.kind for rule in RULES))
"""Everything that can be looked for."""
SECRETS: Final = ("private-key", "token", "api-key", "bearer", "password", "secret")
"""Kinds that let somebody in."""
PERSONAL: Final = ("card", "iban", "email", "ssn", "phone")
"""Kinds that belong to a person."""
DEFAULT: Final = (*SECRETS, *PERSONAL)
"""All but addresses of machines."""
USUAL: Final = SECRETS
"""What every write takes out where nobody chose; personal data is taken out by choice."""
GROUPS: Final[dict[str, tuple[str, ...]]] = {"secrets": SECRETS, "personal": PERSONAL, "all": KINDS}
"""Names for several kinds at once."""
SETTING: Final = "redact/kinds"
"""The setting of a bank that says what is taken out where nobody says otherwise."""
REDACTED: Final = ("text", "title", "source", "domain", "tags", "metadata")
"""The fields of a memory that are looked at. Names by which it is found again (agent, scope, evidence) are not."""


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was taken out: what kind, and where it stood in the text without its private parts."""

    kind: str
    start: int
    end: int


class Redacted(msgspec.Struct, frozen=True, kw_only=True):
    """A text without its secrets, and what they were."""

    text: str
    found: tuple[Redaction, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that were found, each once."""
        return tuple(dict.fromkeys(redaction.kind for redaction in self.found))


_HIDDEN: Final = frozenset(
    "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2060\u2061\u2062\u2063\u2064\ufeff"
)
"""Characters that are not seen."""
_PLAINER: Final = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys((0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), 0x20),
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212, 0xFE63), 0x2D),
}
"""Full-width letters and signs, blanks and dashes that look like those of ASCII."""


def _as_seen(text: str) -> tuple[str, Callable[[int], int]]:
    """A text as a reader sees it, one character of ASCII for each that looks like it; and where each place was."""
    if text.isascii():
        return text, lambda place: place
    plain = text.translate(_PLAINER)
    if _HIDDEN.isdisjoint(plain):
        return plain, lambda place: place
    places = [place for place, character in enumerate(plain) if character not in _HIDDEN]
    places.append(len(plain))
    return "".join(plain[place] for place in places[:-1]), places.__getitem__


def redact(text: str, kinds: Iterable[str] = DEFAULT) -> Redacted:
    """A text with secrets and personal data replaced by `[kind]`, and `<private>` parts gone.

    >>> redact("write to ana@example.org").text
    'write to [email]'
    """
    kept = without_private(text)
    wanted = frozenset(kinds)
    seen, place = _as_seen(kept) if wanted else (kept, int)
    low = seen.casefold() if wanted else ""
    taken = bytearray(len(seen)) if wanted else bytearray()
    found: list[Redaction] = []
    for rule in RULES:
        if rule.kind not in wanted or (rule.words and not any(word in low for word in rule.words)):
            continue
        for start, end in _spots(rule, seen):
            if 1 in taken[start:end]:
                continue
            taken[start:end] = b"\1" * (end - start)
            found.append(Redaction(kind=rule.kind, start=place(start), end=place(end - 1) + 1))
    found.sort(key=lambda redaction: redaction.start)
    parts: list[str] = []
    at = 0
    for redaction in found:
        parts += [kept[at : redaction.start], f"[{redaction.kind}]"]
        at = redaction.end
    private = (Redaction(kind="private", start=0, end=0),) if kept != text else ()
    return Redacted(text="".join([*parts, kept[at:]]), found=(*private, *found))


def _spots(rule: Rule, text: str) -> Iterator[Spot]:
    """Where a rule finds something. What a name led to and is no secret may be a name itself: "secret password: …"."""
    at, named = 0, "it" in rule.pattern.groupindex
    while (match := rule.pattern.search(text, at)) is not None:
        spot = rule.look(match) if rule.look else match.span("it" if named else 0)
        at = max(match.end(), match.start() + 1)
        if spot is not None and spot[1] > spot[0]:
            yield spot
        elif rule.pattern is ASSIGNED:
            at = match.end("key")


def clean_kinds(field: str, value: object, default: Iterable[str] = DEFAULT) -> tuple[str, ...]:
    """The kinds that somebody asked for: yes, no, one, or several, groups among them.

    >>> clean_kinds("redact", ["email", "secrets"])[:2], clean_kinds("redact", False)
    (('email', 'private-key'), ())
    """
    if isinstance(value, bool):
        return tuple(default) if value else ()
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, Iterable) or isinstance(names, Mapping | bytes):
        raise WrongTypeError(
            f"{field} must be true, false, or kinds such as 'email' or 'secrets', got {type(value).__name__}",
            field=field,
        )
    known = (*GROUPS, *KINDS)
    asked = [clean_choice(field, name, known) for name in listed(field, names)]
    return tuple(dict.fromkeys(kind for name in asked for kind in GROUPS.get(name, (name,))))


def kinds_of(setting: object, usual: tuple[str, ...] = USUAL) -> tuple[str, ...]:
    """The kinds that a bank's setting names; the usual ones where it says nothing that can be understood."""
    if setting is None:
        return usual
    try:
        return clean_kinds(SETTING, setting, usual)
    except InvalidInputError:
        return usual


def redact_fields(
    given: Mapping[str, Any], kinds: Iterable[str], *, longest: int = 1 << 20
) -> tuple[dict[str, Any], dict[str, int]]:
    """The fields given to `remember` without secrets in any text, and how many of each kind there were.

    Private parts are counted here and taken out by the checks that follow, which say so where nothing is left. A text
    of more than `longest` characters is not read: those checks refuse it.
    """
    counts: Counter[str] = Counter()
    wanted = tuple(kinds)
    fields = dict(given)
    private = marked(fields)
    for name in REDACTED if wanted else ():
        value = fields.get(name)
        if value is None or (isinstance(value, str) and not value):
            continue
        if not isinstance(value, str):
            refuse_deep("what was given", value, DEEP + 1)
        fields[name] = _redacted(value, wanted, counts, longest)
    if private:
        refuse_deep("what was given", fields, DEEP + 1)
        counts["private"] += 1
    return fields, dict(counts)


def _redacted(value: Any, kinds: tuple[str, ...], counts: Counter[str], longest: int) -> Any:
    """A value with secrets replaced wherever it holds text, the value itself where there are none.

    Private marks stay for the checks to see, and what is no text, list or mapping is theirs to refuse.
    """
    if isinstance(value, str):
        if len(value) > longest and len(without_private(value)) > longest:
            return value
        done = redact(value, kinds)
        if not done.found:
            return value
        counts.update(one.kind for one in done.found if one.kind != "private")
        hidden = any(one.kind == "private" for one in done.found)
        return value if hidden and not done.text.strip() else done.text
    before = counts.total()
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        made: Any = {
            _redacted(key, kinds, counts, longest): _under(key, one, kinds, counts, longest)
            for key, one in pairs
        }
        return made if counts.total() > before else cast("Any", value)
    if isinstance(value, list | tuple | set | frozenset):
        made = [_redacted(one, kinds, counts, longest) for one in cast("list[Any]", value)]
        return made if counts.total() > before else cast("Any", value)
    return value


def _under(key: Any, value: Any, kinds: tuple[str, ...], counts: Counter[str], longest: int) -> Any:
    """A value under a key, which may say that it is a password."""
    if isinstance(key, str) and isinstance(value, str) and "\n" not in value and len(value) <= longest:
        lead = f'"{key}": "'
        for one in redact(f'{lead}{value}"', [kind for kind in kinds if kind in SECRETS]).found:
            if one.kind != "private" and (one.start, one.end) == (len(lead), len(lead) + len(value)):
                counts[one.kind] += 1
                return f"[{one.kind}]"
    return _redacted(value, kinds, counts, longest)
