from __future__ import annotations

from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.tuning.document_index import harvest, write
from skep.tuning.document_index import indexed as chunks_of
from skep.tuning.findings import RefusedError
from skep.tuning.validate import check_files
from skep.tuning.workspace import load


def test_what_helped_is_relevant_and_what_hurt_is_a_distractor(indexed: Bank) -> None:
    chunks = chunks_of(indexed, "kb")
    helped, hurt = chunks["api/keys.md#revoke"].id, chunks["faq/login.md#sign-in"].id
    indexed.learn("take a key back", "success", used=[helped])
    indexed.learn("take a key back", "failure", used=[hurt])
    found = harvest(indexed)
    (query,) = found.eval_set.queries

    assert (query.query, query.relevant, query.distractors) == (
        "take a key back",
        ("api/keys.md",),
        ("faq/login.md",),
    )
    assert found.eval_set.collection == "kb"


def test_facts_are_labelled_by_their_id_and_the_whole_bank_is_the_collection(bank: Bank) -> None:
    fact = bank.remember("Use ruff for linting").memory
    bank.learn("lint the code", "success", used=[fact.id])
    found = harvest(bank).eval_set

    assert found.collection == "*"
    assert found.queries[0].relevant == (f"memory:{fact.id}",)


@pytest.mark.parametrize("used_facts", [1, 3])
def test_the_lesson_of_a_task_is_no_answer_to_it(used_facts: int) -> None:
    """Time stands still: the order of events comes from the log."""
    with Bank.open(":memory:", now=lambda: 1000.0) as bank:
        facts = [
            bank.remember(f"{name} is used for linting").memory.id for name in ("ruff", "flake8", "pylint")
        ]
        learnt = bank.learn("lint the code", "success", used=facts[:used_facts])
        (query,) = harvest(bank).eval_set.queries

    assert learnt.procedure is not None
    assert query.relevant == tuple(sorted(f"memory:{fact}" for fact in facts[:used_facts]))


def test_a_procedure_that_was_used_is_relevant_in_the_same_moment() -> None:
    with Bank.open(":memory:", now=lambda: 1000.0) as bank:
        way = bank.remember("Run ruff, then flake8", kind="procedure").memory.id
        bank.learn("lint", "success", used=[way])
        (query,) = harvest(bank).eval_set.queries

    assert query.relevant == (f"memory:{way}",)


def test_votes_that_cancel_out_label_nothing(bank: Bank) -> None:
    fact = bank.remember("Use ruff for linting").memory
    for outcome in ("success", "failure"):
        bank.learn("lint the code", outcome, used=[fact.id])

    with pytest.raises(RefusedError) as caught:
        harvest(bank)
    assert [finding.code for finding in caught.value.findings] == ["no-traffic"]


def test_what_was_shown_counts_where_nothing_is_said_to_be_used(bank: Bank) -> None:
    fact = bank.remember("Use ruff for linting").memory
    bank.learn("lint the code", "failure", recalled=bank.recall("linting"))

    assert harvest(bank).eval_set.queries[0].distractors == (f"memory:{fact.id}",)


def test_memories_that_were_forgotten_leave_no_label(bank: Bank) -> None:
    kept, gone = bank.remember("Use ruff for linting").memory, bank.remember("The sky is grey today").memory
    bank.learn("lint the code", "success", used=[kept.id, gone.id])
    bank.forget(gone.id)

    assert harvest(bank).eval_set.queries[0].relevant == (f"memory:{kept.id}",)


def test_the_split_of_a_query_never_changes(bank: Bank) -> None:
    fact = bank.remember("Use ruff for linting").memory
    for number in range(12):
        bank.learn(f"task number {number}", "success", used=[fact.id])
    first = harvest(bank).eval_set
    bank.learn("one more task", "success", used=[fact.id])
    second = {query.id: query.split for query in harvest(bank).eval_set.queries}

    assert {query.split for query in first.queries} == {"tune", "holdout"}
    assert all(second[query.id] == query.split for query in first.queries)


def test_a_harvest_is_a_valid_eval_set_and_replaces_only_its_like(folder: Path, indexed: Bank) -> None:
    chunk = chunks_of(indexed, "kb")["api/keys.md#revoke"].id
    for number in range(6):
        indexed.learn(f"take key {number} back", "success", used=[chunk])
    found = harvest(indexed)

    assert write(load(folder), found) == "evals/harvest.json"
    assert write(load(folder), found) == "evals/harvest.json"
    assert [finding for finding in check_files(load(folder)) if finding.severity == "error"] == []
    with pytest.raises(RefusedError):
        write(load(folder), harvest(indexed, name="golden"))
    with pytest.raises(RefusedError):
        write(load(folder), harvest(indexed, name="../golden"))


def test_a_sample_can_be_reviewed(bank: Bank) -> None:
    fact = bank.remember("Use ruff for linting").memory
    for number in range(10):
        bank.learn(f"task number {number}", "success", used=[fact.id])

    assert len(harvest(bank).sample(3)) == 3
