"""Hives on a clock that stands still, in every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive

AGENTS = ("ana", "bob", "cy", "dora", "eve", "fay")
GROUPS = {"infra": ("ana", "bob"), "people": ("cy", "dora"), "sales": ("eve", "fay")}
EMBEDDER = HashingEmbedder(64)
FAST = HivePolicy(deadline=10.0, hedge_after=5.0, stewards=("*",))
"""Everybody may change everything: these tests are about layouts, not about rights (`test_rights`)."""

MakeHive = Callable[..., Hive]


def build(kind: str, now: Callable[[], float], **options: Any) -> Hive:
    options = {"policy": FAST, "embedder": EMBEDDER, "now": now, **options}
    if kind == "flat":
        return Hive.flat(AGENTS, **options)
    if kind == "federated":
        return Hive.federated(
            GROUPS,
            parents={"sales": "people"},
            domains={"infra": ["servers"], "people": ["staff"]},
            **options,
        )
    return Hive.sharded(AGENTS, **options)


@pytest.fixture
def make_hive(clock: Any) -> Iterator[MakeHive]:
    """Makes hives, and closes them afterwards."""
    made: list[Hive] = []

    def make(kind: str, **options: Any) -> Hive:
        hive = build(kind, clock, **{"name": "hive", **options})
        made.append(hive)
        return hive

    yield make
    for hive in made:
        hive.close()


@pytest.fixture(params=["flat", "federated", "sharded"])
def hive(request: pytest.FixtureRequest, make_hive: MakeHive) -> Hive:
    """An empty hive of six agents."""
    return make_hive(request.param)


@pytest.fixture
def banks(clock: Any) -> Iterator[Callable[[], Bank]]:
    """Makes empty banks in memory."""
    made: list[Bank] = []

    def make() -> Bank:
        bank = Bank.open(":memory:", embedder=EMBEDDER, now=clock)
        made.append(bank)
        return bank

    yield make
    for bank in made:
        bank.close()


def known_ids(bank: Bank) -> set[str]:
    """The memories that a bank can answer with."""
    return {memory.id for memory in bank.find(limit=10_000)}
