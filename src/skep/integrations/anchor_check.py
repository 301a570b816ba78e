"""Whether what memories name is still there: files, symbols, flags, commits, versions of packages, and URLs if asked.

`skep verify` and the end of `skep maintain` call this with the folder of a project. What a memory named when it was
written is looked up in git at that time, so a thing counts as gone only if it once was there. A finding is written as
a revision of the memory (`anchors_gone`) and as a dispute, so that what was derived from it turns stale; when the thing
is back, both are taken back. Git and files are only read; the network only with `online`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skep.events import voided
from skep.integrations.hooks import DAY
from skep.model import ANCHORS_GONE, Memory
from skep.text.anchors import Anchor, anchors_of

if TYPE_CHECKING:
    from skep.bank.bank import Bank
    from skep.storage.store import Plan


LIMIT: Final = 200
"""Memories of one pass; the next goes on where it ended."""
JOB: Final = "verify"
BY: Final = "anchors: "
"""Begins the name under which a memory is disputed."""
KINDS: Final = ("fact", "procedure")
GIT_SECONDS: Final = 20.0
URL_SECONDS: Final = 5.0
GONE: Final = (404, 410)
MANIFESTS: Final = (
    "pyproject.toml", "requirements.txt", "requirements-dev.txt", "uv.lock", "poetry.lock", "package.json",
    "package-lock.json", "Cargo.toml", "Cargo.lock", "go.mod", "Gemfile.lock",
)  # fmt: skip
MANIFEST_BYTES: Final = 4 << 20


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A memory and what of it is gone or changed, in words; nothing where it is all back."""

    memory: Memory
    gone: tuple[str, ...]


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a pass."""

    root: str
    looked_at: int
    anchors: int
    findings: tuple[Finding, ...]
    back: tuple[str, ...]
    """Memories whose things are there again."""
    more: bool
    """Whether there are memories that this pass did not come to."""
    dry_run: bool


class World:
    """A project's folder, and what git knows of its past."""

    def __init__(self, root: Path, *, online: bool = False) -> None:
        self.root = root.resolve()
        self._online = online
        self._head = self._git("rev-parse", "HEAD") is not None
        self._at = lru_cache(maxsize=256)(self._commit_of_day)
        self._files = lru_cache(maxsize=16)(self._files_of)
        self._held = lru_cache(maxsize=4096)(self._holds)

    def trouble(self, anchor: Anchor, written: float) -> str | None:
        """What happened to a thing since it was named; None if it is there, or never was."""
        check = getattr(self, f"_{anchor.kind}", None)
        told: str | None = None if check is None else check(anchor.name, written)
        return told

    def _file(self, name: str, written: float) -> str | None:
        plain = name.replace("\\", "/").removeprefix("./")
        if plain.startswith(("~", "../")) or "/../" in plain:
            return None
        if os.path.isabs(plain):
            if not Path(plain).is_relative_to(self.root):
                return None
            plain = Path(plain).relative_to(self.root).as_posix()
        if (self.root / plain).exists() or _ends(self._files(""), plain):
            return None
        then = self._then(written)
        return f"file {name} is gone" if then and _ends(self._files(then), plain) else None

    def _symbol(self, name: str, written: float) -> str | None:
        return self._word("symbol", re.split(r"\.|::|#", name)[-1], name, written)

    def _flag(self, name: str, written: float) -> str | None:
        return self._word("flag", name, name, written)

    def _word(self, kind: str, word: str, name: str, written: float) -> str | None:
        if not self._head or self._held(word, ""):
            return None
        then = self._then(written)
        return f"{kind} {name} is gone" if then and self._held(word, then) else None

    def _commit(self, name: str, _written: float) -> str | None:
        if not self._head or self._git("cat-file", "-e", f"{name}^{{commit}}") is None:
            return None
        held = self._git("for-each-ref", "--count=1", "--contains", name)
        return None if held or held is None else f"commit {name} is on no branch any more"

    def _package(self, name: str, _written: float) -> str | None:
        package, _, version = name.partition("==")
        found = sorted(self._versions(package))
        if not found or any(_same(one, version) for one in found):
            return None
        return f"package {package} {version} is {', '.join(found)} now"

    def _url(self, name: str, _written: float) -> str | None:
        if not self._online:
            return None
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        try:
            with urlopen(Request(name, method="HEAD"), timeout=URL_SECONDS):
                return None
        except HTTPError as error:
            return f"url {name} answers {error.code}" if error.code in GONE else None
        except (URLError, OSError, ValueError):  # no network is no news of the page
            return None

    def _then(self, written: float) -> str:
        """The commit that was the newest when a memory was written; empty if there was none."""
        return self._at(int(written // DAY)) if self._head else ""

    def _commit_of_day(self, day: int) -> str:
        before = self._git("rev-list", "-1", f"--before={int((day + 1) * DAY)}", "HEAD")
        return (before or "").strip()

    def _files_of(self, commit: str) -> frozenset[str]:
        if not self._head:
            return frozenset()
        words = (
            ("ls-tree", "-r", "--name-only", "-z", commit)
            if commit
            else ("ls-files", "-co", "-z", "--exclude-standard")
        )
        there = (self._git(*words) or "").split("\0")
        return frozenset(one for one in there if one and (commit or (self.root / one).exists()))

    def _holds(self, word: str, commit: str) -> bool:
        where = [commit] if commit else ["--untracked"]
        options = ["-q", "-F", *(() if word.startswith("-") else ("-w",)), "-e", word]
        if commit:
            return self._git("grep", *options, *where) is not None
        return self._git("grep", *where, *options) is not None

    @cached_property
    def _manifests(self) -> list[str]:
        found: list[str] = []
        for name in MANIFESTS:
            path = self.root / name
            if path.is_file() and path.stat().st_size <= MANIFEST_BYTES:
                found.append(path.read_text("utf-8", "replace"))
        return found

    def _versions(self, package: str) -> set[str]:
        """The versions of a package that the project's files name."""
        name = re.escape(package)
        number = r"[\^~=<>! v]*(\d+(?:\.\w+)+)"
        patterns = (
            rf'name = "{name}"\s+version = "{number}"',
            rf"""(?m)^\s*["']?{name}["']?(?:\[[^\]]*\])?\s*[:=<>~!@]+\s*["']?{number}""",
            rf"(?m)[\"']{name}(?:\[[^\]]*\])?\s*[=<>~!]+\s*{number}",
            rf"(?m)^\s*(?:require )?{name} {number}",
        )
        return {
            found
            for text in self._manifests
            for pattern in patterns
            for found in re.findall(pattern, text, re.I)
        }

    def _git(self, *words: str) -> str | None:
        """The output of git; None if it failed, or there is none."""
        command = ["git", "-C", str(self.root), "-c", "core.fsmonitor=false", *words]
        environ = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
        try:
            done = subprocess.run(command, capture_output=True, timeout=GIT_SECONDS, check=False, env=environ)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def _ends(files: frozenset[str], name: str) -> bool:
    return name in files or any(file.endswith("/" + name) for file in files)


def _same(found: str, wanted: str) -> bool:
    """True if one version is the other, or begins it: 1.26 and 1.26.4."""
    return found == wanted or found.startswith(wanted + ".") or wanted.startswith(found + ".")


def verify(
    bank: Bank,
    root: Path,
    *,
    limit: int = LIMIT,
    online: bool = False,
    dry_run: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Verified:
    """Check the anchors of some memories, and write down what is gone or back.

    Args:
        bank: The bank.
        root: The folder of the project.
        limit: At most so many memories with anchors; the next pass goes on after them.
        online: Also ask for URLs.
        dry_run: Write nothing, and begin at the newest.
        progress: Called with how many memories were checked, and of how many.
    """
    world = World(root, online=online)
    memories, reached = _next(bank, limit, 0 if dry_run else bank.engine.mark(JOB))
    findings: list[Finding] = []
    back: list[str] = []
    count = 0
    for number, memory in enumerate(memories):
        anchors = anchors_of(f"{memory.title or ''} {memory.text}")
        count += len(anchors)
        troubles = (world.trouble(anchor, memory.created_at) for anchor in anchors)
        gone = tuple(trouble for trouble in troubles if trouble is not None)
        before = tuple(memory.metadata.get(ANCHORS_GONE) or ())
        if gone:
            findings.append(Finding(memory=memory, gone=gone))
        elif before:
            back.append(memory.id)
        if gone != before and not dry_run:
            _write(bank, memory, gone)
        if progress is not None:
            progress(number + 1, len(memories))
    if not dry_run:
        bank.engine.set_mark(JOB, reached)
    return Verified(
        root=str(world.root),
        looked_at=len(memories),
        anchors=count,
        findings=tuple(findings),
        back=tuple(back),
        more=reached > 0,
        dry_run=dry_run,
    )


def _next(bank: Bank, limit: int, after: int) -> tuple[list[Memory], int]:
    """The next memories that name something, newest first, and where the next pass begins; 0 is the newest."""
    found: list[Memory] = []
    cursor = str(after) if after else None
    while True:
        page = bank.find(kind=KINDS, limit=max(1, limit - len(found)), cursor=cursor)
        found += [
            one
            for one in page
            if anchors_of(f"{one.title or ''} {one.text}") or one.metadata.get(ANCHORS_GONE)
        ]
        cursor = page.cursor
        if cursor is None or len(found) >= limit:
            return found, int(cursor or 0)


def _write(bank: Bank, memory: Memory, gone: Sequence[str]) -> None:
    """A memory's findings as events; a dispute of an earlier pass stays, or is undone when all is back."""
    metadata: dict[str, Any] = {
        name: value for name, value in memory.metadata.items() if name != ANCHORS_GONE
    }
    if gone:
        metadata[ANCHORS_GONE] = list(gone)
    disputes = list(_disputes(bank, memory.id))
    plans: list[Plan] = [("revise", {"memory": memory.id, "changes": {"metadata": metadata}})]
    if gone and not disputes:
        plans.append(("dispute", {"memory": memory.id, "by": (BY + "; ".join(gone))[:500]}))
    bank.engine.write(plans)
    if not gone:
        for event in disputes:
            bank.undo(event, "what it names is there again")


def _disputes(bank: Bank, memory_id: str) -> Iterator[str]:
    """The disputes in force that a pass has written."""
    void = voided(bank.engine.log.undos())
    for event in bank.engine.log.of(memory_id):
        if event.kind == "dispute" and event.id not in void and str(event.body.get("by")).startswith(BY):
            yield event.id


def report(found: Verified) -> str:
    """The pass as a person reads it."""
    lines = [f"{found.looked_at} memories name {found.anchors} things in {found.root}"]
    for finding in found.findings:
        lines.append(f"[{finding.memory.id}] {finding.memory.text}")
        lines += [f"  ! {one}" for one in finding.gone]
    lines += [f"[{memory_id}] what it names is there again" for memory_id in found.back]
    if not found.findings:
        lines.append("nothing of it is gone")
    if found.more:
        lines.append("there are more; the next pass goes on from here")
    return "\n".join(lines)
