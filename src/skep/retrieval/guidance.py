"""Memories that say how to answer: preferences, and standing instructions with the occasion they are for.

"Always name the time zone when I ask about meetings" shares no word with "When do I see Ana?", and is never the answer;
yet whoever answers must know it. So it counts by its meaning, half of it the meaning of its occasion ("meetings"), and
only the nearest one does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from skep.patterns import lazy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SHORT = 300
"""Characters up to which a text can be a standing instruction: a long one has other things to say."""
CLEAR = 0.2
"""Calibrated cosine from which a standing instruction counts in full."""
PREFERENCE = 0.2
"""What a preference counts where advice is asked, as a share of a standing instruction."""
MEMO_TEXTS = 8192
"""Texts of which it is remembered what they are: a bank's texts come up again and again."""

_order = lazy(
    r"^.{0,40}?\b(?:always|never|please|make sure|be sure|remember to|don['’]t|do not|from now on)\b",
    re.IGNORECASE,
)
_occasion = lazy(
    r"\b(?:when(?:ever)?|if|(?:every|each|any) ?time) (?:i|we|you|someone|anyone|a user|the user|users)\b"
    r"(?:['’]m|['’]re| am| are| is)? (?:ask|mention|want|need|request|talk|discuss|bring|say|tell|send|write|work)"
    r"\w*(?: (?:about|for|on|of|to|up)\b)*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_preference = lazy(
    r"\b(?:prefer(?:s|red|ence|ences)?|rather than|would rather)\b|['’]d rather\b", re.IGNORECASE
)
_advice = lazy(r"\b(?:suggest\w*|recommend\w*|should (?:i|we)|would you)\b", re.IGNORECASE)


def guidance(
    question: str, texts: Sequence[str], cosine: Floats, occasions: Mapping[int, float] | None = None
) -> Floats:
    """How much each text tells of the way to answer, 0..1.

    Args:
        question: The query as asked.
        texts: The texts of the short list.
        cosine: Their calibrated cosines with the query; nan where there is none.
        occasions: The same for the occasion alone of each standing instruction, by its place, where that is known.

    >>> texts = ["Always give page numbers when I ask about books", "I prefer print to screens", "It rains"]
    >>> guidance("Which books would you recommend?", texts, np.array([0.1, 0.1, 0.1])).tolist()
    [0.5, 0.2, 0.0]
    """
    out = np.zeros(len(texts))
    if asks_advice(question):
        out[[states_preference(text) for text in texts]] = PREFERENCE
    standing = list(occasions) if occasions is not None else places(texts)
    if standing:
        near = cosine[standing]
        if occasions is not None:
            apart = np.array(list(occasions.values()))
            near = np.where(np.isnan(apart), near, (near + apart) / 2)
        near = np.nan_to_num(near)
        nearest = int(near.argmax())
        out[standing[nearest]] = max(out[standing[nearest]], min(1.0, float(near[nearest]) / CLEAR))
    return out


def places(texts: Sequence[str]) -> list[int]:
    """Which of the texts are standing instructions."""
    return [place for place, text in enumerate(texts) if is_standing(text)]


def asks_advice(question: str) -> bool:
    """Whether a question is for a suggestion."""
    return _advice.search(question) is not None


@lru_cache(maxsize=MEMO_TEXTS)
def states_preference(text: str) -> bool:
    """Whether a text says what someone likes better."""
    return _preference.search(text) is not None


def occasion(text: str) -> str:
    """What a standing instruction is for.

    >>> occasion("Never use tabs when I ask for Python code.")
    ' Python code.'
    """
    found = _occasion.search(text)
    return "" if found is None else found.group(1)


@lru_cache(maxsize=MEMO_TEXTS)
def is_standing(text: str) -> bool:
    """Whether a text is an instruction for every time that something is asked or done.

    >>> is_standing("Never use tabs when I ask for code"), is_standing("I never ask when I am tired")
    (True, False)
    """
    if len(text) > SHORT:
        return False
    if (
        text.isascii()
    ):  # most texts hold none of the words without which there is no occasion, and it is soon seen
        lowered = text.lower()
        if not ("when" in lowered or "if " in lowered or "time " in lowered):
            return False
    return _order.search(text) is not None and _occasion.search(text) is not None
