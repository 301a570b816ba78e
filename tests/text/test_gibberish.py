"""What tells nothing is kept out of a hive; short rules, commands and other languages are not."""

from __future__ import annotations

import pytest

from skep.hive.gateway import PROMOTE_AT, SAYS_LITTLE, assess
from skep.text.gibberish import GIBBERISH, chance_of_gibberish


def refused(text: str) -> bool:
    return chance_of_gibberish(text) >= GIBBERISH and assess(text).score < SAYS_LITTLE


@pytest.mark.parametrize(
    "text", ["asdf asdf", "lol yeah i guess", "stuff idk maybe whatever", "something somewhere, dunno"]
)
def test_gibberish_is_refused(text: str) -> None:
    assert refused(text) or assess(text).score < PROMOTE_AT


@pytest.mark.parametrize(
    "text",
    [
        "Use ruff",
        "The relay runs in Oslo",
        "ssh root@box",
        "kubectl get pods -n prod",
        "def f(x): return x + 1",
        "Ana ist allergisch gegen Nüsse",
        "走走走",
        "xkcd 927",
        "",
        "?!",
    ],
)
def test_what_tells_something_is_not(text: str) -> None:
    assert not refused(text)
