"""Hooks of coding agents: what is known goes in before the model answers, and what happened comes out
afterwards.

This runs on every prompt, so it reads words straight from the file: no vectors, no index, nothing imported
that can be done without. It never fails and never blocks: whatever goes wrong, the client goes on as if
skep were not there. Writing happens in a process of its own, after the client has its answer."""

from __future__ import annotations

import math
import os
import sys
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from skep.integrations.transcripts import without_private
from skep.loading import undisturbed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from skep.model import Memory
    from skep.storage.sqlite import SqliteStore

ASKING: Final = ("UserPromptSubmit", "BeforeAgent")
STARTING: Final = ("SessionStart",)
ENDING: Final = ("Stop", "SessionEnd", "AfterAgent")

LIMIT: Final = 4
CANDIDATES: Final = 40
MAX_TERMS: Final = 48
HEAVIEST: Final = 6
TYPICAL_WORDS: Final = 20
DAY: Final = 86_400.0
DECAY_PER_DAY: Final = 0.01
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
    """What a client tells a hook; every client sends more than this."""

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
    """What a hook prints. Raises nothing that its caller must not swallow.

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
    from skep.config import Settings, bank_file

    path = bank_file(bank, environ, payload.cwd or os.getcwd())
    if not os.path.isfile(path):
        return None
    with undisturbed():
        from skep.storage.sqlite import SqliteStore

    return SqliteStore.open(path, Settings(busy_seconds=BUSY_SECONDS), create=False, read_only=True)


def recall_for(store: SqliteStore, prompt: str, now: float) -> str:
    """What memory has to say about a prompt; empty when nothing clearly does."""
    return _context("Memory on this (check lines marked !):", best_for(store, prompt, now), now)


def best_for(store: SqliteStore, prompt: str, now: float) -> list[Memory]:
    """The memories that speak to a prompt, best first."""
    from skep.storage.lookup import rarities, rows_by_rare_words
    from skep.words import query_terms, terms

    weights = rarities(store, query_terms(without_private(prompt)[:PROMPT_CHARS])[:MAX_TERMS])
    if not weights:
        return []
    scored: list[tuple[float, float, Memory]] = []
    for memory in store.memories(rows_by_rare_words(store, weights, CANDIDATES)).values():
        if not is_current(memory, now):
            continue
        words = terms(f"{memory.title or ''} {memory.text}")
        held = set(words) & weights.keys()
        if speaks_to(held, weights, len(words)):
            brevity = 1.0 / (1.0 + len(words) / TYPICAL_WORDS)
            scored.append((sum(weights[term] for term in held) * (1 + brevity), memory.created_at, memory))
    scored.sort(key=lambda one: (-one[0], -one[1]))
    return [memory for score, _, memory in scored[:LIMIT] if score >= NEAR_BEST * scored[0][0]]


def is_current(memory: Memory, now: float) -> bool:
    """Whether a memory may speak up unasked: it holds now, and is still trusted."""
    decay = (
        1.0
        if memory.kind != "fact"
        else math.exp(-DECAY_PER_DAY * max(0.0, now - memory.last_evidence_at) / DAY)
    )
    return (
        memory.status in ("active", "pending")
        and (memory.valid_from is None or memory.valid_from <= now)
        and (memory.valid_to is None or now < memory.valid_to)
        and (memory.expires_at is None or now < memory.expires_at)
        and memory.confidence * decay >= MIN_CONFIDENCE
    )


def speaks_to(held: set[str], weights: Mapping[str, float], length: int = TYPICAL_WORDS) -> bool:
    """Whether a memory that holds some of the words of a prompt is about it, rather than merely near it.

    It must hold at least two of them (or the only one), and a fair share of their weight: a long prompt has many
    words beside the point, so of those only the heaviest count. A long memory holds many words by chance, so more
    is asked of it.
    """
    heaviest = sorted(weights.values(), reverse=True)[:HEAVIEST]
    share = sum(weights[term] for term in held) / max(1e-9, sum(heaviest))
    asked = MIN_SHARE + PER_DOUBLING * max(0.0, math.log2(length / (2 * TYPICAL_WORDS)))
    return len(held) >= min(2, len(weights)) and share >= min(MAX_SHARE, asked)


def opening(store: SqliteStore, now: float) -> str:
    """What a session should know from the start: what is pinned or matters most."""
    from skep.storage.base import Filter

    where = Filter(valid_at=now, min_confidence=MIN_CONFIDENCE, now=now, kinds=("fact", "procedure"))
    found = store.foremost(where, limit=START_LIMIT)
    return _context("Memory, most important first; recall answers more:", found, now)


def _context(heading: str, memories: Sequence[Memory], now: float) -> str:
    if not memories:
        return ""
    from skep.integrations.wording import age, clip, standing

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


if __name__ == "__main__":
    main()
