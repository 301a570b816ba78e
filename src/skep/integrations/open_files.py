"""A bank as files that others can read: a bundle with checksums, and a folder of Markdown that is read back.

Called by `skep export` and `skep import`. A bundle carries the log as well, so that skep takes it in whole; others read
its memories, links and tombstones. Of a folder, edited notes become new versions and new notes new memories; nothing is
taken away because a note is gone.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from skep.errors import InvalidInputError
from skep.integrations import bundle_check
from skep.integrations.importers.item import Item, item, moment
from skep.model import ANCHORS_GONE, Memory
from skep.storage.bank_export import unfinished
from skep.tuning.documents import front_matter

if TYPE_CHECKING:
    from skep.bank.bank import Bank


ENDING: Final = ".skep-bundle"
ORIGIN: Final = "bundle"
MARK: Final = ".skep-view.json"
"""The file that says of a folder that it is a view of a bank."""
LINKS_HEADING: Final = "\n\n## Links\n"
PLAIN: Final = ("title", "domain", "agent", "source", "superseded_by", "merged_into")
TIMES: Final = ("valid_from", "valid_to", "expires_at")


def write_bundle(bank: Bank, target: Path, now: float) -> dict[str, int]:
    """Write the whole bank as a bundle; how many lines each part has. An earlier file of that name is replaced."""
    parts = {
        bundle_check.MEMORIES: [_json(_record(memory)) for memory in _all(bank, status=None)],
        bundle_check.LINKS: [_json(link) for link in _links(bank)],
        bundle_check.TOMBSTONES: [
            _json({"id": name, "at": _iso(event.at)})
            for event in bank.engine.log.after(0)
            if event.kind == "forget"
            for name in event.body["memories"]
        ],
        bundle_check.EVENTS: list(bank.export_lines()),
    }
    data = {name: b"".join(line + b"\n" for line in lines) for name, lines in parts.items()}
    manifest = {
        "format": bundle_check.FORMAT,
        "version": bundle_check.VERSION,
        "made_by": "skep",
        "made_at": _iso(now),
        "files": {
            name: {"sha256": hashlib.sha256(content).hexdigest(), "lines": len(parts[name])}
            for name, content in data.items()
        },
    }
    with (
        unfinished(target.resolve()) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        archive.writestr(bundle_check.MANIFEST, json.dumps(manifest, indent=2))
        for name, content in data.items():
            archive.writestr(name, content)
    return {name: len(lines) for name, lines in parts.items()}


def log_of_bundle(path: Path, folder: Path) -> Path | None:
    """The log in a bundle as an export that `Bank.import_` takes in; None in a bundle of another program.

    Raises:
        InvalidInputError: The bundle is damaged; what is wrong is listed.
    """
    _refuse_broken(path)
    with zipfile.ZipFile(path) as archive:
        if bundle_check.EVENTS not in archive.namelist():
            return None
        target = folder / bundle_check.EVENTS
        target.write_bytes(archive.read(bundle_check.EVENTS))
        return target


def _refuse_broken(path: Path) -> None:
    try:
        wrong = bundle_check.check(str(path))
    except bundle_check.BrokenBundleError as error:
        wrong = [str(error)]
    if wrong:
        told = "; ".join(wrong[:5]) + (f"; and {len(wrong) - 5} more" if len(wrong) > 5 else "")
        raise InvalidInputError(f"{path} is damaged, and nothing was imported: {told}; ask for it again")


def is_bundle(path: Path) -> bool:
    """True for a bundle, whoever made it."""
    return path.is_file() and bundle_check.is_bundle(str(path))


def read_bundle(path: Path) -> Iterator[Item]:
    """The current memories of a bundle, and the links among them."""
    _refuse_broken(path)
    with zipfile.ZipFile(path) as archive:
        targets: dict[str, list[tuple[str, str]]] = {}
        for link in bundle_check.lines(archive, bundle_check.LINKS):
            targets.setdefault(link["src"], []).append((link["rel"], link["dst"]))
        for record in bundle_check.lines(archive, bundle_check.MEMORIES):
            if record.get("status", "active") not in ("active", "pending"):
                continue
            named = {
                name: record.get(name) for name in ("title", "domain", "agent", "kind", "scope", "metadata")
            }
            numbers = {name: record.get(name) for name in ("confidence", "importance")}
            times = {name: moment(record.get(name)) for name in ("created_at", *TIMES[:2])}
            made = item(
                record["text"],
                origin=ORIGIN,
                key=record["id"],
                links=tuple(targets.get(record["id"], ())),
                tags=tuple(record.get("tags") or ()),
                **{name: value or None for name, value in named.items()},
                **numbers,
                **times,
            )
            if made is not None:
                yield made


def _all(bank: Bank, **conditions: Any) -> Iterator[Memory]:
    cursor: str | None = None
    while True:
        page = bank.find(**conditions, limit=1000, cursor=cursor)
        yield from page
        cursor = page.cursor
        if cursor is None:
            return


def _links(bank: Bank) -> Iterator[dict[str, Any]]:
    for memory in _all(bank, status=None):
        for link in bank.engine.links(memory.id, direction="out"):
            yield {"src": link.src, "dst": link.dst, "rel": link.rel, "strength": link.strength}


def _record(memory: Memory) -> dict[str, Any]:
    """A memory in the fields of the bundle; what is empty is left out."""
    scope = {part: value for part in ("user", "project", "session") if (value := getattr(memory.scope, part))}
    record: dict[str, Any] = {
        "id": memory.id, "kind": memory.kind, "text": memory.text, "status": memory.status,
        "created_at": _iso(memory.created_at), "confidence": memory.confidence, "importance": memory.importance,
        "tags": list(memory.tags), "scope": scope, "evidence": list(memory.evidence), "metadata": memory.metadata,
    }  # fmt: skip
    record |= {name: getattr(memory, name) for name in PLAIN}
    record |= {name: _iso(value) for name in TIMES if (value := getattr(memory, name)) is not None}
    return {name: value for name, value in record.items() if value not in (None, [], {})}


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value)


class ReadBack(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a folder of notes."""

    new: int = 0
    changed: int = 0
    same: int = 0
    both: tuple[str, ...] = ()
    """Notes that were changed here and in the bank: left as they are."""
    absent: int = 0
    """Memories that have no note any more: left as they are."""
    dry_run: bool = False


