"""A bank that learns from outcomes does better than one that does not."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.confidence import FADING, effective, failed, procedure_score, supported
from skep.errors import InvalidInputError, NotFoundError
from skep.lifecycle.learn import Candidate, Effect, best_of, compared, difference, effects, withhold
from skep.model import Event, Hit, Memory


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
        if number < 8:
            bank.learn(f"speed up the API {number}", "failure", used=[bad.id])

    best, second = bank.recommend("make API responses faster", 2)

    assert (best.memory.id, best.record) == (good.id, "9 of 10")
    assert second.memory.id == bad.id
    assert best.score == pytest.approx(
        procedure_score(
            best.parts["success"], best.parts["usage"], best.parts["recency"], best.parts["context"]
        )
    )
    assert "9 of 10" in best.why()


@pytest.mark.parametrize(
    "task", ["écris un poème sur la mer", "bake a sourdough bread", "what is the capital of Peru"]
)
def test_nothing_is_recommended_where_nothing_fits(bank: Bank, task: str) -> None:
    queue = bank.remember("Restart the queue worker after every deploy", kind="procedure").memory
    for number in range(10):
        bank.learn(f"deploy {number}", True, used=[queue.id])

    assert bank.recommend(task) == []
    assert [r.memory.id for r in bank.recommend("the queue hangs after the deploy")] == [queue.id]


def test_what_keeps_failing_is_recommended_no_more(bank: Bank) -> None:
    tried = bank.remember("Turn off logging for API responses", kind="procedure").memory
    for number in range(9):
        bank.learn(f"API {number}", False, used=[tried.id])
    assert len(bank.recommend("slow API responses")) == 1
    bank.learn("API 9", True, used=[tried.id])

    assert bank.recommend("slow API responses") == []
    assert bank.get(tried.id).status == "active"


def test_outcomes_may_be_graded(bank: Bank) -> None:
    first = bank.remember("Cache API responses in Redis", kind="procedure").memory
    second = bank.remember("Compress API responses with gzip", kind="procedure").memory
    for number in range(4):
        bank.learn(f"API {number}", 0.9, used=[first.id])
        bank.learn(f"API {number}", 0.6, used=[second.id])

    best, other = bank.recommend("slow API responses", 2)

    assert (best.memory.id, other.memory.id) == (first.id, second.id)
    assert (best.parts["success"], other.parts["success"]) == (pytest.approx(0.9), pytest.approx(0.6))
    assert bank.outcomes(second.id)[0].success
    with pytest.raises(InvalidInputError, match="or a grade from"):
        bank.learn("API", 1.5, used=[first.id])


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


def test_decay_is_a_policy_that_one_names() -> None:
    later = 30 * 86_400.0
    assert effective(0.8, 0.0, later, per_day=FADING["days"]) == pytest.approx(0.593, abs=1e-3)
    assert effective(0.8, 0.0, later, per_day=FADING["none"]) == 0.8


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


def _recorded(number: int, *, success: bool, **body: object) -> Event:
    return Event(actor="a", counter=number, hlc=number, kind="outcome", body={"success": success, **body})


@pytest.mark.parametrize("helps", [0.0, 0.3])
def test_that_easy_tasks_recall_fewer_hits_than_hard_ones_is_not_charged_to_a_memory(helps: float) -> None:
    """Easy tasks recall one hit, hard ones ten: the memory is withheld from easy ones ten times as often."""
    hits = [Hit(memory=Memory(id=str(i), kind="fact", text="x"), score=1.0) for i in range(10)]
    found: list[Effect] = []
    for seed in range(20):
        rng = Random(seed)
        events: list[Event] = []
        for number in range(800):
            easy = rng.random() < 0.5
            shown, withheld = withhold(hits[:1] if easy else hits, 0.3, rng)
            ids = [hit.memory.id for hit in shown]
            success = rng.random() < (0.6 if easy else 0.1) + (helps if "0" in ids else 0.0)
            events.append(
                _recorded(number, success=success, shown=ids, withheld=list(withheld), withhold=0.3)
            )
        found.append({effect.memory: effect for effect in effects(events)}["0"])

    assert sum(effect.effect for effect in found) / len(found) == pytest.approx(helps, abs=0.04)
    assert sum(effect.low <= helps <= effect.high for effect in found) >= 17
    assert sum(effect.clear for effect in found) == (20 if helps else pytest.approx(0, abs=3))


def test_what_was_left_out_is_recorded_with_how_likely_that_was(bank: Bank) -> None:
    bank.remember("the answer is behind the second door")
    recalled = bank.recall("which door", withhold=1.0, rng=Random(1))
    bank.learn("one", "success", recalled=recalled)
    bank.learn("two", "success", recalled=bank.recall("which door"))
    bank.learn("three", "success")

    told = [event.body for event in bank.events() if event.kind == "outcome"]
    assert [(len(body.get("withheld", ())), body.get("withhold")) for body in told] == [
        (1, 1.0),
        (0, 0.0),
        (0, None),
    ]


def test_records_without_the_share_still_count_and_shares_are_not_mixed() -> None:
    old = [_recorded(i, success=i % 2 == 0, shown=["m", "n"]) for i in range(20)]
    old += [_recorded(20 + i, success=False, shown=["n"], withheld=["m"]) for i in range(20)]
    [effect] = effects(old)
    assert (effect.memory, effect.shown, effect.withheld, effect.effect) == ("m", 20, 20, 0.5)
    assert (effect.effect, effect.low, effect.high) == difference(10, 20, 0, 20)

    never = [_recorded(100 + i, success=True, shown=["m", "n"], withhold=0.0) for i in range(500)]
    [again] = effects(old + never)
    assert (again.effect, again.low) == (effect.effect, effect.low)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.floats(0, 1), st.floats(0, 1)), max_size=6)
)
def test_the_average_of_groups_lies_between_them(drawn: list[tuple[int, int, float, float]]) -> None:
    groups = [[a, round(a * p), b, round(b * q)] for a, b, p, q in drawn]
    found = compared(groups)
    own = [a[1] / a[0] - a[3] / a[2] for a in groups if a[0] and a[2]]
    if found is None:
        assert own == []
        return
    effect, low, high = found
    assert min(own) - 1e-9 <= effect <= max(own) + 1e-9
    assert -1 <= low <= high <= 1


@pytest.mark.parametrize("kinds", [["parsing"], ["parsing", "billing"]])
def test_who_always_follows_the_first_recommendation_gets_away_from_what_fails(kinds: list[str]) -> None:
    clock = Clock()
    with Bank.open(":memory:", now=clock) as bank:
        for kind in kinds:
            for letter in "xyz":
                bank.remember(
                    f"strategy {letter} for {kind}: {kind} plan {letter}",
                    kind="procedure",
                    on_conflict="ignore",
                )
        works = {kind: bank.recommend(f"a {kind} task", 3)[-1].memory.id for kind in kinds}
        won: list[bool] = []
        for _round in range(12):
            for kind in kinds:
                chosen = bank.recommend(f"a {kind} task", 3)[0].memory.id
                won.append(chosen == works[kind])
                bank.learn(f"a {kind} task", won[-1], used=chosen)
                clock.pass_days(1)

    assert not won[0]
    assert all(won[len(won) // 3 :])


def test_what_never_worked_ranks_below_what_was_never_tried(bank: Bank) -> None:
    failing = bank.remember("Restart the queue worker when jobs hang", kind="procedure").memory.id
    untried = bank.remember(
        "Drain the queue worker when jobs hang", kind="procedure", on_conflict="ignore"
    ).memory.id
    for number in range(9):
        bank.learn(f"jobs hang {number}", "failure", used=[failing])

    first, second = bank.recommend("jobs hang in the queue worker")

    assert (first.memory.id, second.memory.id) == (untried, failing)
    assert first.why().startswith("not tried yet; ")
    assert second.why().startswith("worked 0 of 9; ")


def test_the_worked_example_of_a_recommendation() -> None:
    procedure = Memory(id="p", kind="procedure", text="x", successes=18, failures=2, created_at=0.0)
    now = 2.0037 * 86_400  # a recency of 0.95
    [found] = best_of(
        [Candidate(procedure, 1.0, 0.85)],
        k=1,
        domain=None,
        total=100,
        now=now,
        links=lambda _id: (),
        get=lambda _id: None,
    )
    assert found.score == pytest.approx(0.695, abs=1e-3)


def test_a_lesson_of_a_failure_is_not_charged_with_it_however_often_it_is_learnt(bank: Bank) -> None:
    first = bank.learn("deploy", "failure", lesson="Never deploy on a Friday afternoon").procedure
    again = bank.learn("deploy", "failure", lesson="Never deploy on a Friday afternoon").procedure
    assert first is not None
    assert again is not None
    assert (again.id, again.confidence, again.failures) == (first.id, first.confidence, 0)


def test_one_id_may_be_given_as_it_is(bank: Bank) -> None:
    tip = bank.remember("Never deploy on a Friday afternoon").memory.id
    assert bank.learn("deploy", "success", used=tip).outcome.used[0] == tip
