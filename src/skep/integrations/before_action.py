"""The one memory that an agent should see before an action, or after one that failed; most often none.

A memory speaks up if it warns (of a failure, or by a rule) and names what the action touches: a command, a file or a
symbol by its exact name, or the text of an error by its rare words. Failures come first. `hooks` calls this in a fresh
process, so it reads words straight from the file: neither vectors nor the index. Nothing is written here.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from skep.runtime import lazy
from skep.text.anchors import Anchor, anchors_of, is_file

if TYPE_CHECKING:
    from skep.model import Memory
    from skep.storage.sqlite_store import SqliteStore


CANDIDATES: Final = 40
MAX_TERMS: Final = 48
ABSENT: Final = "\0"
"""A word that no memory holds: as rare as one can be."""
TOUCHED_CHARS: Final = 20_000
"""Characters of an edit that are searched for symbols."""
ERROR_CHARS: Final = 1500
HEAVIEST: Final = 6
MIN_SHARE: Final = 0.4
"""The share of an error's weight that a memory must hold to be about it."""
TYPICAL_WORDS: Final = 20
PER_DOUBLING: Final = 0.1
MAX_SHARE: Final = 0.9

_FAILURE: Final = lazy(
    r"\b(?:fail(?:s|ed|ing|ure)?|errors?|brok(?:e|en)|breaks?|crash\w*|hangs?|hung|lost|loses?|corrupt\w*"
    r"|wip(?:es?|ed)|delet(?:es?|ed)|destroy\w*|overwr\w+|timed? ?out|times out|denied|refused?|leak(?:s|ed)|flaky"
    r"|wrong(?:ly)?|wedged|stuck|exhaust\w*|(?:dead ?)?lock(?:s|ed)|caus(?:es?|ed)|reject(?:s|ed)|conflicts?|missing"
    r"|[a-z]\w*(?:error|exception)|exit(?:s|ed)? (?:with )?[1-9])\b",
    re.I,
)
_CODE: Final = lazy(r"\b(?:E[A-Z]{4,}|[A-Z]{2,}(?:_[A-Z]+)+|[A-Z]{1,3}\d{3,5})\b")
"""An error by its code: ENOSPC, ERR_PNPM_OUTDATED_LOCKFILE, E0502."""
_QUOTED: Final = lazy(r"[`'\"“]([^`'\"”\n]{8,200})[`'\"”]")
_RULE: Final = lazy(
    r"\b(?:never|don'?t|do not|must|mustn'?t|avoid|instead|always|only|first|before|needs?|requires?|required|without"
    r"|unless|forbidden|not allowed|careful|nie|niemals|nicht|immer|zuerst|statt)\b",
    re.I,
)
_ASKED_FOR: Final = lazy(
    r"\b(?:without|always|with|pass|use|needs?|requires?|ohne|mit)\b[ `'\"]*(--?[A-Za-z][\w.=-]*)", re.I
)
_COMMANDS: Final = lazy(r"&&|\|\||[;|\n]")
_ASSIGNED: Final = lazy(r"[A-Za-z_]\w*=")
_BEFORE_PROGRAM: Final = frozenset(("sudo", "env", "time", "nohup", "exec", "command", "nice", "timeout"))
SHELLS: Final = ("bash", "sh", "zsh")
_COMMON_FILES = """
readme.md index.js index.ts index.tsx index.html __init__.py main.py main.go main.rs mod.rs lib.rs app.py setup.py
package.json utils.py types.ts conftest.py config.py changelog.md styles.css test.py .env
"""
COMMON_FILES: Final = frozenset(_COMMON_FILES.split())
"""Files that every project has several of: they count only with their folder."""


