from __future__ import annotations

from collections.abc import Sequence

from skep.model import Link
from skep.retrieval.recall_config import Expand
from skep.retrieval.selection import expand

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


def test_a_better_way_of_more_hops_counts() -> None:
    links = [Link(src="a", dst="z", strength=0.1), Link(src="a", dst="m"), Link(src="m", dst="z")]
    reached = expand({"a": 1.0}, lambda _: links, Expand(depth=2, direction="out", decay=0.9))

    assert [(r.id, round(r.score, 2), r.hops) for r in reached] == [("m", 0.9, 1), ("z", 0.81, 2)]


def test_what_may_not_be_shown_takes_no_place_and_what_may_not_be_seen_leads_nowhere() -> None:
    how = Expand(depth=2, direction="out", cap=1)

    hidden = expand({"a": 1.0}, touching, how, shown=lambda ids: set(ids) - {"b"})
    closed = expand({"a": 1.0}, touching, how, walked=lambda ids: set(ids) - {"b"})

    assert [r.id for r in hidden] == ["c"]
    assert closed == ()