def is_view(path: Path) -> bool:
    """True for a folder that `write_view` has written."""
    return (path / MARK).is_file()


def write_view(bank: Bank, folder: Path) -> int:
    """Write every current memory as a note; how many. Notes of an earlier view are replaced or removed."""
    if folder.is_dir() and any(folder.iterdir()) and not is_view(folder):
        raise InvalidInputError(f"{folder} holds other files; name a folder that is empty or new")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).write_bytes(_json({"format": "skep-view", "version": 1}))
    memories = list(_all(bank))
    names = {memory.id: _name(memory) for memory in memories}
    for old in folder.glob("*.md"):
        if front_matter(old.read_text("utf-8"), lenient=True)[0].get("skep") not in (None, ""):
            old.unlink()
    for memory in memories:
        links = [one for one in bank.engine.links(memory.id, direction="out") if one.dst in names]
        (folder / f"{names[memory.id]}.md").write_text(
            _note(memory, [(one.rel, names[one.dst]) for one in links]), "utf-8"
        )
    return len(memories)


def _name(memory: Memory) -> str:
    words = re.findall(r"\w+", memory.title or memory.text)[:7]
    return f"{' '.join(words)[:60].strip()} {memory.id}"


def _note(memory: Memory, links: list[tuple[str, str]]) -> str:
    head = {
        "skep": memory.id,
        "sum": _sum(memory.text),
        "kind": memory.kind,
        "title": memory.title,
        "created": _iso(memory.created_at)[:10],
        "domain": memory.domain,
        "gone": "; ".join(memory.metadata.get(ANCHORS_GONE) or ()) or None,
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in head.items() if value]
    if memory.tags:
        lines += ["tags:", *(f"  - {json.dumps(tag, ensure_ascii=False)}" for tag in memory.tags)]
    told = LINKS_HEADING + "".join(f"- {rel} [[{name}]]\n" for rel, name in links) if links else "\n"
    return "---\n" + "\n".join(lines) + f"\n---\n{memory.text}{told}"


