"""Hooks of coding agents: memories that go into a prompt, and turns of a transcript that come out of it.

`skep hook` runs this on every prompt of a client, so it reads words straight from the file: no vectors, no index, few
imports. It never fails and never blocks: whatever goes wrong, the client goes on as if skep were not there. A process
of its own (`capture`) writes after the client has its answer. The last part puts a memory into words for a model: its
age, its standing, and no more than fits.
"""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep import private_parts
from skep.model import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from skep.storage.sqlite_store import SqliteStore


MAX_BYTES: Final = 32 * 1024 * 1024
"""How much of a transcript's end is read; older turns were captured when they were new."""

_MACHINE = re.compile(
    r"(?:<|&lt;)(system-reminder|command-[a-z]+|local-command-[a-z]+|skep-memory|hook_context|environment_context"
    r"|user_instructions)\b[^<>&]*(?:>|&gt;).*?(?:(?:<|&lt;)/\1\s*(?:>|&gt;)|\Z)",
    re.S,
)
"""Blocks that a client or skep itself put into a message, as they are or escaped."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The question of a user and the final answer."""

    id: str
    asked: str
    answered: str


def without_private(text: str) -> str:
    """Text without what the user marked as private, or what the client put in by itself."""
    return _MACHINE.sub("", private_parts.without_private(text)).strip()


def read_turns(path: Path, last_answer: str = "") -> list[Turn]:
    """The finished turns of a transcript, oldest first; an unreadable line is passed over.

    Args:
        path: The transcript.
        last_answer: What was answered last, if it is known: a client may still be writing it down.
    """
    turns: list[Turn] = []
    asked: tuple[str, str] | None = None
    answered = ""
    for identity, role, text in _messages(path):
        if role == "user":
            if asked is not None and answered:
                turns.append(Turn(id=asked[0], asked=asked[1], answered=answered))
            asked, answered = (identity, text), ""
        elif text.strip():
            answered = text.strip()
    answered = last_answer.strip() or answered
    if asked is not None and answered:
        turns.append(Turn(id=asked[0], asked=asked[1], answered=answered))
    return turns


def _messages(path: Path) -> Iterator[tuple[str, str, str]]:
    """Id, role and text of every message a person or the model wrote."""
    for number, entry in enumerate(_entries(path)):
        message, role = entry, str(entry.get("type") or "")
        if role in ("user", "assistant") and isinstance(entry.get("message"), dict):
            if entry.get("isMeta") or entry.get("isSidechain"):
                continue
            message = cast("dict[str, Any]", entry["message"])
        elif role == "response_item" and isinstance(entry.get("payload"), dict):
            message = cast("dict[str, Any]", entry["payload"])
            if message.get("type") != "message":
                continue
            role = str(message.get("role") or "")
        role = {"gemini": "assistant", "model": "assistant"}.get(role, role)
        if role not in ("user", "assistant"):
            continue
        text = _text(message.get("content") if "content" in message else message.get("parts"))
        if role == "user":
            text = without_private(text)
        if text.strip():
            identity = entry.get("uuid") or entry.get("id") or entry.get("timestamp") or number
            yield str(identity), role, text


