"""A run that was cut short and resumed comes to what an uninterrupted one comes to."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.lifecycle import judgement_queue, maintenance_run
from skep.lifecycle import maintain as maintain_module
from skep.lifecycle.maintain import MaintainConfig
from skep.lifecycle.maintenance_run import MaintainReport

DRINKS = "tea coffee cocoa juice water milk cider sherry mead kvass lassi ayran chicha mate"
SERIES = [f"The house drink is {drink}" for drink in DRINKS.split()]


class CutShort(Exception):
    """Stands for a process that dies."""


def run(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, after: int | None
) -> tuple[set[frozenset[str]], int]:
    """The pairs that wait in the end, by text, and how many parts the first run wrote."""
    with Bank.open(path, now=clock) as bank:
        for text in SERIES:
            bank.remember(text, on_conflict="ignore")
        writes, write = [0], bank.engine.write

        def counted(plans: object, **options: object) -> object:
            writes[0] += 1
            if after is not None and writes[0] > after:
                raise CutShort
            return write(plans, **options)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(maintenance_run, "BATCH", 2)
            patch.setattr(bank.engine, "write", counted)
            if after is None:
                bank.maintain()
            else:
                with pytest.raises(CutShort):
                    bank.maintain()
        clock.pass_seconds(120)
        bank.maintain()
        kept = judgement_queue.judgements(bank.engine).values()
        return {frozenset((bank.get(j.older).text, bank.get(j.newer).text)) for j in kept}, writes[0]


def test_the_same_pairs_wait_wherever_a_run_was_cut_short(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = run(tmp_path / "whole.skep", clock, monkeypatch, None)
    assert len(whole) > 4
    assert parts > 4
    for after in range(1, parts, max(1, parts // 6)):
        assert run(tmp_path / f"{after}.skep", clock, monkeypatch, after)[0] == whole


def test_a_run_whose_time_is_over_stops_after_a_slice_and_the_next_goes_on_there(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintain_module, "SLICE", 4)

    def pairs(path: Path, config: MaintainConfig) -> tuple[list[MaintainReport], set[frozenset[str]]]:
        with Bank.open(path, now=clock) as bank:
            for text in SERIES:
                bank.remember(text, on_conflict="ignore")
            reports: list[MaintainReport] = []
            while not reports or reports[-1].stopped:
                reports.append(bank.maintain(config, progress=lambda *_: clock.pass_seconds(3)))
            kept = judgement_queue.judgements(bank.engine).values()
            return reports, {frozenset((bank.get(j.older).text, bank.get(j.newer).text)) for j in kept}

    (whole,), wanted = pairs(tmp_path / "whole.skep", MaintainConfig())
    parts, found = pairs(tmp_path / "parts.skep", MaintainConfig(seconds=1, steps=("merge", "conflicts")))
    assert not whole.stopped
    assert len(parts) == 4
    assert [report.stopped for report in parts] == ["merge"] * 3 + [""]
    looked_at = [step.looked_at for report in parts for step in report.steps if step.step == "conflicts"]
    assert looked_at == sorted(looked_at, reverse=True)
    assert looked_at[-1] <= 4
    assert found >= wanted or len(found) == len(wanted)
