"""Rows of the file become memories: whatever they hold, and whatever is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import CorruptBankError

NOW = 1_750_000_000.0


@pytest.mark.parametrize("broken", [{"tags": '["a'}, {"metadata": "{"}, {"evidence": "x"}])
def test_a_damaged_row_is_named(tmp_path: Path, broken: dict[str, str]) -> None:
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(16), now=lambda: NOW) as bank:
        memory = bank.remember("the tea is green").memory
        ((name, value),) = broken.items()
        bank.engine.store.connection.execute(f"UPDATE memories SET {name} = ?", (value,))
        with pytest.raises(CorruptBankError, match=f"memory {memory.id} is damaged"):
            bank.get(memory.id)


def test_every_column_is_read_as_it_was_written(tmp_path: Path) -> None:
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

    assert list(found) == list(range(1, 14))
    for number, name in enumerate(UNUSUAL, 2):
        changed = {other: getattr(found[number], other) for other in UNUSUAL}
        assert changed == {other: getattr(plain, other) for other in UNUSUAL} | {name: UNUSUAL[name][1]}
    last = {name: getattr(found[13], name) for name in UNUSUAL}
    assert last == {name: shown for name, (_, shown) in UNUSUAL.items()} | {"status": "merged"}
    assert (found[13].merged_into, found[13].superseded_by) == ("a-9", None)