def _sum(text: str) -> str:
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def read_view(bank: Bank, folder: Path, *, dry_run: bool = False) -> ReadBack:
    """Take in what was edited in a folder of notes.

    A note with another text becomes a memory that replaces the old one; another title or other tags are a revision; a
    note without an id is a new memory. A note whose memory was changed in the bank meanwhile is left, and named.
    """
    new = changed = same = 0
    both: list[str] = []
    seen: set[str] = set()
    for path in sorted(folder.glob("*.md")):
        head, body = front_matter(path.read_text("utf-8"), lenient=True)
        text, name = body.partition(LINKS_HEADING)[0].strip(), str(head.get("skep") or "")
        told = head.get("tags") or ()
        tags = [_plain(tag) for tag in (told if isinstance(told, tuple) else (told,))]
        title = _plain(str(head.get("title") or "")) or None
        memory = bank.engine.get(name) if name else None
        if not text or (name and memory is None):
            both += [path.name] if name else []
        elif memory is None:
            new += 1
            if not dry_run:
                bank.remember(text, title=title, tags=tags, source=f"note:{path.name}"[:200])
        else:
            seen.add(memory.id)
            edited = _sum(text) != head.get("sum")
            if edited and (
                _sum(memory.text) != head.get("sum") or memory.status not in ("active", "pending")
            ):
                both.append(path.name)
            elif edited or (title, tags) != (memory.title, list(memory.tags)):
                changed += 1
                if not dry_run:
                    _change(bank, memory, text if edited else None, title, tags)
            else:
                same += 1
    absent = sum(memory.id not in seen for memory in _all(bank)) - (
        0 if dry_run else new + _replaced(bank, seen)
    )
    return ReadBack(
        new=new, changed=changed, same=same, both=tuple(both), absent=max(0, absent), dry_run=dry_run
    )


def _plain(value: str) -> str:
    """A value of the front matter without the marks by which JSON and YAML write quotes inside quotes."""
    try:
        return str(json.loads(f'"{value}"'))
    except ValueError:  # somebody wrote it by hand
        return value


def _replaced(bank: Bank, seen: set[str]) -> int:
    """Memories that took the place of one with a note: their notes come with the next view."""
    found = (bank.engine.get(name) for name in seen)
    return sum(memory is not None and memory.superseded_by is not None for memory in found)


def _change(bank: Bank, memory: Memory, text: str | None, title: str | None, tags: list[str]) -> None:
    if text is None:
        bank.revise(memory.id, title=title, tags=tags)
        return
    scope = {part: value for part in ("user", "project", "session") if (value := getattr(memory.scope, part))}
    made = bank.remember(
        text,
        kind=memory.kind,
        title=title,
        tags=tags,
        domain=memory.domain,
        scope=scope or None,
        importance=memory.importance,
        metadata={name: value for name, value in memory.metadata.items() if name != ANCHORS_GONE},
        on_conflict="ignore",
    )
    bank.supersede(memory.id, made.memory.id, "edited in a note")


def import_bundle(bank: Bank, path: Path, progress: Any = None) -> dict[str, Any] | None:
    """Take in the log of a bundle; None where it has none, so that its memories are read as another program's."""
    with tempfile.TemporaryDirectory() as folder:
        log = log_of_bundle(path, Path(folder))
        if log is None:
            return None
        done = bank.import_(log, progress=progress)
    return {"new": done.new, "known": done.known, "held": len(done.held)}