class Action(NamedTuple):
    """An action as memories are compared with it."""

    files: frozenset[str]
    """Paths, with slashes."""
    commands: tuple[tuple[str, ...], ...]
    """The words of each command, the program first."""
    touched: str
    """The text that an edit takes away or puts in."""
    error: str
    """The text of an error, after an action that failed."""

    @property
    def query(self) -> str:
        """The words by which memories are looked up."""
        names = [path.rpartition("/")[2] for path in self.files]
        symbols = [anchor.name for anchor in anchors_of(self.touched) if anchor.kind == "symbol"]
        return " ".join(
            (*names, *(word for one in self.commands for word in one[:8]), *symbols[:16], self.error)
        )


def action_of(tool_input: Mapping[str, Any], error: str = "") -> Action:
    """What a client's tool is about to touch, whichever client and tool it is.

    >>> action_of({"command": "cd web && FOO=1 npm run build"}).commands
    (('cd', 'web'), ('npm', 'run', 'build'))
    """
    files: set[str] = set()
    commands: list[tuple[str, ...]] = []
    touched: list[str] = []
    for name, value in tool_input.items():
        if name in ("command", "cmd", "script"):
            words = (
                [str(one) for one in cast("list[Any]", value)] if isinstance(value, list) else [str(value)]
            )
            commands += _commands(words[-1] if words and words[0] in SHELLS else " ".join(words))
        elif name in ("file_path", "path", "notebook_path", "absolute_path", "filePath", "target_file"):
            files.add(_slashed(str(value)))
        elif name in (
            "old_string",
            "new_string",
            "content",
            "new_source",
            "input",
            "patch",
            "edits",
            "code_edit",
        ):
            touched.append(str(value)[:TOUCHED_CHARS])
    for words in commands:
        files |= {_slashed(word) for word in words[1:] if is_file(word)}
    return Action(frozenset(files), tuple(commands), "\n".join(touched)[:TOUCHED_CHARS], error[-ERROR_CHARS:])


def _slashed(path: str) -> str:
    return path.replace("\\", "/")


def _commands(line: str) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for part in _COMMANDS.split(line[:ERROR_CHARS]):
        words = [word.strip("'\"") for word in part.split()]
        while words and (_ASSIGNED.match(words[0]) or words[0] in _BEFORE_PROGRAM):
            words.pop(0)
        if words:
            found.append((words[0].rpartition("/")[2], *words[1:]))
    return found


def warning_for(
    store: SqliteStore, action: Action, now: float, seen: Callable[[Memory], bool], *, least: float
) -> Memory | None:
    """The memory that should be seen now; None, which it is nearly always.

    Args:
        store: The bank, for reading words.
        action: What is about to happen, or has failed.
        now: Seconds since the epoch.
        seen: Tells for which memories there is nothing to say: out of scope, or shown before.
        least: The confidence below which a memory does not speak up.
    """
    from skep.storage.full_text import rarities, rows_by_rare_words
    from skep.text.terms import query_terms, terms

    asked = query_terms(action.query)[:MAX_TERMS]
    weights = rarities(store, [*asked, ABSENT])
    absent = weights.pop(ABSENT)
    failed = {term: weights[term] for term in query_terms(action.error) if term in weights}
    weights = {term: weight for term, weight in weights.items() if 0 < weight < absent}
    if not weights:
        return None
    best: tuple[tuple[int, int, float], Memory] | None = None
    for memory in store.memories(rows_by_rare_words(store, weights, CANDIDATES)).values():
        if memory.kind not in ("fact", "procedure") or not is_current(memory, now, least) or seen(memory):
            continue
        told = f"{memory.title or ''} {memory.text}"
        words = terms(told)
        if action.error and explains(told, action.error):
            grave, near = 4, 2
        elif speaks_to(set(words) & failed.keys(), failed, len(words)):
            grave, near = 3, 2
        else:
            grave = gravity(memory, told)
            near = 0 if not grave or heeded(told, action) else nearness(anchors_of(told), action)
        rank = (grave, near, memory.created_at)
        if near and (best is None or rank > best[0]):
            best = rank, memory
    return None if best is None else best[1]


