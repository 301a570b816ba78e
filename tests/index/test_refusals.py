"""The compiled loops look at every array before they read it, and never leave its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from skep import runtime

native: Any = runtime.native
if native is None:
    pytest.skip("needs the compiled core", allow_module_level=True)

Wrong = list[tuple[int, Any]]

PLANES, FLOATS = np.zeros((2, 10), np.uint64), np.zeros(10, np.float32)
SLOTS, PLACES = np.empty(10, np.int64), np.arange(4)
CODES, HALVES = np.zeros((10, 8), np.int8), np.zeros((10, 4), np.uint8)
DOCS, CLASSES = np.arange(6, dtype=np.uint32), np.zeros(6, np.uint16)
ONES = np.ones(8, np.float32)


def room(count: int = 10) -> Any:
    return np.empty(count, np.float32)


PART = (0, 10, PLANES, FLOATS, FLOATS, CODES, HALVES, FLOATS)
TAIL = (10, 2, None, None, None, CODES[:2], HALVES[:2], FLOATS[:2])
SAMPLE = (PLANES[:, :5].copy(), FLOATS[:5], FLOATS[:5], np.array([0, 3, 5, 7, 9]))
FRAME = (np.zeros((128, 8), np.float32), ONES, 1.0, 0.3, 0.8, 3, *SAMPLE)
ROWS = np.arange(12)


WHOSE, PLACED = np.ones(10, np.uint32), np.arange(10, dtype=np.uint32)
NAMED = (np.arange(10), PLACED, np.ones(10, bool), ("one", "two"), WHOSE, np.arange(10, dtype=np.int32))


def named(place: int, value: Any) -> tuple[Any, ...]:
    """Rows with their ids, with another value in one place."""
    return (*NAMED[:place], value, *NAMED[place + 1 :])


TAGGED = (0, np.array([3, 7, 9], np.uint64), np.array([0, 0, 6, 6]), DOCS)


def tagged(place: int, value: Any) -> tuple[Any, ...]:
    """The places of some keys, with another value in one place."""
    return (*TAGGED[:place], value, *TAGGED[place + 1 :])


def part(place: int, value: Any) -> tuple[Any, ...]:
    """The first part with another value in one place."""
    return (*PART[:place], value, *PART[place + 1 :])


def frame(place: int, value: Any) -> tuple[Any, ...]:
    return (*FRAME[:place], value, *FRAME[place + 1 :])


KNOWN_TERMS = (np.zeros(3, np.uint64), np.zeros(4, np.int64), None)


def terms(place: int, value: Any) -> tuple[Any, ...]:
    """The terms of a segment, with another value in one place."""
    return (*KNOWN_TERMS[:place], value, *KNOWN_TERMS[place + 1 :])


TERMS = (np.array([3, 4, 5], np.uint64), np.array([0, 1, 6, 6]), None)
WORDED = (3, TERMS, DOCS, CLASSES, ONES)
COLUMN = np.ones(12)
TABLE = [12, 10, 12.0, ROWS, (WORDED,), (PART, TAIL), 8, (COLUMN, COLUMN, np.ones(1), COLUMN), None]


def worded(place: int, value: Any) -> tuple[Any, ...]:
    """The words of a segment, with another value in one place."""
    return ((*WORDED[:place], value, *WORDED[place + 1 :]),)


def table(*others: tuple[int, Any]) -> Any:
    """A table, with other values in some places."""
    given = list(TABLE)
    for place, value in others:
        given[place] = value
    return native.Table(*given)


QUERY = bytes(96)
ROUNDS = (False, 5.0, 12.0, False, 3, 3, 4)
TOLD = ([1, 1], np.array([0, 1], np.uint32), np.ones(2, np.float32))


def near(place: int, value: Any) -> tuple[Any, ...]:
    """What a search by vectors takes, with another value in one place: 3 and more are of the rounds."""
    given = [QUERY, 1.0, np.array([2, 9]), *ROUNDS]
    given[place] = value
    return (*given[:3], tuple(given[3:]))


def framed() -> Any:
    """A table that may ask sketches first."""
    made = table()
    made.frame(FRAME)
    return made


METHODS: dict[str, Any] = {
    "Table": native.Table,
    "pool": lambda *given: table().pool(*given),
    "sketched": lambda *given: framed().pool(*given),
    "words": lambda *given: table().words(*given),
    "frame": lambda *given: table().frame(*given),
}

CALLS: dict[str, tuple[list[Any], Wrong]] = {
    "Table": (
        TABLE,
        [
            (0, -1),
            (0, 13),
            (0, 2**40),
            (1, 13),
            (1, -1),
            (3, np.arange(11)),
            (3, np.arange(12, dtype=np.int32)),
            (3, np.arange(24)[::2]),
            (4, worded(0, -1)),
            (4, worded(0, 11)),
            (4, worded(1, (TERMS[0], TERMS[1][:3], None))),
            (4, worded(1, (TERMS[0], TERMS[1], np.zeros(2, np.int64)))),
            (4, worded(1, (DOCS, TERMS[1], None))),
            (4, worded(2, CLASSES)),
            (4, worded(3, CLASSES[:5])),
            (4, worded(3, CLASSES.astype(np.uint64))),
            (4, worded(4, np.ones(8))),
            (5, (part(2, np.zeros((5, 10), np.uint64)), TAIL)),  # more words than a sketch has
            (5, (part(2, np.zeros((2, 20), np.uint64)[:, ::2]), TAIL)),  # not side by side
            (5, (part(2, np.zeros((2, 9), np.uint64)), TAIL)),
            (5, (part(3, FLOATS[:9]), TAIL)),
            (5, (part(4, FLOATS.astype(np.float64)), TAIL)),
            (5, (part(5, CODES[:9]), TAIL)),
            (5, (part(5, CODES[:, :7].copy()), TAIL)),
            (5, (part(5, CODES.astype(np.int16)), TAIL)),
            (5, (part(6, HALVES[:9]), TAIL)),
            (5, (part(6, HALVES[:, :3].copy()), TAIL)),
            (5, (part(7, FLOATS[:9]), TAIL)),
            (5, (part(0, 1), TAIL)),
            (5, (part(1, 9), TAIL)),
            (5, (part(1, -1), TAIL)),
            (5, (part(1, 2**62), TAIL)),
            (5, (TAIL, PART)),
            (5, (PART, TAIL[:7])),
            (5, (PART,)),
            (5, (PART, TAIL, (12, 1, *[None] * 6))),  # a slot that no row has
            (6, 7),
            (6, -1),
            (6, 2**23),
            (7, (COLUMN,) * 3),
            (7, (COLUMN, COLUMN, COLUMN, COLUMN[:11])),
            (7, (COLUMN, COLUMN, COLUMN, np.ones(0))),
            (7, (COLUMN, COLUMN, COLUMN, np.ones(12, np.float32))),
        ],
    ),
    "pool": (
        [[4, 9], [1.0, 0.5], TOLD, np.ones(12, bool), 3, near(1, 1.0), np.empty((7, 7))],
        [
            (1, [1.0]),
            (2, ([1], *TOLD[1:])),
            (2, ([1, 2], *TOLD[1:])),  # more postings than there are
            (2, ([1, -1], *TOLD[1:])),
            (2, ([2**62, 2**62], *TOLD[1:])),
            (2, (TOLD[0], TOLD[1] + np.uint32(1), TOLD[2])),  # a slot behind the last
            (2, (TOLD[0], TOLD[1], TOLD[2][:1])),
            (3, np.ones(11, bool)),
            (3, np.ones(12)),
            (5, near(0, bytes(95))),
            (5, near(0, np.zeros(12))),
            (5, near(2, np.array([3, 2]))),
            (5, near(2, np.array([2, 2]))),
            (5, near(2, np.array([-1, 2]))),
            (5, near(2, np.array([2, 12]))),
            (5, near(2, np.arange(13))),
            (5, near(3, True)),  # no frame was given
            (5, near(5, 0.0)),
            (5, near(7, 0)),
            (5, near(8, 0)),
            (5, near(9, -1)),
            (6, np.empty((6, 7))),
            (6, np.empty((8, 7))),
            (6, np.empty((7, 6))),
            (6, np.empty((7, 14))[:, ::2]),
            (6, np.empty((7, 7), np.float32)),
        ],
    ),
    "sketched": (
        [[], None, None, np.ones(12, bool), 0, (QUERY, 1.0, None, (True, *ROUNDS[1:])), np.empty((7, 4))],
        [(3, np.ones(11, bool)), (5, (QUERY, 1.0, np.array([2, 12]), (True, *ROUNDS[1:])))],
    ),
    "words": (
        [[4, 9], None, TOLD, np.arange(12), room(12)],
        [
            (2, ([1, 2], *TOLD[1:])),
            (3, np.array([12])),
            (3, np.array([-1])),
            (3, np.arange(12, dtype=np.int32)),
            (4, room(11)),
            (4, np.empty(12)),
        ],
    ),
    "frame": (
        [FRAME],
        [
            (0, frame(0, np.zeros((64, 8), np.float32))),
            (0, frame(0, np.zeros((100, 8), np.float32))),
            (0, frame(0, np.zeros((128, 7), np.float32))),
            (0, frame(0, np.zeros((320, 8), np.float32))),
            (0, frame(1, ONES[:7])),
            (0, frame(5, 0)),
            (0, frame(5, 4)),
            (0, frame(6, PLANES[:, :3].copy())),
            (0, frame(7, FLOATS[:4])),
            (0, frame(9, np.array([0, 3, 6, 9, 12]))),
            (0, frame(9, np.arange(4))),
        ],
    ),
    "ranked": (
        [np.ones((7, 4)), (0.5, 0.5), 60, (np.array([-1.0, 1.0]), np.array([-1.0, 1.0])), np.empty((7, 4))],
        [
            (0, np.ones((6, 4))),
            (0, np.ones((7, 5))),
            (0, np.ones((7, 4), np.float32)),
            (0, np.ones((7, 8))[:, ::2]),
            (3, (np.ones(2), np.ones(1))),
            (3, (np.ones(1), np.ones(1))),
            (3, (np.ones(2),)),
            (4, np.empty((7, 3))),
            (4, np.empty((4, 4))),
            (4, np.empty((8, 4))),
        ],
    ),
    "cosines": (
        [CODES, HALVES, FLOATS, PLACES, 0, np.zeros(8), 1.0, room(4)],
        [
            (1, HALVES[:, :3].copy()),
            (1, HALVES[:9]),
            (2, FLOATS[:9]),
            (3, PLACES + 7),
            (3, PLACES - 1),
            (4, 1),
            (5, np.zeros(7)),
            (5, ONES),
            (7, room(3)),
        ],
    ),
    "vectors": (
        [CODES, HALVES, FLOATS, PLACES, 0, ONES, 1.0, 1.0, np.empty((4, 8), np.float32)],
        [
            (0, CODES[:, :0]),
            (1, HALVES[:9]),
            (3, PLACES + 7),
            (4, -7),
            (5, ONES[:7]),
            (8, np.empty((3, 8), np.float32)),
            (8, np.empty((4, 7), np.float32)),
            (8, np.empty((4, 16), np.float32)[:, ::2]),
        ],
    ),
    "turn": (
        [ONES, 1.0, ONES, 1.0, 1.0],
        [(0, np.ones(8)), (0, np.ones((1, 8), np.float32)), (2, ONES[:7]), (2, np.ones(8))],
    ),
    "best": (
        [FLOATS, PLACES, np.arange(10), 2, np.empty(2, np.int64)],
        [
            (0, FLOATS[:3]),
            (1, PLACES + 7),
            (1, PLACES - 1),
            (2, np.arange(3)),
            (3, 3),
            (4, np.empty(1, np.int64)),
        ],
    ),
    "locate": (
        [np.arange(10), np.arange(10, dtype=np.uint32), np.ones(10, bool), PLACES, 0, SLOTS],
        [
            (0, np.arange(11)),
            (0, np.arange(20)[::2]),
            (1, np.arange(9, dtype=np.uint32)),
            (1, np.arange(10)),
            (2, np.ones(9, bool)),
            (3, PLACES.astype(np.int32)),
            (3, PLACES[::-1]),
            (5, np.empty(3, np.int64)),
        ],
    ),
    "named": (
        [(NAMED, (np.arange(3), None, np.ones(3, bool), ("one",), None, np.arange(3))), PLACES],
        [
            (0, (named(0, np.arange(11)),)),
            (0, (named(0, np.arange(20)[::2]),)),
            (0, (named(1, np.arange(9, dtype=np.uint32)),)),
            (0, (named(1, np.arange(10)),)),
            (0, (named(2, np.ones(9, bool)),)),
            (0, (named(3, ("one",)),)),
            (0, (named(3, ()),)),
            (0, (named(3, (1, 2)),)),
            (0, (named(4, np.ones(9, np.uint32)),)),
            (0, (named(4, np.ones(10, np.uint64)),)),
            (0, (named(4, np.full(10, 2, np.uint32)),)),
            (0, (named(5, np.arange(9)),)),
            (0, (named(5, np.arange(20)[::2]),)),
            (0, (named(5, np.arange(10, dtype=np.int16)),)),
            (1, PLACES.astype(np.int32)),
            (1, PLACES[::-1]),
        ],
    ),
    "find": (
        [(KNOWN_TERMS,), [3, 4], None, 9, np.empty(2, np.uint64), np.empty((3, 2), np.int64), np.empty(2)],
        [
            (0, (terms(0, np.zeros(4, np.uint64)),)),
            (0, (terms(0, np.zeros(3, np.uint32)),)),
            (0, (terms(1, np.zeros(3, np.int64)),)),
            (0, (terms(2, np.zeros(2, np.int64)),)),
            (0, (KNOWN_TERMS, KNOWN_TERMS)),
            (1, [3, 4, 5]),
            (2, [1]),
            (4, np.empty(1, np.uint64)),
            (5, np.empty((2, 2), np.int64)),
            (5, np.empty((3, 1), np.int64)),
            (6, np.empty(1)),
        ],
    ),
    "carrying": (
        [(TAGGED, (6, None, None, DOCS)), 7, np.ones(12, bool), np.empty(12, np.int64)],
        [
            (0, (TAGGED, (7, None, None, DOCS))),
            (0, (tagged(0, -1), (6, None, None, DOCS))),
            (0, (tagged(0, 2**63 - 1),)),
            (0, ((6, None, None, DOCS), TAGGED)),
            (0, (tagged(1, DOCS[:3]),)),
            (0, (tagged(2, np.array([0, 6])),)),
            (0, (tagged(2, np.array([0, -1, 6, 6])),)),
            (0, (tagged(2, np.array([0, 0, 7, 7])),)),
            (0, (tagged(2, np.array([0, 4, 3, 3])),)),
            (0, (tagged(3, DOCS[::-1].copy()),)),
            (0, (tagged(3, DOCS[::2]),)),
            (0, (tagged(3, CLASSES),)),
            (2, np.ones(11, bool)),
            (2, np.ones(12)),
            (3, room(12)),
        ],
    ),
    "gains": (
        [DOCS, CLASSES, ONES, np.array([1]), np.array([5]), ONES, PLACES, 0, np.empty((4, 1), np.float32)],
        [
            (0, DOCS[:5]),
            (1, CLASSES[:5]),
            (1, CLASSES + np.uint16(8)),
            (2, ONES[:0]),
            (3, np.array([2])),
            (3, np.array([-1])),
            (4, np.array([6])),
            (4, np.array([-1])),
            (5, ONES[:0]),
            (6, PLACES.astype(np.int32)),
            (8, np.empty((3, 1), np.float32)),
            (8, np.empty((4, 0), np.float32)),
        ],
    ),
}


def called(name: str) -> Any:
    """A function of the package, or a method of one of its tables."""
    return METHODS[name] if name in METHODS else getattr(native, name)


def fresh(arguments: list[Any]) -> list[Any]:
    return [
        each.copy() if isinstance(each, np.ndarray) and each.flags.owndata else each for each in arguments
    ]


@pytest.mark.parametrize("name", CALLS)
def test_wrong_arrays_are_refused_before_anything_is_read(name: str) -> None:
    call, (good, wrong) = called(name), CALLS[name]
    call(*fresh(good))
    for place, value in wrong:
        arguments = fresh(good)
        arguments[place] = value
        with pytest.raises((ValueError, IndexError), match=r"\w"):
            call(*arguments)


@pytest.mark.parametrize("name", CALLS)
def test_other_things_than_arrays_and_numbers_are_refused(name: str) -> None:
    call, (good, _) = called(name), CALLS[name]
    with pytest.raises(TypeError, match="argument"):
        call()
    with pytest.raises(TypeError, match="argument"):
        call(*good, 1)
    for place, value in enumerate(good):
        if isinstance(value, bool) or value is None:
            continue
        arguments = fresh(good)
        arguments[place] = "x"
        with pytest.raises((TypeError, BufferError)):
            call(*arguments)


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("pool", [6]),
        ("words", [4]),
        ("ranked", [4]),
        ("cosines", [7]),
        ("vectors", [8]),
        ("best", [4]),
        ("locate", [5]),
        ("gains", [8]),
        ("find", [4, 5, 6]),
        ("carrying", [3]),
    ],
)
def test_nothing_is_written_to_what_may_only_be_read(name: str, places: list[int]) -> None:
    for place in places:
        arguments = fresh(CALLS[name][0])
        arguments[place] = arguments[place].copy()
        arguments[place].flags.writeable = False
        with pytest.raises((ValueError, BufferError)):
            called(name)(*arguments)


def test_only_generations_that_run_here_are_used() -> None:
    for name in ("sse9", "", 3, None):
        with pytest.raises(ValueError, match="generations"):
            native.use(name)


def test_no_loop_writes_numbers_where_objects_are() -> None:
    objects = np.array([object()] * 4, dtype=object)
    for call in (
        lambda: native.carrying(((7, None, None, np.zeros(1, np.uint32)),), 1, np.ones(20, bool), objects),
        lambda: native.locate(np.arange(4), PLACED[:4], np.ones(4, bool), np.arange(4), 0, objects),
    ):
        with pytest.raises(ValueError, match="an array of objects, not of numbers"):
            call()
