"""What a new memory does to those it does not go together with."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.errors import ConflictError, InvalidInputError, UnknownKeyError
from skep.model import Memory
from skep.semantics.conflict_policy import ATTEMPTS
from skep.semantics.find_conflicts import key_of
from skep.semantics.pair_judge import Pair, Reader, Verdict, judge_many

DAY = 86_400.0


def test_raise_policy_stores_nothing_and_names_what_it_contradicts(bank: Bank) -> None:
    kept = bank.remember("Use ruff for linting").memory

    with pytest.raises(ConflictError) as caught:
        bank.remember("Never use ruff for linting", on_conflict="raise")

    assert (kept.id,) == tuple(c.existing.id for c in caught.value.conflicts)
    assert [kept.id] == [hit.memory.id for hit in bank.recall("linting")]


def test_warn_stores_and_reports(bank: Bank) -> None:
    kept = bank.remember("Use ruff for linting").memory
    result = bank.remember("Never use ruff for linting")
    assert result.action == "stored"
    (conflict,) = result.conflicts
    assert (conflict.kind, conflict.reason, conflict.existing.id) == ("contradiction", "negation", kept.id)
    assert conflict.memory == result.memory
    assert bank.status().memories == 2


def test_ignore_does_not_look(bank: Bank) -> None:
    bank.remember("Use ruff for linting")
    assert bank.remember("Never use ruff for linting", on_conflict="ignore").conflicts == ()


def test_supersede_replaces_what_no_longer_holds(bank: Bank, clock: Clock) -> None:
    old = bank.remember("Use ruff for linting").memory
    clock.pass_days(1)
    result = bank.remember("Use flake8 for linting", on_conflict="supersede")
    assert result.action == "superseded"
    assert bank.get(old.id).superseded_by == result.memory.id
    assert [hit.memory.text for hit in bank.recall("linting")] == ["Use flake8 for linting"]


def test_supersede_confirms_what_is_repeated_instead_of_storing_it_twice(bank: Bank) -> None:
    first = bank.remember("The staging database runs PostgreSQL 16", importance=0.5).memory
    result = bank.remember("The staging database runs PostgreSQL 16", on_conflict="supersede", agent="other")
    assert (result.action, result.memory.id) == ("confirmed", first.id)
    assert result.memory.importance > first.importance
    assert result.memory.confirmations == 1
    assert bank.status().memories == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Ana lives in Rome", "Ana lives in Oslo"),
        ("The server has 16 GB of RAM", "The server has 32 GB of RAM"),
        ("Use ruff for linting", "Use flake8 for linting"),
        ("The API rate limit is 100 requests per minute", "The API rate limit is 250 requests per minute"),
    ],
)
def test_a_new_value_for_the_same_thing_is_an_update(bank: Bank, before: str, after: str) -> None:
    bank.remember(before)
    (conflict,) = bank.remember(after).conflicts
    assert conflict.kind == "update"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("The server has 16 GB of RAM", "The office has a garden"),
        ("Ana lives in Rome", "Ana likes pasta"),
        ("Deploys happen on Tuesdays", "The mobile team owns the notifications API"),
    ],
)
def test_what_goes_together_is_not_a_conflict(bank: Bank, a: str, b: str) -> None:
    bank.remember(a)
    assert bank.remember(b).conflicts == ()


def test_explicit_polarity_comes_first(bank: Bank) -> None:
    bank.remember("The feature flag for search is on in production", polarity=1)
    (conflict,) = bank.remember("The feature flag for search is on in production", polarity=-1).conflicts
    assert (conflict.kind, conflict.reason) == ("contradiction", "polarity")


def test_a_function_of_the_user_is_asked_when_the_rules_say_nothing(bank: Bank) -> None:
    asked: list[tuple[str, str]] = []

    def custom(existing: Memory, new: Memory) -> bool:
        asked.append((existing.text, new.text))
        return "secret" in new.text

    bank.remember("The launch party is in the large hall on Friday evening")
    result = bank.remember(
        "The secret launch party is in the large hall on Friday evening with everybody",
        contradiction_fn=custom,
    )
    if asked:
        assert [c.reason for c in result.conflicts] == ["custom"]
    else:
        assert result.conflicts


def test_what_is_private_to_others_does_not_conflict(bank: Bank) -> None:
    bank.remember("Use ruff for linting", scope={"user": "ana"})
    assert bank.remember("Never use ruff for linting", scope={"user": "bo"}).conflicts == ()


def test_other_tags_and_another_kind_hide_no_sure_contradiction(bank: Bank) -> None:
    python = bank.remember("Use ruff for linting", tags=["python"]).memory
    rule = bank.remember("Use ruff for linting", kind="procedure", on_conflict="ignore").memory
    found = bank.remember("Never use ruff for linting", tags=["rust"]).conflicts
    assert {(c.existing.id, c.kind) for c in found} == {
        (python.id, "contradiction"),
        (rule.id, "contradiction"),
    }


@pytest.mark.parametrize("how", ["link", "decision"])
def test_what_somebody_decided_is_not_raised_again(bank: Bank, clock: Clock, how: str) -> None:
    old = bank.remember("The depot listens on port 7", on_conflict="ignore").memory
    clock.pass_days(1)
    new = bank.remember("The depot listens on port 8", on_conflict="ignore").memory
    assert len(bank.find_conflicts()) == 1
    if how == "link":
        bank.link(new.id, old.id, rel="contradicts")
    else:
        decided = {"older": old.id, "newer": new.id, "decision": "KEEP_BOTH"}
        bank.engine.write([("setting", {"key": key_of(old.id, new.id), "value": decided})])
    assert bank.find_conflicts() == []
    assert bank.find_conflicts(new.id) == []


def test_the_whole_bank_can_be_scanned_each_pair_once(bank: Bank, clock: Clock) -> None:
    a = bank.remember("Use ruff for linting", on_conflict="ignore").memory
    clock.pass_seconds(1)
    b = bank.remember("Never use ruff for linting", on_conflict="ignore").memory
    bank.remember_many([f"Note number {i} about {word}" for i, word in enumerate(["tea", "rivers", "maps"])])
    seen: list[tuple[int, int]] = []
    found = bank.find_conflicts(progress=lambda done, total: seen.append((done, total)))
    (conflict,) = [c for c in found if c.kind == "contradiction"]
    assert conflict.memory is not None
    assert (conflict.existing.id, conflict.memory.id) == (a.id, b.id)
    assert seen[-1][0] == seen[-1][1] > 0
    assert [c.existing.id for c in bank.find_conflicts(b.id)] == [a.id]


def test_recall_marks_hits_that_do_not_go_together(bank: Bank) -> None:
    a = bank.remember("Use ruff for linting").memory
    b = bank.remember("Never use ruff for linting").memory
    hits = {hit.memory.id: hit for hit in bank.recall("ruff linting")}
    assert "conflict" in hits[a.id].flags
    assert hits[a.id].conflicts_with == (b.id,)
    assert hits[b.id].conflicts_with == (a.id,)
    assert "conflicts with" in hits[a.id].why()


def test_an_unknown_policy_is_refused(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'supersede'"):
        bank.remember("x", on_conflict="supercede")  # type: ignore[arg-type]


CLAIMS = (
    "The staging database listens on port {}",
    "Ana's cat weighs {} kilograms",
    "Retries stop after {} attempts",
    "The bakery opens at {} in the morning",
    "The lease of the office ends in {} months",
)


def _claims(path: str, number: int, gate: Barrier, policy: str) -> int:
    """One process that says something else about everything, at the same moment as the others; how often it could."""
    stored = 0
    with Bank.open(path) as bank:
        for claim in CLAIMS:
            gate.wait(60)
            try:
                bank.remember(claim.format(number + 2), on_conflict=policy)  # type: ignore[arg-type]
                stored += 1
            except ConflictError:
                pass
    return stored


@pytest.mark.parametrize("policy", ["raise", "supersede"])
def test_of_processes_that_contradict_each_other_at_once_only_one_stands(
    bank_path: Path, policy: str
) -> None:
    processes = 3
    with Bank.open(bank_path) as bank:
        bank.remember("Use ruff for linting")
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(processes, mp_context=context) as pool:
        gate = manager.Barrier(processes)
        asked = [pool.submit(_claims, str(bank_path), i, gate, policy) for i in range(processes)]
        stored = sum(one.result(120) for one in asked)
    with Bank.open(bank_path) as bank:
        assert len(bank.find()) == len(CLAIMS) + 1
        assert bank.find_conflicts() == []
    assert stored == (len(CLAIMS) if policy == "raise" else processes * len(CLAIMS))


NEUTRAL = "Ana looks after the port list of the staging database"
"""Near enough to be compared with a claim about that port, and no conflict with it."""


def test_a_write_that_came_between_the_look_and_the_decision_is_seen(bank_path: Path) -> None:
    """Whoever is asked for an opinion writes the very contradiction; it is found all the same."""
    with Bank.open(bank_path) as bank, Bank.open(bank_path) as other:
        bank.remember(NEUTRAL)

        def interfere(_old: Memory, _new: Memory) -> bool:
            if other.status().memories == 1:
                other.remember("The staging database listens on port 8", on_conflict="ignore")
            return False

        with pytest.raises(ConflictError):
            bank.remember(
                "The staging database listens on port 7", on_conflict="raise", contradiction_fn=interfere
            )
        assert bank.status().memories == 2


def test_a_decision_is_taken_even_if_others_never_stop_writing(bank_path: Path) -> None:
    with Bank.open(bank_path) as bank, Bank.open(bank_path) as other:
        told = bank.remember(NEUTRAL).memory
        looks = 0

        def busy(_old: Memory, _new: Memory) -> bool:
            nonlocal looks
            looks += 1
            if not bank.engine.store.connection.db.in_transaction:  # then the others wait
                other.confirm(told.id, f"somebody {looks}")
            return False

        stored = bank.remember(
            "The staging database listens on port 7", on_conflict="raise", contradiction_fn=busy
        )
        assert bank.get(stored.memory.id).status == "active"
        assert looks == ATTEMPTS + 1


def test_items_of_many_may_each_say_what_to_do_about_conflicts(bank: Bank) -> None:
    bank.remember("Use ruff for linting")
    stored = bank.remember_many(
        [
            {"text": "The kettle is blue", "on_conflict": "raise"},
            {"text": "Use flake8 for linting", "on_conflict": "supersede"},
            {"text": "Write to ops@example.org about kettles", "redact": "all"},
            "Never use flake8 for linting",
        ]
    )
    assert [result.action for result in stored] == ["stored", "superseded", "stored", "stored"]
    assert stored[2].redactions == ("email",)
    assert "ops@" not in stored[2].memory.text
    with pytest.raises(InvalidInputError, match="item 1: on_conflict must be one of"):
        bank.remember_many(["fine", {"text": "x", "on_conflict": "shout"}])
    with pytest.raises(UnknownKeyError, match="did you mean 'on_conflict'"):
        bank.remember_many([{"text": "x", "on_conflct": "raise"}])


def test_an_item_that_is_refused_keeps_out_what_stands_beside_it(bank: Bank) -> None:
    bank.remember("Use ruff for linting")
    with pytest.raises(ConflictError):
        bank.remember_many(
            [
                {"text": "Ana lives in Rome", "on_conflict": "warn"},
                "The sky is blue today",
                {"text": "Never use ruff for linting", "on_conflict": "raise"},
            ]
        )
    assert bank.status().memories == 1


def test_the_same_words_turned_round_are_not_taken_for_a_repetition(bank: Bank, clock: Clock) -> None:
    old = bank.remember("Prefer tabs over spaces").memory
    clock.pass_days(1)
    result = bank.remember("Prefer spaces over tabs", on_conflict="supersede")
    assert (result.memory.text, result.action) == ("Prefer spaces over tabs", "stored")
    assert bank.get(old.id).status == "active"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Ana is allergic to peanuts", "Ana is allergic to shellfish"),
        ("Bob speaks French", "Bob speaks German"),
        ("Sales in 2022 were 5 million", "Sales in 2023 were 6 million"),
        ("Port 8080 is open", "Port 9090 is open"),
    ],
)
def test_supersede_leaves_what_may_hold_beside_the_new(
    bank: Bank, clock: Clock, first: str, second: str
) -> None:
    old = bank.remember(first).memory
    clock.pass_days(1)
    assert bank.remember(second, on_conflict="supersede").action == "stored"
    assert bank.get(old.id).status == "active"


@pytest.mark.parametrize("many", [False, True])
def test_raise_does_not_refuse_what_may_hold_beside_the_old(bank: Bank, many: bool) -> None:
    bank.remember("Bob speaks French", on_conflict="raise")
    if many:
        bank.remember_many(["Bob speaks German"], on_conflict="raise")
    else:
        assert bank.remember("Bob speaks German", on_conflict="raise").action == "stored"
    assert {memory.text for memory in bank.find()} == {"Bob speaks French", "Bob speaks German"}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Ana lives in Rome", "Ana moved from Rome to Oslo"),
        ("The warehouse is in Linz", "The warehouse moved from Linz to Steyr"),
        ("The office is in Munich", "The office moved to Berlin"),
    ],
)
def test_what_is_told_to_have_moved_updates_where_it_was(
    bank: Bank, clock: Clock, older: str, newer: str
) -> None:
    bank.remember_many(["Ana likes opera", "Bob plays chess", "The office has a roof terrace"])
    old = bank.remember(older, on_conflict="ignore").memory
    clock.pass_days(1)
    (conflict,) = bank.remember(newer).conflicts
    assert (conflict.kind, conflict.existing.id) == ("update", old.id)


def test_of_one_moment_the_later_written_is_the_newer(bank: Bank) -> None:
    for word in [
        "tea",
        "rivers",
        "maps",
        "chess",
        "opera",
        "linen",
        "wells",
        "moths",
    ]:  # ids of one and of two digits
        bank.remember(f"A note in which somebody writes about {word} at length", on_conflict="ignore")
    one, other = (bank.remember(f"The budget is ${n},000", on_conflict="ignore").memory.id for n in (7, 5))
    (conflict,) = (c for c in bank.find_conflicts() if "budget" in c.existing.text)
    assert conflict.memory is not None
    assert (conflict.existing.id, conflict.memory.id) == (one, other)


@pytest.mark.parametrize(
    "when",
    [
        {"valid_from": 30 * DAY},
        {"valid_from": -60 * DAY, "valid_to": -30 * DAY},
        {"created_at": -365 * DAY},
    ],
)
def test_what_is_not_of_the_present_replaces_nothing(
    bank: Bank, clock: Clock, when: dict[str, float]
) -> None:
    present = bank.remember("The price of the plan is 5 euro").memory
    times: dict[str, Any] = {name: clock() + seconds for name, seconds in when.items()}

    result = bank.remember("The price of the plan is 7 euro", on_conflict="supersede", **times)

    assert result.action == "stored"
    assert [conflict.kind for conflict in result.conflicts] == ["update"]
    assert bank.recall("what is the price of the plan?")[0].memory.id == present.id


def test_what_holds_already_and_still_replaces(bank: Bank, clock: Clock) -> None:
    bank.remember("The price of the plan is 5 euro")
    clock.pass_seconds(1)
    times: dict[str, Any] = {"valid_from": clock() - DAY, "valid_to": clock() + DAY}

    result = bank.remember("The price of the plan is 7 euro", on_conflict="supersede", **times)

    assert result.action == "superseded"


def test_a_look_through_the_bank_finds_what_a_look_at_each_memory_finds_and_compares_few_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def counted(pairs: Sequence[Pair], reader: Reader | None = None) -> list[Verdict]:
        asked.append(len(pairs))
        return judge_many(pairs, reader)

    told: list[tuple[int, int]] = []
    with Bank.open(":memory:") as bank:
        texts = [f"Server {number} of rack {number % 4} runs version {number % 3}" for number in range(150)]
        bank.remember_many(texts, on_conflict="ignore")
        one_by_one = {
            frozenset((memory.id, conflict.existing.id))
            for memory in bank.find(limit=200)
            for conflict in bank.find_conflicts(memory.id)
        }
        monkeypatch.setattr("skep.semantics.pair_judge.judge_many", counted)
        found = bank.find_conflicts(progress=lambda done, total: told.append((done, total)))
    pairs = [frozenset((c.existing.id, c.memory.id)) for c in found if c.memory is not None]
    assert len(pairs) == len(set(pairs)) == len(found)
    assert set(pairs) == one_by_one
    assert len(asked) <= 5
    assert told[-1][0] == told[-1][1] == sum(asked)
    assert len({total for _, total in told}) == 1


def test_who_is_asked_about_pairs_is_asked_about_each_once_and_progress_is_told_after_each() -> None:
    told: list[str] = []

    def asked(_one: Memory, _other: Memory) -> bool:
        told.append("asked")
        return False

    with Bank.open(":memory:") as bank:
        for text in (
            "The cat sleeps on the sofa in the living room",
            "The sofa in the living room is by a Danish maker",
            "The living room has two windows and a sofa",
        ):
            bank.remember(text, on_conflict="ignore")
        bank.find_conflicts(
            contradiction_fn=asked, threshold=0.0, progress=lambda done, _total: told.append(str(done))
        )
    assert told == ["asked", "1", "asked", "2", "asked", "3"]
