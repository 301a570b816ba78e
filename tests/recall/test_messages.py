"""Messages of chat APIs go into a context as plain text, or are refused in words that say what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import InvalidInputError
from skep.recall.context_budget import build_context

CALL: dict[str, Any] = {
    "id": "1",
    "type": "function",
    "function": {"name": "search", "arguments": '{"q": "tea"}'},
}


TOLD: list[tuple[Any, str]] = [
    ({"role": "user", "content": "What now?"}, "user: What now?"),
    ({"role": "user", "content": "  What now?\n"}, "user: What now?"),
    ({"role": "user", "content": ["one", {"type": "text", "text": "two"}]}, "user: one two"),
    ({"role": "user", "content": [{"text": "no type"}]}, "user: no type"),
    ({"role": "user", "content": [{"type": "input_text", "text": "new"}]}, "user: new"),
    ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "user: [input_audio]"),
    ({"role": "assistant", "content": None, "tool_calls": [CALL]}, 'assistant: [calls search({"q": "tea"})]'),
    (
        {"role": "assistant", "content": "Let me see", "tool_calls": [CALL]},
        'assistant: Let me see [calls search({"q": "tea"})]',
    ),
    ({"role": "assistant", "content": ""}, "assistant:"),
    ({"role": "tool", "tool_call_id": "1", "content": "no tea"}, "tool: no tea"),
    (MappingProxyType({"role": "user", "content": "any mapping"}), "user: any mapping"),
    ("user: as it is ", "user: as it is "),
]


@pytest.mark.parametrize(("message", "told"), TOLD)
def test_a_message_is_told_with_its_role(message: str | Mapping[str, Any], told: str) -> None:
    assert build_context([message]).messages == (told,)
    assert build_context(tool_results=[message]).tool_results == (told,)


REFUSED: list[tuple[Any, str]] = [
    ({"content": "who says this?"}, "needs a role"),
    ({"role": 3, "content": "who says this?"}, "needs a role"),
    ({"role": "user"}, "the message of user has no content"),
    ({"role": "user", "text": "under another name"}, "has no content"),
    ({"role": "user", "content": 3}, "content must be a string or a list of parts, got int"),
    ({"role": "user", "content": b"bytes"}, "content must be a string or a list of parts, got bytes"),
    ({"role": "user", "content": [3]}, "a part of content must be a string or a mapping"),
    ({"role": "user", "content": [{"image": "x"}]}, "a part of content needs a type"),
    ({"role": "user", "content": [{"type": "text"}]}, "must hold its text as a string"),
    (
        {"role": "assistant", "content": None, "tool_calls": [{}]},
        "a tool call needs a function with a name",
    ),
    (
        {"role": "assistant", "content": None, "tool_calls": "search"},
        "tool_calls must be a list, got str",
    ),
    (3, "must hold strings or mappings with role and content, got int"),
    (None, "got NoneType"),
]


@pytest.mark.parametrize(("message", "why"), REFUSED)
def test_what_cannot_be_read_is_refused_with_the_reason(message: Any, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why) as caught:
        build_context([message])
    assert caught.value.field == "messages"
    assert len(str(caught.value)) < 250


def test_one_message_where_a_list_is_meant_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="messages must be a list of strings or of mappings"):
        build_context({"role": "user", "content": "hello"})  # type: ignore[arg-type]


@given(
    st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text()}))
)
def test_the_budget_holds_for_them_too(messages: list[dict[str, str]]) -> None:
    context = build_context(messages, budget=20)
    assert context.tokens <= 20
    assert len(context.messages) <= len(messages)
