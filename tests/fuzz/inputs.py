"""Inputs, each from its seed: texts, JSON values, bytes and files as nobody would write them, and damaged real ones."""

from __future__ import annotations

import json
from random import Random
from typing import Any

PIECES = (
    "",
    " ",
    "\n",
    "\t",
    "\r\n",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "\udfff",
    "\u200b",
    "\u202e",
    "\ufeff",
    "é",
    "走",
    "🐝",
    "İ",
    "ß",
    "a",
    "Z",
    "0",
    "9" * 40,
    "-1",
    "1e999",
    "NaN",
    "null",
    "true",
    "-",
    "--",
    "_",
    ".",
    "..",
    "/",
    "\\",
    "~",
    "*",
    "%s",
    "%00",
    "{}",
    "[[",
    "]]",
    "[[a|b]]",
    "<private>",
    "</private>",
    "&lt;",
    "<!--",
    "-->",
    "```",
    "---",
    "#",
    "# ",
    "- ",
    "1. ",
    "| a | b |",
    "'",
    '"',
    "`",
    ";",
    ",",
    ":",
    "=",
    "$",
    "@",
    "!",
    "?",
    "key=",
    "password ",
    "token: ",
    "sk-",
    "eyJ.",
    "://",
    "a@",
    "system: ",
    "user: ",
    "2025-13-40",
    "9999-12-31",
    "-5000-01-01",
    "12:99",
    "in May 20",
    "last ",
    "days ago",
    "yesterday",
    "before ",
    "not ",
    "never ",
    "moved to ",
    "is ",
    "the ",
    "Ana",
    "Oslo",
    "ruff",
    "Use ruff for linting",
    "&a",
    "*a",
    "!!python/object",
    "<<: *a",
)
FIELDS = (
    "text",
    "title",
    "tags",
    "kind",
    "scope",
    "metadata",
    "created_at",
    "confidence",
    "source",
    "domain",
    "agent",
    "query",
    "limit",
    "cursor",
    "id",
    "role",
    "content",
    "mapping",
    "message",
    "messages",
    "name",
    "entities",
    "observations",
    "relations",
    "version",
    "agents",
    "groups",
    "gateway",
    "topology",
    "steps",
    "jsonrpc",
    "method",
    "params",
    "arguments",
    "_meta",
)


def text_of(rng: Random, most: int = 400) -> str:
    """A text of pieces; now and then one piece many times over, which is what slow patterns fear."""
    if rng.random() < 0.15:
        piece = rng.choice(PIECES) or "x"
        return piece * (rng.randrange(1, 20_000) // len(piece) + 1)
    out = ""
    for _ in range(rng.randrange(0, 12)):
        out += rng.choice(PIECES) if rng.random() < 0.8 else chr(rng.randrange(1, 0x3000))
        if len(out) > most:
            break
    return out


def value_of(rng: Random, depth: int = 3) -> Any:
    """A value that JSON can hold, or nearly."""
    kind = rng.randrange(9 if depth else 6)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice((0, -1, 1, 1 << 31, 1 << 53, 1 << 64, -(1 << 70), 0.5, -0.0, 1e308, 5))
    if kind < 6:
        return text_of(rng)
    if kind == 6:
        return [value_of(rng, depth - 1) for _ in range(rng.randrange(4))]
    names = [rng.choice(FIELDS) if rng.random() < 0.8 else text_of(rng, 20) for _ in range(rng.randrange(5))]
    return {name: value_of(rng, depth - 1) for name in names}


def json_of(rng: Random, value: Any, share: float = 0.4) -> bytes:
    """JSON of a value; a share of it is damaged."""
    return damaged(rng, json.dumps(value).encode(), share)


def damaged(rng: Random, data: bytes, share: float = 0.4) -> bytes:
    """The same, or with some of it cut, doubled, exchanged or noise."""
    if rng.random() >= share or not data:
        return data
    at, to = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    how = rng.randrange(5)
    if how == 0:
        return data[:at]
    if how == 1:
        return data[:at] + data[to:]
    if how == 2:
        return data[:to] + data[at:]
    if how == 3:
        return data[:at] + rng.randbytes(rng.randrange(1, 40)) + data[at:]
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
