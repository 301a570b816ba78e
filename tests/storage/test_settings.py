"""Settings that are written together are what the log says of each."""

from __future__ import annotations

from typing import Any

from skep.bank.bank import Bank
from skep.events import SETTING
from skep.storage.fold import fold_setting


def put(bank: Bank, *settings: tuple[str, Any]) -> None:
    bank.engine.store.write(
        [("setting", {"key": key, "value": value}) for key, value in settings], now=bank.engine.now()
    )


def assert_as_logged(bank: Bank, *keys: str) -> None:
    store = bank.engine.store
    for key in keys:
        there, value = fold_setting(store.log.of(SETTING + key))
        assert store.setting(key) == (value if there else None)
        assert len(store.settings_under(key)) == there


def test_of_many_settings_each_has_the_last_value_it_was_given(bank: Bank) -> None:
    put(bank, ("old", 1), ("gone", 1))
    put(bank, ("gone", None), ("new", {"a": [1]}), ("old", 2), ("never", None), ("twice", 1), ("twice", 2))

    found = {key: bank.engine.store.setting(key) for key in ("old", "gone", "new", "never", "twice")}
    assert found == {"old": 2, "gone": None, "new": {"a": [1]}, "never": None, "twice": 2}
    assert_as_logged(bank, *found)


def test_what_was_set_with_others_can_be_undone_and_set_again(bank: Bank) -> None:
    put(bank, ("a", 1), ("b", 1))
    first = bank.engine.store.log.of(f"{SETTING}a")[0]
    bank.undo(first.id)
    assert_as_logged(bank, "a", "b")
    assert bank.engine.store.setting("a") is None
    put(bank, ("a", 3), ("b", 3), ("c", 3))
    assert_as_logged(bank, "a", "b", "c")
    assert bank.engine.store.setting("a") == 3
