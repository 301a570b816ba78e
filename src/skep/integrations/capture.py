"""Turns of a session kept as episodes: a hook runs this in a process of its own.

A turn in which nobody knew the answer is not kept: it is no knowledge, and it would stand beside the next question.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skep.integrations.hooks import Payload, clip
from skep.integrations.transcripts import Turn, read_turns, without_private
from skep.text.unanswered_sessions import is_unanswered

if TYPE_CHECKING:
    from skep.bank.bank import Bank


ASKED_CHARS: Final = 1500
ANSWERED_CHARS: Final = 1500
WORTH_CHARS: Final = 24
"""Shorter questions ("go on", "yes") make no episode of their own."""
REVIEW: Final = "review/ask"
"""The setting that says whose memories wait until a person says yes; `skep review --ask` writes it."""
AGENTS: Final = "agents"
"""Its value if what agents store over MCP waits, too."""
CONFIDENCE: Final = 0.6
IMPORTANCE: Final = 0.3


def episodes(turns: list[Turn], after: str | None) -> list[Turn]:
    """Turns that are new and worth keeping; commands, short replies and questions that nobody could answer are not."""
    ids = [turn.id for turn in turns]
    fresh = turns[ids.index(after) + 1 :] if after in ids else turns
    return [
        turn
        for turn in fresh
        if len(turn.asked) >= WORTH_CHARS
        and not turn.asked.startswith(("/", "!", "<"))
        and not is_unanswered(_text_of(turn.asked, without_private(turn.answered)))
    ]


def _text_of(asked: str, answered: str) -> str:
    """One turn as the text of an episode."""
    return f"User: {clip(asked.strip(), ASKED_CHARS)}\nAssistant: {clip(answered.strip(), ANSWERED_CHARS)}"


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """The result of capturing the new turns of a session."""

    turns: int = 0
    redacted: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """How often each kind of secret or personal data was taken out."""

    def line(self) -> str:
        """In one readable line."""
        taken = ", ".join(f"{kind} {count}" for kind, count in sorted(self.redacted.items()))
        return f"kept {self.turns} turn{'' if self.turns == 1 else 's'}" + (
            f"; taken out: {taken}" if taken else ""
        )


def capture(bank: Bank, client: str, payload: Payload) -> Captured:
    """Keep the new turns of a transcript, without secrets. Running it twice keeps nothing twice.

    What is taken out is what the bank's setting `redact/kinds` names, without one secrets
    and personal data; how much there was is in the log.
    """
    if not payload.transcript_path:
        return Captured()
    turns = read_turns(Path(payload.transcript_path), payload.last_assistant_message or "")
    if not turns:
        return Captured()
    from skep.text import redaction

    mark = f"hook/{client}/{payload.session_id or payload.transcript_path}"[:500]
    kept = episodes(turns, bank.setting(mark))
    kinds = redaction.kinds_of(bank.setting(redaction.SETTING), redaction.DEFAULT)
    total: Counter[str] = Counter()
    for turn in kept:
        total += _keep(bank, client, payload, turn, kinds)
    if turns[-1].id != bank.setting(mark):
        bank.set_setting(mark, turns[-1].id)
    return Captured(turns=len(kept), redacted=dict(total))


def episode_fields(
    client: str, session: str, turn: Turn, folder: str | None, kinds: tuple[str, ...]
) -> tuple[dict[str, Any], Counter[str]]:
    """One turn as the arguments of `remember`, and how much of each kind was taken out.

    A text is clipped afterwards, so that no secret is cut in two.
    """
    from skep.text import redaction

    asked = redaction.redact(turn.asked, kinds)
    answered = redaction.redact(without_private(turn.answered), kinds)
    where = {"folder": folder, "session": session, "message": turn.id}
    fields, rest = redaction.redact_fields(
        {
            "text": _text_of(asked.text, answered.text),
            "kind": "episode",
            "tags": [f"from:{client}"],
            "agent": client,
            "source": clip(f"{client}:{session}/{turn.id}", 200),
            "confidence": CONFIDENCE,
            "importance": IMPORTANCE,
            "metadata": {name: value for name, value in where.items() if value},
        },
        kinds,
    )
    return fields, Counter(one.kind for one in (*asked.found, *answered.found)) + Counter(rest)


def _keep(bank: Bank, client: str, payload: Payload, turn: Turn, kinds: tuple[str, ...]) -> Counter[str]:
    """Keep one turn; how much was taken out."""
    from skep.semantics import conflict_policy
    from skep.validation import body_of

    fields, counts = episode_fields(client, payload.session_id, turn, payload.cwd, kinds)
    body = body_of(fields, bank.engine.settings)
    if counts:
        body["redacted"] = dict(counts)
    stored = conflict_policy.remember(bank.engine, body, on_conflict="ignore")
    if bank.setting(REVIEW):
        bank.mark(stored.memory.id, "quarantined", "waits for a person")
    return counts


def run(client: str, raw: bytes, bank: str | None, environ: Mapping[str, str]) -> Captured:
    """Open the bank that belongs to a session and keep what is new; what became of it.

    A project's bank and the user's are both made by `skep init`; where there is none, nothing is kept.
    """
    from skep.bank.bank import Bank
    from skep.config import bank_url, find_bank
    from skep.embedding.remote import from_environment

    payload = msgspec.json.decode(raw or b"{}", type=Payload, strict=False)
    path = bank_url(bank, environ)
    if path is None:
        path = find_bank(bank, environ, Path(payload.cwd) if payload.cwd else Path.cwd())
        if not path.is_file():
            return Captured()
    with Bank.open(path, create=False, opener=from_environment(environ)) as opened:
        return capture(opened, client, payload)


if __name__ == "__main__":
    bank_file = sys.argv[2] if len(sys.argv) > 2 else None
    sys.stderr.write(f"skep: {run(sys.argv[1], sys.stdin.buffer.read(), bank_file, os.environ).line()}\n")
