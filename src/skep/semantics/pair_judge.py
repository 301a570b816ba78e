"""The comparer: what a later memory does to an earlier one, judged by a linear model over words and vectors.

    same         the later one says the same
    updates      the later one makes the earlier one outdated
    contradicts  both cannot hold, and neither says that something changed
    both         both hold (look-alikes included)

The write path, maintenance and recall ask here and nowhere else. `update_scores` ranks pairs for recall, `judge` and
`judge_many` give verdicts. Everything is a function of the texts and their vectors: nothing is stored or looked up.
`training/fit_judge.py` fits the weights on `training/data`; `training/JUDGE.md` says how good they are.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from skep.runtime import lazy
from skep.semantics.lexicon import MONTHS, NUMBER_WORDS, word_set
from skep.text.terms import SEVERAL as SEVERAL_VALUES
from skep.text.terms import STOP, stem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_DATA = os.path.join(os.path.dirname(__file__), "data")
WIDTH = 384
"""Width of the vectors that the weights were fitted for: those of the bundled encoder."""
LONGEST = 64
"""Words of a text that are compared; what follows them has no say."""
BATCH = 256
"""Pairs of one pass, which bounds the memory of a pass."""
_TOKEN = lazy(r"\w+(?:[.:'_/@-]\w+)*")
_SENTENCE_START = lazy(r"(?:^|[.!?:;]\s+|\n)[\"(]?(?=\w)")
WORD, CONTENT, NUMBER, NAME, DATE, SEVERAL = 1, 2, 4, 8, 16, 32
"""Bits that say what a word is: any word, not a stop word, a number, a name or identifier, a day or month, a relation
that holds several values ("speaks")."""
NEGATIONS = word_set(
    """no not never none nobody nothing neither nor cannot without avoid stop stopped
    nie nicht kein keine keinen nunca sin ni pas"""
)
_NUMBER_WORDS = {
    word: f"{value:g}" for word, value in NUMBER_WORDS.items() if 2 <= value <= 20 and value == int(value)
}
_CALENDAR = MONTHS | word_set(
    """sept monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays
    saturdays sundays mon tue wed thu fri sat sun"""
)


_SEVERAL_STEMS = frozenset(map(stem, SEVERAL_VALUES))


class Reading(NamedTuple):
    """One text taken apart: what the features of a pair are made of."""

    words: frozenset[int]
    """Hashes of its words as written, but for case."""
    stems: NDArray[np.int64]
    """Hashes of its stems, each once."""
    bits: NDArray[np.uint8]
    """What each of the stems is: the sum of WORD, CONTENT, NUMBER, NAME, DATE."""
    order: NDArray[np.int64]
    """The hashes of its stems in order, LONGEST of them."""
    first: int
    """The first stem that is not a stop word, as a hash."""
    negations: int
    known: NDArray[np.intp]
    """Columns of those of its words that have weights of their own."""
    opposites: frozenset[int]
    """The hashes of words that mean the opposite of one of its words."""


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    """Take a text apart."""
    import numpy as np

    text = text.replace("\u2019", "'")
    starts = {match.end() for match in _SENTENCE_START.finditer(text)}
    bits: dict[int, int] = {}
    order: list[int] = []
    words: set[int] = set()
    known: set[int] = set()
    first = negations = 0
    for match in _TOKEN.finditer(text):
        word = _word(match.group(), match.start() in starts)
        negations += word.negates
        if word.bits & CONTENT and not first:
            first = word.root
        bits[word.root] = bits.get(word.root, 0) | word.bits
        words.add(word.word)
        if word.column >= 0:
            known.add(word.column)
        order.append(word.root)
        if len(order) == LONGEST:
            break
    opposites = _opposites()
    return Reading(
        frozenset(words),
        np.fromiter(bits.keys(), np.int64, len(bits)),
        np.fromiter(bits.values(), np.uint8, len(bits)),
        np.array(order, np.int64),
        first,
        negations,
        np.fromiter(sorted(known), np.intp, len(known)),
        frozenset(each for root in bits if root in opposites for each in opposites[root]),
    )


class Word(NamedTuple):
    """One word taken apart; texts share most of their words."""

    word: int
    """The hash of the word but for case."""
    root: int
    """The hash of its stem."""
    bits: int
    negates: bool
    column: int
    """Of its own weights; -1 if it has none."""


@lru_cache(maxsize=1 << 15)
def _word(raw: str, opens: bool) -> Word:
    """Take one word apart; `opens` is true of the first of a sentence."""
    word = raw.casefold()
    bits, root = _kind(raw, word, opens=opens)
    negates = word in NEGATIONS or word.endswith("n't")
    return Word(
        zlib.crc32(word.encode()), zlib.crc32(root.encode()), bits, negates, _vocabulary().get(word, -1)
    )


def words_of(text: str) -> list[str]:
    """The words of a text as they are compared with the list of known words."""
    return [match.group().casefold() for match in _TOKEN.finditer(text.replace("\u2019", "'"))]


def _kind(raw: str, word: str, *, opens: bool) -> tuple[int, str]:
    """The bits of one word, and its stem."""
    if any(map(str.isdigit, word)):
        return WORD | CONTENT | NUMBER, word
    if word in _NUMBER_WORDS:
        return WORD | CONTENT | NUMBER, _NUMBER_WORDS[word]
    if word in _CALENDAR:
        return WORD | CONTENT | DATE, word[:3]
    root = stem(word) if word.isascii() and word.isalpha() else word
    if word in STOP or word in NEGATIONS or word.endswith("n't"):
        return WORD, root
    named = not raw[1:].islower() and len(raw) > 1 and raw[1:] != raw[1:].lower()
    named = named or (raw[0].isupper() and not opens) or not {"_", "/", ".", "@"}.isdisjoint(raw)
    return WORD | CONTENT | (NAME if named else 0) | (SEVERAL if root in _SEVERAL_STEMS else 0), root


FEATURES = (
    "shared", "shared_all", "cover_earlier", "cover_later", "one_shared", "two_shared", "three_shared",
    "numbers_both", "numbers_shared", "numbers_differ", "numbers_earlier", "numbers_later", "numbers_equal",
    "names_shared", "names_earlier", "names_later", "names_differ",
    "dates_shared", "dates_differ", "dates_earlier", "dates_later",
    "negation_earlier", "negation_later", "negation_both", "negation_parity",
    "first_word", "first_content", "prefix", "prefix_share", "suffix_share",
    "replaced_end", "replaced_middle", "replaced_start", "one_place", "two_places", "same_length",
    "reordered", "identical", "length_earlier", "length_later", "length_ratio", "short",
    "negation_x_shared", "numbers_x_shared", "names_x_shared", "dates_x_shared", "first_x_shared",
    "replaced_number", "replaced_name", "negation_alone", "contained", "elaborated", "subject_replaced", "subject_kept",
    "plain", "plain_subject", "plain_other_subject", "plain_number", "plain_negation", "plain_several", "several",
    "opposites", "plain_opposites", "plain_level", "plain_name", "plain_date", "one_number", "one_word", "early",
)  # fmt: skip
"""Names of the columns of `word_features`."""


class Table(NamedTuple):
    """The texts of some pairs, each once, as arrays."""

    bits: NDArray[np.uint8]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first: NDArray[np.int64]
    column: NDArray[np.intp]
    """The column of `bits` in which the first word stands that is not a stop word."""
    negations: NDArray[np.int64]
    known: NDArray[np.uint8]
    opposites: Sequence[frozenset[int]]
    words: Sequence[frozenset[int]]


def table_of(texts: Sequence[str]) -> Table:
    """Lay texts out as arrays with one row per text."""
    import numpy as np

    readings = [read(text) for text in texts]
    count = len(readings)
    sizes = np.array([len(each.order) for each in readings], np.int64)
    width = int(sizes.max(initial=1))
    left = np.full((count, width), -1, np.int64)
    right = np.full((count, width), -1, np.int64)
    known = np.zeros((count, max(1, len(_vocabulary()))), np.uint8)
    for row, each in enumerate(readings):
        size = len(each.order)
        left[row, :size] = each.order
        if size:
            right[row, -size:] = each.order
        known[row, each.known] = 1
    ids, columns = np.unique(np.concatenate([each.stems for each in readings]), return_inverse=True)
    bits = np.zeros((count, max(1, len(ids))), np.uint8)
    rows = np.repeat(np.arange(count), [len(each.stems) for each in readings])
    bits[rows, columns] = np.concatenate([each.bits for each in readings])
    first = np.array([each.first for each in readings], np.int64)
    return Table(
        bits,
        left,
        right,
        sizes,
        first,
        np.minimum(np.searchsorted(ids, first), max(0, len(ids) - 1)),
        np.array([each.negations for each in readings], np.int64),
        known,
        [each.opposites for each in readings],
        [frozenset(each.stems.tolist()) if each.opposites else frozenset[int]() for each in readings],
    )


def word_features(table: Table, one: NDArray[np.intp], other: NDArray[np.intp]) -> Floats:
    """The features of pairs of rows of a table (earlier, later); the columns are FEATURES."""
    import numpy as np

    mine, theirs = table.bits[one], table.bits[other]
    both = mine & theirs

    def count(bits: NDArray[Any]) -> Floats:
        return np.count_nonzero(bits, axis=1).astype(np.float32)

    def each(bit: int) -> Floats:
        return np.count_nonzero(table.bits & bit, axis=1).astype(np.float32)

    words, content, numbers, dates = (each(bit) for bit in (WORD, CONTENT, NUMBER, DATE))
    shared, shared_all = count(both & CONTENT), count(both & WORD)
    same_numbers, same_names, same_dates = (count(both & bit) for bit in (NUMBER, NAME, DATE))
    names_mine = count(mine & NAME & ~(theirs << 3))
    names_theirs = count(theirs & NAME & ~(mine << 3))
    overlap = shared / np.maximum(content[one] + content[other] - shared, 1)
    numbers_mine, numbers_theirs = numbers[one], numbers[other]
    numbers_differ = (numbers_mine > same_numbers) & (numbers_theirs > same_numbers)
    dates_differ = (dates[one] > same_dates) & (dates[other] > same_dates)
    names_differ = (names_mine > 0) & (names_theirs > 0)
    size, sizes = table.sizes[one], table.sizes[other]
    longest, shortest = np.maximum(np.maximum(size, sizes), 1), np.minimum(size, sizes)
    left = (table.left[one] == table.left[other]) & (table.left[one] >= 0)
    right = (table.right[one] == table.right[other]) & (table.right[one] >= 0)
    prefix = np.logical_and.accumulate(left, axis=1).sum(1)
    suffix = np.logical_and.accumulate(right[:, ::-1], axis=1).sum(1)
    suffix = np.minimum(suffix, shortest - prefix)
    replaced = longest - prefix - suffix
    few = (replaced <= 3) & (replaced > 0)
    level = size == sizes
    places = np.where(level, size - left.sum(1), 99)
    denied, denies = table.negations[one], table.negations[other]
    parity = (denied + denies) % 2 == 1
    subject = (table.first[one] == table.first[other]) & (table.first[one] != 0)
    pairs: list[tuple[int, int]] = list(zip(one.tolist(), other.tolist(), strict=True))
    opposed = np.array([not table.opposites[a].isdisjoint(table.words[b]) for a, b in pairs], bool)
    rows = np.arange(len(one))
    kept = ((mine[rows, table.column[other]] & CONTENT) > 0) & (table.first[other] != 0)
    left_alone = ((theirs[rows, table.column[one]] & CONTENT) > 0) & (table.first[one] != 0)
    plain = (2 * (prefix + suffix) >= longest) & (replaced > 0)
    several = count(both & SEVERAL) > 0
    single = (places == 1) & plain & ~several & ~parity
    all_shared = shared_all / np.maximum(words[one] + words[other] - shared_all, 1)
    columns = (
        overlap, all_shared, shared / np.maximum(content[one], 1), shared / np.maximum(content[other], 1),
        shared >= 1, shared >= 2, shared >= 3,
        (numbers_mine > 0) & (numbers_theirs > 0), same_numbers > 0, numbers_differ,
        (numbers_mine > 0) & (numbers_theirs == 0), (numbers_theirs > 0) & (numbers_mine == 0),
        (numbers_mine > 0) & (numbers_mine == same_numbers) & (numbers_theirs == same_numbers),
        np.minimum(same_names, 2), np.minimum(names_mine, 2), np.minimum(names_theirs, 2), names_differ,
        same_dates > 0, dates_differ, (dates[one] > 0) & (dates[other] == 0), (dates[other] > 0) & (dates[one] == 0),
        (denied > 0) & (denies == 0), (denies > 0) & (denied == 0), (denied > 0) & (denies > 0), parity,
        prefix > 0, subject, np.minimum(prefix, 4) / 4, prefix / longest, suffix / longest,
        few & (suffix == 0) & (prefix > 0), few & (suffix > 0) & (prefix > 0), few & (prefix == 0) & (suffix > 0),
        places == 1, places == 2, level,
        (all_shared == 1) & (replaced > 0), replaced == 0,
        np.minimum(size, 40) / 40, np.minimum(sizes, 40) / 40, np.log((sizes + 2) / (size + 2)), longest <= 6,
        parity * overlap, numbers_differ * overlap, names_differ * overlap, dates_differ * overlap, subject * overlap,
        few & numbers_differ, few & names_differ, parity & (overlap == 1),
        (shared == np.minimum(content[one], content[other])) & (shared > 0),
        (shared == content[one]) & (content[other] > shared), ~kept & ~left_alone, kept,
        plain, plain & subject, plain & ~subject, plain & numbers_differ, plain & parity, plain & several, several,
        opposed, opposed & plain, plain & level, plain & names_differ, plain & dates_differ,
        single & numbers_differ & (prefix >= 3), single & ~numbers_differ & (prefix >= 2), single & (prefix < 2),
    )  # fmt: skip
    return np.stack(columns, axis=1).astype(np.float32)


def cosine_features(cosine: Floats) -> Floats:
    """A cosine as a piecewise linear function."""
    import numpy as np

    return np.stack(
        [cosine, cosine**2, *(np.maximum(cosine - knot, 0) for knot in (0.3, 0.5, 0.7, 0.85))], 1
    ).astype(np.float32)


def vector_features(one: Floats, other: Floats) -> Floats:
    """The features of pairs of unit vectors: cosine, then products, differences, their sizes, and the later vector."""
    import numpy as np

    cosine = np.einsum("ij,ij->i", one, other)
    apart = one - other
    return np.concatenate(
        [cosine_features(cosine), one * other * 20, apart * 3, np.abs(apart) * 10, other * 4], 1
    )


def word_columns(earlier: Sequence[str], later: Sequence[str]) -> Floats:
    """Features of the words of pairs: `word_features`, then known words of only the later or only the earlier."""
    import numpy as np

    place = {text: row for row, text in enumerate(dict.fromkeys((*earlier, *later)))}
    table = table_of(list(place))
    one, other = (np.array([place[text] for text in texts], np.intp) for texts in (earlier, later))
    mine, theirs = table.known[one], table.known[other]
    return np.concatenate(
        [word_features(table, one, other), theirs & ~mine & 1, mine & ~theirs & 1], 1
    ).astype(np.float32)


KINDS = ("same", "updates", "contradicts", "both")
"""What a later text may do to an earlier one."""
LINK, VERDICT, HEADS = 0, slice(1, 5), 5
"""Rows of the weights: the soft score of an update, and one row per kind; the same rows follow for words alone."""
Reason = Literal["polarity", "negation", "antonym", "number", "value", "custom", "similarity"]
REASONS: tuple[str, ...] = get_args(Reason)
OPPOSITE = 0.6
"""Similarity from which memories of opposite explicit polarity contradict each other."""


@lru_cache(maxsize=1)
def _weights() -> Floats:
    """One row per head; the columns are those of words, of the cosine, of the vectors, and the bias."""
    import numpy as np

    return np.load(os.path.join(_DATA, "judge.npy")).astype(np.float32)


def update_scores(
    earlier: Sequence[str],
    later: Sequence[str],
    earlier_vectors: Floats | None = None,
    later_vectors: Floats | None = None,
) -> Floats:
    """The probability that the later text of each pair makes the earlier one outdated.

    The scores rank; they hide nothing. Of pairs that share a topic, scores from 0.7 on are right in two of three cases.

    Args:
        earlier: Texts, one per pair.
        later: The texts that were written after them, in the same order.
        earlier_vectors: The unit vectors of the bundled encoder for `earlier`, one row each. Without them, or where
            their width is another, words alone decide.
        later_vectors: The same for `later`.
    """
    import numpy as np

    found = np.empty(len(earlier), np.float32)
    weights = _weights()
    near = earlier_vectors is not None and later_vectors is not None and earlier_vectors.shape[-1] == WIDTH
    row = weights[LINK if near else HEADS + LINK]
    for start in range(0, len(earlier), BATCH):
        part = slice(start, start + BATCH)
        words = word_columns(earlier[part], later[part])
        logits = words @ row[: words.shape[1]] + row[-1]
        if near:
            assert earlier_vectors is not None
            assert later_vectors is not None
            columns = vector_features(earlier_vectors[part], later_vectors[part])
            logits += columns @ row[words.shape[1] : -1]
        found[part] = 1 / (1 + np.exp(-logits))
    return found


OUTPUTS, UPDATE = 5, 4
"""Columns of what a reader gives: log odds of the KINDS, which compete, then of an update, which stand alone."""
Reader = Callable[[Sequence[tuple[str, str]], "Floats"], "Floats"]
"""Reads pairs of texts, given what each is worth; see `pair_reader.BankReader`."""


class Pair(NamedTuple):
    """Two texts to judge, the earlier first."""

    earlier: str
    later: str
    similarity: float | None = None
    """Their cosine on the common scale; without it words alone decide."""
    polarity: int = 0
    """-1 where the writers marked one as for and the other as against."""


class Verdict(NamedTuple):
    """The effect of the later text of a pair on the earlier one, with its probability."""

    kind: str
    """One of KINDS."""
    probability: float
    """Of the kind; for `updates` and `contradicts`, of either of the two."""
    reason: Reason


def judge(earlier: str, later: str, similarity: float | None = None) -> Verdict:
    """The verdict on a pair: the effect of a later text on an earlier one.

    >>> judge("The archive opens at 9:00", "the archive opens at 9:00.").kind
    'same'
    """
    return judge_many([Pair(earlier, later, similarity)])[0]


def judge_many(pairs: Sequence[Pair], reader: Reader | None = None) -> list[Verdict]:
    """`judge` for many pairs at once. A reader has half of the say on pairs that it has read, or reads now."""
    found = [_certain(pair) for pair in pairs]
    open_ = [number for number, verdict in enumerate(found) if verdict is None]
    for start in range(0, len(open_), BATCH):
        part = open_[start : start + BATCH]
        for number, verdict in zip(part, _weighed([pairs[each] for each in part], reader), strict=True):
            found[number] = verdict
    return [verdict for verdict in found if verdict is not None]


def _certain(pair: Pair) -> Verdict | None:
    """The verdict where no weights are needed: opposite marks of the writers, the same statement, a question."""
    if pair.polarity < 0 and (pair.similarity is None or pair.similarity >= OPPOSITE):
        return Verdict("contradicts", 1.0, "polarity")
    if statement(pair.earlier) == statement(pair.later):
        return Verdict("same", 1.0, "similarity")
    if _asks(pair.earlier) or _asks(pair.later):
        return Verdict("both", 1.0, "similarity")
    return None


def _weighed(pairs: Sequence[Pair], reader: Reader | None) -> list[Verdict]:
    """The verdicts of the model, and of the reader where there is one.

    Where one word of a sentence is replaced, the similarity only tells how near the old and the new value are ("ruff",
    "flake8"); words alone decide then.
    """
    import numpy as np

    words = word_columns([pair.earlier for pair in pairs], [pair.later for pair in pairs])
    replaced = words[:, [FEATURES.index(name) for name in ("one_number", "one_word", "early")]].any(1)
    known = np.array([pair.similarity is not None for pair in pairs]) & ~replaced
    near = cosine_features(np.array([pair.similarity or 0.0 for pair in pairs], np.float32))
    size = words.shape[1]
    logits = np.empty((len(pairs), len(KINDS)), np.float32)
    for chosen, first in ((known, 0), (~known, HEADS)):
        rows = _weights()[first + VERDICT.start : first + VERDICT.stop]
        logits[chosen] = words[chosen] @ rows[:, :size].T + rows[:, -1]
        if not first:
            logits[chosen] += near[chosen] @ rows[:, size : size + near.shape[1]].T
    logits -= logits.max(1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(1, keepdims=True))
    if reader is not None:
        told = reader([pair[:2] for pair in pairs], 1 - np.exp(logits[:, -1]))[:, : len(KINDS)]
        read = ~np.isnan(told[:, 0])
        told -= told.max(1, keepdims=True)
        told -= np.log(np.exp(told).sum(1, keepdims=True))
        logits[read] = (logits[read] + told[read]) / 2
    chances = np.exp(logits)
    chances /= chances.sum(1, keepdims=True)
    reordered, parity, numbers, several = (
        words[:, FEATURES.index(name)] > 0
        for name in ("reordered", "negation_parity", "numbers_differ", "plain_several")
    )
    verdicts: list[Verdict] = []
    for row, (same, updates, contradicts, both) in enumerate(chances.tolist()):
        against = updates + contradicts
        if reordered[row] and same >= max(against, both):
            verdicts.append(Verdict("both", 1 - same, "similarity"))
        elif against >= both and not parity[row] and (several[row] or _adds(pairs[row])):
            verdicts.append(Verdict("both", against, "value"))  # who speaks French may speak German
        elif against >= max(same, both):
            reason: Reason = "negation" if parity[row] else "number" if numbers[row] else "value"
            verdicts.append(Verdict("updates" if updates >= contradicts else "contradicts", against, reason))
        elif same >= both:
            verdicts.append(Verdict("same", same, "similarity"))
        else:
            verdicts.append(Verdict("both", both, "similarity"))
    return verdicts


_OPENING = lazy(
    r"(?i)\s*(?:(?:note|reminder|fyi|info|important|remember|btw|by the way|for the record|please note)\b"
    r"[\s,:-]*(?:that\b)?\s*)+"
)
_MARK = lazy(r"[^\w\s.,;:!?'\"()\-\u2018\u2019\u201c\u201d\u2013\u2014`]|(?<![\w)])[-\u2013](?=\d)|\?")
FILLERS = word_set("a an the really very just also currently please actually")
"""Words without which a statement is the same."""


@lru_cache(maxsize=8192)
def statement(text: str) -> tuple[str, ...]:
    """A text without what does not change its meaning: case, punctuation, articles, fillers, "Note:" at its beginning.

    The words keep their order. Signs that do say something ("C++", "-5", "50 %") come last.

    >>> statement("By the way, the archive opens at nine!") == statement("Archive opens at 9")
    True
    """
    text = text.replace("\u2019", "'")
    opening = _OPENING.match(text)
    words = words_of(text[opening.end() :] if opening else text)
    told = [_NUMBER_WORDS.get(word, word) for word in words if word not in FILLERS]
    return (*(told or words), "", *sorted(_MARK.findall(text)))


def _adds(pair: Pair) -> bool:
    """True if one text says what the other says, and goes on before or after it."""
    one, other = (statement(text)[: -1 - len(_MARK.findall(text))] for text in (pair.earlier, pair.later))
    short, long = sorted((one, other), key=len)
    return long[: len(short)] == short or long[-len(short) :] == short


def _asks(text: str) -> bool:
    """True if a text is a question, which asserts nothing."""
    return text.rstrip().endswith(("?", "\uff1f"))


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, int]:
    """Words with weights of their own, by column: those that tell changes ("now", "instead", "moved")."""
    with open(os.path.join(_DATA, "judge_words.txt"), encoding="utf-8") as file:
        return {word: column for column, word in enumerate(file.read().split())}


@lru_cache(maxsize=1)
def _opposites() -> dict[int, tuple[int, ...]]:
    """Words that mean the opposite of another, as hashes of stems."""
    with open(os.path.join(_DATA, "opposites.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    return {
        zlib.crc32(one.encode()): tuple(zlib.crc32(each.encode()) for each in rest) for one, *rest in lines
    }


def opposites(one: str, other: str) -> bool:
    """True for two words of which one means the opposite of the other.

    >>> opposites("public", "private"), opposites("encrypted", "unencrypted"), opposites("staging", "production")
    (True, True, False)
    """
    if one in (f"un{other}", f"in{other}", f"non{other}") or other in (f"un{one}", f"in{one}", f"non{one}"):
        return True
    first, second = (zlib.crc32(stem(word.casefold()).encode()) for word in (one, other))
    return second in _opposites().get(first, ()) or first in _opposites().get(second, ())
