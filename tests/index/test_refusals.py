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


def part(place: int, value: Any) -> tuple[Any, ...]:
    """The first part with another value in one place."""
    return (*PART[:place], value, *PART[place + 1 :])


def frame(place: int, value: Any) -> tuple[Any, ...]:
    return (*FRAME[:place], value, *FRAME[place + 1 :])


TERMS = (np.zeros(3, np.uint64), np.zeros(4, np.int64), None)


TERMS = (np.array([3, 4, 5], np.uint64), np.array([0, 1, 6, 6]), None)
WORDED = (3, TERMS, DOCS, CLASSES, ONES)
TABLE = [12, 10, 12.0, ROWS, (WORDED,), (PART, TAIL), 8, None]


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
        ],
    ),
    "pool": (
        [
            [4, 9],
            [1.0, 0.5],
            TOLD,
            np.ones(12, bool),
            3,
            near(1, 1.0),
            np.empty(7, np.int64),
            room(7),
            room(7),
        ],
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
            (6, np.empty(6, np.int64)),
            (6, np.empty(14, np.int64)[::2]),
            (6, room(7)),
            (7, room(6)),
            (7, np.empty(7)),
            (8, room(6)),
        ],
    ),
    "sketched": (
        [
            [],
            None,
            None,
            np.ones(12, bool),
            0,
            (QUERY, 1.0, None, (True, *ROUNDS[1:])),
            SLOTS,
            room(),
            room(),
        ],
        [(3, np.ones(11, bool)), (5, (QUERY, 1.0, np.array([2, 12]), (True, *ROUNDS[1:])))],
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
    "turn": (
        [ONES, 1.0, ONES, 1.0, 1.0],
        [(0, np.ones(8)), (0, np.ones((1, 8), np.float32)), (2, ONES[:7]), (2, np.ones(8))],
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


@pytest.mark.parametrize(("name", "places"), [("pool", [6, 7, 8])])
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
    given = fresh(CALLS["pool"][0])
    given[6] = np.array([object()] * 7, dtype=object)
    with pytest.raises(ValueError, match="an array of objects, not of numbers"):
        called("pool")(*given)
