"""Keep what happened in a session as episodes: run by a hook, in a process of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from skep.integrations.hooks import Payload
from skep.integrations.transcripts import Turn, read_turns, without_private
from skep.integrations.wording import clip

if TYPE_CHECKING:
    from skep.bank import Bank

ASKED_CHARS: Final = 1500
ANSWERED_CHARS: Final = 1500
WORTH_CHARS: Final = 24
"""Shorter questions ("go on", "yes") make no episode of their own."""
CONFIDENCE: Final = 0.6
IMPORTANCE: Final = 0.3


def episodes(turns: list[Turn], after: str | None) -> list[Turn]:
    """The turns that are new and worth keeping; commands and short replies are not."""
    ids = [turn.id for turn in turns]
    fresh = turns[ids.index(after) + 1 :] if after in ids else turns
    return [
        turn
        for turn in fresh
        if len(turn.asked) >= WORTH_CHARS and not turn.asked.startswith(("/", "!", "<"))
    ]


def capture(bank: Bank, client: str, payload: Payload) -> int:
    """Keep the new turns of a transcript; how many. Running it twice keeps nothing twice."""
    from skep.lifecycle.privacy import redact

    if not payload.transcript_path:
        return 0
    turns = read_turns(Path(payload.transcript_path), payload.last_assistant_message or "")
    if not turns:
        return 0
    mark = f"hook/{client}/{payload.session_id or payload.transcript_path}"[:500]
    kept = episodes(turns, bank.setting(mark))
    for turn in kept:
        asked = clip(redact(turn.asked).text.strip(), ASKED_CHARS)
        answered = clip(redact(without_private(turn.answered)).text.strip(), ANSWERED_CHARS)
        bank.remember(
            f"User: {asked}\nAssistant: {answered}",
            kind="episode",
            tags=[f"from:{client}"],
            agent=client,
            source=clip(f"{client}:{payload.session_id}/{turn.id}", 200),
            confidence=CONFIDENCE,
            importance=IMPORTANCE,
            metadata={"folder": payload.cwd} if payload.cwd else None,
            on_conflict="ignore",
        )
    if turns[-1].id != bank.setting(mark):
        bank.set_setting(mark, turns[-1].id)
    return len(kept)


def run(client: str, raw: bytes, bank: str | None, environ: Mapping[str, str]) -> int:
    """Open the bank that belongs to a session and keep what is new; how many turns were kept.

    A project's bank and the user's are both made by `skep init`; where there is none, nothing is kept.
    """
    from skep.bank import Bank
    from skep.config import find_bank
    from skep.embedding.environment import from_environment

    payload = msgspec.json.decode(raw or b"{}", type=Payload, strict=False)
    path = find_bank(bank, environ, Path(payload.cwd) if payload.cwd else Path.cwd())
    if not path.is_file():
        return 0
    with Bank.open(path, opener=from_environment(environ)) as opened:
        return capture(opened, client, payload)


if __name__ == "__main__":
    run(sys.argv[1], sys.stdin.buffer.read(), sys.argv[2] if len(sys.argv) > 2 else None, os.environ)
