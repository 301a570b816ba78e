"""Trust: registers, inheritance, independence."""

from __future__ import annotations

from typing import Any

import pytest

from skep.confidence import lineage
from skep.errors import OutOfRangeError
from skep.hive.trust import Trust
from skep.model import Event, Memory


class Registers:
    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def setting(self, key: str) -> Any:
        return self.values.get(key)

    def settings(self, prefix: str = "") -> dict[str, Any]:
        return {key: value for key, value in self.values.items() if key.startswith(prefix)}

    def set_setting(self, key: str, value: Any) -> Event:
        self.values[key] = value
        return Event(actor="a", counter=1, hlc=1, kind="setting", body={"key": key, "value": value})


MEMORIES = {
    "a-1": Memory(id="a-1", kind="fact", text="seen", agent="ana"),
    "b-1": Memory(id="b-1", kind="fact", text="heard", agent="bob", evidence=("a-1", "gone-9")),
    "c-1": Memory(id="c-1", kind="fact", text="concluded", agent="cy", evidence=("b-1",)),
    "r-1": Memory(id="r-1", kind="fact", text="ring", agent="ana", evidence=("r-2",)),
    "r-2": Memory(id="r-2", kind="fact", text="ring", agent="bob", evidence=("r-1",)),
}


@pytest.fixture
def trust() -> Trust:
    return Trust(Registers())


def test_everybody_starts_with_a_trust_of_one(trust: Trust) -> None:
    assert trust.of("ana") == 1.0
    assert trust.of(None) == 1.0


def test_trust_is_kept_and_listed(trust: Trust) -> None:
    trust.set("ana", 1.5)

    assert trust.all() == {"ana": 1.5}


@pytest.mark.parametrize("value", [-0.1, 2.1, float("nan"), float("inf")])
def test_trust_beyond_its_range_is_refused(trust: Trust, value: float) -> None:
    with pytest.raises(OutOfRangeError, match="between 0 and 2"):
        trust.set("ana", value)


@pytest.mark.parametrize(
    ("stored", "expected"), [(99, 2.0), (-5, 0.0), ("high", 1.0), (True, 1.0), (None, 1.0)]
)
def test_nonsense_in_a_register_does_no_harm(stored: Any, expected: float) -> None:
    registers = Registers()
    registers.values["trust/ana"] = stored

    assert Trust(registers).of("ana") == expected


def test_a_derived_memory_is_trusted_no_more_than_its_least_trusted_source(trust: Trust) -> None:
    trust.set("ana", 0.2)
    trust.set("cy", 2.0)

    assert trust.of_memory(MEMORIES["c-1"], MEMORIES.get) == 0.2
    assert trust.of_memory(MEMORIES["a-1"], MEMORIES.get) == 0.2


def test_lineage_survives_rings_and_missing_sources() -> None:
    assert list(lineage(MEMORIES["c-1"].evidence, MEMORIES.get)) == ["b-1", "a-1"]
    assert list(lineage(MEMORIES["r-1"].evidence, MEMORIES.get, of="r-1")) == ["r-2"]


def test_only_independent_and_trusted_authors_confirm(trust: Trust) -> None:
    trust.set("eve", 0.0)
    conclusion = MEMORIES["c-1"]

    assert trust.independent(conclusion, "dora", MEMORIES.get) is None
    assert trust.independent(conclusion, "cy", MEMORIES.get) == "cy wrote it"
    assert trust.independent(conclusion, "ana", MEMORIES.get) == "it was derived from what ana wrote"
    assert trust.independent(conclusion, "eve", MEMORIES.get) == "eve is not trusted"
