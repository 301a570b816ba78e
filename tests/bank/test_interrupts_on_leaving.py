"""An interrupt may come as a snapshot or a transaction is left, before the first line that would end it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.index import segment_reader
from skep.storage.event_log import Newest
from skep.storage.sqlite_connection import Held

LEAVING = {
    Held.__exit__.__code__,
    contextlib._GeneratorContextManager.__exit__.__code__,  # pyright: ignore
}
MOST = 40
"""Places that no call has."""
CALLS: dict[str, Callable[[Bank, str], Any]] = {
    "recall": lambda bank, _: bank.recall("which cat is grey?"),
    "rank": lambda bank, _: bank.rank("which cat is grey?", preset="hybrid"),
    "find": lambda bank, _: bank.find("cat"),
    "remember": lambda bank, _: bank.remember("The cat sleeps on the stove"),
    "revise": lambda bank, it: bank.revise(it, text="The cat is black"),
    "forget": lambda bank, it: bank.forget(it),
    "maintain": lambda bank, _: bank.maintain(),
    "status": lambda bank, _: bank.status(),
}


def interrupted_at(
    place: int, codes: set[CodeType], call: Callable[[], Any], error: type[BaseException]
) -> bool:
    """Raise as a function of some code is entered for the so-manieth time; whether it came to that."""
    left, raised = [place], [False]

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in codes and not raised[0]:
            left[0] -= 1
            if left[0] < 0:
                raised[0] = True
                raise error

    sys.settrace(trace)
    try:
        call()
    except error:
        pass
    finally:
        sys.settrace(None)
    return raised[0]


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
@pytest.mark.parametrize("name", list(CALLS))
def test_nothing_stays_open_or_locked(
    tmp_path: Path, clock: Clock, name: str, error: type[BaseException]
) -> None:
    with Bank.open(tmp_path / "bank.skep", now=clock) as bank:
        for place in range(MOST):
            memory = bank.remember(f"The cat number {place} is grey", on_conflict="ignore").memory.id
            came = interrupted_at(place, LEAVING, lambda id_=memory: CALLS[name](bank, id_), error)
            connection = bank.engine.store.connection
            assert not connection.mine
            assert connection.moment == 0
            if not came:
                break
            clock.pass_days(1)  # the lease of a run that was cut short is over
        assert 0 < place < MOST - 1  # pyright: ignore[reportPossiblyUnboundVariable]
        bank.remember("Written after all of it", on_conflict="ignore")
    with Bank.open(tmp_path / "bank.skep") as again:
        assert len(again.find("written after")) == 1


def test_what_another_has_forgotten_is_not_shown_after_an_interrupt_while_that_was_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(tmp_path / "bank.skep") as bank, Bank.open(tmp_path / "bank.skep") as other:
        for text in ("The cat is grey", "The cat is fat"):
            bank.remember(text, on_conflict="ignore")
        asked = "which cat is grey?"
        gone = bank.recall(asked)[0].memory.id
        other.forget(gone)

        look = bank.engine.position

        def interrupt() -> Any:
            monkeypatch.setattr(bank.engine, "position", look)
            raise KeyboardInterrupt

        monkeypatch.setattr(bank.engine, "position", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bank.recall(asked)

        assert gone not in [hit.memory.id for hit in bank.recall(asked)]
        assert gone not in bank.rank(asked, preset="hybrid").ids


def test_what_another_has_forgotten_is_not_shown_after_an_interrupt_while_the_store_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(tmp_path / "bank.skep") as bank, Bank.open(tmp_path / "bank.skep") as other:
        for text in ("The cat is grey", "The cat is fat"):
            bank.remember(text, on_conflict="ignore")
        asked = "which cat is grey?"
        gone = bank.recall(asked)[0].memory.id
        other.forget(gone)
        stands = Newest.stands

        def interrupt(*_: Any) -> bool:
            monkeypatch.setattr(Newest, "stands", stands)
            raise KeyboardInterrupt

        monkeypatch.setattr(Newest, "stands", interrupt)
        with pytest.raises(KeyboardInterrupt):
            bank.recall(asked)

        assert gone not in [hit.memory.id for hit in bank.recall(asked)]
        assert gone not in bank.rank(asked, preset="hybrid").ids


def test_words_weigh_right_after_an_interrupt_while_they_were_weighed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(tmp_path / "bank.skep", now=lambda: 1e9) as bank:
        bank.remember_many([f"The cat number {number} sleeps" for number in range(300)])
        weigh = segment_reader.impact

        def interrupt(*_: Any) -> Any:
            monkeypatch.setattr(segment_reader, "impact", weigh)
            raise KeyboardInterrupt

        monkeypatch.setattr(segment_reader, "impact", interrupt)
        with contextlib.suppress(KeyboardInterrupt):
            bank.recall("cat number 7", preset="hybrid")
        found = bank.recall("cat number 7", preset="hybrid")
    with Bank.open(tmp_path / "bank.skep", now=lambda: 1e9) as again:
        right = again.recall("cat number 7", preset="hybrid")
    assert [(hit.memory.id, hit.score) for hit in found] == [(hit.memory.id, hit.score) for hit in right]
