"""Learning from a text of any length: cut into passages by its headings and paragraphs, then told to the bank.

Tables and fenced code stay whole in their passage. Agents, the runner and users call this; `bank.told_facts` asks,
checks and stores.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from skep.bank.told_facts import Passage, Taught, teach
from skep.clock import Now, system_now
from skep.tuning.documents import Chunking, chunk
from skep.validation import clean_text

if TYPE_CHECKING:
    from skep.bank.memory_bank import MemoryBank
    from skep.llm.language_model import LLM
    from skep.model import ScopeLike

PASSAGE = 400
"""About the most tokens of a passage."""
LONGEST = 20_000_000
"""The most characters of one text."""


def learn_from_content(
    bank: MemoryBank,
    text: str,
    source: str,
    *,
    llm: LLM | None = None,
    now: Now = system_now,
    scope: ScopeLike | None = None,
    domain: str | None = None,
    agent: str | None = None,
    redact: bool | str | Iterable[str] = "secrets",
) -> Taught:
    """Learn the facts of a text. The same text again adds nothing; of a changed one only what is new is read.

    Each passage is kept as a `document`, each fact with its passage as evidence, and a summary with a map of concepts.

    Args:
        bank: Where to.
        text: Markdown or plain text.
        source: Where it comes from, such as a path or an address.
        llm: The model that finds facts; without one, rules.
        now: The clock; "yesterday" in the text refers to it.
        scope: Whom it is for.
        domain: The field it belongs to.
        agent: Who learns it.
        redact: What is taken out before anything is stored, as in `remember`.

    Raises:
        LLMError: The model is away, or says nothing usable. What was learnt before stays; call again to go on.
    """
    text = clean_text("text", text, LONGEST)
    source = clean_text("source", source, 500)
    pieces = chunk(source, text, Chunking(max_tokens=PASSAGE, heading_level=6))
    passages = [Passage(text=piece.text, headings=piece.headings) for piece in pieces]
    return teach(
        bank,
        passages,
        source,
        llm=llm,
        now=now(),
        scope=scope,
        domain=domain,
        agent=agent,
        redact=redact,
    )
