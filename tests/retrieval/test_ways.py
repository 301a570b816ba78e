"""What follows from a config is worked out once, and never taken for what follows from another."""

from __future__ import annotations

import msgspec
import pytest

from skep.retrieval import score
from skep.retrieval.recall_config import PRESETS, preset
from skep.retrieval.score import way_of


def test_a_way_is_worked_out_once_for_a_config_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    config = preset("semantic")
    first = way_of(config, 5, read_less=False)
    monkeypatch.setattr(score, "_reaching", None)

    assert first is way_of(config, 5, read_less=False)


@pytest.mark.parametrize("name", PRESETS)
def test_a_way_leaves_room_for_what_is_asked_for_whatever_was_asked_before(name: str) -> None:
    config = preset(name)
    for limit in (5, 500, 5):
        for read_less in (False, True):
            reaching = way_of(config, limit, read_less=read_less).config
            for field in score.ROOM:
                mine = getattr(config, field)
                narrow = 0 < mine < limit and not (read_less and field == "shortlist")
                assert getattr(reaching, field) == (min(limit, config.max_results) if narrow else mine)


def test_configs_that_come_and_go_are_never_taken_for_one_another() -> None:
    config = preset("semantic")
    for floor in (0.0, 0.5) * score.WAYS:  # each may lie where the last one lay
        assert way_of(msgspec.structs.replace(config, floor=floor), 5, read_less=False).barred is (floor > 0)
    assert len(score._ways) <= score.WAYS  # pyright: ignore[reportPrivateUsage]