def _entries(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - MAX_BYTES))
            data = file.read()
    except OSError:
        return
    if data.lstrip()[:1] == b"{" and b'"messages"' in data[:4096]:
        try:
            whole: Any = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError):
            whole = None
        if isinstance(whole, dict):
            found = cast("list[Any]", cast("dict[str, Any]", whole).get("messages") or [])
            yield from (cast("dict[str, Any]", one) for one in found if isinstance(one, dict))
            return
    for line in data.splitlines():
        try:
            entry: Any = msgspec.json.decode(line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(entry, dict):
            yield cast("dict[str, Any]", entry)


def _text(content: object) -> str:
    """The words of a message; tool calls, their results and thoughts are not words to anybody."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts: list[str] = []
    for block in cast("list[Any]", content):
        if isinstance(block, str):
            parts.append(block)
        elif isinstance(block, dict):
            entry = cast("dict[str, Any]", block)
            if entry.get("type", "text") in ("text", "input_text", "output_text") and isinstance(
                entry.get("text"), str
            ):
                parts.append(entry["text"])
    return "\n".join(parts)


ASKING: Final = ("UserPromptSubmit", "BeforeAgent")
STARTING: Final = ("SessionStart",)
ENDING: Final = ("Stop", "SessionEnd", "AfterAgent")

LIMIT: Final = 4
CANDIDATES: Final = 40
MAX_TERMS: Final = 48
HEAVIEST: Final = 6
TYPICAL_WORDS: Final = 20
DAY: Final = 86_400.0
MIN_CONFIDENCE: Final = 0.5
"""Below this a memory does not speak up by itself; it can still be asked for."""
MIN_SHARE: Final = 0.4
"""The share of the prompt's weight that a memory must hold to be worth the model's attention."""
PER_DOUBLING: Final = 0.1
MAX_SHARE: Final = 0.9
NEAR_BEST: Final = 0.7
"""What scores below this share of the best is left out."""
TEXT_CHARS: Final = 600
START_LIMIT: Final = 6
BUSY_SECONDS: Final = 0.2
PROMPT_CHARS: Final = 4000
BLOCK: Final = "skep-memory"
"""The tag around what a hook adds to a prompt; transcripts are read without it."""


class Payload(msgspec.Struct, kw_only=True):
    """The fields of a client's message to a hook that are read; every client sends more."""

    hook_event_name: str = ""
    session_id: str = ""
    transcript_path: str | None = None
    cwd: str | None = None
    prompt: str = ""
    source: str = ""
    stop_hook_active: bool = False
    last_assistant_message: str | None = None
    """The answer itself, where a client tells it; its transcript may be behind."""


def respond(client: str, raw: bytes, *, bank: str | None, environ: Mapping[str, str], now: float) -> str:
    """The output of a hook. Raises nothing that its caller must not swallow.

    Args:
        client: The client whose hook this is.
        raw: What the client wrote to standard input.
        bank: The bank file, if one was named.
        environ: The environment.
        now: Seconds since the epoch.
    """
    payload = msgspec.json.decode(raw or b"{}", type=Payload, strict=False)
    event = payload.hook_event_name
    if event in ENDING:
        if payload.transcript_path and not payload.stop_hook_active:
            spawn_capture(client, raw, bank)
        return _silence(client)
    store = open_store(bank, payload, environ)
    if store is None:
        return _silence(client)
    try:
        if event in ASKING:
            text = recall_for(store, payload.prompt, now)
        elif event in STARTING:
            text = opening(store, now)
        else:
            text = ""
    finally:
        store.close()
    if not text:
        return _silence(client)
    return msgspec.json.encode(
        {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}
    ).decode()


def open_store(bank: str | None, payload: Payload, environ: Mapping[str, str]) -> SqliteStore | None:
    """The bank for reading words; None when there is none yet."""
    from skep.config import Settings, bank_file, bank_url

    url = bank_url(bank, environ)
    if url is None:
        path = bank_file(bank, environ, payload.cwd or os.getcwd())
    else:  # what this machine has of it; a hook does not wait for a network
        from skep.hub.hub_urls import replica_file

        path = replica_file(url, environ)
    if not os.path.isfile(path):
        return None
    from skep.storage.sqlite_store import SqliteStore

    return SqliteStore.open(path, Settings(busy_seconds=BUSY_SECONDS), create=False, read_only=True)


def recall_for(store: SqliteStore, prompt: str, now: float) -> str:
    """The block of memories about a prompt; empty when none clearly fits."""
    return _context("Memory on this (check lines marked !):", best_for(store, prompt, now), now)


def best_for(store: SqliteStore, prompt: str, now: float) -> list[Memory]:
    """The memories that speak to a prompt, best first."""
    from skep.storage.full_text import rarities, rows_by_rare_words
    from skep.text.terms import query_terms, terms
    from skep.text.unanswered_sessions import is_unanswered

    weights = rarities(store, query_terms(without_private(prompt)[:PROMPT_CHARS])[:MAX_TERMS])
    if not weights:
        return []
    scored: list[tuple[float, float, Memory]] = []
    for memory in store.memories(rows_by_rare_words(store, weights, CANDIDATES)).values():
        if not is_current(memory, now) or (memory.kind == "episode" and is_unanswered(memory.text)):
            continue
        words = terms(f"{memory.title or ''} {memory.text}")
        held = set(words) & weights.keys()
        if speaks_to(held, weights, len(words)):
            brevity = 1.0 / (1.0 + len(words) / TYPICAL_WORDS)
            scored.append((sum(weights[term] for term in held) * (1 + brevity), memory.created_at, memory))
    scored.sort(key=lambda one: (-one[0], -one[1]))
    return [memory for score, _, memory in scored[:LIMIT] if score >= NEAR_BEST * scored[0][0]]


def is_current(memory: Memory, now: float) -> bool:
    """True if a memory may speak up unasked: it holds now, and is still trusted."""
    return (
        memory.status in ("active", "pending")
        and (memory.valid_from is None or memory.valid_from <= now)
        and (memory.valid_to is None or now < memory.valid_to)
        and (memory.expires_at is None or now < memory.expires_at)
        and memory.confidence >= MIN_CONFIDENCE
    )


def speaks_to(held: set[str], weights: Mapping[str, float], length: int = TYPICAL_WORDS) -> bool:
    """True if a memory that holds some of the words of a prompt is about it, rather than merely near it.

    It must hold at least two of them (or the only one), and a fair share of their weight: a long prompt has many
    words beside the point, so of those only the heaviest count. A long memory holds many words by chance, so more
    is asked of it.
    """
    heaviest = sorted(weights.values(), reverse=True)[:HEAVIEST]
    share = sum(weights[term] for term in held) / max(1e-9, sum(heaviest))
    asked = MIN_SHARE + PER_DOUBLING * max(0.0, math.log2(length / (2 * TYPICAL_WORDS)))
    return len(held) >= min(2, len(weights)) and share >= min(MAX_SHARE, asked)


def opening(store: SqliteStore, now: float) -> str:
    """The block for the start of a session: memories that are pinned or matter most."""
    from skep.filters import Filter

    where = Filter(valid_at=now, min_confidence=MIN_CONFIDENCE, now=now, kinds=("fact", "procedure"))
    found = store.foremost(where, limit=START_LIMIT)
    return _context("Memory, most important first; recall answers more:", found, now)


def _context(heading: str, memories: Sequence[Memory], now: float) -> str:
    if not memories:
        return ""

    lines: list[str] = []
    for memory in memories:
        title = f"{memory.title}: " if memory.title else ""
        marks = "".join(f" ! {mark}" for mark in standing(memory))
        text = clip(memory.text, TEXT_CHARS).replace("\n", "\n    ")
        lines.append(f"- [{memory.id}] {title}{text} ({age(memory.created_at, now)}){marks}")
    said = "\n".join(lines).replace(f"{BLOCK}>", BLOCK)  # no memory ends the block that it stands in
    return f"<{BLOCK}>\n{heading}\n{said}\n</{BLOCK}>"


def _silence(client: str) -> str:
    """Nothing to say, in the way a client wants to hear it."""
    return "{}" if client == "gemini" else ""


def spawn_capture(client: str, raw: bytes, bank: str | None) -> None:
    """Start the process that keeps what happened; it outlives this one and holds nothing of the client's."""
    import subprocess

    command = [sys.executable, "-m", "skep.integrations.capture", client, *([bank] if bank else [])]
    options: dict[str, Any] = (
        {"creationflags": 0x00000008 | 0x00000200} if os.name == "nt" else {"start_new_session": True}
    )
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        **options,
    )
    if process.stdin is not None:
        process.stdin.write(raw)
        process.stdin.close()
    process.returncode = 0


