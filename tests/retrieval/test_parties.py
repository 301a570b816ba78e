"""What is told of one does not answer what is asked of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from skep import Bank
from skep.filters import Filter
from skep.retrieval.candidates import Call, Candidates, Columns
from skep.retrieval.pipeline import WITNESSES
from skep.retrieval.pipeline import _without_others as without_others  # pyright: ignore[reportPrivateUsage]
from skep.retrieval.query import plain
from skep.retrieval.recall_config import merge, preset
from skep.retrieval.shortlist_features import BESIDE, GLANCE, PARTY, another, opening, parties

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from skep.retrieval.sources import Sources

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


def test_what_is_told_of_whom_it_asks_about_stays_where_it_is_nearly_as_near_by_meaning() -> None:
    near = ("Ana grew up in Lisbon", "Ben was born in Oslo")
    hits, reason = found("Where was Ana born?", *ANA, *BEN, *near)

    assert hits[0] == "Ana grew up in Lisbon"
    assert "Ben was born in Oslo" not in hits
    assert reason == "what holds most of it is about Ben, whom the question does not name"


@pytest.mark.parametrize(
    ("query", "texts", "wanted"),
    [
        (
            "How should I store user sessions?",
            ("User: I like tea.", "User: I work late.", "User: Thanks!", "Assistant: Good.", "Assistant: So it is."),
            "Assistant: Store sessions in Redis for one day.",
        ),
        (
            "Where do I usually have lunch with Ana?",
            ("User likes tea", "User has a car", *ANA),
            "User usually has lunch at Lupo",
        ),
        (
            "Which pills does Ana take in the morning?",
            ("User's name is Ana", "User likes tea", "User has a car", *ANA),
            "User takes two iron pills in the morning",
        ),
        (
            "Draft a mail to Ana about the outage of the message queue",
            ("Kafka runs on three nodes", "Kafka has twelve topics", *ANA),
            "Kafka had an outage of the message queue in May",
        ),
        (
            "How many days of vacation does Ana get?",
            ("Everyone gets a laptop", "Everyone gets lunch", *ANA, "Ana gets a bonus"),
            "Everyone gets 30 days of vacation",
        ),
        (
            "What was the bug in the payment importer?",
            ("Bug: the map is empty", "Bug: no sound", "Bug: slow start", "Fix: map drawn", "Fix: sound on"),
            "Fix: payment importer crashed on empty rows",
        ),
        ("Who plays the piano with Ana on Sundays?", (*ANA, *BEN[2:]), "Ben plays the piano on Sundays"),
        ("What does Ben play on Sundays?", (*ANA, *BEN[2:], BEN[0]), "Ana, Ben, and Cleo play tennis on Sundays"),
        ("Was spielt Ana sonntags?", (*ANA, "Sie lacht gern", "Sie kocht viel"), "Sie spielt sonntags Klavier"),
        (
            "What does Melanie play on Sundays?",
            ("Mel likes tea", "Mel has a car", *BEN, "Melanie sings", "Melanie reads", "Melanie swims"),
            "Mel plays the violin on Sundays",
        ),
        (
            "Do Jose and Ana both play the piano on Sundays?",
            ("José likes tea", "José has a car", *ANA, *BEN[2:], BEN[0]),
            "José plays the piano on Sundays",
        ),
    ],
)  # fmt: skip
def test_what_may_be_about_whom_it_asks_or_about_everybody_is_found(
    query: str, texts: tuple[str, ...], wanted: str
) -> None:
    assert wanted in found(query, *texts, wanted)[0]


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
        *("Avoid black for layout", "Avoid deep nesting", "Avoid global state"),
        *("Ana wrote the linter rules", "Ana likes short names", "Ana reads every change"),
    )
    assert parties("Does Ana want black for layout?", ["Ana"], rules) is None
    assert found("Does Ana want black for layout?", *rules)[0][0] == "Avoid black for layout"


def test_few_texts_of_somebody_make_no_party() -> None:
    assert parties("What does Ana play?", ["Ana"], ANA[: PARTY - 1] + BEN) is None
    assert parties("What does Ana play?", ["Ana"], ANA[:PARTY] + BEN) is not None


def test_somebody_is_named_by_the_beginning_of_a_name_but_not_by_any_word_that_begins_so() -> None:
    texts = tuple(text.replace("Ana", "Carolin") for text in ANA) + BEN

    by_nickname = parties("What does Carol play?", ["Carol"], texts)
    assert by_nickname is not None
    assert by_nickname.named == {"Carolin"}
    assert parties("Does Ca play?", ["Ca"], texts) is None
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


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    long = "Ben sings. " + "He does so every day. " * GLANCE
    texts = (*ANA, *BEN, long + "I saw the ben of the hill with Ana")
    sides = parties("What does Ana play?", ["Ana"], texts)

    assert sides is not None
    assert another(sides, texts)[-1] == 1.0


def test_a_text_without_a_capital_or_with_a_word_of_any_sentence_opens_with_nobody() -> None:
    assert [opening(text) for text in ("", "…", "42 cats", "it rains", "The cat", "I sing")] == [("", "")] * 6
    assert opening("Émile’s cat sleeps") == ("Émile", "")


class Told:
    """Texts by row; nothing else is asked of it."""

    def texts(self, rows: NDArray[np.int64]) -> list[str]:
        return [f"Ben has something to do with number {row}" for row in rows]


def left(
    theirs: Sequence[tuple[float, float]],
    rest: Sequence[tuple[float, float]],
    cosine: float = 1.0,
    elsewhere: float = 0.2,
) -> tuple[int, str]:
    """How many stay, and why not all: of candidates that hold so much of a question by words and by their relatives.

    Ben's come first; `cosine` is that of the rest, where Ben's have 1.
    """
    count = len(theirs) + len(rest)
    held, late = np.array([*theirs, *rest]).T
    columns = Columns(
        rows=np.arange(count),
        words=np.ones(count),
        cosine=np.array([1.0] * len(theirs) + [cosine] * len(rest)),
        created_at=np.zeros(count),
        importance=np.zeros(count),
        confidence=np.ones(count),
        last_evidence_at=np.zeros(count),
        before=np.full(count, -1),
        former=np.full(count, -1),
    )
    measured = {"held": held, "late": late, "another": np.array([-1.0] * len(theirs) + [0.0] * len(rest))}
    candidates = Candidates(columns, measured, {}, np.arange(count), np.ones(count))
    config = merge(preset("default"), None, {"elsewhere": elsewhere})
    call = Call(plain("What does Ana do?"), config, cast("Sources", Told()), Filter(), 0.0, None)
    kept, reason = without_others(candidates, call)
    return len(kept), reason


def test_both_what_is_held_and_what_is_like_it_count_half() -> None:
    assert left([(0.9, 0.9)], [(0.4, 0.9)])[0] == 1  # 0.9 against 0.65
    assert left([(0.9, 0.4)], [(0.4, 0.8)]) == (
        2,
        "",
    )  # 0.65 against 0.6: by words alone it would be withheld
    assert left([(0.4, 0.9)], [(0.8, 0.4)]) == (2, "")
    assert left([(0.9, 0.5)], [(0.5, 0.5)]) == (2, "")  # by no more than the bar


def test_only_the_first_of_others_and_of_the_rest_are_asked() -> None:
    few, all_of_it = (0.2, 0.2), (1.0, 1.0)
    assert left([few] * WITNESSES + [all_of_it], [few] * 3) == (WITNESSES + 4, "")
    assert left([few] * (WITNESSES - 1) + [all_of_it], [few] * 3)[0] == 3
    assert left([all_of_it], [few] * (WITNESSES - 1) + [all_of_it]) == (WITNESSES + 1, "")
    assert left([all_of_it], [few] * WITNESSES + [all_of_it])[0] == WITNESSES + 1


def test_the_best_of_the_first_counts_and_not_their_mean() -> None:
    assert left([(1.0, 1.0), (0.0, 0.0)], [(0.7, 0.7)])[0] == 1
    assert left([(1.0, 1.0)], [(0.9, 0.9), (0.0, 0.0), (0.0, 0.0)]) == (4, "")


def test_of_the_rest_nothing_is_left_where_none_of_it_is_nearly_as_near() -> None:
    assert left([(1.0, 1.0)], [(0.1, 0.1)] * 2, cosine=0.71)[0] == 2
    kept, reason = left([(1.0, 1.0)], [(0.1, 0.1)] * 2, cosine=0.69)
    assert kept == 0
    assert "Ben" in reason
