"""The memory stream: after each turn of a conversation a search runs in the background; the next turn finds its hits.

Also the blocking search of an agent's tool (`search_memory`), and messages of chat APIs as plain text. `bank.upkeep`
calls it; it reads through a `Recaller` and writes nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

import msgspec

from skep.confidence import ABOVE, DEPRECATED, STREAMED
from skep.errors import ClosedError, InvalidInputError, WrongTypeError
from skep.filters import Filter
from skep.model import Hit, Recalled
from skep.recall.recaller import Recaller
from skep.runtime import lazy
from skep.validation import clean_choice

TEXT_PARTS = ("text", "input_text", "output_text")
"""Types of parts that hold text under `text`."""
SHORT = 60


def as_text(message: object, field: str) -> str:
    """A message as one text: a string as it is, a mapping as "role: what it says".

    >>> as_text({"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url"}]}, "m")
    'user: What is this? [image_url]'

    Parts that are no text (pictures, sound, files) are named in brackets. What an assistant calls is told after what
    it says, and of what a tool answered its text, whichever way an API writes them.

    Raises:
        WrongTypeError: It is neither a string nor a mapping, or a value in it is of the wrong type.
        InvalidInputError: It has no role or no content, or a part of it has no type.
    """
    if isinstance(message, str):
        return message
    if not isinstance(message, Mapping):
        raise WrongTypeError(
            f"{field} must hold strings or mappings with role and content, got {type(message).__name__}",
            field=field,
        )
    given = cast("Mapping[str, Any]", message)
    role = given.get("role")
    if not isinstance(role, str) or not role.strip():
        raise InvalidInputError(
            f"{field}: a message needs a role, such as user or assistant, and content; got {_shown(given)}",
            field=field,
        )
    if "content" not in given and not given.get("tool_calls"):
        raise InvalidInputError(
            f"{field}: the message of {role} has no content; got {_shown(given)}", field=field
        )
    told = [_content(given.get("content"), field), *_calls(given.get("tool_calls"), field)]
    return f"{role}: {' '.join(part for part in told if part)}".rstrip()


def _content(content: object, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, Sequence) or isinstance(content, bytes | bytearray):
        raise WrongTypeError(
            f"{field}: content must be a string or a list of parts, got {type(content).__name__}", field=field
        )
    parts = [_part(part, field) for part in cast("Sequence[object]", content)]
    return " ".join(part for part in parts if part)


def _part(part: object, field: str) -> str:
    if isinstance(part, str):
        return part.strip()
    if not isinstance(part, Mapping):
        raise WrongTypeError(
            f"{field}: a part of content must be a string or a mapping with type, got {type(part).__name__}",
            field=field,
        )
    given = cast("Mapping[str, Any]", part)
    kind = given.get("type", "text" if "text" in given else None)
    if not isinstance(kind, str) or not kind:
        raise InvalidInputError(
            f'{field}: a part of content needs a type, such as {{"type": "text", "text": "…"}}; got {_shown(given)}',
            field=field,
        )
    if kind == "tool_result":
        return f"[{kind}] {_content(given.get('content'), field)}".rstrip()
    if kind == "tool_use":
        return _call(
            {"function": {"name": given.get("name"), "arguments": _written(given.get("input"))}}, field
        )
    if kind not in TEXT_PARTS:
        return f"[{kind}]"
    text = given.get("text")
    if not isinstance(text, str):
        raise WrongTypeError(
            f"{field}: a part of type {kind} must hold its text as a string, got {type(text).__name__}",
            field=field,
        )
    return text.strip()


def _calls(calls: object, field: str) -> list[str]:
    if not calls:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise WrongTypeError(f"{field}: tool_calls must be a list, got {type(calls).__name__}", field=field)
    return [_call(call, field) for call in cast("Sequence[object]", calls)]


def _call(call: object, field: str) -> str:
    function: object = None
    if isinstance(call, Mapping):
        function = cast("Mapping[str, object]", call).get("function")
    told: Mapping[str, object] = {}
    if isinstance(function, Mapping):
        told = cast("Mapping[str, object]", function)
    name = told.get("name")
    if not isinstance(name, str):
        raise InvalidInputError(
            f"{field}: a tool call needs a function with a name; got {_shown(cast('object', call))}",
            field=field,
        )
    return f"[calls {name}({told.get('arguments', '')})]"


def _written(value: object) -> str:
    """The arguments of a tool call as JSON; empty where there are none."""
    return json.dumps(value, default=str, ensure_ascii=False) if value else ""


def _shown(value: object) -> str:
    """A value in few characters."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


TURNS = 2
"""How many of the last turns a search looks for."""
MOST = 5
"""At most this many facts, and as many episodes."""
RELEVANT = 0.2
"""Calibrated cosine below which a memory has nothing to do with the turns, however sure and new it is."""
_ROLE = lazy(r"\s*(?:user|assistant|human|ai|system|tool|developer)\s*:\s+", re.IGNORECASE)
"""Who speaks, as chat APIs name them; "user: hi" is not about users."""


class StreamContext(msgspec.Struct, frozen=True, kw_only=True):
    """The hits of the last finished search."""

    facts: tuple[Hit, ...] = ()
    episodes: tuple[Hit, ...] = ()
    turn: int = 0
    """The turn it was searched after; 0 before the first search has finished."""


