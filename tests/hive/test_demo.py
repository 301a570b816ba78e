"""The story that the benchmark of layouts tells, and the names of the hive's public surface."""

from __future__ import annotations

from benchmarks.hive.topologies import run, show, story

import skep.hive


def test_a_story_has_as_many_different_parts_as_asked_for_and_is_always_the_same() -> None:
    parts = story(120, seed=3)

    assert len({part.fact for part in parts}) == len(parts) == 120
    assert parts == story(120, seed=3)
    assert parts != story(120, seed=4)


def test_agents_answer_more_together_than_alone() -> None:
    report = run(agents=3, facts=12, questions=2)
    alone, *together = report.outcomes

    assert [one.topology for one in together] == ["flat", "federated", "sharded"]
    assert all(one.recall > alone.recall for one in together)
    assert "sharded" in show(report)


def test_every_public_name_can_be_had() -> None:
    assert sorted(skep.hive.__all__) == skep.hive.__all__
    for name in skep.hive.__all__:
        assert getattr(skep.hive, name) is not None
