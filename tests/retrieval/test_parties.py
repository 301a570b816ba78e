"""What is told of one does not answer what is asked of another."""

from __future__ import annotations

import pytest

from skep import Bank
from skep.retrieval.parties import BESIDE, PARTY, another, opening, parties

ANA = ("Ana lives in Rome", "Ana likes green tea", "Ana works at the harbour", "Ana has two cats")
BEN = ("Ben lives in Oslo", "Ben plays the piano on Sundays", "Ben has a red bicycle", "Ben works as a nurse")
TALK = (
    *("Ana: I sing in a choir.", "Ana: Hi Ben!", "Ana: Work was long.", "Ana: I saw Ben at the market."),
    *(
        "Ben: Thanks, Ana! I play the piano.",
        "Ben: Do you sing?",
        "Ben: I told Ana to rest.",
        "Ben: So am I.",
    ),
)


def told(*texts: str) -> Bank:
    bank = Bank.open(":memory:")
    for text in texts:
        bank.remember(text, on_conflict="ignore")
    return bank


def found(query: str, *texts: str) -> tuple[list[str], str]:
    with told(*texts) as bank:
        answer = bank.recall(query)
    return [hit.memory.text for hit in answer], answer.reason


def test_what_is_so_of_another_is_no_answer_and_the_reason_says_of_whom_it_is() -> None:
    hits, reason = found("What does Ana play on Sundays?", *ANA, *BEN)

    assert hits == []
    assert reason == "what holds most of it is about Ben, whom the question does not name"


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What does Ben play on Sundays?", "Ben plays the piano on Sundays"),
        ("Where does Ana live?", "Ana lives in Rome"),
        ("Where does Ben live?", "Ben lives in Oslo"),
        ("What does Ana's brother play on Sundays?", "Ben plays the piano on Sundays"),
        ("Who plays the piano?", "Ben plays the piano on Sundays"),
        ("What do we know of the piano?", "Ben plays the piano on Sundays"),
        ("What do Ana and Ben do on Sundays?", "Ben plays the piano on Sundays"),
    ],
)
def test_what_is_asked_of_them_or_by_way_of_them_or_of_nobody_is_answered(query: str, first: str) -> None:
    assert found(query, *ANA, *BEN)[0][0] == first


def test_without_the_bar_it_is_found_but_counts_less_and_says_why() -> None:
    with told(*ANA, *BEN) as bank:
        query, bare = "What does Ana play on Sundays?", {"elsewhere": 0.0}
        lowered = bank.recall(query, config=bare)[0]
        plain = bank.recall(query, config=bare | {"another": 0.0})[0]

    assert lowered.memory.text == plain.memory.text == "Ben plays the piano on Sundays"
    assert lowered.score < plain.score
    assert "another -1.00" in lowered.why()
    assert "another" not in plain.signals


def test_the_trace_says_that_nothing_was_left_and_of_whom_it_was() -> None:
    with told(*ANA, *BEN) as bank:
        stages = {stage.name: stage for stage in bank.recall("Does Ben have cats?", explain=True).trace}

    assert (stages["elsewhere"].kept, stages["elsewhere"].note) == (0, "Ana")


def test_a_reranker_has_read_the_texts_and_is_not_overruled() -> None:
    with told(*ANA, *BEN) as bank:
        answer = bank.recall(
            "What does Ana play on Sundays?",
            reranker=lambda _, texts: [float("piano" in text) for text in texts],
        )

    assert answer[0].memory.text == "Ben plays the piano on Sundays"


def test_words_that_open_rules_are_nobody() -> None:
    rules = (
        *("Use ruff for linting", "Use uv for packages", "Use pytest for tests"),
        *("Prefer ruff over black for layout", "Prefer small modules", "Prefer plain functions"),
        *("Ana wrote the linter rules", "Ana prefers short names", "Ana will use ruff"),
    )
    hits, _ = found("Which layout tool does Ana use over black?", *rules)

    assert "Prefer ruff over black for layout" in hits


def test_few_texts_of_somebody_make_no_party() -> None:
    assert parties("What does Ana play?", ["Ana"], ANA[: PARTY - 1] + BEN) is None
    assert parties("What does Ana play?", ["Ana"], ANA[:PARTY] + BEN) is not None


def test_somebody_is_named_by_the_beginning_of_a_name_but_not_by_any_word_that_begins_so() -> None:
    texts = tuple(text.replace("Ana", "Carolin") for text in ANA) + BEN

    by_nickname = parties("What does Carol play?", ["Carol"], texts)
    assert by_nickname is not None
    assert by_nickname.named == {"Carolin"}
    assert parties("Which car was sold?", [], texts) is None


def test_a_small_letter_anywhere_tells_a_word_from_a_name() -> None:
    assert parties("What does Ana play?", ["Ana"], (*ANA, *BEN)) is not None
    assert (
        parties("What does Ana play?", ["Ana"], (*ANA, *BEN, "She has been to the ben of the hill")) is None
    )


def test_in_a_conversation_calling_somebody_tells_nothing_of_them() -> None:
    sides = parties("What does Ana play?", ["Ana"], TALK)

    assert sides is not None
    shares = dict(zip(TALK, another(sides, TALK).tolist(), strict=True))
    assert shares["Ana: I saw Ben at the market."] == 0.0
    assert shares["Ben: Thanks, Ana! I play the piano."] == 1.0
    assert shares["Ben: Do you sing?"] == BESIDE
    assert shares["Ben: I told Ana to rest."] == BESIDE
    assert shares["Ben: So am I."] == 1.0


def test_a_text_without_a_capital_or_with_a_word_of_any_sentence_opens_with_nobody() -> None:
    assert [opening(text) for text in ("", "…", "42 cats", "it rains", "The cat", "I sing")] == [("", "")] * 6
    assert opening("Émile’s cat sleeps") == ("Émile", "")
