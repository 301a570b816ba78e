"""What maintenance costs, counted: searches, comparisons, reads and transactions follow what is new."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.maintenance.planted import planted

from skep.bank.bank import Bank
from skep.index import neighbour_join
from skep.index.index import SegmentIndex
from skep.index.quantisation import FineCodes
from skep.lifecycle import extract_facts, resolve_conflicts
from skep.lifecycle.maintain import DEFAULT_STEPS, STEPS, MaintainConfig
from skep.model import Memory
from skep.semantics.evidence import Said, supports_many

NEW = 200


class Counted:
    """A bank whose work is counted."""

    def __init__(self, bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bank = bank
        self.work: Counter[str] = Counter()
        bank.engine.store.connection.trace = self._statement
        for owner, name in ((SegmentIndex, "search"), (SegmentIndex, "near_pairs")):
            self._count(owner, name, monkeypatch)
        judge_many = resolve_conflicts.judge_many

        def comparing(pairs: Sequence[tuple[Memory, Memory, float]], **given: Any) -> object:
            self.work["compared"] += len(pairs)
            return judge_many(pairs, **given)

        monkeypatch.setattr(resolve_conflicts, "judge_many", comparing)

    def _statement(self, sql: str, _bindings: object) -> None:
        self.work["statements"] += 1
        self.work["transactions"] += sql.startswith("BEGIN IMMEDIATE")

    def _count(self, owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        original = getattr(owner, name)

        def counting(*args: object, **options: object) -> object:
            self.work[name] += 1
            self.work["asked"] += len(args[1]) if name == "near_pairs" else 0  # type: ignore[arg-type]
            return original(*args, **options)

        monkeypatch.setattr(owner, name, counting)


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    with Bank.open(tmp_path / "bank.skep") as bank:
        yield Counted(bank, monkeypatch)


def texts(count: int, seed: int) -> list[str]:
    return sorted({each.text for each in planted(count, seed)})[:count]


def test_one_pass_finds_the_neighbours_of_everything_new(counted: Counted) -> None:
    counted.bank.remember_many(texts(NEW, 1))
    counted.work.clear()
    counted.bank.maintain()

    assert counted.work["near_pairs"] <= 2  # once more for the few that stood beside copies
    assert counted.work["asked"] <= 1.1 * NEW
    assert counted.work["search"] <= NEW
    assert counted.work["compared"] <= 2 * counted.bank.engine.settings.conflict_candidates * NEW
    assert counted.work["transactions"] <= 12


def test_with_nothing_new_nothing_is_searched_compared_or_written(counted: Counted) -> None:
    counted.bank.remember_many(texts(NEW, 1))
    counted.bank.maintain()
    before = counted.bank.status().events
    counted.work.clear()
    counted.bank.maintain()

    assert counted.bank.status().events == before
    assert {k: v for k, v in counted.work.items() if k in ("search", "near_pairs", "compared")} == {}
    assert counted.work["statements"] <= 70


def test_what_is_compared_follows_what_is_new_and_not_the_size_of_the_bank(counted: Counted) -> None:
    counted.bank.remember_many(texts(3 * NEW, 1))
    counted.bank.maintain()
    counted.work.clear()
    counted.bank.remember_many([f"Room {n} of the harbour house has a view of lake {n}" for n in range(5)])
    report = counted.bank.maintain()

    assert {step.looked_at for step in report.steps if step.step in ("merge", "conflicts")} == {5}
    assert counted.work["search"] <= 5


def test_where_many_are_alike_a_vector_is_read_once_and_not_once_for_each_pair(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode, rows = neighbour_join.decode, []

    def counting(codes: FineCodes) -> object:
        rows.append(len(codes.scale))
        return decode(codes)

    monkeypatch.setattr(neighbour_join, "decode", counting)
    counted.bank.remember_many(
        [f"The mail-{n} worker polls tokens in Oslo every {n} seconds" for n in range(NEW)]
    )
    counted.bank.maintain(MaintainConfig(steps=("merge",)), dry_run=True)

    assert 0 < sum(rows) <= 4 * NEW


@pytest.mark.parametrize("step", STEPS)
def test_every_step_can_be_run_alone_and_left_out_and_shows_in_the_plan(counted: Counted, step: str) -> None:
    counted.bank.remember_many(["The build takes nine minutes", "The build takes nine minutes."])
    alone = MaintainConfig(steps=(step,))
    assert [each.step for each in counted.bank.maintain(alone, dry_run=True).steps] == [step]
    assert [each.step for each in counted.bank.maintain(alone).steps] == [step]
    rest = tuple(each for each in DEFAULT_STEPS if each != step)
    assert step not in [each.step for each in counted.bank.maintain(MaintainConfig(steps=rest)).steps]


@pytest.mark.parametrize("size", [NEW, 3 * NEW])
def test_what_episodes_cost_follows_what_is_new(
    counted: Counted, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    asked: list[int] = []

    def counting(said: Sequence[Said]) -> list[bool]:
        asked.append(len(said))
        return supports_many(said)

    for module in (extract_facts, extract_facts):
        monkeypatch.setattr(module, "supports_many", counting)
    counted.bank.remember_many([{"text": text, "kind": "episode"} for text in texts(size, 1)])
    counted.bank.maintain(MaintainConfig(steps=STEPS))
    asked.clear()
    counted.work.clear()
    counted.bank.remember_many(
        [
            {"text": f"The harbour house has a view of the lake, note {n}", "kind": "episode"}
            for n in ("one", "two", "three")
        ]
    )
    report = counted.bank.maintain(MaintainConfig(steps=STEPS))
    assert [step.looked_at for step in report.steps if step.step in ("extract", "reflect")] == [3, 3]
    assert sum(asked) <= 3 * (2 * extract_facts.NEAREST + extract_facts.SUPPORTED)
    assert counted.work["near_pairs"] <= 8
    assert counted.work["statements"] <= 400


def test_copies_stay_apart_without_merge_and_are_merged_once_it_runs(bank: Bank) -> None:
    bank.remember_many(["The build takes nine minutes", "The build takes nine minutes."])
    bank.maintain(MaintainConfig(steps=tuple(step for step in DEFAULT_STEPS if step != "merge")))
    assert len(list(bank.find())) == 2
    bank.maintain()
    assert len(list(bank.find())) == 1


def test_an_update_is_linked_by_the_conflicts_step(bank: Bank) -> None:
    older = bank.remember(
        "Ada was born in the city of London", created_at=1_749_000_000.0, on_conflict="ignore"
    ).memory
    newer = bank.remember("Ada was born in the city of Paris", on_conflict="ignore").memory
    bank.maintain(MaintainConfig(steps=("merge",)))
    assert not bank.neighbors(newer.id, "updates").links
    bank.maintain()
    assert [link.dst for link in bank.neighbors(newer.id, "updates").links] == [older.id]
    assert bank.get(older.id).status == "active"


def test_progress_never_goes_back_and_ends_where_it_said(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_conflicts, "COMPARED", 16)
    bank.remember_many(texts(NEW, 1))
    told: list[tuple[int, int]] = []
    bank.maintain(progress=lambda done, total: told.append((done, total)))
    assert len({total for _, total in told}) == 1
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1][0] == told[-1][1]
    assert len(told) > len(DEFAULT_STEPS)  # comparing is told, too
