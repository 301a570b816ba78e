"""YAML from outside is read, or refused in words."""

from __future__ import annotations

import pytest

pytest.importorskip("yaml")

from skep.text.yaml_text import read_yaml


@pytest.mark.parametrize(
    "text",
    [
        "day: 2025-13-40",
        "number: " + "9" * 5000,
        "number: !!int ''",
        "yes: !!bool maybe",
        "at: !!timestamp noon",
        "a: &a [*a]",
        "[" * 5000,
        "a: !!python/object:os.system x",
        "? [1]\n: 2",
        "a: b: c",
        "\x00",
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$") as caught:
        read_yaml(text, "A test")
    assert type(caught.value) is ValueError


def test_what_can_be_read_is() -> None:
    assert read_yaml("a: [1, x]", "A test") == {"a": [1, "x"]}
