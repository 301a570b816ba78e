from __future__ import annotations

import copy
import pickle
from typing import Any
from typing import NamedTuple as Standard

import pytest

from skep.tuples import NamedTuple


class Mine(NamedTuple):
    """A place."""

    across: int
    up: int = 0
    """Above."""

    @property
    def far(self) -> int:
        """How far in all."""
        return self.across + self.up


class Theirs(Standard):
    across: int
    up: int = 0


def test_they_are_what_the_standard_ones_are() -> None:
    made = Mine(3, up=4)
    assert made == (3, 4) == Theirs(3, 4)
    assert hash(made) == hash(Theirs(3, 4))
    assert (made.across, made.up, made.far, Mine(1).up) == (3, 4, 7, 0)
    assert repr(made) == repr(Theirs(3, 4)).replace("Theirs", "Mine")
    assert made._asdict() == Theirs(3, 4)._asdict()
    assert Mine._fields == Theirs._fields
    assert Mine._field_defaults == Theirs._field_defaults
    assert Mine._make([5, 6]) == Mine(5, 6)
    assert made._replace(across=9) == Mine(9, 4)
    assert isinstance(made, Mine)
    assert Mine.__doc__ == "A place."
    across, up = made
    assert [across, up] == [*made]
    match made:
        case Mine(a, b):
            assert (a, b) == (3, 4)


def test_they_can_be_copied_and_sent() -> None:
    for again in (copy.deepcopy(Mine(1, 2)), pickle.loads(pickle.dumps(Mine(1, 2)))):
        assert type(again) is Mine
        assert again == (1, 2)


def test_they_hold_nothing_else() -> None:
    made: Any = Mine(1)
    with pytest.raises(AttributeError):
        made.across = 2
    with pytest.raises(AttributeError):
        made.other = 2


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"across": 1}), ((1,), {"x": 1})]
)
def test_other_fields_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    kind: Any = Mine
    with pytest.raises(TypeError, match="Mine takes across, up"):
        kind(*values, **named)


def test_a_class_without_fields_is_refused() -> None:
    with pytest.raises(TypeError, match="needs fields"):
        exec("class Bare(NamedTuple):\n    pass", {"NamedTuple": NamedTuple, "__name__": "bare"})
