"""The story and the plots of the demo."""

from __future__ import annotations

import xml.dom.minidom as dom

import skep.hive
from skep.cli.demo import bars, curve, curve_svg, story


def test_a_story_has_as_many_different_parts_as_asked_for_and_is_always_the_same() -> None:
    parts = story(120, seed=3)

    assert len({part.fact for part in parts}) == len(parts) == 120
    assert parts == story(120, seed=3)
    assert parts != story(120, seed=4)


def test_bars_are_as_long_as_their_share() -> None:
    lines = bars({"half": 0.5, "all": 1.0, "none": 0.0}, width=10, most=1.0)

    assert [line.count("█") for line in lines] == [5, 10, 0]


def test_a_curve_has_one_column_per_point() -> None:
    rows = curve([0.0, 0.5, 1.0], height=4)

    assert rows[0].endswith("    █ ")
    assert rows[3].endswith("  █ █ ")


def test_the_picture_is_well_formed_and_escapes_its_texts() -> None:
    picture = dom.parseString(curve_svg([0.1, 0.6, 1.0], title="a < b & c", x="round", y="share"))

    assert len(picture.getElementsByTagName("circle")) == 3
    assert dom.parseString(curve_svg([1.0], title="one", x="x", y="y"))


def test_every_public_name_can_be_had() -> None:
    assert sorted(skep.hive.__all__) == skep.hive.__all__
    for name in skep.hive.__all__:
        assert getattr(skep.hive, name) is not None
