"""What an agent may expect of a hive, in every layout."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec
import pytest

from skep.bank.bank import Bank
from skep.bank.memory_bank import MemoryBank
from skep.errors import ConflictError, ForgottenError, InvalidInputError, NotFoundError
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive

from .conftest import AGENTS, FAST, MakeHive

DATABASE = "The staging database runs PostgreSQL 16 on port 5433."


def texts(found: Any) -> list[str]:
    return [hit.memory.text for hit in found]


def holders(hive: Hive, memory_id: str) -> set[str]:
    return {name for name, member in hive.members.items() if member.has(memory_id)}


def test_what_one_agent_learns_every_agent_knows(hive: Hive) -> None:
    hive.agent("ana").remember(DATABASE)

    for name in AGENTS:
        assert texts(hive.agent(name).recall("port of the staging database")) == [DATABASE]


def test_an_agent_cannot_tell_its_bank_from_a_plain_one(hive: Hive) -> None:
    bank = hive.agent("ana")

    for name in dir(MemoryBank):
        method = getattr(Bank, name, None)
        if inspect.isfunction(method) and not name.startswith("_"):
            ours = inspect.signature(getattr(bank, name)).parameters
            theirs = list(inspect.signature(method).parameters)[1:]
            flexible = any(p.kind is p.VAR_KEYWORD for p in ours.values())
            assert flexible or list(ours) == theirs, name


def test_memories_keep_their_author_and_their_id(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE).memory
    (hit,) = hive.agent("fay").recall("staging database")

    assert hit.memory.agent == "ana"
    assert hit.memory.id == stored.id
    assert hive.agent("fay").get(stored.id).text == DATABASE


def test_nobody_writes_in_another_name(hive: Hive) -> None:
    with pytest.raises(InvalidInputError, match="cannot write for 'bob'"):
        hive.agent("ana").remember(DATABASE, agent="bob")


def test_a_revision_is_seen_by_all_wherever_it_was_made(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE).memory
    hive.agent("eve").revise(stored.id, text="The staging database listens on port 5434.")

    for name in AGENTS:
        assert hive.agent(name).get(stored.id).text.endswith("5434.")
        assert texts(hive.agent(name).recall("staging database port")) == [
            "The staging database listens on port 5434."
        ]


def test_a_retraction_follows_every_copy_and_can_be_taken_back(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE, confidence=0.95).memory
    hive.agent("eve").retract(stored.id, "it moved")

    assert {hive.members[m].get(stored.id).status for m in holders(hive, stored.id)} == {"retracted"}  # type: ignore[union-attr]
    assert texts(hive.agent("bob").recall("staging database")) == []
    hive.agent("cy").restore(stored.id)
    assert texts(hive.agent("bob").recall("staging database")) == [DATABASE]


def test_forgetting_reaches_every_copy_for_good(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE, confidence=0.95).memory
    hive.agent("eve").forget(stored.id)

    assert holders(hive, stored.id) == set()
    for member in hive.members.values():
        assert all(DATABASE not in str(event.body) for event in member.bank.events())
    with pytest.raises(ForgottenError):
        hive.agent("eve").get(stored.id)


def test_forgetting_reaches_what_was_derived_from_it_wherever_that_is_kept(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE, confidence=0.95).memory
    learnt = hive.agent("bob").remember("To reach the staging database, dial 5433.", kind="procedure").memory
    hive.agent("bob").link(learnt.id, stored.id, "derived_from")

    assert hive.agent("eve").forget(stored.id, dry_run=True).derived == (learnt.id,)
    hive.agent("eve").forget(stored.id, derived=True)

    assert holders(hive, stored.id) | holders(hive, learnt.id) == set()


def test_superseding_works_across_members(hive: Hive) -> None:
    old = hive.agent("ana").remember("Deploys happen on Mondays after the review.").memory
    new = (
        hive.agent("eve")
        .remember("Deploys happen on Tuesdays after the review.", on_conflict="ignore")
        .memory
    )
    hive.agent("cy").supersede(old.id, new.id)

    assert texts(hive.agent("bob").recall("when do deploys happen")) == [new.text]


def test_links_join_memories_of_different_members(hive: Hive) -> None:
    a = hive.agent("ana").remember("The load balancer is an F5 BIG-IP.").memory
    b = hive.agent("eve").remember("The warranty of the F5 ends in March.").memory
    hive.agent("cy").link(a.id, b.id, "related")

    assert set(hive.agent("cy").neighbors(a.id).memories) == {b.id}
    hits = hive.agent("cy").recall("load balancer", limit=1, expand=True)
    assert texts(hits) == [a.text, b.text]


def test_find_lists_everything_once_newest_first_in_pages(hive: Hive, clock: Any) -> None:
    for number, name in enumerate(AGENTS):
        clock.pass_seconds(60)
        hive.agent(name).remember(f"Server number {number} stands in rack {number}.", on_conflict="ignore")
    bank = hive.agent("dora")
    listed: list[str] = []
    cursor: str | None = None
    while True:
        page = bank.find(limit=4, cursor=cursor)
        listed += [memory.text for memory in page]
        cursor = page.cursor
        if cursor is None:
            break

    assert listed == [f"Server number {n} stands in rack {n}." for n in reversed(range(6))]
    assert [m.agent for m in bank.find(agent="bob")] == ["bob"]


def test_filters_hold_in_the_whole_hive(hive: Hive) -> None:
    hive.agent("ana").remember(
        "Server one stands in rack one.", scope={"project": "x"}, tags=["rack"], on_conflict="ignore"
    )
    hive.agent("eve").remember("Server two stands in rack two.", scope={"project": "y"}, on_conflict="ignore")
    bank = hive.agent("cy")

    assert texts(bank.recall("server", scope={"project": "x"})) == ["Server one stands in rack one."]
    assert texts(bank.recall("server", tags=["rack"])) == ["Server one stands in rack one."]
    assert texts(bank.recall("server", agent="eve")) == ["Server two stands in rack two."]
    assert len(bank.recall("server", scope={"project": "*"})) == 2


def test_the_past_of_a_hive_can_be_asked(hive: Hive, clock: Any) -> None:
    stored = hive.agent("ana").remember(DATABASE).memory
    then = clock()
    clock.pass_days(2)
    hive.agent("eve").revise(stored.id, text="The staging database listens on port 9999.")

    assert texts(hive.agent("cy").recall("staging database", as_of=then)) == [DATABASE]
    assert texts(hive.agent("cy").recall("staging database")) == [
        "The staging database listens on port 9999."
    ]


def test_bulk_learning_reaches_everybody(hive: Hive) -> None:
    stored = hive.agent("ana").remember_many([f"Server number {n} stands in rack {n}." for n in range(30)])

    assert len(stored) == 30
    assert texts(hive.agent("fay").recall("server number 17", limit=1)) == [
        "Server number 17 stands in rack 17."
    ]


def test_one_content_is_one_memory_with_several_witnesses(hive: Hive) -> None:
    first = hive.agent("ana").remember(DATABASE).memory
    again = hive.agent("eve").remember(DATABASE)
    (bulk,) = hive.agent("fay").remember_many([DATABASE.upper()])
    answer = hive.agent("cy").recall("staging database")

    assert [again.action, bulk.action] == ["confirmed", "confirmed"]
    assert [hit.memory.id for hit in answer] == [first.id]
    assert hive.get(first.id).confirmations == 2  # type: ignore[union-attr]


def test_copies_that_came_from_elsewhere_show_once(make_hive: MakeHive) -> None:
    """Where two agents said the same before they knew of each other, the answer names the other memory."""
    hive = make_hive("federated", policy=msgspec.structs.replace(FAST, contradiction="allow"))
    ids = {hive.agent(name).remember(DATABASE, on_conflict="ignore").memory.id for name in ("ana", "eve")}
    (hit,) = answer = hive.agent("cy").recall("staging database")

    assert {hit.memory.id, *answer.same[hit.memory.id]} == ids


def test_conflicts_are_found_across_members(hive: Hive) -> None:
    old = hive.agent("ana").remember("Use ruff for linting the code").memory
    with pytest.raises(ConflictError) as caught:
        hive.agent("eve").remember("Never use ruff for linting the code", on_conflict="raise")

    assert [c.existing.id for c in caught.value.conflicts] == [old.id]
    newer = hive.agent("eve").remember("Never use ruff for linting the code", on_conflict="supersede")
    assert texts(hive.agent("cy").recall("ruff linting")) == [newer.memory.text]


def test_use_is_counted_where_the_memory_is(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE).memory
    hive.agent("eve").recall("staging database")
    hive.bus.settle()  # type: ignore[attr-defined]
    for member in hive.members.values():
        member.bank.engine.flush_uses()

    uses = [m.get(stored.id).uses for m in hive.members.values() if m.has(stored.id)]  # type: ignore[union-attr]
    assert sum(uses) == 1


def test_learning_from_an_outcome_moves_confidence_in_every_copy(hive: Hive) -> None:
    stored = hive.agent("ana").remember(DATABASE, confidence=0.95).memory
    before = stored.confidence
    hive.agent("eve").learn("connect to staging", "success", used=[stored.id])

    found = {round(m.get(stored.id).confidence, 6) for m in hive.members.values() if m.has(stored.id)}  # type: ignore[union-attr]
    assert len(found) == 1
    assert found.pop() > before


def test_the_agents_search_tool_and_stream_see_the_hive(hive: Hive) -> None:
    hive.agent("ana").remember(DATABASE)

    assert [hit.memory.text for hit in hive.agent("eve").search_memory("staging database")] == [DATABASE]


def test_unknown_agents_and_memories_are_named(hive: Hive) -> None:
    with pytest.raises(NotFoundError, match="no 'zoe'"):
        hive.agent("zoe")
    with pytest.raises(NotFoundError, match="x-1"):
        hive.agent("ana").get("x-1")


def test_duplicate_agent_ids_are_refused(clock: Any) -> None:
    for make in (Hive.flat, Hive.sharded):
        with pytest.raises(InvalidInputError, match="two agents are called 'ana'"):
            make(["ana", "bob", "ana"], now=clock)
    with pytest.raises(InvalidInputError, match="one group only"):
        Hive.federated({"x": ["ana"], "y": ["ana"]}, now=clock)


def test_a_single_hive_is_one_bank(clock: Any) -> None:
    with Hive.single("ana", now=clock) as hive:
        hive.agent("ana").remember(DATABASE)
        assert texts(hive.agent("ana").recall("staging")) == [DATABASE]
        assert hive.plain


# Layout by layout


def test_sharded_memories_are_kept_by_as_many_members_as_asked(make_hive: MakeHive) -> None:
    hive = make_hive("sharded", policy=HivePolicy(replication=2, deadline=10, hedge_after=5))
    stored = hive.agent("ana").remember(DATABASE)
    owners = hive.layout.ring.owners(stored.memory.id)  # type: ignore[attr-defined]

    assert holders(hive, stored.memory.id) == {"ana", *owners}
    assert stored.copies == len(set(owners) - {"ana"})


def test_a_member_that_joins_takes_over_its_part_and_one_that_leaves_hands_it_over(
    make_hive: MakeHive,
) -> None:
    hive = make_hive("sharded", policy=HivePolicy(replication=2, deadline=10, hedge_after=5))
    ids = [
        one.memory.id
        for one in hive.agent("ana").remember_many(
            [f"Server number {n} stands in rack {n}." for n in range(40)]
        )
    ]
    hive.join("gil")
    for memory_id in ids:
        assert set(hive.layout.ring.owners(memory_id)) <= holders(hive, memory_id)  # type: ignore[attr-defined]
    hive.leave("ana")
    hive.leave("bob")

    for number in range(40):
        found = hive.agent("gil").recall(f"server number {number}", limit=1)
        assert texts(found) == [f"Server number {number} stands in rack {number}."]
    with pytest.raises(InvalidInputError, match="already an agent"):
        hive.join("gil")


def test_sure_memories_are_broadcast_to_every_group_and_others_stay_home(make_hive: MakeHive) -> None:
    hive = make_hive("federated")
    sure = hive.agent("ana").remember(DATABASE, confidence=0.95).memory
    usual = hive.agent("ana").remember("The test database listens on port 7000.", confidence=0.8).memory

    assert holders(hive, sure.id) == {"root", "infra", "people", "sales"}
    assert holders(hive, usual.id) == {"infra"}
    assert texts(hive.agent("eve").recall("test database", limit=1)) == [usual.text]


def test_a_copy_knows_the_way_it_came(make_hive: MakeHive) -> None:
    hive = make_hive("federated")
    sure = hive.agent("ana").remember(DATABASE, confidence=0.95).memory

    assert hive.members["sales"].paths.of(sure.id) == ("infra", "root", "people", "sales")
    found = hive.provenance(sure.id)
    assert (found.author, found.path, found.trust) == ("ana", ("infra",), 1.0)


def test_a_group_can_be_asked_with_all_below_it(make_hive: MakeHive) -> None:
    hive = make_hive("federated")
    hive.agent("ana").remember("The server of infra stands in rack one.", on_conflict="ignore")
    hive.agent("cy").remember("The server of people stands in rack two.", on_conflict="ignore")
    hive.agent("eve").remember("The server of sales stands in rack three.", on_conflict="ignore")

    assert len(hive.recall("server")) == 3
    assert {hit.memory.agent for hit in hive.recall("server", group="people")} == {"cy", "eve"}


def test_groups_whose_domain_fits_may_send_more(make_hive: MakeHive) -> None:
    hive = make_hive("federated")

    assert hive.layout.fitting("which servers are down?") == ("infra",)
    assert hive.layout.fitting("who is staff?") == ("people",)
    assert hive.layout.fitting("what is new?") == ()


def test_ranking_does_not_depend_on_how_memories_are_spread(make_hive: MakeHive, clock: Any) -> None:
    """All facts are equally long: a member weighs the length of a memory by the mean of its own bank."""
    facts = [
        f"{subject} {verb} {thing} in {place}."
        for subject in ("Ana", "Bob", "Cleo")
        for verb in ("sees", "likes", "buys")
        for thing in ("a red apple", "a green pear")
        for place in ("Rome", "Oslo")
    ]
    orders: list[list[str]] = []
    for kind in ("flat", "federated", "sharded"):
        hive = make_hive(kind)
        for number, fact in enumerate(facts):
            hive.agent(AGENTS[number % 6]).remember(
                fact, on_conflict="ignore", created_at=clock() - 1e6 + 10_000 * number
            )
        answer = hive.agent("cy").recall("who buys a green pear in Oslo?", limit=8, preset="hybrid")
        orders.append(texts(answer))

    assert orders[0] == orders[1] == orders[2]
    assert len(orders[0]) == 8
