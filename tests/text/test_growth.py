"""Whatever somebody writes, looking at it takes time in proportion to its length."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from skep.text.dates import spans
from skep.text.redaction import RULES, redact
from skep.text.terms import count_tokens, fold, query_terms, terms

SHORT, TIMES = 4000, 4
PIECES = (
    *(
        "x",
        "X",
        "-",
        "_",
        ".",
        "1",
        "'",
        " ",
        "\n",
        "é",
        "走",
        "…",
        "$",
        "@",
        "aA",
        "A1",
        "a-",
        "a.",
        "a'",
        "1.",
        "1 ",
    ),
    *(
        "[[",
        "://",
        "a@",
        "é-",
        "--a",
        "1,234,",
        "12/",
        "2020-",
        "key_",
        "key=",
        "eyJ.",
        "may ",
        "in ",
        "C++",
        "a#",
    ),
    *("password ", "curl -u ", "mysql -", "login a ", "session_id=", "<private>", "bearer ", "last monday "),
    *("-----BEGIN PRIVATE KEY-----", "the first of ", "1 day ago "),
)


def looked_at(number: int) -> Callable[[str], object]:
    """Look for one rule of redaction alone."""
    _, pattern, look, _ = RULES[number]
    return lambda text: [look(found) if look else found for found in pattern.finditer(text)]


LOOKS: dict[str, Callable[[str], object]] = {
    "redact": redact,
    "terms": terms,
    "query_terms": query_terms,
    "count_tokens": count_tokens,
    "fold": fold,
    "spans": lambda text: spans(text, 1.7e9),
    **{f"rule {number}": looked_at(number) for number in range(len(RULES))},
}


def seconds(look: Callable[[str], object], text: str) -> float:
    """The least CPU time of some tries; each text is another one, so that no answer is remembered."""
    found: list[float] = []
    for attempt in range(3):
        started = time.process_time()
        look(text + "!" * attempt)
        found.append(time.process_time() - started)
    return min(found)


@pytest.mark.parametrize("name", LOOKS)
def test_time_grows_with_the_length_and_no_faster(name: str) -> None:
    look = LOOKS[name]
    look("warm up 1.2")
    for piece in PIECES:
        short, long = ((piece * (size // len(piece))) for size in (SHORT, SHORT * TIMES))
        assert seconds(look, long) < 2.5 * TIMES * seconds(look, short) + 0.1, piece
