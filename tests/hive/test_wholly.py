"""An agent's bank speaks for the whole hive, whatever is behind it: conflicts, strategies, outcomes, figures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.bank.bank import Bank
from skep.errors import NotFoundError
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive

from .conftest import AGENTS, EMBEDDER, MakeHive
from .test_apart import Apart, apart, bus, open_both  # noqa: F401 - fixtures

KINDS = ("flat", "federated", "sharded")
RUFF, NEVER = "Use ruff for linting the code", "Never use ruff for linting the code"

TEXTS = (
    "The staging database listens on port 5433.",
    "Lunch is served in the garden today.",
    "Bob repairs bicycles on Tuesday.",
    "The red cat sleeps under the stairs.",
    "Invoices leave the office every Friday.",
    "Turbine seven needs new bearings in May.",
)


def pairs(found: Any) -> set[tuple[str, str, str]]:
    return {(c.kind, *sorted((c.existing.text, c.memory.text))) for c in found}


@pytest.fixture
def one_bank(clock: Any) -> Any:
    with Bank.open(":memory:", embedder=EMBEDDER, now=clock) as bank:
        yield bank


def taught(bank_of: Any) -> None:
    """The same story, told to a hive or to one bank."""
    bank_of("ana").remember(RUFF, on_conflict="ignore", confidence=0.6)
    bank_of("eve").remember(NEVER, on_conflict="ignore", confidence=0.9)
    bank_of("cy").remember("Lunch is served in the garden today.", on_conflict="ignore")
    bank_of("dora").remember("Lunch is served in the garden today.", on_conflict="ignore")


@pytest.mark.parametrize("kind", KINDS)
def test_conflicts_between_members_are_found_like_in_one_bank(
    make_hive: MakeHive, kind: str, one_bank: Bank
) -> None:
    hive = make_hive(kind, policy=HivePolicy(deadline=10.0, hedge_after=5.0, contradiction="allow"))
    taught(hive.agent)
    taught(lambda _: one_bank)
    expected = pairs(one_bank.find_conflicts())

    assert len(expected) == 2
    for name in ("ana", "fay"):
        found = hive.agent(name).find_conflicts()
        assert pairs(found) == expected
        assert getattr(found, "missing", ()) == ()
    ruff = next(m for m in hive.agent("fay").find() if m.text == RUFF)
    (only,) = hive.agent("fay").find_conflicts(ruff.id)
    assert (only.existing.text, only.memory.text) == (NEVER, RUFF)
    assert hive.agent("fay").find_conflicts(threshold=0.99, scope={"user": "nobody"}) == []
    with pytest.raises(NotFoundError, match="in that scope"):
        hive.agent("fay").find_conflicts(ruff.id, scope={"user": "nobody"})


def tried(bank_of: Any) -> None:
    steps = {
        "ana": ("Deploy the shop by a rolling restart.", (True, True, True)),
        "eve": ("Deploy the shop by stopping everything first.", (False, False, True)),
        "cy": ("Bake bread with cold water.", (True,)),
    }
    for name, (text, results) in steps.items():
        made = bank_of(name).remember(text, kind="procedure", on_conflict="ignore").memory
        for success in results:
            bank_of(name).learn("deploy the shop", success, used=[made.id], domain="ops", task_type="deploy")
    bank_of("dora").learn("count the chairs", True, lesson="Count chairs twice before the guests come.")


@pytest.mark.parametrize("kind", KINDS)
def test_strategies_and_outcomes_of_others_count_like_in_one_bank(
    make_hive: MakeHive, kind: str, one_bank: Bank
) -> None:
    hive = make_hive(kind)
    tried(hive.agent)
    tried(lambda _: one_bank)
    expected = one_bank.recommend("deploy the shop", k=2)

    for name in ("ana", "fay"):
        bank = hive.agent(name)
        found = bank.recommend("deploy the shop", k=2)
        assert [(r.memory.text, r.record) for r in found] == [(r.memory.text, r.record) for r in expected]
        assert [r.score for r in found] == pytest.approx([r.score for r in expected], abs=0.02)
        told = bank.stats()
        assert {key: told[key] for key in one_bank.stats()} == one_bank.stats()
        assert told.get("completeness", 1.0) == 1.0
        assert [o.success for o in bank.outcomes()].count(True) == 6
        assert len(bank.outcomes(found[0].memory.id)) == 3
        assert len({o.id for o in bank.outcomes()}) == len(bank.outcomes()) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_an_outcome_that_was_undone_does_not_count(make_hive: MakeHive, kind: str) -> None:
    hive = make_hive(kind)
    tried(hive.agent)
    ana, fay = hive.agent("ana"), hive.agent("fay")
    ana.undo(ana.outcomes()[0].id)

    assert len(fay.outcomes()) == 7
    assert fay.stats()["outcomes"] == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_status_counts_every_memory_once(make_hive: MakeHive, kind: str) -> None:
    hive = make_hive(kind)
    ids = [
        hive.agent(name).remember(text, on_conflict="ignore", confidence=0.95).memory.id
        for name, text in zip(AGENTS, TEXTS, strict=True)
    ]
    hive.agent("ana").link(ids[0], ids[5])
    hive.agent("bob").retract(ids[1])
    hive.agent("ana").remember("ok")  # stays with ana
    hive.trust.set("eve", 0.2)
    hive.agent("eve").remember("The backup key lies in rack two.")
    fay, ana = hive.agent("fay").status(), hive.agent("ana").status()

    assert (fay.memories, fay.by_status) == (5, {"active": 5, "quarantined": 1, "retracted": 1})
    assert fay.by_kind == {"fact": 7}
    assert (fay.links, fay.completeness, fay.missing) == (1, 1.0, ())
    assert (ana.memories, ana.by_status["active"]) == (6, 6)
    assert fay.events >= 10
    assert msgspec.json.encode(fay)


def test_both_halves_of_a_hive_give_the_same_figures(apart: Apart) -> None:  # noqa: F811
    here, there = apart

    def bank_of(name: str) -> Bank:
        half = here if here.layout.home(name) in here.members else there
        return half.agent(name)

    tried(bank_of)
    bank_of("ana").remember(RUFF, on_conflict="ignore", confidence=0.6)
    bank_of("eve").remember(NEVER, on_conflict="ignore", confidence=0.9)
    ana, eve = bank_of("ana"), bank_of("eve")

    assert ana.stats() == eve.stats()
    assert ana.stats()["outcomes"] == 8
    assert [r.memory.id for r in ana.recommend("deploy the shop")] == [
        r.memory.id for r in eve.recommend("deploy the shop")
    ]
    assert pairs(ana.find_conflicts()) == pairs(eve.find_conflicts()) != set()
    one, other = ana.status(), eve.status()
    for field in ("memories", "by_status", "by_kind", "links", "events", "versions"):
        assert getattr(one, field) == getattr(other, field), field


def silenced(make_hive: MakeHive, kind: str) -> Hive:
    hive = make_hive(kind, policy=HivePolicy(deadline=0.2, hedge_after=0.1))
    tried(hive.agent)
    hive.members[hive.layout.home("eve")].stop()
    return hive


@pytest.mark.parametrize("kind", ["federated", "sharded"])
def test_a_member_that_is_silent_is_named(make_hive: MakeHive, kind: str) -> None:
    hive = silenced(make_hive, kind)
    ana, gone = hive.agent("ana"), (hive.layout.home("eve"),)
    told, status = ana.stats(), ana.status()

    assert told["missing"] == status.missing == gone
    assert told["completeness"] < 1.0
    for found in (ana.outcomes(), ana.recommend("deploy the shop"), ana.find_conflicts()):
        assert getattr(found, "missing", None) == gone


def test_copies_stand_in_for_a_member_that_is_silent(make_hive: MakeHive) -> None:
    hive = silenced(make_hive, "sharded")
    status = hive.agent("ana").status()

    assert (status.memories, status.by_kind) == (4, {"procedure": 4})
    assert status.completeness == 1.0
    assert len(hive.agent("ana").outcomes()) == 8
