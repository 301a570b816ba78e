"""The state of a bank is a merge of its events: order, repetition and grouping do not count, and what wins is fixed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.errors import SkepError
from skep.model import Event
from skep.replication.exchange import sync, take

from .conftest import EMBEDDER

Make = Callable[[], Bank]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["revise", "retract", "restore", "confirm", "link", "unlink", "tag", "meet"]),
        st.integers(0, 5),
    ),
    max_size=25,
)


def state(bank: Bank) -> dict[str, Any]:
    """Everything two replicas must agree on."""
    return {
        memory.id: (
            msgspec.structs.replace(memory, uses=0, last_used_at=None),
            bank.neighbors(memory.id).links,
        )
        for memory in bank.find(status=None, limit=1000)
    }


def taken(events: Iterable[Event]) -> dict[str, Any]:
    """The state of a new bank that is given some events."""
    with Bank.open(":memory:", embedder=EMBEDDER, now=lambda: 1_750_001_000.0) as bank:
        take(bank, events)
        return {name: (memory, frozenset(links)) for name, (memory, links) in state(bank).items()}


def history(steps: list[tuple[int, str, int]]) -> list[Event]:
    """Every event of three banks that change the same memories and now and then meet."""
    time = [1_750_000_000.0]
    banks = [Bank.open(":memory:", embedder=EMBEDDER, now=lambda: time[0]) for _ in range(3)]
    first, second = banks[0].remember_many(["The cat sleeps on the mat.", "The dog sleeps in the hall."])
    ids = (first.memory.id, second.memory.id)
    for bank in banks[1:]:
        sync(bank, banks[0])
    for who, what, number in steps:
        bank, here, there = banks[who], ids[number % 2], ids[1 - number % 2]
        time[0] += number % 3  # some at the same moment
        act: dict[str, Callable[[], Any]] = {
            "revise": lambda b=bank, i=here, n=number: b.revise(i, text=f"The cat sleeps in room {n}."),
            "tag": lambda b=bank, i=here, n=number: b.revise(i, tags=[f"t{n}"]),
            "retract": lambda b=bank, i=here: b.retract(i),
            "restore": lambda b=bank, i=here: b.restore(i),
            "confirm": lambda b=bank, i=here, n=number: b.confirm(i, by=f"agent-{n}"),
            "link": lambda b=bank, i=here, j=there: b.link(i, j),
            "unlink": lambda b=bank, i=here, j=there: b.unlink(i, j),
            "meet": lambda b=bank, w=who, n=number: sync(b, banks[(w + n) % 3]) if n % 3 else None,
        }
        try:
            act[what]()
        except SkepError:
            continue
    events = {event.id: event for bank in banks for event in bank.events()}
    for bank in banks:
        bank.close()
    return list(events.values())


@given(STEPS, st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_order_repetition_and_grouping_do_not_count(steps: list[tuple[int, str, int]], rng: Any) -> None:
    events = history(steps)
    expected = taken(events)
    shuffled = rng.sample(events, len(events))
    cut = rng.randint(0, len(events))

    assert taken(shuffled) == expected
    assert taken([*shuffled, *rng.choices(events, k=5)]) == expected
    assert taken([*shuffled[cut:], *shuffled]) == expected


@pytest.fixture
def pair(banks: Make) -> tuple[Bank, Bank, str]:
    """Two banks that know one memory and have not met since."""
    a, b = banks(), banks()
    kept = a.remember("The cat sleeps on the mat.").memory.id
    sync(a, b)
    return a, b, kept


def test_the_latest_word_counts(pair: tuple[Bank, Bank, str], clock: Any) -> None:
    a, b, kept = pair
    a.revise(kept, text="The cat sleeps in the sun.")
    clock.pass_seconds(1)
    b.revise(kept, text="The cat sleeps in the hall.")
    sync(a, b)

    assert a.get(kept).text == b.get(kept).text == "The cat sleeps in the hall."


def test_a_restore_wins_over_a_retraction_it_has_not_seen(pair: tuple[Bank, Bank, str]) -> None:
    a, b, kept = pair
    a.retract(kept)
    sync(a, b)
    a.restore(kept)
    b.retract(kept)
    sync(a, b)

    assert a.get(kept).status == b.get(kept).status == "active"


def test_confirmations_of_different_agents_add_up_and_repeated_ones_do_not(
    pair: tuple[Bank, Bank, str],
) -> None:
    a, b, kept = pair
    a.confirm(kept, by="ana")
    b.confirm(kept, by="bob")
    sync(a, b)
    sync(b, a)

    assert a.get(kept).confirmations == b.get(kept).confirmations == 2


def test_a_forget_wins_over_everything(pair: tuple[Bank, Bank, str]) -> None:
    a, b, kept = pair
    a.forget(kept)
    b.revise(kept, text="The cat sleeps in the sun.")
    b.confirm(kept, by="bob")
    sync(a, b)

    assert state(a) == state(b) == {}
