from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.filters import Filter
from skep.index import filter_masks as segment_filters
from skep.index.index import SegmentIndex
from skep.model import ANY, Scope

from .bank import FakeBank, admits
from .test_laws import fields, filters, moments

DAY = 86400.0


def seen(index: SegmentIndex, where: Filter) -> list[int]:
    index.refresh()
    return index.search(["dog"], None, where, k_words=1000, k_vectors=0).rows.tolist()


def bank_of(rows: list[dict[str, Any]]) -> FakeBank:
    bank = FakeBank(0)
    for row, values in enumerate(rows, 1):
        bank.put(row, "dog", **values)
    return bank


@given(st.lists(fields, max_size=25), st.lists(filters, min_size=1, max_size=4), st.sampled_from([1, 4, 100]))
def test_every_condition_admits_exactly_what_it_says(
    rows: list[dict[str, Any]], asked: list[Filter], limit: int
) -> None:
    bank = bank_of(rows)
    index = SegmentIndex(None, bank, tail_limit=limit)

    for where in asked:
        assert [row.row for row in bank.live if admits(where, row)] == seen(index, where)


tag_groups = st.lists(st.sampled_from(["x", "y", "field:z", "?"]), min_size=1, max_size=2).map(tuple)


@given(st.lists(fields, max_size=25), filters, st.lists(tag_groups, min_size=1, max_size=3))
def test_groups_of_tags_narrow_any_filter(
    rows: list[dict[str, Any]], where: Filter, tags: list[tuple[str, ...]]
) -> None:
    bank = bank_of(rows)
    where = msgspec.structs.replace(where, tags=tuple(tags))
    right = [row.row for row in bank.live if admits(where, row)]

    index = SegmentIndex(None, bank, tail_limit=7)
    assert right == seen(index, where)
    assert right == index.rows_where(where, Filter(statuses=("none",))).tolist()


@given(
    st.lists(fields, max_size=6),
    st.lists(fields, min_size=1, max_size=10),
    st.lists(moments, min_size=1, max_size=4),
    st.sampled_from([None, 0.3]),
)
def test_rows_that_were_just_written_are_decided_as_many_are(
    rows: list[dict[str, Any]], late: list[dict[str, Any]], times: list[float], bar: float | None
) -> None:
    bank = bank_of(rows)
    index = SegmentIndex(None, bank, tail_limit=100)
    for row, values in enumerate(late, 50):
        bank.put(row, "dog", **values)
        for moment in (None, *times):
            where = Filter(valid_at=moment, min_confidence=bar, decay_per_day=0.0, now=moment or 0.0)
            assert [each.row for each in bank.live if admits(where, each)] == seen(index, where)


ONE_BY_ONE: list[dict[str, Any]] = [
    {"scope": Scope(user="a")},
    {"scope": Scope(user="a", project=ANY, session=ANY)},
    {"scope": Scope(user=ANY, project=ANY, session=ANY), "include_shared": True},
    {"scope": Scope(user="a"), "include_shared": True},
    {"scope": Scope()},
    {"kinds": ("episode", "document")},
    {"statuses": ("superseded",)},
    {"statuses": ("no such status",)},
    {"tags": (("x",), ("y", "field:z"))},
    {"domains": ("a", "b")},
    {"agents": ("b",)},
    {"since": 100.0, "until": 8640000.0},
    {"valid_at": 86400.0},
    {"min_confidence": 0.3, "now": 864000.0},
    {"min_confidence": 0.3, "now": 864000.0, "decay_per_day": 0.0},
    {"min_importance": 0.5},
]


@pytest.mark.parametrize("condition", ONE_BY_ONE, ids=str)
@settings(max_examples=15)
@given(rows=st.lists(fields, min_size=10, max_size=40))
def test_each_condition_alone(condition: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    bank = bank_of(rows)
    where = Filter(**({"statuses": ()} | condition))

    found = seen(SegmentIndex(None, bank, tail_limit=8), where)

    assert [row.row for row in bank.live if admits(where, row)] == found


@given(st.lists(fields, min_size=3, max_size=12), st.lists(moments, min_size=2, max_size=6), fields)
def test_a_filter_asked_again_later_sees_what_time_has_changed(
    rows: list[dict[str, Any]], times: list[float], late: dict[str, Any]
) -> None:
    bank = bank_of(rows)
    index = SegmentIndex(None, bank, tail_limit=5)

    for step, now in enumerate(times):
        for moment in (now - 1.0, now, now + 1.0):
            where = Filter(statuses=(), valid_at=moment, min_confidence=0.3, now=moment)
            assert [row.row for row in bank.live if admits(where, row)] == seen(index, where)
        bank.put(100 + step, "dog", **late)


def test_confidence_crosses_the_bar_at_the_right_moment() -> None:
    bank = FakeBank(0)
    bank.put(1, "dog", confidence=0.8, last_evidence_at=0.0)
    index = SegmentIndex(None, bank)
    crossing = 69.31 * DAY  # 0.8 * exp(-0.01 * 69.3147) = 0.4

    def at(now: float) -> list[int]:
        return seen(index, Filter(min_confidence=0.4, now=now, decay_per_day=0.01))

    assert [1] == at(0.0) == at(crossing)
    assert at(crossing + 0.01 * DAY) == []
    assert at(crossing) == [1]


def test_scopes_never_leak_into_one_another() -> None:
    bank = FakeBank(0)
    people = ["ana", "ben", None]
    scopes = [Scope(user=u, project=p, session=s) for u in people for p in people for s in people]
    for row, scope in enumerate(scopes, 1):
        bank.put(row, "dog", user=scope.user, project=scope.project, session=scope.session)
    index = SegmentIndex(None, bank, tail_limit=5)

    for row, scope in enumerate(scopes, 1):
        assert [row] == seen(index, Filter(scope=scope))
        assert sorted({row, len(scopes)}) == seen(index, Filter(scope=scope, include_shared=True))


def tagged_bank(count: int, tags: int) -> FakeBank:
    return bank_of([{"tags": (f"t{row % tags}",)} for row in range(count)])


def test_no_more_than_so_many_filters_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_filters, "FILTERS", 5)
    index = SegmentIndex(None, tagged_bank(300, 60), tail_limit=7)
    right = [[row for row in range(1, 301) if (row - 1) % 60 == tag] for tag in range(60)]
    for _ in range(2):
        assert right == [seen(index, Filter(tags=((f"t{tag}",),))) for tag in range(60)]
    masks: Any = index._masks  # pyright: ignore[reportPrivateUsage]
    assert len(masks._whole) == 5


def test_masks_of_many_moments_and_tags_stay_few() -> None:
    bank = FakeBank()
    for row in range(1, 121):
        bank.put(row, "dog", tags=(f"t{row}",), expires_at=1000.0 + 10 * row)
    index = SegmentIndex(None, bank, tail_limit=7)
    for row in range(1, 121):  # one of them expires between two questions
        assert seen(index, Filter(tags=((f"t{row}",),), valid_at=995.0 + 10 * row)) == [row]
    masks: Any = index._masks  # pyright: ignore[reportPrivateUsage]
    assert len(masks._whole) == segment_filters.FILTERS
    assert len(masks._standing) <= segment_filters.KEPT
    assert len(masks._narrowing) <= segment_filters.KEPT
