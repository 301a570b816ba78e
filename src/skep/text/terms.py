"""Terms: text to index terms, queries to the terms that are looked up, and about how many tokens a text takes. Pure.

Both sides fold alike: compatibility forms (NFKC), case and accents are removed, English words are stemmed, CJK
becomes single characters and pairs, emoji are terms of their own. Identifiers are kept whole *and* split, so that
`MemoryStore.recall` is found by itself, by `MemoryStore`, by `memory` and by `recall`. Whole identifiers are never
stemmed. Words repeat, so the terms of each blank-separated chunk are remembered in a bounded table; `Numbering`
does it for a bulk load, in C where the core is built.

Tokens are counted without a tokenizer. A text is cut as byte-pair tokenizers cut it before they merge; what a piece
of each kind and length takes on average is a table, worked out with the o200k vocabulary (`scripts/fit_tokens.py`).
Totals of chat, questions, encyclopaedia, commit messages and code were within 3.5 %; texts full of rare names are
undercounted (medical abstracts by 6 %, package descriptions by 9 %), JSON is overcounted by 6 %.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from skep import runtime
from skep.runtime import lazy

MEMO_ENTRIES = 1 << 16
"""Chunks remembered per side; the table is emptied when it is full."""
MEMO_CHARS = 48
"""Longer chunks are seldom seen twice."""
SPLIT_CHARS = 64
"""A single word longer than this (a key, a blob) is kept whole and not split."""

_STOP_WORDS = """
a about above after again all am an and any are arent as at be because been before being below between both
but by can cant could couldnt did didnt do does doesnt doing dont during each etc for from further had has
hasnt have havent having he her here hers herself him himself his how i if in into is isnt it its itself
just me more most my myself of off on once only or other our ours ourselves out over own same shall she
should shouldnt so some such than that the their theirs them themselves then there these they this those
through to too under until up us very was wasnt we were werent what when where which while who whom whose
why will with wont would wouldnt you your yours yourself yourselves
"""
STOP = frozenset(_STOP_WORDS.split())
"""Words that carry no meaning of their own in a query. Negations stay: they do."""
_SEVERAL_WORDS = """
visit visited speak spoke like love enjoy hate know knew support meets met see saw read watch play buy bought eat ate
try tried travel write wrote learn study include includes contain add added allergic allergy intolerant interested
fluent
"""
SEVERAL = frozenset(_SEVERAL_WORDS.split())
"""Words of relations that hold several values at a time: who is allergic to nuts may be allergic to pollen too."""
_SINGLE_WORDS = "favourite favorite only main current currently default preferred primary now anymore"
SINGLE = frozenset(_SINGLE_WORDS.split())
"""Words that leave room for one value whatever the relation."""

FAILED = frozenset(
    ["failed", "fails", "failing", "crashed", "crashes", "crashing", "errored", "threw", "aborted", "hung"]
)
"""Words that tell that something went wrong."""

_CJK = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3040-\u30ff"
    "\u3105-\u312f\u3130-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Scripts written without blanks between words (and Hangul, whose endings bigrams see through)."""
_PICTURES = (
    "\u2190-\u245f\u2500-\u2bff\u3030\u303d\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
_FLAGS = "\U0001f1e6-\U0001f1ff"
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0dff\u0f00-\u0fff"
)
"""Combining marks and scripts whose vowels are marks; `\\w` alone would cut words there."""
_WORD = rf"[\w{_MARKS}]"

_BEFORE, _AFTER = "([{<\"'`*", ")]}>\"'`*.,:;!?"
"""Marks that may stand around a plain word without making it anything else."""


def _blanked(marks: str) -> dict[int, str]:
    """A table for `str.translate` after which a text falls apart at these marks; chunks have no blanks of their own."""
    return dict.fromkeys(map(ord, marks), " ")


_AROUND = "".join(chr(point) for point in range(128) if not (chr(point).isalnum() or point == ord("_")))
"""The marks that `_edges` takes away where a text is plain ASCII."""
_SIGILS = frozenset("#@$.-")
"""Without any of these `_sigil` finds nothing."""

