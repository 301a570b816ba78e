"""The context budget is kept, by priority, and says what it left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.errors import InvalidInputError
from skep.recall.context_budget import build_context
from skep.text.terms import PIECES, Counter, count_tokens


def words(text: str) -> int:
    return len(text.split())


def test_tiers_are_filled_by_priority() -> None:
    context = build_context(
        ["old message", "new message"],
        ["tool result"],
        facts=["a fact"],
        episodes=["an episode"],
        system="be kind and brief",
        budget=100,
        counter=words,
    )
    assert context.messages == ("old message", "new message")
    assert (context.facts, context.episodes, context.system) == (
        ("a fact",),
        ("an episode",),
        "be kind and brief",
    )
    assert (context.tokens, context.left_out) == (words(context.render()), ())
    assert "What memory says:\n- a fact\n- an episode" in context.render()


def test_the_oldest_messages_go_first_when_nothing_else_helps() -> None:
    context = build_context(["one two three", "four five", "six"], facts=["seven"], budget=3, counter=words)
    assert context.messages == ("four five", "six")
    assert {left.tier for left in context.left_out} == {"messages", "facts"}


def test_headings_and_bullets_are_paid_for() -> None:
    context = build_context(facts=["one two"], budget=5, counter=words)
    assert (context.facts, context.left_out[0].why) == ((), "the whole budget is used up")
    assert build_context(facts=["one two"], budget=6, counter=words).facts == ("one two",)


def test_a_newest_message_that_does_not_fit_is_cut_and_what_was_cut_is_reported() -> None:
    context = build_context(["older", "one two three four five six"], budget=4, counter=words)
    assert context.messages == ("one two three …",)
    cut, older = context.left_out
    assert (cut.text, cut.tokens) == ("four five six", 3)
    assert "newest message" in cut.why
    assert older.text == "older"


def test_a_message_without_spaces_is_cut_all_the_same() -> None:
    context = build_context(["長" * 500], budget=50)
    assert context.messages[0].startswith("長長長")
    assert 40 < context.tokens <= 50


def test_what_is_no_list_of_texts_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="messages must be a list of strings"):
        build_context("one message")
    with pytest.raises(InvalidInputError, match="facts must hold strings"):
        build_context(facts=[3])  # type: ignore[list-item]


def test_a_memory_that_does_not_fit_is_passed_over_and_a_smaller_one_goes_in() -> None:
    big, small = "w " * 201, "w " * 150
    context = build_context(facts=[big, small, "w " * 60], counter=words)
    assert context.facts == (small,)
    assert [left.why for left in context.left_out] == ["over the 200 tokens of this tier"] * 2


def test_system_text_is_cut_at_a_word_and_nothing_else_is_cut() -> None:
    context = build_context(["a b"], system="c d e f", budget=4, counter=words)
    assert context.system == "c d"
    assert context.left_out[0].text == "e f"


@given(
    st.lists(st.text(max_size=60), max_size=5),
    st.lists(st.text(max_size=60), max_size=5),
    st.lists(st.text(max_size=60), max_size=5),
    st.text(max_size=80),
    st.integers(0, 120),
)
def test_the_budget_is_never_exceeded(
    messages: list[str], tools: list[str], facts: list[str], system: str, budget: int
) -> None:
    counters: tuple[Counter, ...] = (count_tokens, words, len, lambda text: len(text) ** 2)
    for counter in counters:
        context = build_context(messages, tools, facts=facts, system=system, budget=budget, counter=counter)
        assert context.tokens == counter(context.render()) <= budget
        given = sum(len(tier) for tier in (messages, tools, facts)) + bool(system)
        kept = sum(len(tier) for tier in (context.messages, context.tool_results, context.facts))
        assert kept + bool(context.system) + len(context.left_out) >= given


def test_tokens_are_counted_about_as_a_tokenizer_counts_them() -> None:
    known = {
        "The quick brown fox jumps over the lazy dog.": 10,
        "def add(a: int, b: int) -> int:\n    return a + b\n": 20,
        "Integration tests need the REDIS_URL variable.": 10,
    }
    for text, tokens in known.items():
        assert abs(count_tokens(text) - tokens) <= 3
    assert count_tokens("") == 0


def test_a_text_is_cut_as_a_tokenizer_cuts_it() -> None:
    cut = {
        "I don't see it, they'll say.": ["I", " don't", " see", " it", ",", " they'll", " say", "."],
        "getHTTPValue(self._name, 12345)": [
            "get",
            "HTTPValue",
            "(self",
            "._",
            "name",
            ",",
            " ",
            "123",
            "45",
            ")",
        ],
        "a = b  # note\n\n    return x\n": [
            "a",
            " =",
            " b",
            " ",
            " #",
            " note",
            "\n\n",
            "   ",
            " return",
            " x",
            "\n",
        ],
        "café — naïve “quote”": ["café", " —", " naïve", " “", "quote", "”"],
        "| a | b |\n|---|---|\n": ["|", " a", " |", " b", " |\n", "|---|---|\n"],
    }
    for text, pieces in cut.items():
        assert PIECES.findall(text) == pieces


@given(st.text())
def test_every_sign_is_paid_for_and_more_text_never_costs_nothing(text: str) -> None:
    assert "".join(PIECES.findall(text)) == text
    assert count_tokens(text) >= bool(text)


def test_what_was_streamed_goes_in_by_itself() -> None:
    from skep import Bank
    from skep import build_context as public

    with Bank.open(":memory:") as bank:
        bank.remember("The user's dog is called Rex")
        stream = bank.stream(inline=True)
        stream.observe("my dog Rex is ill")
        context = public(["what now?"], streamed=stream.context(), system="Be kind.")
    assert context.facts == ("The user's dog is called Rex",)


def test_no_counter_means_the_usual_one_and_anything_else_is_refused() -> None:
    assert build_context(["one two"], counter=None) == build_context(["one two"])
    with pytest.raises(InvalidInputError, match="counter must be a function"):
        build_context(["one two"], counter=3)  # type: ignore[arg-type]


def test_a_memory_goes_in_once_and_nothing_of_blanks() -> None:
    text = "Ana likes tea"
    context = build_context(
        ["user: x"], [text], facts=[text, "Ben likes milk", " "], episodes=["", "Ben likes milk"]
    )
    assert (context.tool_results, context.facts, context.episodes) == ((text,), ("Ben likes milk",), ())
    assert [(left.tier, left.text, left.why) for left in context.left_out] == [
        ("facts", text, "said already"),
        ("facts", " ", "nothing but blanks"),
        ("episodes", "", "nothing but blanks"),
        ("episodes", "Ben likes milk", "said already"),
    ]


def test_hits_may_be_given_as_they_are(bank: Bank) -> None:
    bank.remember("Ana's deploy key expires on 1 June")
    hits = bank.search_memory("deploy key")
    assert build_context(tool_results=hits).tool_results == ("Ana's deploy key expires on 1 June",)
    assert build_context(facts=hits).facts == ("Ana's deploy key expires on 1 June",)


def test_tool_calls_and_answers_in_parts_are_told() -> None:
    called = {
        "role": "assistant",
        "content": [{"type": "tool_use", "name": "query", "input": {"table": "t"}}],
    }
    plain = {"type": "tool_result", "tool_use_id": "1", "content": "42 rows"}
    parts = {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "7 rows"}]}
    context = build_context([called, {"role": "user", "content": [plain, parts]}])
    assert context.messages == (
        'assistant: [calls query({"table": "t"})]',
        "user: [tool_result] 42 rows [tool_result] 7 rows",
    )
    with pytest.raises(InvalidInputError, match="a function with a name"):
        build_context([{"role": "assistant", "content": [{"type": "tool_use"}]}])
