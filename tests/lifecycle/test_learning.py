"""A bank that learns from outcomes does better than one that does not."""

from __future__ import annotations

from random import Random

import pytest
from tests.conftest import Clock

from skep.bank import Bank
from skep.confidence import effective, failed, procedure_score, supported
from skep.errors import InvalidInputError, NotFoundError
from skep.lifecycle.utility import difference, effects, withhold
from skep.model import Hit, Memory


def test_success_and_failure_move_confidence(bank: Bank) -> None:
    memory = bank.remember("retry with back-off", confidence=0.8).memory

    bank.learn("call the API", "success", used=[memory.id])
    assert bank.get(memory.id).confidence == pytest.approx(supported(0.8))
    bank.learn("call the API", "failure", used=[memory.id])
    after = bank.get(memory.id)
    assert after.confidence == pytest.approx(failed(supported(0.8)))
    assert (after.successes, after.failures) == (1, 1)
    assert [o.success for o in bank.outcomes(memory.id)] == [True, False]


def test_what_was_used_together_is_linked_more_strongly_each_time(bank: Bank) -> None:
    a, b = (m.memory.id for m in bank.remember_many(["warm the cache first", "then send the traffic over"]))
    strengths: list[float] = []
    for number in range(3):
        bank.learn(f"release {number}", "success", used=[a, b])
        strengths.append(bank.neighbors(a, "used_with").links[0].strength)
    assert strengths == sorted(strengths)
    assert strengths[0] == pytest.approx(0.2)
    assert strengths[2] < 1


def test_a_success_leaves_a_procedure_and_repeating_it_confirms_it(bank: Bank) -> None:
    fact = bank.remember("the linter must pass before pushing").memory
    first = bank.learn("open a pull request", "success", used=[fact.id], task_type="review", domain="git")
    assert first.procedure is not None
    assert (first.procedure.kind, first.procedure.domain) == ("procedure", "git")
    assert first.procedure.metadata["task_type"] == "review"
    assert first.procedure.successes == 1
    assert {link.dst for link in bank.neighbors(first.procedure.id, "derived_from").links} == {fact.id}

    again = bank.learn("open another", "success", used=[fact.id], task_type="review", domain="git")
    assert again.procedure is not None
    assert again.procedure.id == first.procedure.id


def test_a_lesson_is_kept_in_its_own_words(bank: Bank) -> None:
    learned = bank.learn("deploy", "failure", lesson="Never deploy on a Friday afternoon")
    assert learned.procedure is not None
    assert learned.procedure.text == "Never deploy on a Friday afternoon"


def test_recommendations_show_the_record_behind_them(bank: Bank) -> None:
    good = bank.remember("Use Redis caching for API responses", kind="procedure", domain="backend").memory
    bad = bank.remember("Turn off logging for API responses", kind="procedure", domain="backend").memory
    for number in range(10):
        bank.learn(f"speed up the API {number}", "success" if number else "failure", used=[good.id])
        bank.learn(f"speed up the API {number}", "failure", used=[bad.id])

    best, second = bank.recommend("make the API faster", 2)

    assert (best.memory.id, best.record) == (good.id, "9 of 10")
    assert second.memory.id == bad.id
    assert best.score == pytest.approx(
        procedure_score(
            best.parts["success"], best.parts["usage"], best.parts["recency"], best.parts["context"]
        )
    )
    assert "9 of 10" in best.why()


def test_links_lead_to_strategies_of_other_domains(bank: Bank) -> None:
    frontend = bank.remember(
        "Split the page into small components", kind="procedure", domain="frontend"
    ).memory
    backend = bank.remember("Cut the monolith along team borders", kind="procedure", domain="backend").memory
    bank.link(frontend.id, backend.id, "analogy", 0.8)
    found = bank.recommend("structure a web page from components", 3)
    assert {r.memory.id for r in found} == {frontend.id, backend.id}


def test_bad_outcomes_are_refused(bank: Bank) -> None:
    with pytest.raises(InvalidInputError, match="success"):
        bank.learn("task", "maybe")
    with pytest.raises(NotFoundError):
        bank.learn("task", "success", used=["nobody-1"])
    assert bank.status().events == 0


def test_decay_is_read_and_never_stored() -> None:
    then, later = 10 * 86_400.0, 30 * 86_400.0
    assert effective(0.8, 0.0, later) == pytest.approx(0.593, abs=1e-3)
    assert effective(0.8, 0.0, then) != effective(0.8, 0.0, later)
    assert effective(0.8, 0.0, later) == effective(0.8, 0.0, later)


def test_success_rises_over_repeated_tasks_against_a_bank_that_does_not_learn() -> None:
    """Observe, analyse, learn, adapt, apply: ten kinds of task, three strategies each, one of which works."""
    rng = Random(7)
    kinds = [
        "parsing",
        "caching",
        "routing",
        "billing",
        "search",
        "login",
        "mail",
        "charts",
        "export",
        "backup",
    ]
    works = {kind: rng.randrange(3) for kind in kinds}

    def run(learns: bool) -> list[float]:
        clock = Clock()
        with Bank.open(":memory:", now=clock) as bank:
            options = {
                kind: [
                    bank.remember(
                        f"strategy {i} for {kind}: {kind} plan {'xyz'[i]}", kind="procedure"
                    ).memory.id
                    for i in range(3)
                ]
                for kind in kinds
            }
            rates: list[float] = []
            for _round in range(6):
                won = 0
                for kind in kinds:
                    found = [r for r in bank.recommend(f"a {kind} task", 3) if r.memory.id in options[kind]]
                    chosen = found[0].memory.id if found else options[kind][0]
                    success = options[kind].index(chosen) == works[kind]
                    won += success
                    if learns:
                        bank.learn(f"a {kind} task", success, used=[chosen])
                    clock.pass_days(1)
                rates.append(won / len(kinds))
            return rates

    learning, fixed = run(True), run(False)
    assert learning[-1] >= 0.9
    assert learning[-1] > learning[0]
    assert fixed[-1] == fixed[0]
    assert sum(learning) > sum(fixed)


def test_withholding_leaves_out_one_hit_at_the_chosen_rate() -> None:
    hits = [Hit(memory=Memory(id=str(i), kind="fact", text="x"), score=1.0) for i in range(4)]
    rng = Random(3)
    withheld = [withhold(hits, 0.25, rng) for _ in range(400)]
    assert 70 <= sum(bool(gone) for _, gone in withheld) <= 130
    assert all(len(shown) + len(gone) == 4 for shown, gone in withheld)
    assert withhold(hits, 0.0, rng) == (tuple(hits), ())


def test_the_effect_of_a_memory_is_estimated_with_an_interval(bank: Bank) -> None:
    helps = bank.remember("the answer is behind the second door").memory
    neutral = bank.remember("the walls are green").memory
    rng = Random(11)
    for number in range(120):
        recalled = bank.recall("which door and which walls", limit=5, withhold=0.3, rng=rng)
        shown = {hit.memory.id for hit in recalled}
        success = rng.random() < (0.9 if helps.id in shown else 0.3)
        bank.learn(f"task {number}", success, recalled=recalled)
    found = {effect.memory: effect for effect in bank.utility()}
    assert found[helps.id].low > 0
    assert found[neutral.id].low < 0 < found[neutral.id].high


def test_no_evidence_means_a_wide_interval() -> None:
    _, low, high = difference(1, 1, 0, 1)
    assert low < 0 < high
    assert effects([]) == []