_special = lazy(rf"[{_CJK}]+|[{_FLAGS}]{{2}}|[{_PICTURES}{_FLAGS}]")
_cjk = lazy(rf"[{_CJK}]")
_pieces = _blanked('()[]{}<>"`|;,!*^¡¿«»“”„‹›、。，；！？（）「」…—–')
_edges = lazy(rf"^(?:(?!{_WORD}).)+|(?:(?!{_WORD}).)+$", re.DOTALL)
_sigil = lazy(rf"[^\w{_MARKS}]*?([#@$]|(?<!\.)\.|--?)(?={_WORD})")
_sharp = lazy(r"[A-Za-z]{1,2}(?:\+\+|#)(?!\w)")
_thousands = lazy(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?$")
_version = lazy(r"[vV]?\d+(?:\.\d+)+$")
_levels = tuple(map(_blanked, ("?&=#:@%$", "/\\~", ".-+'·‐‑")))
"""The separators in a name, an address or a path, from the outside in."""
_ticket = lazy(r"(?<=\w)#\d+\b")
_humps = lazy(rf"(?<=[a-z{_MARKS}])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_mixed = lazy(r"(?:([^\W\d_]+)(\d+)|(\d+)([^\W\d_]+))$")
_clitic = lazy(r"'(?:s|ll|re|ve|d|m)$", re.IGNORECASE)
_negated = lazy(r"[a-z]+n't$", re.IGNORECASE)
_plain = lazy(r"[a-z]+$")
_accents = lazy("[\u0300-\u036f]+")
_ignored = dict.fromkeys([0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2060, 0x2065), 0xFEFF])
_ignored |= dict.fromkeys([*range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400), 0x20E3])
_letters = str.maketrans(
    {
        "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "æ": "ae", "Æ": "Ae",
        "œ": "oe", "Œ": "Oe", "þ": "th", "Þ": "Th", "ħ": "h", "Ħ": "H", "ŧ": "t", "Ŧ": "T", "ı": "i",
        "’": "'", "‘": "'", "ʼ": "'", "′": "'",
    }
    | {chr(point): None for point in _ignored}
)  # fmt: skip


def terms(text: str) -> list[str]:
    """The terms under which a text is found, with repetitions, in order.

    >>> terms("Deployed foo_bar in PR #441")
    ['deploi', 'foo_bar', 'foo', 'bar', 'in', 'pr', '#441', '441']
    """
    return joined_terms(text).split()


def joined_terms(text: str) -> str:
    """The terms of a text with blanks between them; no term has one inside.

    >>> joined_terms("Deployed the store")
    'deploi the store'
    """
    return " ".join(map(_indexed.__getitem__, chunks(text)))


def joined_chunk(chunk: str) -> str:
    """The same, of one of the `chunks` of a text.

    >>> [joined_chunk(chunk) for chunk in chunks("the foo_bar")]
    ['the', 'foo_bar foo bar']
    """
    return _indexed[chunk]


def analysed(chunk: str) -> str:
    """The same, for whoever remembers it: only the latest ones are remembered here."""
    return _latest(chunk) if len(chunk) <= MEMO_CHARS else " ".join(_analyse(chunk, query=False))


@lru_cache(maxsize=1 << 12)
def _latest(chunk: str) -> str:
    """The terms of a chunk; a text that is written is often looked at soon after."""
    return " ".join(_analyse(chunk, query=False))


def query_terms(text: str) -> list[str]:
    """The distinct terms to look up for a query; stop words only when there is nothing else.

    >>> query_terms("who deployed the store?"), query_terms("Who is it?")
    (['deploi', 'store'], ['who', 'is', 'it'])
    """
    easy = _asked(text)
    if easy is not None:
        return easy
    found = list(dict.fromkeys(" ".join(map(_queried.__getitem__, chunks(text))).split()))
    return [term for term in found if term not in STOP] or found


def term_sets(queries: Sequence[str], texts: Sequence[str]) -> tuple[list[set[str]], list[set[str]]]:
    """The distinct terms of some queries, and of some texts.

    >>> term_sets(["the store?"], ["The store"])[0]
    [{'store'}]
    """
    return [set(query_terms(query)) for query in queries], [set(terms(text)) for text in texts]


def fold(text: str) -> str:
    """Text without case, accents and compatibility forms. Folding twice changes nothing.

    >>> fold("Čeština ＦＵＬＬ Straße")
    'cestina full strasse'
    """
    if text.isascii():
        return text.lower()
    for _ in range(4):
        before, text = text, _compose(_compose(text).casefold())
        if text == before:
            break
    return text


def _compose(text: str) -> str:
    """NFKC, without accents, invisible characters and typographic apostrophes; case stays, for camelCase."""
    from unicodedata import normalize

    apart = normalize("NFKD", text.translate(_letters))
    return normalize("NFKC", _accents.sub("", apart.translate(_letters)))


