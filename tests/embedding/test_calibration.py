"""Calibration: one scale for every embedder."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.embedding.embedder import IDENTITY, Calibration, knots_from, measure
from skep.embedding.static_table import StaticEmbedder
from skep.errors import ConfigError

cosines = st.floats(-1, 1)
KNOTS = [(0.4, 0.0), (0.7, 0.5), (0.9, 0.8), (0.97, 0.95)]


@pytest.mark.parametrize(
    ("raw", "common"), [(-1, -1), (0.4, 0), (0.65, 5 / 12), (0.9, 0.8), (0.97, 0.95), (1, 1)]
)
def test_knots_are_met_and_lines_run_between_them(raw: float, common: float) -> None:
    assert Calibration(KNOTS)(raw) == pytest.approx(common)


@given(cosines, cosines)
def test_order_is_kept(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert Calibration(KNOTS)(low) <= Calibration(KNOTS)(high)


@given(cosines)
def test_many_agrees_with_one_and_inverse_leads_back(cosine: float) -> None:
    calibration = Calibration(KNOTS)

    assert calibration.many(np.array([cosine], np.float32))[0] == pytest.approx(calibration(cosine), abs=1e-5)
    assert calibration(calibration.inverse(cosine)) == pytest.approx(cosine, abs=1e-9)


@given(cosines)
def test_the_identity_changes_nothing(cosine: float) -> None:
    assert IDENTITY(cosine) == pytest.approx(cosine)


def test_rounding_errors_beyond_one_stay_on_the_scale() -> None:
    assert (Calibration(KNOTS)(1.0000002), Calibration(KNOTS)(-1.0000002)) == (1.0, -1.0)


def test_knots_that_fall_are_refused() -> None:
    with pytest.raises(ConfigError, match="must rise"):
        Calibration([(0.2, 0.5), (0.4, 0.3)])


def test_knots_stand_where_the_kinds_of_pairs_are() -> None:
    knots = knots_from([0.1, 0.2, 0.3], [0.7, 0.8, 0.9, 1.0, 0.6], [0.96, 0.97, 0.98, 0.99, 1.0])

    assert [(pytest.approx(raw), common) for raw, common in knots] == [(0.2, 0.0), (0.7, 0.80), (0.97, 0.95)]


@given(st.lists(cosines, min_size=1), st.lists(cosines, min_size=1), st.lists(cosines, min_size=1))
def test_even_an_embedder_without_sense_gets_a_monotone_map(
    a: list[float], b: list[float], c: list[float]
) -> None:
    assert Calibration(knots_from(a, b, c)).knots[-1] == (1.0, 1.0)


def test_measuring_finds_the_scale_of_the_bundled_table_about_where_it_was_fitted() -> None:
    embedder = StaticEmbedder()
    measured = measure(embedder)

    for raw in (0.3, 0.6, 0.8, 0.98):
        assert measured(raw) == pytest.approx(embedder.calibrate(raw), abs=0.15)
