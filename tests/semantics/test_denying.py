"""A contradiction is clear only where one text denies what the other says."""

from __future__ import annotations

import pytest

from skep.embedding.embedder import default_embedder
from skep.semantics.compare_texts import Verdict, compare

BESIDE = [
    ("I want to have kids", "I have no kids"),
    ("We want to support Windows", "We do not support Windows"),
    ("Nina hopes to run a marathon", "Nina has never run a marathon"),
    ("I should exercise more", "I do not exercise"),
    ("I used to smoke", "I do not smoke"),
    ("Dana had the flu", "Dana no longer has the flu"),
    ("I played the piano as a child", "I do not play the piano anymore"),
    ("My brother eats meat", "I do not eat meat"),
    ("Her husband is tall", "She is not tall"),
    ("I like dogs", "I don't have any dogs"),
    ("I love horses", "I do not own any horses"),
    ("I live in a rural area", "I do not like living in a rural area"),
    ("I am in Japan", "I am not from Japan"),
    ("I am a bad singer", "I am not a good singer"),
]
AGAINST = [
    ("I eat meat", "I do not eat meat"),
    ("The API requires a token", "The API does not require a token"),
    ("Tom has a car", "Tom has no car"),
    ("I am married", "I have never been married"),
    ("I want to move to Spain", "I do not want to move to Spain"),
    ("Feature flags are enabled", "Feature flags are disabled"),
    ("Our API needs a token", "The API does not need a token"),
    ("You should use tabs", "Do not use tabs"),
]


def verdict(a: str, b: str) -> Verdict:
    embedder = default_embedder()
    one, other = embedder.embed([a, b])
    return compare(a, b, similarity=embedder.calibrate(float(one @ other)))


@pytest.mark.parametrize(("a", "b"), BESIDE)
def test_a_wish_the_past_another_person_or_another_verb_is_no_clear_contradiction(a: str, b: str) -> None:
    assert not verdict(a, b).clear
    assert not verdict(b, a).clear


@pytest.mark.parametrize(("a", "b"), AGAINST)
def test_what_is_said_and_denied_of_the_same_is_a_clear_contradiction(a: str, b: str) -> None:
    assert (verdict(a, b).kind, verdict(a, b).clear) == ("contradiction", True)
    assert verdict(b, a) == verdict(a, b)
