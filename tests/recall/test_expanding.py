"""What links bring to an answer: only what the recall may show, by ways it may see, marked like any other hit."""

from __future__ import annotations

from itertools import pairwise

import pytest

from skep.bank.bank import Bank
from skep.errors import ConfigError
from skep.model import Link

ANA, BOB = {"user": "ana"}, {"user": "bob"}


def told(bank: Bank, text: str, **how: object) -> str:
    return bank.remember(text, on_conflict="ignore", **how).memory.id  # type: ignore[arg-type]


def test_memories_of_others_take_no_place_among_those_that_links_bring(bank: Bank) -> None:
    plan = told(bank, "zebra migration plan", scope=ANA)
    for number in range(6):
        bank.link(plan, told(bank, f"private item {number}", scope=BOB))
    mine = told(bank, "cabin key drawer", scope=ANA)
    bank.link(plan, mine, strength=0.9)

    hits = bank.recall("zebra migration", scope=ANA, limit=1, expand=True)

    assert [hit.memory.id for hit in hits] == [plan, mine]


def test_a_walk_does_not_pass_through_what_the_scope_hides(bank: Bank) -> None:
    plan, far = told(bank, "zebra migration plan", scope=ANA), told(bank, "cabin key drawer", scope=ANA)
    between = told(bank, "private item", scope=BOB)
    bank.link(plan, between)
    bank.link(between, far)
    how = {"depth": 2}

    hidden = bank.recall("zebra migration", scope=ANA, limit=1, expand=how)
    open_ = bank.recall("zebra migration", scope={"user": "*"}, limit=1, expand=how)

    assert [hit.memory.id for hit in hidden] == [plan]
    assert {hit.memory.id for hit in open_} == {plan, between, far}


def test_what_was_replaced_leads_on_without_being_shown(bank: Bank) -> None:
    plan, old, new = (told(bank, text) for text in ("zebra migration plan", "cabin key", "cabin lock"))
    bank.link(plan, old)
    bank.supersede(old, new)

    hits = bank.recall("zebra migration", limit=1, expand={"depth": 2})

    assert [hit.memory.id for hit in hits] == [plan, new]


def test_a_stale_memory_is_marked_also_where_a_link_brings_it(bank: Bank) -> None:
    plan, made, source = (told(bank, text) for text in ("lantern oil", "lamp count", "an inventory"))
    bank.link(plan, made)
    bank.link(made, source, "derived_from")
    bank.retract(source)

    hits = bank.recall("lantern oil", limit=1, expand=True)

    assert hits[1].flags == ("expanded", "stale")


@pytest.mark.parametrize("preset", ["semantic", "hybrid", "rrf", "patterns", "stream", "default"])
@pytest.mark.parametrize("config", [{}, {"dynamic_k": True}, {"select": "mmr"}, {"select": "diversity"}])
@pytest.mark.parametrize("limit", [1, 60])
def test_the_stages_of_a_trace_add_up(bank: Bank, preset: str, config: dict[str, object], limit: int) -> None:
    words = ("deploy", "green", "cluster", "region", "budget", "ticket", "owner", "review", "merge")
    texts = [f"{a} {b} note {n}" for n, (a, b) in enumerate((a, b) for a in words for b in words if a != b)]
    ids = [result.memory.id for result in bank.remember_many(texts)]
    for one, other in pairwise(ids):
        bank.link(one, other)

    answer = bank.recall(
        "deploy budget", preset=preset, config=config, limit=limit, expand=True, explain=True
    )

    *stages, last = answer.trace
    for before, after in pairwise(stages):
        assert after.kept == before.kept - after.cut, after
    assert (last.name, last.kept) == ("expansion", len(answer))
    assert last.note == f"{len(answer) - stages[-1].kept} reached by links"


def test_a_hit_that_a_link_led_to_says_which_one(bank: Bank) -> None:
    plan, near, far = (told(bank, text) for text in ("zebra migration plan", "cabin key", "lamp oil"))
    bank.link(near, plan, "entails")
    bank.link(near, far)

    _, one, two = bank.recall("zebra migration", limit=1, expand={"depth": 2})

    assert (one.via, two.via) == (Link(src=near, dst=plan, rel="entails"), Link(src=near, dst=far))
    assert f"1 link away, {near} -entails-> {plan}" in one.why()
    assert f"2 links away, {near} -related-> {far}" in two.why()


def test_a_call_overrides_what_the_config_of_the_bank_says_of_links(bank: Bank) -> None:
    ids = [told(bank, text) for text in ("zebra migration plan", "cabin key", "lamp oil")]
    for one, other in pairwise(ids):
        bank.link(one, other)
    bank.set_setting("recall/config", {"expand": {"depth": 2}})

    def found(**how: object) -> int:
        return len(bank.recall("zebra migration", limit=1, **how))  # type: ignore[arg-type]

    assert found() == 3
    assert found(expand=True) == 3, "as the bank says"
    assert found(expand={"depth": 1}) == 2
    assert found(expand=False) == found(config={"expand": None}) == 1
    assert found(preset="default", expand=True) == 2, "a named preset leaves the config of the bank aside"
    with pytest.raises(ConfigError, match="true, false or a mapping"):
        found(expand=0)