class Stream:
    """Watches a conversation. `observe` each turn, ask `context` for what to put before the model; neither blocks.

    One search runs at a time. A turn that comes while one is waiting takes its place; a turn that comes while one is
    running has its result dropped, so that `context` never goes back to an older turn.

    Args:
        recaller: Answers the searches.
        where: What may be recalled; called for every search, so that time moves on.
        turns: How many of the last turns make the query.
        inline: Search at once in `observe` instead of in the background; for tests.
    """

    def __init__(
        self, recaller: Recaller, where: Callable[[], Filter], *, turns: int = TURNS, inline: bool = False
    ) -> None:
        self._recaller = recaller
        self._where = where
        self._recent: deque[str] = deque(maxlen=max(1, turns))
        self._inline = inline
        self._turn = 0
        self._found = StreamContext()
        self._wake = threading.Condition()
        self._asked: tuple[int, str] | None = None
        self._closed = False
        self._thread: threading.Thread | None = None
        self.cancelled = 0
        """Searches that a newer turn made stale: not begun, broken off between facts and episodes, or not shown."""
        self.error: str | None = None
        """What went wrong in the last search, if anything."""

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def observe(self, turn: str | Mapping[str, Any]) -> None:
        """Note what was said; starts a search for the next turn and returns at once. Refused once it is closed.

        A turn is a text, or a message as chat APIs have it, with `role` and `content`.
        """
        if self._closed:
            raise ClosedError("this stream is closed; `bank.stream()` opens another")
        said = as_text(turn, "turn")
        role = _ROLE.match(said)
        said = said[role.end() :] if role else said
        if not said.strip():
            return
        self._recent.append(said)
        self._turn += 1
        query = "\n".join(self._recent)
        if self._inline:
            self._search(self._turn, query)
            return
        with self._wake:
            if self._asked is not None:
                self.cancelled += 1
            self._asked = (self._turn, query)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="skep-stream", daemon=True)
                self._thread.start()
            self._wake.notify()

    def context(self) -> StreamContext:
        """The hits of the last finished search, less those forgotten since; never waits."""
        found = self._found
        facts, episodes = (self._recaller.without_erased(hits) for hits in (found.facts, found.episodes))
        if facts is found.facts and episodes is found.episodes:
            return found
        return StreamContext(facts=facts, episodes=episodes, turn=found.turn)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until every search that was asked for is done; for those who can afford to."""
        with self._wake:
            return self._wake.wait_for(lambda: self._closed or self._found.turn >= self._turn, timeout)

    async def observe_async(self, turn: str | Mapping[str, Any]) -> None:
        """The same for asyncio; it never blocks the loop."""
        self.observe(turn)

    async def context_async(self, timeout: float | None = None) -> StreamContext:
        """The hits, after waiting at most `timeout` seconds for the newest search without blocking the loop."""
        if timeout:
            await asyncio.to_thread(self.wait, timeout)
        return self.context()

    def close(self) -> None:
        """End the background thread; a search in hand is finished first. `context` still tells what was found last."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._asked is not None or self._closed)
                if self._closed:
                    return
                assert self._asked is not None
                turn, query = self._asked
                self._asked = None
            self._search(turn, query)

    def _search(self, turn: int, query: str) -> None:
        """Search for one turn. What a newer turn has made stale on the way is dropped, never shown."""
        error: str | None = None
        found = StreamContext(turn=turn)
        try:
            facts = self._some(query, ("fact", "procedure"))
            if not self._stale():
                episodes = self._some(query, ("episode",))
                found = StreamContext(facts=facts, episodes=episodes, turn=turn)
        except Exception as problem:  # noqa: BLE001 - the root of a thread: what went wrong is shown, not lost
            error = str(problem) or type(problem).__name__
        with self._wake:
            if self._stale():
                self.cancelled += 1
                return
            self.error = error
            self._found = found
            self._wake.notify_all()

    def _stale(self) -> bool:
        """True if a newer turn waits for its own search."""
        return self._asked is not None

    def _some(self, query: str, kinds: tuple[str, ...]) -> tuple[Hit, ...]:
        where = msgspec.structs.replace(self._where(), kinds=kinds, min_confidence=STREAMED + ABOVE)
        hits = self._recaller.run(query, where, limit=MOST, preset="stream", count_uses=False).hits
        return tuple(hit for hit in hits if _relevant(hit))


def _relevant(hit: Hit) -> bool:
    """True if a memory is about the turns; one that has no vector yet, if it has words of theirs."""
    if "pending" in hit.flags:
        return hit.signals.get("lexical", 0.0) > 0
    return hit.signals.get("semantic", 1.0) >= RELEVANT


SEARCHED: dict[str, tuple[str, ...]] = {
    "facts": ("fact", "procedure", "document"),
    "episodes": ("episode",),
    "both": ("fact", "procedure", "document", "episode"),
}


def search_memory(
    recaller: Recaller, query: str, where: Filter, *, search_type: str = "both", limit: int = 5
) -> tuple[Hit, ...]:
    """Memories that fit a question, diverse, with an effective confidence above 0.3."""
    clean_choice("search_type", search_type, tuple(SEARCHED))
    narrowed = msgspec.structs.replace(where, kinds=SEARCHED[search_type], min_confidence=DEPRECATED + ABOVE)
    found: Recalled = recaller.run(query, narrowed, limit=limit, config={"select": "diversity"})
    return found.hits
