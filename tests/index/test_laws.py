"""Random histories against a slow and simple oracle."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.conftest import SEARCH

from skep.filters import Filter
from skep.index import segment_builder
from skep.index.index import Pool, SegmentIndex
from skep.index.segment_builder import FEW, LEAF
from skep.model import ANY, KINDS, STATUSES, Scope

from .bank import DIM, FakeBank, assert_same, expected

vocabulary = ["dog", "cat", "river", "foo_bar", "PR #441", "v2.3.1", "走る", "ёлка", "running", "the"]
texts = st.lists(st.sampled_from(vocabulary), max_size=6).map(" ".join)
vectors = st.lists(st.integers(-3, 3), min_size=DIM, max_size=DIM) | st.none()
names = st.sampled_from(["a", "b", None])
moments = st.sampled_from([0.0, 100.0, 86400.0, 864000.0, 8640000.0])
maybe_moment = moments | st.none()
shares = st.sampled_from([0.0, 0.2, 0.3, 0.5, 0.8, 1.0])
fields = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(KINDS),
        "status": st.sampled_from(STATUSES),
        "domain": names,
        "agent": names,
        "user": names,
        "project": names,
        "session": names,
        "tags": st.lists(st.sampled_from(["x", "y", "field:z"]), max_size=3).map(tuple),
        "created_at": moments,
        "valid_from": maybe_moment,
        "valid_to": maybe_moment,
        "expires_at": maybe_moment,
        "confidence": shares,
        "last_evidence_at": moments,
        "importance": shares,
    }
)
asked = st.sampled_from(["a", "b", ANY, None])
some = st.lists(st.sampled_from(["a", "b"]), max_size=2).map(tuple)
filters = st.builds(
    Filter,
    scope=st.none() | st.builds(Scope, user=asked, project=asked, session=asked),
    include_shared=st.booleans(),
    kinds=st.lists(st.sampled_from(KINDS), max_size=2).map(tuple),
    statuses=st.just(())
    | st.just(("active", "pending"))
    | st.lists(st.sampled_from(STATUSES), max_size=3).map(tuple),
    tags=st.lists(
        st.lists(st.sampled_from(["x", "y", "field:z", "?"]), min_size=1, max_size=2).map(tuple), max_size=2
    ).map(tuple),
    domains=some,
    agents=some,
    since=maybe_moment,
    until=maybe_moment,
    valid_at=maybe_moment,
    min_confidence=st.none() | shares,
    min_importance=st.none() | shares,
    now=moments,
)
mild_filters = st.just(Filter(statuses=())) | st.just(Filter()) | filters
queries = st.lists(
    st.sampled_from(["dog", "cat", "river", "foo_bar", "foo", "#441", "走", "run", "the", "none"]), max_size=4
)


def check(pool: Pool, bank: FakeBank, terms: list[str], vector: Any, where: Filter, k: int) -> None:
    """The pool is what the oracle says, ties included."""
    words, cosine = expected(bank, terms, vector, where)
    rows = pool.rows.tolist()
    assert len(words) == pool.words_total
    assert len(cosine) == pool.vectors_total
    assert rows == sorted(set(rows))
    for row, found, near in zip(rows, pool.words.tolist(), pool.cosine.tolist(), strict=True):
        assert found == pytest.approx(words.get(row, 0.0), rel=1e-4)
        assert (math.isnan(near) and row not in cosine) or near == pytest.approx(cosine[row], abs=1e-3)
    for scores in (words, cosine):
        ranked = sorted(scores, key=lambda row: -scores[row])
        floor = scores[ranked[min(k, len(ranked)) - 1]] if ranked else 0.0
        assert {row for row in ranked if scores[row] > floor + 2e-3} <= set(rows)
        assert sum(row in scores for row in rows) >= min(k, len(scores))
    for row, created, confidence, evidence, importance in zip(
        rows, pool.created_at, pool.confidence, pool.last_evidence_at, pool.importance, strict=True
    ):
        held = bank.rows[row]
        assert (held.created_at, held.last_evidence_at) == (created, evidence)
        assert (held.confidence, held.importance) == pytest.approx((confidence, importance))


class Histories(RuleBasedStateMachine):
    """Two indexes on one folder, as two processes would have them, against the oracle."""

    @initialize(limit=st.sampled_from([1, 3, 7]), few=st.sampled_from([2, FEW]))
    def start(self, limit: int, few: int) -> None:
        segment_builder.FEW, segment_builder.LEAF = few, 1
        self.folder = Path(tempfile.mkdtemp())
        self.limit = limit
        self.bank = FakeBank()
        self.indexes = [self.fresh(), self.fresh()]

    def fresh(self) -> SegmentIndex:
        return SegmentIndex(self.folder, self.bank, tail_limit=self.limit)

    @rule(row=st.integers(1, 30), text=texts, vector=vectors, values=fields)
    def remember(self, row: int, text: str, vector: list[float] | None, values: dict[str, Any]) -> None:
        self.bank.put(row, text, vector, **values)

    @rule(first=st.integers(1, 30), count=st.integers(5, 20), data=st.data())
    def remember_many(self, first: int, count: int, data: st.DataObject) -> None:
        for row in range(first, first + count):
            self.bank.put(row, data.draw(texts), data.draw(vectors))

    @precondition(lambda self: self.bank.live)
    @rule(data=st.data(), status=st.sampled_from(STATUSES), confidence=shares)
    def touch(self, data: st.DataObject, status: str, confidence: float) -> None:
        row = data.draw(st.sampled_from(self.bank.live)).row
        self.bank.change(row, status=status, confidence=confidence)

    @precondition(lambda self: self.bank.live)
    @rule(data=st.data(), which=st.integers(0, 1))
    def forget(self, data: st.DataObject, which: int) -> None:
        row = data.draw(st.sampled_from(self.bank.live)).row
        self.bank.forget(row)
        self.indexes[which].refresh()
        self.indexes[which].erase([row])

    @rule(which=st.integers(0, 1))
    def refresh(self, which: int) -> None:
        assert self.bank.head() == self.indexes[which].refresh()

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.indexes[which] = self.fresh()

    @rule(which=st.integers(0, 1))
    def drop(self, which: int) -> None:
        self.indexes[which].drop()

    @rule(
        which=st.integers(0, 1),
        terms=queries,
        vector=vectors,
        where=mild_filters,
        k=st.sampled_from([1, 3, 50]),
    )
    def search(self, which: int, terms: list[str], vector: list[float] | None, where: Filter, k: int) -> None:
        query = None if vector is None else np.array(vector, dtype=np.float32)
        index = self.indexes[which]
        index.refresh()
        pool = index.search(terms, query, where, k_words=k, k_vectors=k)
        check(pool, self.bank, terms, query, where, k)
        again = SegmentIndex(None, self.bank, tail_limit=1000)
        again.refresh()
        assert_same(pool, again.search(terms, query, where, k_words=k, k_vectors=k))
        looked = index.lookup(pool.rows, terms, query)
        np.testing.assert_array_equal(pool.words, looked.words)
        np.testing.assert_array_equal(pool.cosine, looked.cosine)

    @invariant()
    def known_rows_are_the_banks(self) -> None:
        for index in self.indexes:
            stats = index.stats()
            if stats.drift == 0:
                assert len(self.bank.live) == stats.rows

    def teardown(self) -> None:
        segment_builder.FEW, segment_builder.LEAF = FEW, LEAF
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)


Histories.TestCase.settings = settings(
    max_examples=40 * max(1, SEARCH),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestHistories = Histories.TestCase