def read_arguments(given: Sequence[str]) -> tuple[str, str | None]:
    """The client and the bank on a command line, without a library to parse it.

    >>> read_arguments(["codex", "--bank", "b.skep"]), read_arguments([])
    (('codex', 'b.skep'), ('claude-code', None))
    """
    client, bank, words = "claude-code", None, iter(given)
    for word in words:
        if word == "--bank":
            bank = next(words, None)
        elif word.startswith("--bank="):
            bank = word.removeprefix("--bank=")
        elif not word.startswith("-"):
            client = word
    return client, bank


def main(arguments: Sequence[str] | None = None) -> None:
    """Run as a hook: read the event, print what the model should see, exit with 0 whatever happens."""
    import threading
    import time

    given = list(sys.argv[1:] if arguments is None else arguments)
    watchdog = threading.Timer(3.0, lambda: os._exit(0))
    watchdog.daemon = True
    watchdog.start()
    try:
        client, bank = read_arguments(given)
        raw = cast("bytes", sys.stdin.buffer.read())
        said = respond(client, raw, bank=bank, environ=os.environ, now=time.time())
        if said:
            sys.stdout.write(said)
            sys.stdout.flush()
    except Exception as error:  # noqa: BLE001 - a process of its own, and no reason to hold up a prompt
        sys.stderr.write(f"skep hook: {type(error).__name__}: {error}\n")
    finally:
        watchdog.cancel()


def date(moment: float) -> str:
    """A day, in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


def age(moment: float, now: float) -> str:
    """The age in the shortest form that helps.

    >>> age(0, 3 * 86400), age(0, 3000), age(0, 400 * 86400)
    ('3d ago', 'today', '1970-01-01')
    """
    days = (now - moment) / DAY
    if days < 1:
        return "today"
    return f"{int(days)}d ago" if days < 100 else date(moment)


def clip(text: str, limit: int) -> str:
    """A text cut to a length, with a mark where it was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)].rstrip() + "…"


def standing(memory: Memory) -> tuple[str, ...]:
    """Warnings for a reader of a memory."""
    found: list[str] = []
    if memory.superseded_by:
        found.append(f"outdated: replaced by [{memory.superseded_by}]")
    elif memory.merged_into:
        found.append(f"merged into [{memory.merged_into}]")
    elif memory.status not in ("active", "pending"):
        found.append(memory.status)
    if memory.disputes:
        found.append(f"contested {memory.disputes}x")
    if memory.stale:
        found.append("stale: check before relying on it")
    return tuple(found)


if __name__ == "__main__":
    main()
