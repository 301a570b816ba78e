from __future__ import annotations

from collections.abc import Sequence

from skep.model import Link
from skep.retrieval.config import Expand
from skep.retrieval.expansion import expand

LINKS = [
    Link(src="a", dst="b"),
    Link(src="b", dst="c", rel="refines"),
    Link(src="c", dst="a"),
    Link(src="d", dst="a", strength=0.5),
]


def touching(ids: Sequence[str]) -> list[Link]:
    return [link for link in LINKS if link.src in ids or link.dst in ids]


def test_the_score_decays_with_every_hop() -> None:
    reached = expand({"a": 1.0}, touching, Expand(depth=2, direction="out", decay=0.5))

    assert [(r.id, r.score, r.hops) for r in reached] == [("b", 0.5, 1), ("c", 0.25, 2)]


def test_a_cycle_is_walked_once_and_never_returns_a_seed() -> None:
    reached = expand({"a": 1.0}, touching, Expand(depth=9, cap=99))

    assert sorted(r.id for r in reached) == ["b", "c", "d"]


def test_only_the_chosen_relations_are_followed() -> None:
    assert expand({"a": 1.0}, touching, Expand(relations=("refines",))) == ()


def test_strength_and_cap_count() -> None:
    reached = expand({"a": 1.0}, touching, Expand(direction="in", cap=1))

    assert [(r.id, r.score) for r in reached] == [("c", 0.5)]
