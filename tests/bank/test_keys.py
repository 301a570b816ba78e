"""Keys that callers choose, versions, metadata that is asked for, and namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import InvalidInputError, VersionError, WrongTypeError
from skep.filters import admits_memory, checked_filter
from skep.model import Scope, namespace_parts, namespace_path
from skep.storage.doctor import examine

ANA = ("users", "ana")


@pytest.fixture
def plain() -> Bank:
    return Bank.open(":memory:", embedder=HashingEmbedder(32))


def texts(found: Any) -> list[str]:
    return sorted(memory.text for memory in found)


def test_a_key_is_written_twice_and_held_once(plain: Bank) -> None:
    first = plain.remember("Ana drinks tea", key="drink", scope=ANA, tags=["hot"], metadata={"since": 2024})
    again = plain.remember("Ana drinks coffee", key="drink", scope=ANA, metadata={"since": 2025})

    assert (first.action, again.action) == ("stored", "revised")
    assert again.memory.id == first.memory.id
    assert (again.memory.tags, again.memory.metadata) == ((), {"since": 2025})
    assert texts(plain.find(scope=ANA)) == ["Ana drinks coffee"]
    assert [event.kind for event in plain.history(first.memory.id)] == ["remember", "revise"]


def test_the_same_words_under_one_key_write_nothing(plain: Bank) -> None:
    first = plain.remember("Ana drinks tea", key="drink", tags=["hot"], metadata={"since": 2024}).memory
    before = plain.status().events

    again = plain.remember("Ana drinks tea", key="drink", tags=["hot"], metadata={"since": 2024})

    assert (again.action, again.memory.version, plain.status().events) == ("confirmed", first.version, before)


def test_equal_texts_under_two_keys_are_two_memories_also_after_maintenance(plain: Bank) -> None:
    for key in ("a", "b"):
        plain.remember("the pump is on", key=key)
    plain.maintain()
    assert sorted(memory.key or "" for memory in plain.find()) == ["a", "b"]


def test_a_key_belongs_to_its_scope(plain: Bank) -> None:
    plain.remember("one", key="k", scope=ANA)
    plain.remember("two", key="k", scope={"user": "bob"})
    plain.remember("three", key="k")
    assert len(plain.find(key="k").memories) == 3
    assert texts(plain.find(key="k", scope=ANA)) == ["one"]


def test_many_with_keys_are_written_as_one_by_one(plain: Bank) -> None:
    done = plain.remember_many([{"text": f"value {n}", "key": f"k{n % 2}"} for n in range(4)])
    assert [one.action for one in done] == ["stored", "stored", "revised", "revised"]
    assert texts(plain.find()) == ["value 2", "value 3"]


def test_a_key_is_free_again_once_its_memory_is_taken_back_or_forgotten(plain: Bank) -> None:
    first = plain.remember("one", key="k").memory
    plain.retract(first.id)
    second = plain.remember("two", key="k").memory
    plain.forget(second.id)
    third = plain.remember("three", key="k").memory
    assert len({first.id, second.id, third.id}) == 3
    assert texts(plain.find(key="k")) == ["three"]


def test_a_key_that_another_has_is_refused_on_revise(plain: Bank) -> None:
    taken = plain.remember("one", key="k").memory
    other = plain.remember("two").memory
    with pytest.raises(InvalidInputError, match=f"{taken.id} has the key 'k'"):
        plain.revise(other.id, key="k")
    assert plain.revise(other.id, key="free").key == "free"
    assert plain.revise(other.id, key=None).key is None


def test_the_kind_of_what_has_a_key_stays(plain: Bank) -> None:
    plain.remember("one", key="k")
    with pytest.raises(InvalidInputError, match="pass kind='fact'"):
        plain.remember("two", key="k", kind="episode")


def test_two_replicas_that_wrote_one_key_agree_after_the_next_write(tmp_path: Path) -> None:
    banks = [Bank.open(tmp_path / f"{name}.skep", embedder=HashingEmbedder(32)) for name in "ab"]
    for number, bank in enumerate(banks):
        bank.remember(f"value {number}", key="k")
    for one, other in (banks, banks[::-1]):
        one.apply(list(other.events()))
    banks[0].remember("settled", key="k")
    banks[1].apply(list(banks[0].events()))
    for bank in banks:
        assert texts(bank.find(key="k")) == ["settled"]
        bank.close()


def test_a_change_to_what_somebody_else_changed_is_refused_and_says_what_changed(plain: Bank) -> None:
    seen = plain.remember("the port is 80").memory
    plain.revise(seen.id, text="the port is 81")

    with pytest.raises(VersionError) as caught:
        plain.revise(seen.id, text="the port is 82", expected_version=seen.version)

    assert (caught.value.memory.text, caught.value.expected) == ("the port is 81", 1)
    assert [event.kind for event in caught.value.changes] == ["revise"]
    assert "revise of text" in str(caught.value)
    assert plain.get(seen.id).text == "the port is 81"
    now = plain.revise(seen.id, text="the port is 82", expected_version=caught.value.memory.version)
    assert (now.text, now.version) == ("the port is 82", 3)


def test_an_undo_never_brings_a_version_back(plain: Bank) -> None:
    memory = plain.remember("one").memory
    plain.revise(memory.id, text="two")
    plain.undo(plain.history(memory.id)[-1].id)
    after = plain.get(memory.id)
    assert (after.text, after.version) == ("one", 3)


def test_versions_follow_from_the_log(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "a.skep", embedder=HashingEmbedder(32)) as bank:
        memory = bank.remember("one", key="k").memory
        for number in range(12):  # long enough for the fold to be kept and stepped on from
            bank.revise(memory.id, text=f"number {number}")
        bank.confirm(memory.id, by="bob")
        bank.undo(bank.history(memory.id)[3].id)
        assert bank.get(memory.id).version == 14
        assert [one.message for one in examine(bank.engine.store, deep=True) if one.level == "error"] == []


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0]),
    st.sampled_from(["a", "b", "$lt"]),
)
KEYS = st.sampled_from(["x", "y", 'q"uo.te', "$[0]", "a b"])
METADATA = st.dictionaries(KEYS, st.one_of(VALUES, st.dictionaries(KEYS, VALUES, max_size=2)), max_size=3)
SINGLE = st.tuples(st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), VALUES)
SEVERAL = st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(VALUES, max_size=3))
ASKED = st.dictionaries(
    st.sampled_from(["x", "y", 'q"uo.te']),
    st.one_of(VALUES, st.lists(st.one_of(SINGLE, SEVERAL), min_size=1, max_size=2).map(dict)),
    min_size=1,
    max_size=2,
)


@settings(max_examples=40, deadline=None)
@given(stored=st.lists(METADATA, min_size=1, max_size=6), asked=ASKED)
def test_metadata_is_asked_for_alike_in_sql_in_the_index_and_in_python(
    stored: list[dict[str, Any]], asked: dict[str, Any]
) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(32)) as bank:
        bank.remember_many([{"text": f"common note {n}", "metadata": m} for n, m in enumerate(stored)])
        where = checked_filter(bank.engine.settings, bank.engine.now(), metadata=asked)
        expected = texts(m for m in bank.find(limit=100) if admits_memory(where, m))

        assert texts(bank.find(metadata=asked, limit=100)) == expected
        assert texts(hit.memory for hit in bank.recall("common note", metadata=asked, limit=100)) == expected
        bank.revise(bank.find()[0].id, metadata={"x": "a"})
        again = texts(m for m in bank.find(limit=100) if admits_memory(where, m))
        assert texts(hit.memory for hit in bank.recall("common note", metadata=asked, limit=100)) == again


def test_a_condition_is_met_before_scoring_not_after(plain: Bank) -> None:
    plain.remember_many({"text": f"the price of tea is {n}", "metadata": {"n": n}} for n in range(200))
    hits = plain.recall("price of tea", limit=5, metadata={"n": {"$gte": 195}}).hits
    assert sorted(hit.memory.metadata["n"] for hit in hits) == [195, 196, 197, 198, 199]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"n": {"$near": 3}}, "no operator"),
        ({"n": {"$in": 3}}, "needs a list"),
        ({"n": {"$lt": [1]}}, "needs a number or a text"),
    ],
)
def test_a_condition_that_means_nothing_is_refused(plain: Bank, asked: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidInputError, WrongTypeError), match=says):
        plain.find(metadata=asked)


NAMES = st.lists(st.text(min_size=1, max_size=6).filter(lambda t: "\x00" not in t), min_size=1, max_size=4)


@given(NAMES)
def test_a_namespace_survives_being_a_path(parts: list[str]) -> None:
    path = namespace_path(parts)
    assert namespace_parts(path) == tuple(parts)
    assert path.count("/") == len(parts) - 1
    assert path.isprintable()


def test_a_namespace_sees_itself_and_with_a_star_what_is_below(plain: Bank) -> None:
    for parts in (
        ("docs",),
        ("docs", "2026"),
        ("docs", "2026", "may"),
        ("docs2",),
        ("Docs",),
        ("other", "docs"),
    ):
        plain.remember(" ".join(("kept at", *parts)), scope=parts)
    plain.remember("kept for all")

    def seen(scope: Any) -> list[str]:
        found = texts(plain.find(scope=scope))
        assert texts(hit.memory for hit in plain.recall("kept at docs", scope=scope, limit=50)) == found
        return found

    assert seen(("docs",)) == ["kept at docs"]
    assert seen(("docs", "*")) == ["kept at docs", "kept at docs 2026", "kept at docs 2026 may"]
    assert seen({"project": "docs/2026/*"}) == ["kept at docs 2026", "kept at docs 2026 may"]
    assert plain.scopes(("docs", "*")) == {
        Scope(project="docs"): 1,
        Scope(project="docs/2026"): 1,
        Scope(project="docs/2026/may"): 1,
    }
    assert plain.find(scope=("docs", "2026"))[0].scope.namespace == ("docs", "2026")


@pytest.mark.parametrize("scope", [("docs", "*"), {"project": "docs/*"}])
def test_a_star_is_for_asking_alone(plain: Bank, scope: Any) -> None:
    with pytest.raises(InvalidInputError, match="only for asking"):
        plain.remember("a note", scope=scope)