def chunks(text: str) -> list[str]:
    """The parts of a text between blanks; each has its terms, whatever stands beside it."""
    return (text if text.isascii() else _compose(text)).split()


class _Memo(dict[str, str]):
    """The terms of chunks already seen, with blanks between them; bounded by being emptied when full."""

    def __init__(self, *, query: bool) -> None:
        super().__init__()
        self.query = query

    def __missing__(self, chunk: str) -> str:
        found = _indexed.get(chunk) if self.query and chunk.isascii() else None  # the same on both sides
        if found is None:
            found = _easy(chunk)
        if found is None:
            found = " ".join(_analyse(chunk, query=self.query))
        if found == chunk:
            found = chunk  # one text instead of two
        if len(chunk) <= MEMO_CHARS:
            if len(self) >= MEMO_ENTRIES:
                self.clear()
            self[chunk] = found
        return found


def _never(_text: str) -> None:
    return None


def _compiled() -> tuple[Callable[[str], str | None], Callable[[str], list[str] | None]]:
    """For the commonest chunks, which have the same terms on both sides, and for questions of such; None for others."""
    if runtime.native is None:
        return _never, _never
    cutter = runtime.native.Cutter(analysed, chunks, STOP, hash("chunks"))
    return cutter.easy, cutter.asked


_easy, _asked = _compiled()
_indexed = _Memo(query=False)
_queried = _Memo(query=True)


def _analyse(chunk: str, *, query: bool) -> list[str]:
    """Every term of one chunk of composed text that has no blank inside."""
    if chunk.isascii():
        return _words(chunk)
    out: list[str] = []
    position = 0
    for match in _special.finditer(chunk):
        out += _words(chunk[position : match.start()])
        out += _grams(match.group(), query=query)
        position = match.end()
    return out + _words(chunk[position:])


def _grams(run: str, *, query: bool) -> list[str]:
    """Pairs of neighbours; on the index side also the single characters, so that one character is a query."""
    if not _cjk.match(run):
        return [run]
    run = fold(run)
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    return pairs if query and pairs else [*run, *pairs]


def _words(chunk: str) -> list[str]:
    """The terms of a chunk of letters, digits and punctuation."""
    bare = chunk.lstrip(_BEFORE).rstrip(_AFTER)
    if bare.isalpha() and (bare[1:].islower() or len(bare) == 1):
        return [_word(bare)]
    if "," in chunk and _thousands.match(chunk):
        chunk = chunk.replace(",", "")
    out: list[str] = []
    for piece in chunk.translate(_pieces).split():
        _piece(piece, out)
    return out


def _piece(piece: str, out: list[str]) -> None:
    """One stretch without brackets, quotes and commas: a word, an identifier, a path or an address."""
    sharp = _sharp.search(piece) if "#" in piece or "+" in piece else None
    if sharp:
        out.append(fold(sharp.group()))
    sigil = _sigil.match(piece) if not _SIGILS.isdisjoint(piece) else None
    if sigil and sigil.group(1) != "-":
        tail = _core(piece[sigil.end() :])
        out.append(fold(sigil.group(1) + tail))
    if "#" in piece:
        out += _ticket.findall(piece)
    core = _core(piece)
    core = core.partition("://")[2] or core
    if core.isalnum():
        _atom(core, out)
    elif core:
        _split(core, 0, out)


def _core(piece: str) -> str:
    """A stretch without what stands around its words."""
    return piece.strip(_AROUND) if piece.isascii() else _edges.sub("", piece)


def _split(core: str, level: int, out: list[str]) -> None:
    """The whole, if it is made of parts, and then its parts."""
    if core.isalnum():
        _atom(core, out)
        return
    if level == 2 and "'" in core:
        core = _clitic.sub("", core)
        if _negated.match(core):
            out.append(_word(core.replace("'", "")))
            return
    if "." in core and _version.match(core):
        _number(core, out)
        return
    if level == len(_levels):
        _atom(core, out)
        return
    parts = core.translate(_levels[level]).split()
    if len(parts) > 1:
        out.append(_joined(core) if level == 2 else fold(core.strip("/")))
    for part in parts:
        _split(part, level + 1, out)


