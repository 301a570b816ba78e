"""The dialects of services that answer questions: the shape of a request, and where the text stands in the answer.

One `ChatService` per dialect: OpenAI and what is compatible with it, Anthropic, Gemini and Ollama. Values to values;
`language_model` sends and reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from urllib.parse import quote

import msgspec


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a model."""

    model: str
    prompt: str
    system: str | None = None
    answer: int = 1000
    """The most tokens of the answer."""
    schema: Mapping[str, Any] | None = None
    """The shape of the answer, where it is to be JSON."""
    stream: bool = False
    official: bool = False
    """True at the service's own address, which may know newer names than those that speak its dialect."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer, or one piece of a streamed one, holds."""

    text: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    ended: str | None = None
    """Why the answer ended, in the words of the service; None while it goes on."""
    problem: str = ""


class ChatService(msgspec.Struct, frozen=True, kw_only=True):
    """The dialect of a service."""

    name: str
    url: str
    key_header: tuple[str, str] | None = None
    """Header and prefix of the key."""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key; the first that is set counts."""
    address_variable: str = ""
    headers: Mapping[str, str] = {}
    path: Callable[[Question], str]
    body: Callable[[Question], dict[str, Any]]
    read: Callable[[Any], Part]
    """A whole answer."""
    piece: Callable[[Any], Part]
    """One piece of a streamed answer."""
    free: bool = False
    lines: bool = False
    """Streams JSON lines; others send server-sent events."""


LENGTH = frozenset({"length", "max_tokens", "MAX_TOKENS"})
"""Why an answer ended that was cut at its longest."""


def count(value: object) -> int | None:
    """A number of tokens as a service states it; None if it is none.

    >>> count(5), count("many"), count(True), count(-1)
    (5, None, None, None)
    """
    right = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    return cast("int", value) if right else None


def _within(data: Any, key: str) -> Any:
    """What stands under a key; an empty table where nothing does."""
    return data.get(key) or {}


def _first(data: Any, key: str) -> Any:
    """The first of a list under a key; an empty table where there is none."""
    found: list[Any] = data.get(key) or [{}]
    return found[0]


def _usage(given: object, names_in: tuple[str, ...], name_out: str) -> tuple[int | None, int | None]:
    usage = cast("dict[str, object]", given) if isinstance(given, dict) else {}
    counted = [n for n in (count(usage.get(name)) for name in names_in) if n is not None]
    return (sum(counted) if counted else None), count(usage.get(name_out))


def _turns(question: Question) -> list[dict[str, str]]:
    system = [{"role": "system", "content": question.system}] if question.system else []
    return [*system, {"role": "user", "content": question.prompt}]


def _openai_body(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {"model": question.model, "messages": _turns(question)}
    if question.official:  # its newer models refuse max_tokens and any temperature but their own
        body["max_completion_tokens"] = question.answer
    else:
        body |= {"max_tokens": question.answer, "temperature": 0}
    if question.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def _openai_usage(data: Any) -> tuple[int | None, int | None]:
    usage: Any = data.get("usage")
    tokens_in, tokens_out = _usage(usage, ("prompt_tokens",), "completion_tokens")
    if tokens_in is None and isinstance(usage, dict):  # some name the sum alone
        total = count(cast("dict[str, object]", usage).get("total_tokens"))
        return (total, 0) if total is not None else (None, tokens_out)
    return tokens_in, tokens_out


def _openai_read(data: Any) -> Part:
    tokens_in, tokens_out = _openai_usage(data)
    choice = data["choices"][0]
    return Part(
        text=str(choice["message"]["content"] or ""),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        ended=choice.get("finish_reason") or "stop",
        problem=_said(data.get("error")),
    )


def _openai_piece(data: Any) -> Part:
    tokens_in, tokens_out = _openai_usage(data)
    choice = _first(data, "choices")
    return Part(
        text=str(_within(choice, "delta").get("content") or ""),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        ended=choice.get("finish_reason"),
        problem=_said(data.get("error")),
    )


def _anthropic_body(question: Question) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": question.model,
        "max_tokens": question.answer,
        "messages": [{"role": "user", "content": question.prompt}],
    }
    if not question.official:
        body["temperature"] = 0
    if question.system:
        body["system"] = question.system
    return body | ({"stream": True} if question.stream else {})


_CACHED = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _anthropic_read(data: Any) -> Part:
    tokens_in, tokens_out = _usage(data.get("usage"), _CACHED, "output_tokens")
    text = "".join(part["text"] for part in data["content"] if "text" in part)
    return Part(
        text=text, tokens_in=tokens_in, tokens_out=tokens_out, ended=data.get("stop_reason") or "end_turn"
    )


def _anthropic_piece(data: Any) -> Part:
    kind = data.get("type")
    if kind == "message_start":
        return Part(tokens_in=_usage(data["message"].get("usage"), _CACHED, "output_tokens")[0])
    if kind == "content_block_delta":
        return Part(text=str(data["delta"].get("text") or ""))
    if kind == "message_delta":
        _, tokens_out = _usage(data.get("usage"), (), "output_tokens")
        return Part(tokens_out=tokens_out, ended=data["delta"].get("stop_reason"))
    if kind == "error":
        return Part(problem=_said(data.get("error")) or "an error")
    return Part()


def _gemini_path(question: Question) -> str:
    verb = "streamGenerateContent?alt=sse" if question.stream else "generateContent"
    return f"/models/{quote(question.model)}:{verb}"


def _gemini_body(question: Question) -> dict[str, Any]:
    settings: dict[str, Any] = {"maxOutputTokens": question.answer, "temperature": 0}
    if question.schema is not None:
        settings["responseMimeType"] = "application/json"
    body: dict[str, Any] = {
        "contents": [{"role": "user", "parts": [{"text": question.prompt}]}],
        "generationConfig": settings,
    }
    if question.system:
        body["systemInstruction"] = {"parts": [{"text": question.system}]}
    return body


def _gemini_read(data: Any) -> Part:
    usage = data.get("usageMetadata")
    tokens_in, tokens_out = _usage(usage, ("promptTokenCount",), "candidatesTokenCount")
    _, thought = _usage(usage, (), "thoughtsTokenCount")
    tokens_out = None if tokens_out is None else tokens_out + (thought or 0)
    refused = _within(data, "promptFeedback").get("blockReason")
    choice = _first(data, "candidates")
    parts: list[Any] = _within(choice, "content").get("parts") or []
    return Part(
        text="".join(str(part.get("text") or "") for part in parts),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        ended=choice.get("finishReason"),
        problem=_said(data.get("error")) or (f"the question was blocked ({refused})" if refused else ""),
    )


def _ollama_body(question: Question) -> dict[str, Any]:
    return {
        "model": question.model,
        "messages": _turns(question),
        "stream": question.stream,
        "options": {"num_predict": question.answer, "temperature": 0},
    } | ({"format": question.schema} if question.schema is not None else {})


def _ollama_read(data: Any) -> Part:
    return Part(
        text=str(_within(data, "message").get("content") or ""),
        tokens_in=count(data.get("prompt_eval_count")),
        tokens_out=count(data.get("eval_count")),
        ended=(data.get("done_reason") or "stop") if data.get("done") else None,
        problem=_said(data.get("error")),
    )


def _said(error: object) -> str:
    """The words of an error in an answer."""
    if isinstance(error, dict):
        given = cast("dict[str, object]", error)
        return str(given.get("message") or given.get("type") or given)[:200]
    return str(error)[:200] if error else ""


OPENAI_CHAT = ChatService(
    name="openai",
    url="https://api.openai.com/v1",
    key_header=("authorization", "Bearer "),
    key_variables=("OPENAI_API_KEY",),
    address_variable="OPENAI_BASE_URL",
    path=lambda _question: "/chat/completions",
    body=_openai_body,
    read=_openai_read,
    piece=_openai_piece,
)
ANTHROPIC_CHAT = ChatService(
    name="anthropic",
    url="https://api.anthropic.com/v1",
    key_header=("x-api-key", ""),
    key_variables=("ANTHROPIC_API_KEY",),
    address_variable="ANTHROPIC_BASE_URL",
    headers={"anthropic-version": "2023-06-01"},
    path=lambda _question: "/messages",
    body=_anthropic_body,
    read=_anthropic_read,
    piece=_anthropic_piece,
)
GEMINI_CHAT = ChatService(
    name="gemini",
    url="https://generativelanguage.googleapis.com/v1beta",
    key_header=("x-goog-api-key", ""),
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    path=_gemini_path,
    body=_gemini_body,
    read=_gemini_read,
    piece=_gemini_read,
)
OLLAMA_CHAT = ChatService(
    name="ollama",
    url="http://localhost:11434",
    address_variable="OLLAMA_HOST",
    path=lambda _question: "/api/chat",
    body=_ollama_body,
    read=_ollama_read,
    piece=_ollama_read,
    free=True,
    lines=True,
)
CHAT_SERVICES: Mapping[str, ChatService] = {
    service.name: service for service in (OPENAI_CHAT, ANTHROPIC_CHAT, GEMINI_CHAT, OLLAMA_CHAT)
}


def pieces(lines: Iterator[bytes], service: ChatService) -> Iterator[Any]:
    """The JSON values of a streamed answer."""
    for line in lines:
        said = line.strip()
        if not service.lines:
            if not said.startswith(b"data:"):
                continue
            said = said[5:].strip()
            if said == b"[DONE]":
                return
        if said:
            yield json.loads(said)
