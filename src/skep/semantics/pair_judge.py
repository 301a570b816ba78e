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
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from skep.runtime import lazy
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
WORD, CONTENT, NUMBER, NAME, DATE = 1, 2, 4, 8, 16
"""Bits that say what a word is: any word, not a stop word, a number, a name or identifier, a day or month."""
NEGATIONS = frozenset(
    """no not never none nobody nothing neither nor cannot without avoid stop stopped
    nie nicht kein keine keinen nunca sin ni pas""".split()
)
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        """two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
        eighteen nineteen twenty""".split(),
        2,
    )
}
_CALENDAR = frozenset(
    """january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday
    mondays tuesdays wednesdays thursdays fridays saturdays sundays mon tue wed thu fri sat sun""".split()
)


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


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    """Take a text apart."""
    import numpy as np

    text = text.replace("\u2019", "'")
    starts = {match.end() for match in _SENTENCE_START.finditer(text)}
    columns = _vocabulary()
    bits: dict[int, int] = {}
    order: list[int] = []
    words: set[int] = set()
    known: set[int] = set()
    first = negations = 0
    for match in _TOKEN.finditer(text):
        raw = match.group()
        word = raw.casefold()
        here, root = _kind(raw, word, opens=match.start() in starts)
        if word in NEGATIONS or word.endswith("n't"):
            negations += 1
        hashed = zlib.crc32(root.encode())
        if here & CONTENT and not first:
            first = hashed
        bits[hashed] = bits.get(hashed, 0) | here
        words.add(zlib.crc32(word.encode()))
        if word in columns:
            known.add(columns[word])
        order.append(hashed)
        if len(order) == LONGEST:
            break
    return Reading(
        frozenset(words),
        np.fromiter(bits.keys(), np.int64, len(bits)),
        np.fromiter(bits.values(), np.uint8, len(bits)),
        np.array(order, np.int64),
        first,
        negations,
        np.fromiter(sorted(known), np.intp, len(known)),
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
    plain = word.isascii() and word.isalpha()
    root = stem(word) if plain else word
    if word in STOP or word in NEGATIONS or word.endswith("n't"):
        return WORD, root
    named = not raw[1:].islower() and len(raw) > 1 and raw[1:] != raw[1:].lower()
    named = named or (raw[0].isupper() and not opens) or not {"_", "/", ".", "@"}.isdisjoint(raw)
    return WORD | CONTENT | (NAME if named else 0), root


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
    "replaced_number", "replaced_name", "negation_alone", "contained",
)  # fmt: skip
"""Names of the columns of `word_features`."""


class Table(NamedTuple):
    """The texts of some pairs, each once, as arrays."""

    bits: NDArray[np.uint8]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    sizes: NDArray[np.int64]
    first: NDArray[np.int64]
    negations: NDArray[np.int64]
    known: NDArray[np.uint8]


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
    return Table(
        bits,
        left,
        right,
        sizes,
        np.array([each.first for each in readings], np.int64),
        np.array([each.negations for each in readings], np.int64),
        known,
    )


def word_features(table: Table, one: NDArray[np.intp], other: NDArray[np.intp]) -> Floats:
    """The features of pairs of rows of a table (earlier, later); the columns are FEATURES."""
    import numpy as np

    mine, theirs = table.bits[one], table.bits[other]
    both = mine & theirs

    def count(bits: NDArray[np.uint8]) -> Floats:
        return np.count_nonzero(bits, axis=1).astype(np.float32)

    def each(bit: int) -> Floats:
        return np.count_nonzero(table.bits & bit, axis=1).astype(np.float32)

    words, content, numbers, names, dates = (each(bit) for bit in (WORD, CONTENT, NUMBER, NAME, DATE))
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
    """What the words of pairs say: `word_features`, then known words that only the later, or only the earlier, has."""
    import numpy as np

    place = {text: row for row, text in enumerate(dict.fromkeys((*earlier, *later)))}
    table = table_of(list(place))
    one, other = (np.array([place[text] for text in texts], np.intp) for texts in (earlier, later))
    mine, theirs = table.known[one], table.known[other]
    return np.concatenate(
        [word_features(table, one, other), theirs & ~mine & 1, mine & ~theirs & 1], 1
    ).astype(np.float32)


HEADS = ("link", "same", "updates", "contradicts", "both")
"""Rows of the weights: the soft score of an update, and the kinds of a verdict; again for pairs without vectors."""


@lru_cache(maxsize=1)
def _weights() -> Floats:
    """One row per head with vectors, then one per head without; the bias comes last."""
    import numpy as np

    return np.load(os.path.join(_DATA, "judge.npy")).astype(np.float32)


def _logits(
    earlier: Sequence[str], later: Sequence[str], earlier_vectors: Floats | None, later_vectors: Floats | None
) -> Floats:
    """One row per pair, one column per head."""
    import numpy as np

    weights = _weights()
    found = np.empty((len(earlier), len(HEADS)), np.float32)
    near = earlier_vectors is not None and later_vectors is not None and earlier_vectors.shape[-1] == WIDTH
    rows = weights[: len(HEADS)] if near else weights[len(HEADS) :]
    for start in range(0, len(earlier), BATCH):
        part = slice(start, start + BATCH)
        words = word_columns(earlier[part], later[part])
        size = words.shape[1]
        found[part] = words @ rows[:, :size].T + rows[:, -1]
        if near:
            assert earlier_vectors is not None
            assert later_vectors is not None
            columns = vector_features(earlier_vectors[part], later_vectors[part])
            found[part] += columns @ rows[:, size:-1].T
    return found


def update_scores(
    earlier: Sequence[str],
    later: Sequence[str],
    earlier_vectors: Floats | None = None,
    later_vectors: Floats | None = None,
) -> Floats:
    """How likely the later text of each pair makes the earlier one outdated, 0 to 1.

    Args:
        earlier: Texts, one per pair.
        later: The texts that were written after them, in the same order.
        earlier_vectors: The unit vectors of the bundled encoder for `earlier`, one row each. Without them, or where
            they are those of another model, words alone decide.
        later_vectors: The same for `later`.
    """
    import numpy as np

    if not len(earlier):
        return np.empty(0, np.float32)
    return 1 / (1 + np.exp(-_logits(earlier, later, earlier_vectors, later_vectors)[:, 0]))


@lru_cache(maxsize=1)
def _vocabulary() -> dict[str, int]:
    """Words with weights of their own, by column: those that tell changes ("now", "instead", "moved")."""
    with open(os.path.join(_DATA, "judge_words.txt"), encoding="utf-8") as file:
        return {word: column for column, word in enumerate(file.read().split())}
