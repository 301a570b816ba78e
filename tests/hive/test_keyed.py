"""Keys, versions and metadata in a hive: an agent writes a key once, wherever the memory is."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import VersionError
from skep.hive.hive import Hive

SCOPE = ("team", "facts")


def texts(found: Any) -> list[str]:
    return sorted(memory.text for memory in found)


def test_a_key_that_another_agent_wrote_is_revised_everywhere(hive: Hive) -> None:
    ana, bob = hive.agent("ana"), hive.agent("bob")
    first = ana.remember("the port is 5432", key="port", scope=SCOPE, metadata={"env": "prod"})
    again = bob.remember("the port is 5433", key="port", scope=SCOPE, metadata={"env": "prod"})

    assert (first.action, again.action) == ("stored", "revised")
    assert again.memory.id == first.memory.id
    assert again.memory.agent == "ana"  # its author stays; the log says who changed it
    for name in ("ana", "bob", "eve"):
        assert texts(hive.agent(name).find(key="port", scope=SCOPE)) == ["the port is 5433"]
        assert ana.get(first.memory.id).text == "the port is 5433"


def test_many_with_keys_are_written_once_each(hive: Hive) -> None:
    ana = hive.agent("ana")
    items = [{"text": f"value {n}", "key": f"k{n % 2}", "scope": SCOPE} for n in range(4)]
    ana.remember_many(items)
    assert texts(ana.find(scope=SCOPE)) == ["value 2", "value 3"]


def test_metadata_and_namespaces_are_asked_for_over_the_whole_hive(hive: Hive) -> None:
    for number, name in enumerate(("ana", "bob", "cy", "dora")):
        hive.agent(name).remember(
            f"the price of tea in shop {number} is {number}",
            scope=("shops", name),
            metadata={"price": number},
        )
    eve = hive.agent("eve")
    asked: dict[str, Any] = {"scope": ("shops", "*"), "metadata": {"price": {"$gte": 2}}}
    expected = ["the price of tea in shop 2 is 2", "the price of tea in shop 3 is 3"]
    assert texts(eve.find(**asked)) == expected
    assert texts(hit.memory for hit in eve.recall("price of tea", limit=10, **asked)) == expected
    assert {scope.namespace for scope in eve.scopes(("shops", "*"))} == {
        ("shops", name) for name in ("ana", "bob", "cy", "dora")
    }


def test_a_version_that_another_agent_moved_on_is_refused(hive: Hive) -> None:
    ana, bob = hive.agent("ana"), hive.agent("bob")
    seen = ana.remember("the port is 5432", key="port").memory
    bob.revise(seen.id, text="the port is 5433")
    with pytest.raises(VersionError):
        ana.revise(seen.id, text="the port is 5434", expected_version=seen.version)
    assert ana.get(seen.id).text == "the port is 5433"
