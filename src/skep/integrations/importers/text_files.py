"""Importers of plain files (JSON, JSON lines, tables, lines of text) and of Markdown notes.

A note is split at its headings; in a single file, a section that is a list is split into its entries. basic-memory's
observations (`- [category] text #tag`) become facts, its relations (`- relates_to [[Other]]`) and Obsidian's
`[[links]]` become links between notes. A link out of the folder is refused.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import msgspec

from skep.errors import InvalidInputError
from skep.integrations.importers.item import (
    TEXT_LIMIT,
    Item,
    decoded,
    head,
    item,
    load_json,
    moment,
    read_text,
    renamed,
)
from skep.model import KINDS
from skep.private_parts import without_private
from skep.tuning.documents import FieldValue, front_matter

TEXTS = ("text", "memory", "content", "fact", "observation", "message", "note", "statement", "value")
"""Under which names a text is looked for, in this order."""
TIMES = ("created_at", "timestamp", "date", "time", "updated_at")
ORIGIN = "file"


def is_jsonl(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() in (".jsonl", ".ndjson")


def is_json(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() == ".json"


def is_csv(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() in (".csv", ".tsv")


def is_text(path: Path) -> bool:
    """By its ending."""
    return path.suffix.lower() in (".txt", ".text")


def read_jsonl(path: Path) -> Iterator[Item]:
    """One object or text per line.

    Raises:
        InvalidInputError: A line is not JSON; the message says which.
    """
    return _apart(_json_lines(path))


def _json_lines(path: Path) -> Iterator[Item | None]:
    # within JSON only a line feed ends a line: other separators may stand in a text as they are
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                entry = decoded(line)
            except ValueError as error:
                raise InvalidInputError(
                    f"{path}, line {number}: not valid JSON ({error}); mend or remove that line"
                ) from error
            yield _entry(entry, path, number)


def read_json(path: Path) -> Iterator[Item]:
    """A list, or an object with a list in it."""
    value = _list_in(load_json(path))
    if value is None:
        raise InvalidInputError(f"{path} holds no list of memories")
    return _apart(_entry(entry, path, number) for number, entry in enumerate(value, 1))


def read_csv(path: Path) -> Iterator[Item]:
    """A table with a header; without a column that we know, the longest value of a row is its text.

    Raises:
        InvalidInputError: A line does not fit the table; the message says which.
    """
    return _apart(_rows(path))


def _rows(path: Path) -> Iterator[Item | None]:
    text = read_text(path)
    csv.field_size_limit(10_000_000)
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=_delimiter(path, text), strict=True)
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            beyond = cast("dict[Any, list[str]]", row).pop(None, [])
            if any(value.strip() for value in beyond):
                raise InvalidInputError(
                    f"{path}, line {rows.line_num}: more values than the header has columns; put a text that holds"
                    " the separator in quotes"
                )
            entry = {str(key).strip(): value for key, value in row.items() if isinstance(value, str)}
            if not any(name in entry for name in TEXTS) and entry:
                entry["text"] = max(entry.values(), key=len)
            yield _entry(entry, path, number + 1)  # the header is the first
    except csv.Error as error:
        raise InvalidInputError(
            f"{path}, row {number + 1}: not a readable table ({error}); mend its quotes"
        ) from error


def _delimiter(path: Path, text: str) -> str:
    """The separator of columns: the one most frequent in the header; a table of one column has none."""
    if path.suffix.lower() == ".tsv":
        return "\t"
    header = text.lstrip().partition("\n")[0]
    often = max(",;\t|", key=header.count)
    return often if often in header else "\x1f"


def _apart(found: Iterable[Item | None]) -> Iterator[Item]:
    """Items under keys of their own: what stands under one id with two texts is two memories."""
    seen: set[tuple[str, str]] = set()
    times: Counter[str] = Counter()
    for one in found:
        if one is None or (one.key, one.text) in seen:
            continue
        seen.add((one.key, one.text))
        times[one.key] += 1
        yield one if times[one.key] == 1 else renamed(one, f"{one.key}#{times[one.key]}", ORIGIN)


def read_lines(path: Path) -> Iterator[Item]:
    """One memory per line; a private part may go over several."""
    for number, line in enumerate(without_private(read_text(path)).splitlines(), 1):
        made = item(line.strip(), origin=ORIGIN, key=f"{path.name}:{number}")
        if made is not None:
            yield made


def _list_in(value: Any) -> list[Any] | None:
    """The list that a document is, or the first in it that holds memories; else an object is a list of itself.

    >>> _list_in({"status": [], "data": {"memories": [{"text": "a"}]}}), _list_in({"text": "a", "tags": ["b"]})
    ([{'text': 'a'}], [{'text': 'a', 'tags': ['b']}])
    """
    if not isinstance(value, dict):
        return cast("list[Any]", value) if isinstance(value, list) else None
    lists = list(_lists(cast("dict[str, Any]", value)))
    holding = [one for one in lists if any(map(_text_name, one))]
    if holding:
        return holding[0]
    plain = [one for one in lists if any(isinstance(entry, str) for entry in one)]
    return plain[0] if plain and _text_name(value) is None else [value]


def _lists(value: dict[str, Any], depth: int = 3) -> Iterator[list[Any]]:
    yield from (one for one in value.values() if isinstance(one, list))
    for one in value.values():
        if isinstance(one, dict) and depth:
            yield from _lists(cast("dict[str, Any]", one), depth - 1)


def _text_name(value: Any) -> str | None:
    """Under which name an object has its text."""
    entry = cast("dict[Any, Any]", value) if isinstance(value, dict) else {}
    return next((name for name in TEXTS if isinstance(entry.get(name), str) and entry[name].strip()), None)


def _entry(entry: object, path: Path, number: int) -> Item | None:
    key = f"{path.name}:{number}"
    if isinstance(entry, str):
        return item(entry, origin=ORIGIN, key=key)
    if not isinstance(entry, dict):
        return None
    given = cast("dict[str, Any]", entry)
    name = _text_name(given)
    if name is None:
        return None
    kind = str(given.get("kind") or "").lower()
    time = next((found for field in TIMES if (found := moment(given.get(field))) is not None), None)
    return item(
        given[name],
        origin=ORIGIN,
        key=f"{path.name}:{given['id']}" if given.get("id") not in (None, "") else key,
        tags=_tags(given.get("tags")),
        kind=kind if kind in KINDS else None,
        title=given.get("title") or None,
        domain=given.get("domain") or given.get("category") or None,
        agent=given.get("agent") or given.get("agent_id") or None,
        created_at=time,
        confidence=_unit(given.get("confidence")),
        importance=_unit(given.get("importance")),
        scope={"user": str(given["user_id"])} if given.get("user_id") else None,
    )


def _tags(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.replace(";", ",").split(","))
    return tuple(str(one) for one in cast("list[Any]", value)) if isinstance(value, list) else ()


def _unit(value: object) -> float | None:
    try:
        number = float(cast("Any", value))
    except (TypeError, ValueError):
        return None
    return number if 0 <= number <= 1 else None


SECTION_CHARS = 4000
# Each pattern below takes linear time: no two parts of one that follow each other match the same characters.
_HEADING = re.compile(r"^(#{1,6})[ \t]+(\S.*)$", re.M)
_OBSERVATION = re.compile(r"^[ \t]*[-*][ \t]+\[([^\[\]()]+)\][ \t]+(.+)$")
_RELATION = re.compile(r"^[ \t]*[-*][ \t]([^\[\]]*)\[\[([^\]]+)\]\]")
_WIKILINK = re.compile(r"!?\[\[([^\[\]|#]+)(?:#[^\[\]|]*)?(?:\|[^\[\]]*)?\]\]")
_ENTRY = re.compile(r"(?:[-*+]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(.+)$")
_TAG = re.compile(r"(?<!\S)#([A-Za-z][\w/-]*)")
_TIMECODE = re.compile(r"\d{1,3}:\d{2}(?::\d{2})?(?:[.,]\d{1,3})?")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.S)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """One file, taken apart."""

    name: str
    title: str
    front: dict[str, FieldValue]
    body: str


def is_markdown(path: Path) -> bool:
    """A Markdown file."""
    return path.is_file() and path.suffix.lower() in (".md", ".markdown")


def is_vault(path: Path) -> bool:
    """A folder with Markdown in it."""
    return path.is_dir() and next(_notes(path), None) is not None


def is_basic_memory(path: Path) -> bool:
    """A folder whose notes have permalinks and observations."""
    if not path.is_dir():
        return False
    inside = (file for file in _notes(path) if not _leads_out(file, path))
    sample = [head(file, 4096) for file in islice(inside, 20)]
    return any("permalink:" in text for text in sample)


def read_markdown(path: Path) -> Iterator[Item]:
    """A single file, or every note below a folder."""
    yield from read_notes(path, "markdown")


def read_vault(path: Path) -> Iterator[Item]:
    """An Obsidian vault."""
    yield from read_notes(path, "obsidian")


def read_basic_memory(path: Path) -> Iterator[Item]:
    """A basic-memory project."""
    yield from read_notes(path, "basic-memory")


def _notes(folder: Path) -> Iterator[Path]:
    for file in sorted(folder.rglob("*.md")):
        inner = file.relative_to(folder).parts[:-1]
        if not any(part.startswith(".") for part in inner) and file.is_file():
            yield file


def _leads_out(file: Path, folder: Path) -> bool:
    """True for a note that links to a file outside of its folder; such a file is never opened."""
    return not file.resolve().is_relative_to(folder.resolve())


def read_notes(path: Path, origin: str) -> Iterator[Item]:
    """The notes of a folder, or one file, with the links among them."""
    files = list(_notes(path)) if path.is_dir() else [path]
    for file in files if path.is_dir() else ():
        if _leads_out(file, path):
            raise InvalidInputError(
                f"{file} is a link to a file outside of {path}; copy that file into the folder, or remove the link"
            )
    base = path if path.is_dir() else path.parent
    notes = [_note(file, base) for file in files]
    first = {
        key: note.name
        for note in notes
        for key in (note.title.lower(), Path(note.name).stem.lower(), note.name)
    }
    for file, note in zip(files, notes, strict=True):
        yield from _items(note, origin, first, file.stat().st_mtime)


def _note(file: Path, base: Path) -> Note:
    text = without_private(read_text(file)).replace("\r\n", "\n")
    front, body = front_matter(text, lenient=True)
    name = file.relative_to(base).with_suffix("").as_posix()
    heading = _HEADING.search(body)
    title = front.get("title") or (_heading(heading[2]) if heading and heading[1] == "#" else file.stem)
    return Note(name=name, title=str(title), front=front, body=body)


def _heading(text: str) -> str:
    """A heading without the signs that may close it."""
    return text.rstrip().rstrip("#").rstrip() or text.strip()


def _items(note: Note, origin: str, known: dict[str, str], modified: float) -> Iterator[Item]:
    created = moment(note.front.get("created") or note.front.get("date")) or modified
    labels = _labels(note.front.get("tags"))
    observations, relations, rest = _take_apart(note.body)
    targets = [(rel, known[name]) for rel, name in relations if name in known and known[name] != note.name]
    targets += [
        ("related", known[name])
        for name in (found.strip().lower() for found in _WIKILINK.findall(rest))
        if name in known and known[name] != note.name
    ]
    links = tuple(dict.fromkeys(targets))
    made = False
    for part, kind, heading, text in _parts(rest, split=origin == "markdown"):
        title = note.title if heading in (None, note.title) else f"{note.title}: {heading}"
        found = item(
            _WIKILINK.sub(lambda match: match[1], text),
            origin=origin,
            key=note.name if not made else f"{note.name}#{part}",
            links=links if not made else (("part_of", note.name),),
            tags=(*labels, *_TAG.findall(_CODE.sub("", text))),
            kind=kind,
            title=title,
            created_at=created,
        )
        if found is not None:
            made = True
            yield found
    for index, (category, text) in enumerate(observations):
        found = item(
            _WIKILINK.sub(lambda match: match[1], text),
            origin=origin,
            key=note.name if not made else f"{note.name}#observation-{index}",
            links=links if not made else (("part_of", note.name),),
            tags=(*labels, category, *_TAG.findall(text)),
            title=note.title,
            created_at=created,
        )
        if found is not None:
            made = True
            yield found


def _parts(body: str, *, split: bool) -> Iterator[tuple[str, str, str | None, str]]:
    """Name, kind, heading and text of each memory in a note: a section, or, where asked for, an entry of a list."""
    for index, (heading, text) in enumerate(sections(body)):
        entries = list_entries(text) if split else ()
        if not entries:
            yield str(index), "document", heading, text
        for number, entry in enumerate(entries):
            yield f"{index}.{number}", "fact", heading, entry


def list_entries(text: str) -> tuple[str, ...]:
    """The entries of a text that is a list and nothing else; such files hold a statement per entry.

    >>> list_entries("- use ruff\\n- Ana likes tea\\n  in the morning"), list_entries("Rules:\\n- use ruff")
    (('use ruff', 'Ana likes tea in the morning'), ())
    """
    found: list[str] = []
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            found.append(entry[1].strip())
        elif line.strip() and not (found and line[0] in " \t"):
            return ()
        elif line.strip():
            found[-1] += " " + line.strip()
    return tuple(found) if len(found) > 1 else ()


def _take_apart(body: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]], str]:
    """Observations, relations, and the text without them."""
    observations: list[tuple[str, str]] = []
    relations: list[tuple[str, str]] = []
    rest: list[str] = []
    fenced = False
    for line in body.splitlines():
        fenced ^= line.lstrip().startswith("```")
        seen = None if fenced else _OBSERVATION.match(line)
        if seen is not None and len(seen[1].strip()) > 1 and not _TIMECODE.fullmatch(seen[1].strip()):
            observations.append((seen[1].strip(), seen[2].strip()))
            continue
        related = None if fenced else _RELATION.match(line)
        if related is not None and related[1].strip() and len(related[1]) < 60:
            relations.append((related[1].strip(), related[2].split("|")[0].strip().lower()))
            continue
        rest.append(line)
    return observations, relations, "\n".join(rest)


def sections(body: str) -> Iterator[tuple[str | None, str]]:
    """The parts of a text between headings, none much longer than a page; headings inside code do not
    count."""
    blanked = _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), body)
    marks = [(found.start(), found.end(), _heading(found[2])) for found in _HEADING.finditer(blanked)]
    edges = [(0, 0, None), *marks]
    for index, (_, end, heading) in enumerate(edges):
        stop = edges[index + 1][0] if index + 1 < len(edges) else len(body)
        for part in _pages(body[end:stop].strip()):
            yield heading, part


def _pages(text: str) -> Iterator[str]:
    page = ""
    for paragraph in re.split(r"\n\s*\n", text):
        if page and len(page) + len(paragraph) > SECTION_CHARS:
            yield page
            page = ""
        page = f"{page}\n\n{paragraph}" if page else paragraph
        if len(page) > TEXT_LIMIT:
            whole = len(page) - len(page) % TEXT_LIMIT
            yield from (page[start : start + TEXT_LIMIT] for start in range(0, whole, TEXT_LIMIT))
            page = page[whole:]
    if page.strip():
        yield page


def _labels(value: object) -> tuple[str, ...]:
    if isinstance(value, tuple):
        return cast("tuple[str, ...]", value)
    return tuple(re.split(r"[,\s]+", value.strip())) if isinstance(value, str) and value.strip() else ()