def _joined(core: str) -> str:
    """A dotted or digit-bearing name as it stands; hyphenated words in one (`e-mail` is `email`)."""
    if "." in core or "+" in core or any(map(str.isdigit, core)):
        return fold(core)
    return _word(re.sub(r"[\-'·‐‑]+", "", core))


def _number(core: str, out: list[str]) -> None:
    """A version or a decimal, whole and by its leading parts, with and without the v; a long one is kept whole."""
    whole = core.lower()
    out.append(whole)
    if len(whole) > SPLIT_CHARS:  # every leading part of all would be more than anybody can store
        return
    bare = whole.lstrip("v")
    if bare != whole:
        out.append(bare)
    while "." in bare:
        bare = bare.rpartition(".")[0]
        out.append(bare)


def _atom(atom: str, out: list[str]) -> None:
    """One run of word characters: a word, or a name in snake_case, camelCase or with digits."""
    if len(atom) > SPLIT_CHARS:
        out.append(fold(atom))
        return
    runs = [run for run in atom.split("_") if run]
    if len(runs) > 1 or (runs and atom.startswith("__") and atom.endswith("__")):
        out.append(fold(atom if atom.startswith("__") else atom.strip("_")))
    for run in runs:
        humps = [run] if run.isascii() and run[1:].lower() == run[1:] else _humps.split(run)
        if len(humps) > 1:
            out.append(fold(run))
            if run.isalpha() and (stemmed := _word(run)) != out[-1]:
                out.append(stemmed)
        for hump in humps:
            _part(hump, out)


def _part(part: str, out: list[str]) -> None:
    mixed = None if part.isalpha() else _mixed.match(part)
    if mixed:
        out.append(fold(part))
        out += (_word(each) for each in mixed.groups() if each)
    else:
        out.append(_word(part))


def _word(word: str) -> str:
    """A word folded and, where it is plain English, stemmed."""
    word = fold(word)
    return _easy(word) or stem(word) if _plain.match(word) and word not in STOP else word


def stem(word: str) -> str:
    """Porter's stem of a lower-case English word.

    >>> [stem(word) for word in ("memories", "memory", "deploying", "relational")]
    ['memori', 'memori', 'deploi', 'relat']
    """
    if len(word) <= 2 or word[-1] in _KEPT:
        return word
    return _final_e(_residual(_short_suffix(_long_suffix(_final_y(_past(_plural(word)))))))


_KEPT = frozenset("abfhjkopqvwxz")
"""No suffix that Porter knows ends in one of these."""
_LONG = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble",
    "alli": "al", "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate",
    "alism": "al", "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive",
    "biliti": "ble", "logi": "log",
}  # fmt: skip
_SHORT = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_RESIDUAL = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou", "ism", "ate",
    "iti", "ous", "ive", "ize", "sion", "tion",
)  # fmt: skip
_long, _short, _rest = (tuple(sorted(table, key=len, reverse=True)) for table in (_LONG, _SHORT, _RESIDUAL))
_vowels = str.maketrans("abcdefghijklmnopqrstuvwxyz", "vcccvcccvcccccvcccccvcccyc")
_y_vowel = lazy("cy")


def _shape(part: str) -> str:
    """Vowels as v, consonants as c; y is a vowel after a consonant."""
    shape = part.translate(_vowels)
    return _y_vowel.sub("cv", shape).replace("y", "c") if "y" in shape else shape


def _measure(part: str) -> int:
    return _shape(part).count("vc")


def _short_syllable(part: str) -> bool:
    return _shape(part[-3:]) == "cvc" and part[-1] not in "wxy"


def _plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us")) else word


def _past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    cut = 2 if word.endswith("ed") else 3 if word.endswith("ing") else 0
    if not cut or "v" not in _shape(word[:-cut]):
        return word
    word = word[:-cut]
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and word[-1] not in "aeioulsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _short_syllable(word) else word


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and "v" in _shape(word[:-1]) else word


def _suffix(word: str, endings: tuple[str, ...]) -> str:
    """The longest of the endings that the word has, or nothing."""
    if not word.endswith(endings):
        return ""
    return next(ending for ending in endings if word.endswith(ending))


def _long_suffix(word: str) -> str:
    ending = _suffix(word, _long)
    root = word[: -len(ending)]
    return root + _LONG[ending] if ending and _measure(root) else word


def _short_suffix(word: str) -> str:
    ending = _suffix(word, _short)
    root = word[: -len(ending)]
    return root + _SHORT[ending] if ending and _measure(root) else word


