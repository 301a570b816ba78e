"""GitRefsHub (`git+ssh://`, `git+https://`, `git+file://`): a log under `refs/skep/` of a git repository.

Opened by `hub_urls`. No branch is touched. Each machine appends to a ref of its own, so that two never conflict;
erasing writes a ref anew, without its history. A copy of these refs lies beside the replica. The program `git` does the
work, so keys, proxies and logins are those of the user.

::

    refs/skep/BANK/meta         the name of the log, and the bank it belongs to
    refs/skep/BANK/log/WRITER   events/00000000.jsonl …, 1,000 events each; MEMORIES.md for people who review
    refs/skep/BANK/snapshot     what is in the snapshot
    refs/skep-snapshots/BANK    the snapshot; fetched by new replicas alone
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from skep.errors import ConfigError, HubAwayError, SyncError
from skep.hub.hub import (
    BATCH,
    Batch,
    Heading,
    HubStatus,
    PollingHub,
    SnapshotNote,
    alone,
    decode,
    dots,
    encode,
    outlived,
    place_of,
    position_of,
    read_heading,
)
from skep.hub.hub_urls import options_of, replica_file, shown
from skep.model import Event
from skep.replication.version_vectors import Versions

SEGMENT = 1000
"""Events in one file."""
TRIES = 20
GIT_SECONDS = 120.0
VIEW = "MEMORIES.md"


Moves = dict[str, tuple[str | None, str | None]]
"""Per ref the commit that it is at, and the one that it is to be at; None for none."""


class GitRefsHub(PollingHub):
    """A log in the refs of a git repository. See `Hub` for the promises."""

    PAUSES = (1.0, 15.0)

    def __init__(self, remote: str, cache: Path, *, url: str, bank: str = "main") -> None:
        """Open a hub, beginning it where the repository has none.

        Args:
            remote: The repository, as `git fetch` knows it.
            cache: The folder of the copy here.
            url: Its address, to be shown.
            bank: Which of several banks in one repository.
        """
        super().__init__()
        self.url = url
        self._remote = remote
        self._cache = cache
        self._root = f"refs/skep/{re.sub('[^A-Za-z0-9_-]', '-', bank)}"
        self._packed = self._root.replace("refs/skep/", "refs/skep-snapshots/")
        self._dots: dict[str, Versions] = {}
        """Per file that was read once (by its hash), the events in it."""
        cache.mkdir(parents=True, exist_ok=True)
        with alone(self._cache, GIT_SECONDS):
            if not (cache / "HEAD").exists():
                self._git("init", "--bare", "--quiet", str(cache))
            self._fetch()
            if self._tip("meta") is None:
                self._push(
                    {
                        "meta": (
                            None,
                            self._commit({"meta.json": msgspec.json.encode(Heading(log=uuid4().hex))}),
                        )
                    }
                )
            name = self._git("config", "--default", "", "skep.writer").strip().decode()
            if not name:
                name = uuid4().hex[:12]
                self._git("config", "skep.writer", name)
        self._writer = f"log/{name}"

    @classmethod
    def open(cls, url: str) -> GitRefsHub:
        """From `git+ssh://git@host/team/memory.git`, `git+https://…`, `git+file:///path`."""
        scheme, plus, rest = url.partition("#")[0].partition("+")
        if scheme != "git" or not plus:
            raise ConfigError(
                f"{shown(url)}: write git+ssh://, git+https:// or git+file:// before the repository"
            )
        cache = Path(replica_file(url, os.environ)).with_name("log.git")
        return cls(rest, cache, url=shown(url), bank=options_of(url).bank)

    # The log

    def append(self, events: Sequence[Event]) -> None:
        """Store events in the ref of this machine; the remote has them when this returns."""
        if not events:
            return
        with alone(self._cache, GIT_SECONDS):

            def added() -> Moves:
                tip = self._tip(self._writer)
                lines = [] if tip is None else self._lines(self._writer)
                return {self._writer: (tip, self._log_commit([*lines, *map(encode, events)], parent=tip))}

            self._push_on(added)

    def read(self, after: str, limit: int = BATCH) -> Batch:
        """Events after a position, writer by writer."""
        with alone(self._cache, GIT_SECONDS):
            self._fetch()
            meta = self._meta()
            places = dict(place_of(after, meta.log, dict[str, int](), dict[str, int]))
            found: list[Event] = []
            for ref in self._logs():
                start = places.get(ref, 0)
                count = self._count(ref)
                start = start if start <= count else 0
                wanted = min(count - start, limit - len(found))
                if wanted > 0:
                    found += [decode(line) for line in self._lines(ref, start, wanted)]
                places[ref] = start + max(0, wanted)
        position = position_of(meta.log, places)
        return Batch(events=tuple(found), position=position, log=meta.log)

    def has_more(self, after: str) -> bool:
        """True if the remote has more."""
        return bool(self.read(after, 1).events)

    def held(self) -> Versions:
        """The events of every writer."""
        with alone(self._cache, GIT_SECONDS):
            self._fetch()
            total = Versions()
            for ref in self._logs():
                for _, sha in self._segments(ref):
                    if sha not in self._dots:
                        self._dots[sha] = dots(map(decode, self._git("cat-file", "blob", sha).splitlines()))
                    total = total.merged(self._dots[sha])
        return total

    # The bank and its snapshot

    def status(self) -> HubStatus:
        """The bank it belongs to, its size and its snapshot."""
        with alone(self._cache, GIT_SECONDS):
            self._fetch()
            meta, snapshot = self._meta(), self._snapshot()
            events = sum(map(self._count, self._logs()))
        return HubStatus(
            url=self.url, bank=meta.bank, log=meta.log, events=events, snapshot=snapshot and snapshot.seen
        )

    def claim(self, bank: str) -> str:
        """Say which bank this log belongs to, if nobody has."""
        with alone(self._cache, GIT_SECONDS):
            self._fetch()

            def claimed() -> Moves:
                meta = self._meta()
                if meta.bank is not None:
                    return {}
                content = msgspec.json.encode(msgspec.structs.replace(meta, bank=bank))
                return {"meta": (self._tip("meta"), self._commit({"meta.json": content}))}

            self._push_on(claimed)
            return self._meta().bank or bank

    def put_snapshot(self, source: Path, seen: Versions, position: str) -> None:
        """Store a file and a note about it, both or neither."""
        note = msgspec.json.encode(SnapshotNote(seen=seen, position=position))
        with alone(self._cache, GIT_SECONDS):
            blob = self._git("hash-object", "-w", str(source)).decode().strip()
            packed = self._commit({"snapshot": blob})

            def put() -> Moves:
                return {
                    "snapshot": (self._tip("snapshot"), self._commit({"note.json": note})),
                    self._packed: (self._remote_tip(self._packed), packed),
                }

            self._push_on(put)

    def get_snapshot(self, target: Path) -> str | None:
        """Write the snapshot to a file."""
        with alone(self._cache, GIT_SECONDS):
            self._fetch()
            note = self._snapshot()
            if note is None:
                return None
            self._git("fetch", "--quiet", "--no-tags", self._remote, f"+{self._packed}:{self._packed}")
            with target.open("wb") as file:
                self._git("cat-file", "blob", f"{self._packed}:snapshot", to=file)
            return note.position

    def erase(self, events: Sequence[Event]) -> None:
        """Write each ref that holds one of the events anew, without history, and clean the copy here."""
        instead = {event.id: event for event in events}
        with alone(self._cache, GIT_SECONDS):
            self._fetch()

            def without_text() -> Moves:
                changes: Moves = {}
                for ref in self._logs():
                    old = [decode(line) for line in self._lines(ref)]
                    new = [instead.get(event.id, event) for event in old]
                    if new != old:
                        changes[ref] = (self._tip(ref), self._log_commit([encode(event) for event in new]))
                snapshot = self._snapshot()
                if snapshot is not None and not outlived(snapshot.seen, events):
                    changes["snapshot"] = (self._tip("snapshot"), None)
                    changes[self._packed] = (self._remote_tip(self._packed), None)
                return changes

            if self._push_on(without_text):
                self._clean()

    # Files of a ref

    def _logs(self) -> list[str]:
        """The refs of all writers."""
        refs = self._git("for-each-ref", "--format=%(refname)", f"{self._root}/log").decode().split()
        return [ref.removeprefix(f"{self._root}/") for ref in refs]

    def _segments(self, ref: str) -> list[tuple[int, str]]:
        """The files of a writer: the number of the first event, and the hash."""
        listed = self._git("ls-tree", "-r", f"{self._root}/{ref}", "events/").decode().splitlines()
        found = [line.split() for line in listed]
        return sorted((int(name[7:15]), sha) for _, _, sha, name in found)

    def _count(self, ref: str) -> int:
        segments = self._segments(ref)
        if not segments:
            return 0
        first, sha = segments[-1]
        return first + len(self._git("cat-file", "blob", sha).splitlines())

    def _lines(self, ref: str, start: int = 0, count: int | None = None) -> list[bytes]:
        """Lines of a writer's log, from a number on."""
        found: list[bytes] = []
        for first, sha in self._segments(ref):
            if first + SEGMENT <= start:
                continue
            if count is not None and first >= start + count:
                break
            found += self._git("cat-file", "blob", sha).splitlines()[max(0, start - first) :]
        return found if count is None else found[:count]

    def _log_commit(self, lines: Sequence[bytes], *, parent: str | None = None) -> str:
        files: dict[str, bytes | str] = {
            f"events/{start:08}.jsonl": b"".join(line + b"\n" for line in lines[start : start + SEGMENT])
            for start in range(0, len(lines), SEGMENT)
        }
        files[VIEW] = _view([decode(line) for line in lines]).encode()
        return self._commit(files, parent=parent)

    def _commit(self, files: dict[str, bytes | str], *, parent: str | None = None) -> str:
        """A commit of files; a `str` is the hash of one that is stored already."""
        inside: dict[str, list[str]] = {"": []}
        for path, content in files.items():
            sha = content if isinstance(content, str) else self._stored(content)
            folder, _, name = path.rpartition("/")
            inside.setdefault(folder, []).append(f"100644 blob {sha}\t{name}")
        for folder, entries in inside.items():
            if folder:
                inside[""].append(f"040000 tree {self._tree(entries)}\t{folder}")
        parents = [] if parent is None else ["-p", parent]
        return self._git("commit-tree", self._tree(inside[""]), *parents, "-m", "skep").decode().strip()

    def _stored(self, content: bytes) -> str:
        return self._git("hash-object", "-w", "--stdin", given=content).decode().strip()

    def _tree(self, entries: list[str]) -> str:
        return self._git("mktree", given=("\n".join(entries) + "\n").encode()).decode().strip()

    def _meta(self) -> Heading:
        content = self._git("cat-file", "blob", f"{self._root}/meta:meta.json")
        return read_heading(content, Heading, self.url)

    def _snapshot(self) -> SnapshotNote | None:
        if self._tip("snapshot") is None:
            return None
        content = self._git("cat-file", "blob", f"{self._root}/snapshot:note.json")
        return msgspec.json.decode(content, type=SnapshotNote)

    # Refs

    def _tip(self, name: str) -> str | None:
        """The hash that a ref has here; None if there is none."""
        found = self._git("for-each-ref", "--format=%(objectname)", f"{self._root}/{name}").decode().split()
        return found[0] if found else None

    def _remote_tip(self, ref: str) -> str | None:
        found = self._git("ls-remote", self._remote, ref).decode().split()
        return found[0] if found else None

    def _fetch(self) -> None:
        """Bring the copy here up to date; what was erased there is erased here."""
        spec = f"+{self._root}/*:{self._root}/*"
        said = self._run("fetch", "--prune", "--no-tags", "--no-auto-gc", self._remote, spec).stderr
        if b"forced update" in said:
            self._clean()

    def _push_on(self, changes: Callable[[], Moves]) -> bool:
        """Push what `changes()` gives, as often as somebody else is faster; True if there was anything."""
        for _ in range(TRIES):
            wanted: Moves = changes()
            if not wanted:
                return False
            if self._push(wanted):
                return True
            self._fetch()
        raise HubAwayError(f"too many write to {self.url} at once; try again")

    def _ref(self, name: str) -> str:
        return name if name.startswith("refs/") else f"{self._root}/{name}"

    def _push(self, changes: Moves) -> bool:
        """Move refs from one commit to another, all or none; False if one was elsewhere already."""
        leases: list[str] = []
        specs: list[str] = []
        for name, (old, new) in changes.items():
            ref = self._ref(name)
            leases.append(f"--force-with-lease={ref}:{old or ''}")
            specs.append(f"{new or ''}:{ref}")
        try:
            self._git("push", "--quiet", "--atomic", *leases, self._remote, *specs)
        except _MovedOnError:
            return False
        for name, (_, new) in changes.items():
            ref = self._ref(name)
            self._git("update-ref", *(["-d", ref] if new is None else [ref, new]))
        return True

    def _clean(self) -> None:
        """Remove from the copy here what no ref leads to any more."""
        self._dots = {}
        self._git("gc", "--quiet", "--prune=now")

    # The program

    def _git(self, *words: str, given: bytes | None = None, to: Any = None) -> bytes:
        return self._run(*words, given=given, to=to).stdout or b""

    def _run(
        self, *words: str, given: bytes | None = None, to: Any = None
    ) -> subprocess.CompletedProcess[bytes]:
        environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_DIR")},
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
            "GIT_AUTHOR_NAME": "skep",
            "GIT_AUTHOR_EMAIL": "skep@localhost",
            "GIT_COMMITTER_NAME": "skep",
            "GIT_COMMITTER_EMAIL": "skep@localhost",
        }
        try:
            done = subprocess.run(
                ["git", "-C", str(self._cache), *words],
                input=given,
                stdin=subprocess.DEVNULL if given is None else None,
                stdout=subprocess.PIPE if to is None else to,
                stderr=subprocess.PIPE,
                env=environ,
                timeout=GIT_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise ConfigError("a bank at git+… needs the program `git`; install it") from error
        except subprocess.TimeoutExpired as error:
            raise HubAwayError(f"{self.url} did not answer within {GIT_SECONDS:g} seconds") from error
        if done.returncode:
            raise self._explained(words[0], done.stderr.decode("utf-8", "replace"))
        return done

    def _explained(self, command: str, said: str) -> SyncError:
        """What git said, in words that say what to do."""
        if command == "push" and re.search("stale info|rejected|failed to update ref|cannot lock ref", said):
            return _MovedOnError(f"{self.url} refused a push: {_short(said)}")
        if re.search("Permission denied|Authentication failed|could not read Username|403|401", said):
            return SyncError(f"{self.url} refused the login ({_short(said)}); try `git fetch` there by hand")
        if re.search("not appear to be a git repository|Repository not found|does not exist", said):
            return SyncError(
                f"{self.url} is no git repository ({_short(said)}); create it, or check the address"
            )
        if command in ("fetch", "push", "ls-remote"):
            return HubAwayError(f"{self.url} did not answer ({_short(said)})")
        return SyncError(f"git {command} failed in {self._cache} ({_short(said)}); the folder may be deleted")


class _MovedOnError(SyncError):
    """Somebody else has moved a ref first."""


def _view(events: Sequence[Event]) -> str:
    """The memories that a writer wrote, for people who review them; what became of them tells the bank."""
    texts: dict[str, str] = {}
    for event in events:
        changes: dict[str, Any] = event.body.get("changes") or {}
        memory = str(event.body.get("memory", ""))
        if event.kind == "remember" and isinstance(event.body.get("text"), str):
            texts[event.id] = event.body["text"]
        elif event.kind == "revise" and isinstance(changes.get("text"), str) and memory in texts:
            texts[memory] = changes["text"]
        elif event.kind == "retract":
            texts.pop(memory, None)
    lines = [f"- {' '.join(text.split())}  <!-- {memory} -->" for memory, text in texts.items()]
    return "\n".join(["# Memories written here", "", *lines, ""])


def _short(said: str) -> str:
    return " ".join(said.split())[:300]
