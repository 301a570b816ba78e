"""Rows become memories in C as they do in Python: whatever they hold, and whatever is wrong with them."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import CorruptBankError
from skep.model import SHARED, Memory
from skep.storage import memory_rows as reading
from skep.storage.memory_rows import USUAL, memories_of, memory_of

NOW = 1_750_000_000.0
COLUMNS = (
    *("id", "kind", "text", "title", "domain", "agent", "user", "project", "session", "tags", "source"),
    *("confidence", "importance", "created_at", "valid_from", "valid_to", "expires_at", "last_evidence_at"),
    *("uses", "last_used_at", "unusual", "waiting", "row"),
)
PLAIN: dict[str, Any] = dict.fromkeys(COLUMNS) | {
    "id": "a-1",
    "kind": "fact",
    "text": "the tea is green",
    "tags": "[]",
    "confidence": 0.8,
    "importance": 0.5,
    "created_at": NOW,
    "last_evidence_at": NOW,
    "row": 1,
}
label = st.sampled_from([None, "ana", "", "é", "x" * 200])
moment = st.sampled_from([None, NOW - 1, NOW, NOW + 1])
changes = st.fixed_dictionaries(
    {},
    optional={
        "tags": st.sampled_from(['["a"]', '["a","é"]', "[ ]", f'["{"t" * 300}"]', '["\\ud83d\\ude00"]']),
        "metadata": st.sampled_from(['{"a": [1, {"b": null}]}', "{ }"]),
        "evidence": st.sampled_from(['["a-2"]', "[ ]"]),
        "status": st.sampled_from(["active", "superseded", "merged", "retracted"]),
        "pinned": st.sampled_from([0, 1]),
        "stale": st.sampled_from([0, 1]),
        "polarity": st.sampled_from([-1, 1]),
        "successes": st.sampled_from([0, 7]),
        "uses": st.sampled_from([None, 0, 3]),
        "waiting": st.sampled_from([None, 1]),
        "replaced_by": st.sampled_from([None, "a-9"]),
        **dict.fromkeys(("title", "domain", "agent", "user", "project", "session", "source"), label),
        **dict.fromkeys(("expires_at", "valid_from", "valid_to", "last_used_at"), moment),
    },
)


def row_of(number: int, changed: dict[str, Any]) -> tuple[Any, ...]:
    together = {name: changed.get(name, held) for name, held in USUAL.items()}
    unusual = None if together == USUAL else json.dumps(list(together.values()))
    row = PLAIN | {"unusual": unusual} | changed | {"row": number, "id": f"a-{number}"}
    return tuple(row[name] for name in COLUMNS)


def in_python(rows: list[tuple[Any, ...]], fingerprint: str | None) -> dict[int, Memory]:
    return {row[-1]: memory_of(row, fingerprint, NOW) for row in rows}


@given(st.lists(changes, max_size=6), st.sampled_from(["f-1", None]))
def test_memories_are_the_same_in_either_way(many: list[dict[str, Any]], fingerprint: str | None) -> None:
    rows = [row_of(number, each) for number, each in enumerate(many, 1)]

    found = memories_of(rows, fingerprint, NOW)

    assert found == in_python(rows, fingerprint)
    assert list(found) == [row[-1] for row in rows]


@pytest.mark.parametrize("broken", [{"tags": '["a'}, {"metadata": "{"}, {"evidence": "x"}, {"tags": None}])
def test_a_damaged_row_is_named(broken: dict[str, Any]) -> None:
    rows = [row_of(1, {}), row_of(2, broken)]

    with pytest.raises(CorruptBankError, match="memory a-2 is damaged"):
        memories_of(rows, "f-1", NOW)


def test_nothing_that_can_be_changed_is_shared() -> None:
    one, other = memories_of([row_of(1, {}), row_of(2, {})], "f-1", NOW).values()

    one.metadata["seen"] = True

    assert other.metadata == {}
    assert one.scope is SHARED


def test_sets_of_tags_that_are_remembered_stay_few() -> None:
    known: dict[str, Any] = reading._known  # pyright: ignore[reportPrivateUsage]
    rows = [row_of(number, {"tags": f'["tag {number}"]'}) for number in range(2 * reading.MOST)]

    found = memories_of(rows, "f-1", NOW)

    assert len(known) <= reading.MOST
    assert [memory.tags for memory in found.values()] == [(f"tag {n}",) for n in range(2 * reading.MOST)]


def test_what_is_read_over_and_over_is_let_go() -> None:
    import tracemalloc

    rows = [row_of(number, {"user": "ana", "tags": '["a"]', "metadata": '{"a": 1}'}) for number in range(50)]
    broken = [row_of(1, {"tags": "["})]

    def read(times: int) -> None:
        for _ in range(times):
            memories_of(rows, "f-1", NOW)
            with pytest.raises(CorruptBankError):
                memories_of(broken, "f-1", NOW)

    read(3)
    gc.collect()
    tracemalloc.start()
    read(3)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    read(20)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert after - before < 20_000  # one memory kept from each of twenty reads would be more


def test_the_columns_of_a_bank_are_those(tmp_path: Path) -> None:
    """What is told apart by place here and in C stands in that place."""
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(16), now=lambda: NOW) as bank:
        given = {
            "title": "tea",
            "domain": "kitchen",
            "agent": "a",
            "source": "s",
            "tags": ["x"],
            "metadata": {"m": 1},
        }
        scope = {"user": "u", "project": "p", "session": "q"}
        made = bank.remember(
            "the tea is green",
            scope=scope,
            importance=0.7,
            pinned=True,
            valid_from=NOW - 5,
            valid_to=NOW + 5,
            **given,
        ).memory
        bank.recall("tea")
        bank.engine.flush_uses()
        (found,) = bank.engine.store.memories([1]).values()

    assert (found.id, found.title, found.domain, found.agent, found.source) == (
        made.id,
        "tea",
        "kitchen",
        "a",
        "s",
    )
    assert (found.scope.user, found.scope.project, found.scope.session) == ("u", "p", "q")
    assert (found.tags, found.metadata, found.pinned, found.uses) == (("x",), {"m": 1}, True, 1)
    assert (found.valid_from, found.valid_to, found.last_used_at) == (NOW - 5, NOW + 5, NOW)


UNUSUAL: dict[str, tuple[Any, Any]] = {
    "polarity": (-1, -1),
    "status": ("retracted", "retracted"),
    "pinned": (1, True),
    "level": (2, 2),
    "evidence": ('["a-7","é\\n"]', ("a-7", "é\n")),
    "successes": (3, 3),
    "failures": (4, 4),
    "confirmations": (5, 5),
    "disputes": (1 << 60, 1 << 60),
    "metadata": ('{"a":{"b":[1.5,"\\"\\u0000é"]}}', {"a": {"b": [1.5, '"\0é']}}),
    "stale": (1, True),
}


def test_what_few_rows_hold_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Every column that most rows leave as it is, by itself, and all of them."""
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(16), now=lambda: NOW) as bank:
        plain = bank.remember("the tea is green").memory
        for number, name in enumerate(UNUSUAL, 2):
            bank.remember(f"tea number {number}")
            bank.engine.store.connection.execute(
                f"UPDATE memories SET {name} = ? WHERE row = ?", (UNUSUAL[name][0], number)
            )
        bank.remember("tea of all kinds")
        every = ", ".join(f"{name} = :{name}" for name in UNUSUAL)
        bank.engine.store.connection.execute(
            f"UPDATE memories SET {every}, status = 'merged', replaced_by = 'a-9' WHERE row = 13",
            {name: held for name, (held, _) in UNUSUAL.items()},
        )
        found = bank.engine.store.memories(range(1, 14))

    assert {*UNUSUAL, "replaced_by"} == {*USUAL}
    assert list(found) == list(range(1, 14))
    for number, name in enumerate(UNUSUAL, 2):
        changed = {other: getattr(found[number], other) for other in UNUSUAL}
        assert changed == {other: getattr(plain, other) for other in UNUSUAL} | {name: UNUSUAL[name][1]}
    last = {name: getattr(found[13], name) for name in UNUSUAL}
    assert last == {name: shown for name, (_, shown) in UNUSUAL.items()} | {"status": "merged"}
    assert (found[13].merged_into, found[13].superseded_by) == ("a-9", None)