def _residual(word: str) -> str:
    ending = _suffix(word, _rest)
    root = word[: -len(ending)] + (ending[0] if ending in ("sion", "tion") else "")
    return root if ending and _measure(root) > 1 else word


def _final_e(word: str) -> str:
    if word.endswith("e"):
        size = _measure(word[:-1])
        if size > 1 or (size == 1 and not _short_syllable(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


Counter = Callable[[str], int]
_UPPER, _LOWER = "A-Z\u00c0-\u00d6\u00d8-\u00de", "a-z\u00df-\u00f6\u00f8-\u024f"
_ENDING = "(?:'(?:[sdmtSDMT]|ll|ve|re)(?![A-Za-z]))?"
PIECES = lazy(
    rf"(?:[^\w\r\n]|_)?(?:[{_UPPER}]*[{_LOWER}]+|[{_UPPER}]+){_ENDING}|[^\W\d_]+|\d{{1,3}}"
    r"| ?(?:[^\w\s]|_)+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LONGEST = 16
"""Words of so many letters and more are paid for by the letter."""
FAR, PICTURES = "\u2e80", "\U0001f000"
"""The first letters of scripts without an alphabet, and of pictures."""
PRICES: dict[str, tuple[float, ...]] = {
    " l": (1.00, 1.00, 1.01, 1.01, 1.02, 1.05, 1.06, 1.08, 1.13, 1.15, 1.24, 1.29, 1.32, 1.46, 1.85, 0.17),
    " m": (1.00, 1.00, 1.59, 1.70, 1.90, 1.90, 1.97, 2.19, 2.33, 2.47, 2.47, 2.47, 2.58, 2.70, 2.70, 0.16),
    " t": (1.00, 1.01, 1.04, 1.06, 1.14, 1.18, 1.26, 1.35, 1.44, 1.52, 1.66, 1.66, 1.75, 1.75, 2.52, 0.19),
    " u": (1.00, 1.02, 1.25, 1.41, 1.61, 1.61, 1.61, 1.94, 1.95, 1.98, 2.17, 2.17, 2.17, 2.17, 2.17, 0.36),
    "_l": (1.02, 1.08, 1.23, 1.25, 1.29, 1.32, 1.54, 1.73, 1.88, 2.10, 2.17, 2.38, 2.70, 2.78, 3.35, 0.23),
    "_m": (1.00, 1.00, 2.40, 2.40, 2.40, 2.67, 2.81, 2.92, 3.29, 3.29, 3.29, 3.29, 3.59, 3.59, 3.59, 0.12),
    "_t": (1.00, 1.34, 1.34, 1.56, 1.76, 1.79, 1.90, 2.05, 2.30, 2.46, 2.50, 2.50, 2.50, 3.42, 4.35, 0.31),
    "_u": (1.03, 1.31, 1.52, 1.52, 1.60, 1.84, 2.12, 2.25, 2.25, 2.61, 3.07, 3.20, 4.22, 4.22, 4.22, 0.27),
    "xl": (1.00, 1.00, 1.07, 1.12, 1.13, 1.31, 1.43, 1.63, 1.74, 1.82, 1.82, 1.82, 1.82, 3.09, 3.09, 0.24),
    "xm": (1.00, 1.00, 1.96, 2.17, 2.19, 2.50, 2.50, 2.57, 2.57, 2.74, 2.90, 3.03, 3.03, 3.03, 3.03, 0.15),
    "xt": (1.00, 1.05, 1.05, 1.07, 1.07, 1.10, 1.15, 1.20, 1.26, 1.45, 1.45, 1.45, 1.45, 1.45, 1.98, 0.19),
    "xu": (1.00, 1.02, 1.41, 1.64, 1.73, 1.88, 1.88, 2.49, 2.49, 2.93, 2.93, 3.42, 3.42, 3.42, 3.42, 0.33),
}
"""Of words, by what stands before them and their capitals, then by length; the last price is for each letter."""
OTHER = {
    "number": 1.0, "blank": 1.0, "line": 1.17, "wide": 0.41, "far": 0.78, "sign": 1.0, "picture": 1.6,
    "marks 1": 1.0, "marks 2": 1.03, "marks 3": 1.22, "marks 4": 1.7, "marks 5": 2.06, "marks 6": 3.46,
}  # fmt: skip
"""Of the rest; for each letter or sign where it is not ASCII."""


def count_tokens(text: str) -> int:
    """About how many tokens a text takes; 0 only for an empty text.

    >>> count_tokens("The staging database runs PostgreSQL 16 on port 5433.")
    15
    """
    return math.ceil(sum(map(_price, PIECES.findall(text))) - 1e-9) or int(bool(text))


def kind_of(piece: str) -> tuple[str, int]:
    """The kind of a piece, and how many units of it there are: one, or its signs where each has a price.

    Words are told apart by what comes before them (a blank, a mark, or nothing), by their capitals and by their length.

    >>> kind_of(" word"), kind_of("_HTTP"), kind_of("123"), kind_of("\\n")
    ((' l04', 1), ('_u04', 1), ('number', 1), ('blank', 1))
    """
    first, last = piece[0], piece[-1]
    if first.isdigit():
        return "number", 1
    if piece.isspace():
        return "blank", 1
    if last.isalpha():
        word = piece if first.isalpha() else piece[1:]
        before = "x" if first.isalpha() else " " if first == " " else "_"
        word = word.partition("'")[0]
        if not word.isascii():
            return ("far" if max(word) >= FAR else "wide"), len(word)
        shape = "l" if word.islower() else "u" if word.isupper() else "t" if word[1:].islower() else "m"
        size = len(word)
        return (f"{before}{shape}{size:02d}", 1) if size < LONGEST else (f"{before}{shape}{LONGEST}", size)
    marks = piece.strip()
    if not marks.isascii():
        return ("picture" if max(marks) >= PICTURES else "sign"), len(marks)
    if len(marks) > 2 and len(set(marks)) == 1:
        return "line", 1
    return f"marks {min(len(marks), 6)}", 1


@lru_cache(maxsize=1 << 14)
def _price(piece: str) -> float:
    kind, units = kind_of(piece)
    row = PRICES.get(kind[:2])
    return (OTHER[kind] if row is None else row[int(kind[2:]) - 1]) * units


class Cut(NamedTuple):
    """Some texts, cut up."""

    terms: list[str]
    """Per text its terms, joined by blanks; empty where they were not asked for."""
    sizes: array[int]
    """Per text, how many chunks it has."""
    chunks: array[int]
    """The chunks of all texts, as numbers."""


class Numbering(Protocol):
    """Chunks numbered in order of appearance."""

    def __len__(self) -> int:
        """The number of different ones."""
        ...

    def cut(self, texts: Sequence[str], *, joined: bool = True) -> Cut:
        """Cut up some texts; give their terms too, if they are to be `joined`."""
        ...

    def terms(self) -> Iterable[str]:
        """Per number the terms of the chunk, joined by blanks."""
        ...


class PlainNumbering(dict[str, int]):
    """In Python."""

    def __init__(self) -> None:
        super().__init__()
        self._terms: list[str] = []

    def __missing__(self, chunk: str) -> int:
        terms = joined_chunk(chunk)
        number = len(self)
        del self._terms[number:]  # what an interrupt has left between the two lines below
        self._terms.append(terms)
        self[chunk] = number
        return number

    def cut(self, texts: Sequence[str], *, joined: bool = True) -> Cut:
        """See `Numbering`."""
        done = Cut([], array("I"), array("I"))
        number, term = self.__getitem__, self._terms.__getitem__
        for text in texts:
            found = list(map(number, chunks(text)))
            if joined:
                done.terms.append(" ".join(map(term, found)))
            done.sizes.append(len(found))
            done.chunks.extend(found)
        return done

    def terms(self) -> list[str]:
        """See `Numbering`."""
        return self._terms[: len(self)]


class CompiledNumbering:
    """In C: the same numbers and the same terms. What is no plain word is asked of `skep.text.terms`."""

    def __init__(self) -> None:
        # Python's own hash differs from process to process, so that nobody can choose words that collide.
        self._cutter = runtime.native.Cutter(analysed, chunks, STOP, hash("chunks"))

    def __len__(self) -> int:
        return len(self._cutter)

    def cut(self, texts: Sequence[str], *, joined: bool = True) -> Cut:
        """See `Numbering`."""
        terms, sizes, numbers = self._cutter.cut(list(texts), joined)
        return Cut(terms, array("I", sizes), array("I", numbers))

    def terms(self) -> Iterable[str]:
        """See `Numbering`; one at a time, as all of them together would take several megabytes."""
        return iter(self._cutter)


def numbering() -> Numbering:
    """None are known yet."""
    return PlainNumbering() if runtime.native is None else CompiledNumbering()