def gravity(memory: Memory, told: str) -> int:
    """2 for a memory of a failure, 1 for a rule, 0 for what warns of nothing."""
    if memory.failures > memory.successes or memory.polarity < 0 or _FAILURE.search(told):
        return 2
    return 1 if _RULE.search(told) else 0


def heeded(told: str, action: Action) -> bool:
    """True if an action already has an option that a memory asks for: "fails without --atomic"."""
    wanted = set(_ASKED_FOR.findall(told))
    return bool(wanted) and any(_given(option, words) for option in wanted for words in action.commands)


def nearness(anchors: Iterable[Anchor], action: Action) -> int:
    """How exactly the anchors of a memory name what an action touches; 0 if they do not."""
    return max((_near(anchor, action) for anchor in anchors), default=0)


def _near(anchor: Anchor, action: Action) -> int:
    if anchor.kind == "file":
        wanted = _slashed(anchor.name).removeprefix("./").lower()
        if wanted.rpartition("/")[2] in COMMON_FILES and "/" not in wanted:
            return 0
        return 2 * any(("/" + path.lower()).endswith("/" + wanted.lstrip("/~")) for path in action.files)
    if anchor.kind == "command":
        program, *rest = anchor.name.split()
        if not rest:
            return 0
        same = any(
            words[0] == program and all(_given(word, words[1:]) for word in rest) for words in action.commands
        )
        return (2 + any(word.startswith("-") for word in rest)) * same
    if anchor.kind == "symbol":
        return int(anchor.name in action.touched)
    return 0


def _given(word: str, words: Iterable[str]) -> bool:
    """True if a command has a word among its own; an option may have a value."""
    return any(one == word or (word.startswith("-") and one.startswith(word + "=")) for one in words)


def is_current(memory: Memory, now: float, least: float) -> bool:
    """True if a memory may speak up unasked: it holds now, and is still trusted."""
    return (
        memory.status in ("active", "pending")
        and (memory.valid_from is None or memory.valid_from <= now)
        and (memory.valid_to is None or now < memory.valid_to)
        and (memory.expires_at is None or now < memory.expires_at)
        and memory.confidence >= least
    )


def explains(told: str, error: str) -> bool:
    """True if a memory names an error by its code, or quotes some words of it.

    >>> explains("ENOSPC: prune the images", "write: ENOSPC: no space"), explains("'is locked' by ana", "it is locked")
    (True, True)
    """
    if set(_CODE.findall(told)) & set(_CODE.findall(error)):
        return True
    plain = re.sub(r"[`'\"]", "", error).casefold()
    return any(" " in said and said.casefold() in plain for said in _QUOTED.findall(told))


def speaks_to(held: set[str], weights: Mapping[str, float], length: int = TYPICAL_WORDS) -> bool:
    """True if a memory that holds some of the words of an error is about it, rather than merely near it.

    It must hold at least two of them (or the only one), and a fair share of their weight: a long message has many
    words beside the point, so of those only the heaviest count. A long memory holds many words by chance, so more
    is asked of it.
    """
    heaviest = sorted(weights.values(), reverse=True)[:HEAVIEST]
    if not held:
        return False
    share = sum(weights[term] for term in held) / max(1e-9, sum(heaviest))
    asked = MIN_SHARE + PER_DOUBLING * max(0.0, math.log2(length / (2 * TYPICAL_WORDS)))
    return len(held) >= min(2, len(weights)) and share >= min(MAX_SHARE, asked)


def shown_before(folder: str, session: str) -> tuple[str, set[str]]:
    """The file that names what a session was shown, and the ids in it."""
    from zlib import crc32

    path = os.path.join(folder, "sessions", f"{crc32(session.encode()):08x}.shown")
    try:
        with open(path, encoding="utf-8") as file:
            return path, set(file.read().split())
    except OSError:
        return path, set()
