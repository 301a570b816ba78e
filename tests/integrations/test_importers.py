"""Reading other memories: their shape becomes ours, their files stay as they are."""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import shutil
import sqlite3
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.errors import InvalidInputError, NotFoundError
from skep.integrations.importers.item import item, moment, source_of
from skep.integrations.importers.registry import SOURCES, detect, import_items, read
from skep.integrations.importers.text_files import sections
from skep.tuning.documents import front_matter

# The shapes below were checked against mem0ai 2.2, qdrant-client 1.20, claude-mem 13.25, graphiti-core 0.31,
# basic-memory 0.24 and the reference memory server 2026.8.


def texts(path: Path, name: str | None = None) -> list[str]:
    return [one.text for one in read(path, name)[1]]


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    lines = [
        {"type": "entity", "name": "Ana", "entityType": "person", "observations": ["likes tea", "rows"]},
        {"type": "entity", "name": "Acme", "entityType": "company", "observations": []},
        {"type": "relation", "from": "Ana", "to": "Acme", "relationType": "works_at"},
    ]
    return write(tmp_path / "memory.jsonl", "\n".join(json.dumps(line) for line in lines))


@pytest.fixture
def mem0_history(tmp_path: Path) -> Path:
    path = tmp_path / "history.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT,"
            " created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
        )
        rows = [
            ("1", "m1", None, "Ana likes coffee", "ADD", "2025-01-01T00:00:00+00:00", None, 0, None, None),
            (
                "2",
                "m1",
                "Ana likes coffee",
                "Ana likes tea",
                "UPDATE",
                "2025-02-01T00:00:00+00:00",
                None,
                0,
                "ana",
                None,
            ),
            ("3", "m2", None, "secret", "ADD", None, None, 0, None, None),
            ("4", "m2", "secret", None, "DELETE", None, None, 1, None, None),
        ]
        db.executemany("INSERT INTO history VALUES (?,?,?,?,?,?,?,?,?,?)", rows)
    db.close()
    return path


class Pydantic:
    """Pickles as pydantic's models do."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "__dict__": dict(self.__dict__),
            "__pydantic_extra__": None,
            "__pydantic_fields_set__": {"id"},
        }


@pytest.fixture
def qdrant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    module = types.ModuleType("qdrant_client.http.models.models")
    point = type("PointStruct", (Pydantic,), {"__module__": module.__name__})
    module.PointStruct = point  # type: ignore[attr-defined]
    for name in ("qdrant_client", "qdrant_client.http", "qdrant_client.http.models"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    path = tmp_path / "qdrant" / "collection" / "mem0" / "storage.sqlite"
    path.parent.mkdir(parents=True)
    payload = {
        "data": "Ana lives in Oslo",
        "user_id": "ana",
        "created_at": "2025-01-02T03:04:05Z",
        "topic": "home",
    }
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        db.execute(
            "INSERT INTO points VALUES ('k', ?)",
            (pickle.dumps(point(id="p1", vector=[0.1], payload=payload)),),
        )
    db.close()
    return tmp_path / "qdrant"


@pytest.fixture
def claude_mem(tmp_path: Path) -> Path:
    path = tmp_path / "claude-mem.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE observations (id INTEGER PRIMARY KEY, memory_session_id TEXT, project TEXT, text TEXT,"
            " type TEXT, created_at TEXT, created_at_epoch INTEGER, title TEXT, subtitle TEXT, facts TEXT,"
            " narrative TEXT, concepts TEXT)"
        )
        db.execute(
            "INSERT INTO observations VALUES (1,'s','shop','','bugfix','',1735689600000,'Login loop','sub',"
            """'["The cookie had no path"]','Found why login loops','["auth"]')"""
        )
        db.execute(
            "CREATE TABLE session_summaries (id INTEGER PRIMARY KEY, project TEXT, request TEXT, learned TEXT,"
            " completed TEXT, next_steps TEXT, notes TEXT, created_at_epoch INTEGER)"
        )
        db.execute(
            "INSERT INTO session_summaries VALUES (1,'shop','Fix login','Cookies need a path','Fixed','',NULL,0)"
        )
    db.close()
    return path


def test_a_reference_graph_keeps_entities_observations_and_relations(reference: Path) -> None:
    source, items = read(reference)
    found = list(items)

    assert source.name == "reference"
    assert [one.text for one in found] == ["Ana (person)", "likes tea", "rows", "Acme (company)"]
    assert found[0].links == (("works_at", "Acme"),)
    assert found[1].fields["title"] == "Ana"
    assert {"from:reference", "observation", "entity:Ana"} == set(found[1].fields["tags"])


def test_mem0_history_gives_what_holds_now_and_nothing_deleted(mem0_history: Path) -> None:
    source, items = read(mem0_history)
    [found] = items

    assert source.name == "mem0"
    assert found.text == "Ana likes tea"
    assert found.fields["created_at"] == moment("2025-01-01T00:00:00+00:00")


def test_a_local_qdrant_is_read_with_its_scopes(qdrant: Path) -> None:
    source, items = read(qdrant)
    [found] = items

    assert source.name == "mem0"
    assert (found.text, found.fields["scope"]) == ("Ana lives in Oslo", {"user": "ana"})
    assert found.fields["metadata"] == {"topic": "home"}


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('a pickle was run')",))


def test_a_pickle_in_a_qdrant_file_is_never_run(qdrant: Path) -> None:
    with sqlite3.connect(next(qdrant.rglob("storage.sqlite"))) as db:
        db.execute("INSERT INTO points VALUES ('evil', ?)", (pickle.dumps(Evil()),))
    db.close()

    assert texts(qdrant) == ["Ana lives in Oslo"]


def test_claude_mem_gives_stories_facts_and_summaries(claude_mem: Path) -> None:
    source, items = read(claude_mem)
    story, fact, summary = items

    assert source.name == "claude-mem"
    assert (story.fields["kind"], story.text) == ("episode", "Found why login loops")
    assert fact.text == "The cookie had no path"
    assert fact.links == (("derived_from", story.key),)
    assert fact.fields["scope"] == {"project": "shop"}
    assert {"from:claude-mem", "bugfix", "auth"} == set(fact.fields["tags"])
    assert "Learned: Cookies need a path" in summary.text


def test_graphiti_facts_keep_the_time_in_which_they_held(tmp_path: Path) -> None:
    edge = {
        "uuid": "e1", "name": "LIVES_IN", "fact": "Ana lives in Rome", "fact_embedding": [0.1],
        "valid_at": "2024-01-01T00:00:00Z", "invalid_at": "2025-01-01T00:00:00Z", "created_at": "2025-02-01T00:00:00Z",
    }  # fmt: skip
    node = {"uuid": "n1", "name": "Ana", "labels": ["Entity", "Person"], "summary": "Ana is a rower"}
    episode = {"uuid": "p1", "name": "chat", "content": "Ana: I moved", "source_description": "chat"}
    source, items = read(
        write(tmp_path / "g.json", {"edges": [edge], "nodes": [node], "episodes": [episode]})
    )
    fact, summary, story = items

    assert source.name == "graphiti"
    assert fact.fields["valid_to"] == moment("2025-01-01T00:00:00Z")
    assert (summary.text, summary.fields["title"]) == ("Ana is a rower", "Ana")
    assert story.fields["kind"] == "episode"


def test_basic_memory_observations_and_relations_become_facts_and_links(tmp_path: Path) -> None:
    note = """---
title: Coffee
permalink: drinks/coffee
tags: [drinks, 'morning']
---
# Coffee

- [method] Pour over brings out floral notes #brewing (from tasting)
- [x] buy beans
- [00:12] not a category
- pairs_with [[Chocolate]]

Some text about [[Chocolate|dark chocolate]].
"""
    write(tmp_path / "vault" / "coffee.md", note)
    write(tmp_path / "vault" / "Chocolate.md", "---\npermalink: c\n---\nBitter.")
    write(tmp_path / "vault" / ".obsidian" / "hidden.md", "not a note")
    source, items = read(tmp_path / "vault")
    found = {one.key: one for one in items}

    assert source.name == "basic-memory"
    observation = found["coffee#observation-0"]
    assert observation.text == "Pour over brings out floral notes #brewing (from tasting)"
    assert {"drinks", "morning", "method", "brewing"} <= set(observation.fields["tags"])
    assert set(found["coffee"].links) == {("pairs_with", "Chocolate"), ("related", "Chocolate")}
    assert "hidden" not in "".join(found)
    assert "buy beans" in found["coffee"].text


def test_a_vault_is_split_at_headings_but_not_inside_code(tmp_path: Path) -> None:
    write(tmp_path / "v" / "n.md", "# One\nfirst\n```\n# not a heading\n```\n## Two\nsecond #tag")

    source, items = read(tmp_path / "v")
    found = list(items)

    assert source.name == "obsidian"
    assert [one.fields["title"] for one in found] == ["One", "One: Two"]
    assert "tag" in found[1].fields["tags"]


def test_a_chatgpt_export_follows_the_branch_that_was_kept(tmp_path: Path) -> None:
    def message(role: str, text: str) -> dict[str, Any]:
        content = {"content_type": "text", "parts": [text]}
        return {"author": {"role": role}, "content": content, "create_time": 1735689600.0}

    mapping = {
        "root": {"message": None, "parent": None, "children": ["a"]},
        "a": {"message": message("user", "Which tea?"), "parent": "root", "children": ["b", "c"]},
        "b": {"message": message("assistant", "Green."), "parent": "a", "children": []},
        "c": {"message": message("assistant", "Black."), "parent": "a", "children": []},
    }
    path = write(
        tmp_path / "conversations.json",
        [{"title": "Tea", "mapping": mapping, "current_node": "c", "id": "x"}],
    )
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.write(path, "conversations.json")

    for where in (path, tmp_path / "export.zip", tmp_path):
        source, items = read(where)
        [found] = items
        assert source.name == "chatgpt"
        assert found.text == "User: Which tea?\n\nAssistant: Black."
        assert (found.fields["title"], found.fields["kind"]) == ("Tea", "episode")


def test_a_claude_export_gives_one_episode_per_question(tmp_path: Path) -> None:
    messages = [
        {"uuid": "1", "sender": "human", "text": "Which tea?", "created_at": "2025-01-01T00:00:00Z"},
        {"uuid": "2", "sender": "assistant", "text": "", "content": [{"type": "text", "text": "Green."}]},
        {"uuid": "3", "sender": "human", "text": "Why?"},
    ]
    path = write(tmp_path / "conversations.json", [{"uuid": "c", "name": "Tea", "chat_messages": messages}])

    assert read(path)[0].name == "claude"
    assert texts(path) == ["User: Which tea?\n\nAssistant: Green.", "User: Why?"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", '{"text": "one", "tags": ["t"], "created_at": 1735689600}\n\n"two"\n{"nothing": 1}'),
        ("a.json", '{"results": [{"memory": "one"}, {"content": "two"}]}'),
        ("a.csv", "id,text,importance\n1,one,0.5\n2,two,\n"),
        ("b.csv", 'when,what\n1,"one"\n2,"two"\n'),
        ("a.txt", "one\n\ntwo\n"),
    ],
)
def test_plain_files_are_read(name: str, content: str, tmp_path: Path) -> None:
    assert texts(write(tmp_path / name, content)) == ["one", "two"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", "{bad"), ("a.json", "[1"), ("m.jsonl", '{"type":"entity","entityType":"x"}\n{')],
)
def test_a_broken_file_is_named(name: str, content: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=name):
        texts(write(tmp_path / name, content))


def test_a_missing_or_unknown_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no file"):
        detect(tmp_path / "nothing")
    with pytest.raises(InvalidInputError, match="--from"):
        detect(write(tmp_path / "a.xyz", "?"))
    with pytest.raises(NotFoundError, match="reference"):
        read(tmp_path, "no-such-source")


def test_reading_changes_nothing_on_disk(
    mem0_history: Path, claude_mem: Path, qdrant: Path, reference: Path
) -> None:
    def state(folder: Path) -> dict[str, str]:
        return {
            str(f): hashlib.sha256(f.read_bytes()).hexdigest()
            for f in sorted(folder.rglob("*"))
            if f.is_file()
        }

    folder = reference.parent
    before = state(folder)
    for path in (mem0_history, claude_mem, qdrant, reference):
        texts(path)

    assert state(folder) == before


@given(st.binary(max_size=300), st.sampled_from([source.name for source in SOURCES]))
def test_rubbish_is_read_or_refused_but_never_raises_anything_else(
    tmp_path_factory: Any, data: bytes, name: str
) -> None:
    path = tmp_path_factory.mktemp("rubbish") / "file.json"
    path.write_bytes(data)

    with contextlib.suppress(InvalidInputError):
        list(read(path, name)[1])


def test_an_item_is_cleaned_of_what_a_bank_refuses() -> None:
    made = item("a\x00b\ud800", origin="x", key="k" * 500, tags=("#t", " ", "t"), title="\x07")

    assert made is not None
    assert made.text == "ab?"
    assert made.fields["tags"] == ["from:x", "t"]
    assert "title" not in made.fields
    assert len(made.fields["source"]) <= 200
    assert source_of("x", "k" * 500) != source_of("x", "k" * 501)


def test_times_of_every_shape_are_understood() -> None:
    expected = 1735689600.0
    for value in (
        1735689600,
        1735689600000,
        "2025-01-01T00:00:00Z",
        "2025-01-01 00:00:00",
        "2025-01-01T01:00:00+01:00",
    ):
        assert moment(value) == expected
    assert moment("soon") is moment(True) is moment(None) is None


def test_front_matter_and_sections_hold_on_odd_input() -> None:
    assert front_matter("", lenient=True) == ({}, "")
    assert front_matter("---\nnot a key\ntags: [a, 'b']", lenient=True) == (
        {},
        "---\nnot a key\ntags: [a, 'b']",
    )
    assert list(sections("")) == []
    assert len(list(sections("word " * 3000 + "\n\n" + "other " * 3000))) == 2


def test_a_markdown_file_of_lists_is_a_memory_per_entry(tmp_path: Path) -> None:
    file = tmp_path / "MEMORY.md"
    file.write_text(
        "# Rules\n\n- Use ruff for linting\n- Ana likes tea\n  in the morning\n\n## Deploy\n\nWe deploy on Fridays.\n"
    )

    items = list(read(file)[1])

    assert [(one.text, one.fields["kind"]) for one in items] == [
        ("Use ruff for linting", "fact"),
        ("Ana likes tea in the morning", "fact"),
        ("We deploy on Fridays.", "document"),
    ]
    assert items[1].fields["title"] == "Rules"
    assert len({one.key for one in items}) == 3


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.txt", "a.md"])
def test_a_file_that_is_no_text_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(b"\x00\x01\x02 not text")

    with pytest.raises(InvalidInputError, match="not a text file"):
        list(read(file)[1])


def test_a_table_in_utf_16_is_read(tmp_path: Path) -> None:
    file = tmp_path / "export.csv"
    file.write_bytes("memory,date\nAna likes tea,2025-01-01\n".encode("utf-16"))

    assert [one.text for one in read(file)[1]] == ["Ana likes tea"]


def test_a_bank_and_its_export_are_read_and_not_touched(tmp_path: Path) -> None:
    path, export = tmp_path / "mine.skep", tmp_path / "mine.jsonl"
    with Bank.open(path) as bank:
        old = bank.remember("Use black for formatting", tags=["tools"], scope={"user": "ana"}).memory.id
        new = bank.remember("Use ruff for formatting", kind="procedure", on_conflict="ignore").memory.id
        bank.supersede(old, new)
        bank.export(export)
    before = path.read_bytes()

    for file in (path, export):
        source, items = read(file)
        [one] = items
        assert source.name == "skep"
        assert (one.text, one.key, one.fields["kind"]) == ("Use ruff for formatting", new, "procedure")
    assert path.read_bytes() == before


def test_what_separates_lines_elsewhere_may_stand_in_a_line_of_json(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", '{"text": "one\u2028two"}\n{"text": "three"}')

    assert texts(file) == ["one\u2028two", "three"]


def test_halves_of_pairs_as_python_writes_them_are_replaced(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.jsonl", '{"text": "cut off \\ud83d"}')) == ["cut off ?"]
    assert texts(write(tmp_path / "a.json", '[{"text": "cut off \\ud83d"}]')) == ["cut off ?"]


def test_controls_of_an_old_code_page_are_taken_out_and_the_rest_is_stored(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "a \x93quoted\x94 word\n")

    with Bank.open(":memory:") as bank:
        assert import_items(bank, read(file)[1]).new == 1
        assert [memory.text for memory in bank.find()] == ["a quoted word"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.csv"])
def test_a_text_longer_than_a_memory_becomes_several(tmp_path: Path, name: str) -> None:
    words = [f"word{n}" for n in range(20_000)]
    line = " ".join(words)
    content = {"a.jsonl": json.dumps({"text": line}), "a.txt": line, "a.csv": "text\n" + line}[name]

    found = list(read(write(tmp_path / name, content))[1])

    assert " ".join(one.text for one in found).split() == words
    assert len({one.key for one in found}) == len({one.fields["source"] for one in found}) == len(found) > 1


def test_one_id_with_two_texts_is_two_memories_and_still_imported_once(tmp_path: Path) -> None:
    rows = [{"id": 3, "text": "one"}, {"id": 3, "text": "two"}, {"text": "three"}, {"id": 3, "text": "one"}]
    file = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))

    with Bank.open(":memory:") as bank:
        assert import_items(bank, read(file)[1]).new == 3
        assert import_items(bank, read(file)[1]).new == 0
        assert sorted(memory.text for memory in bank.find()) == ["one", "three", "two"]


@pytest.mark.parametrize(
    "time", [10**400, "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", -5, "soon"]
)
def test_a_time_that_no_bank_takes_is_left_out(time: object, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", json.dumps({"text": "one", "created_at": time}))

    assert ["created_at" in one.fields for one in read(file)[1]] == [False]


def test_seconds_in_a_table_are_a_time(tmp_path: Path) -> None:
    [one] = read(write(tmp_path / "a.csv", "text,created_at\none,1735689600\n"))[1]

    assert one.fields["created_at"] == 1735689600.0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("text;date\none, two;2025-01-01\n", ["one, two"]),
        ("text|date\none, two|2025-01-01\n", ["one, two"]),
        ("text\none, two\n", ["one, two"]),
        ("text,tags\na\u2028b,x\n", ["a\u2028b"]),
        ("text,date\none,,,\n", ["one"]),
    ],
)
def test_columns_are_told_apart_by_what_the_header_says(
    content: str, expected: list[str], tmp_path: Path
) -> None:
    assert texts(write(tmp_path / "a.csv", content)) == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text,date\none,1\n"never closed,2\nthree,3\n', "row 2.*mend its quotes"),
        ("text,date\none,1\ntwo, and more,2\n", "line 3.*in quotes"),
    ],
)
def test_a_table_that_would_lose_something_is_refused(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=message):
        texts(write(tmp_path / "a.csv", content))


@pytest.mark.parametrize(
    "content",
    [
        {"text": "one", "tags": ["not a memory"]},
        {"tags": [], "memories": [{"text": "one"}]},
        {"message": "ok", "data": {"memories": [{"memory": "one"}]}},
    ],
)
def test_the_memories_in_a_document_are_found(content: object, tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.json", content)) == ["one"]


def test_a_collection_far_below_a_folder_is_not_looked_for(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b" / "c" / "d" / "e"
    deep.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(deep / "storage.sqlite")) as made:
        made.execute("CREATE TABLE points(id TEXT, point BLOB)")

    with pytest.raises(InvalidInputError, match="no kind"):
        read(tmp_path)
    assert read(tmp_path / "a")[0].name == "mem0"


def test_a_bank_takes_nothing_from_itself_nor_from_a_copy_of_it(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "mine.skep") as bank:
        bank.remember("Use ruff for linting")
        gone = bank.remember("Ana likes tea in the morning").memory.id
        bank.backup(tmp_path / "copy.skep")
        shutil.copy(tmp_path / "copy.skep", tmp_path / "old.skep")
        bank.forget(gone)

        for name in ("mine.skep", "copy.skep", "old.skep"):
            assert import_items(bank, read(tmp_path / name)[1]).new == 0
        assert [memory.text for memory in bank.find()] == ["Use ruff for linting"]


@pytest.mark.parametrize(
    "text",
    [
        "[[" * 100_000,
        "[[a" * 100_000,
        "[[a#" * 100_000,
        "- a " + " " * 200_000 + "b",
        "- " + " " * 200_000 + "[",
        "# a" + " " * 200_000 + "b",
        "#" * 200_000,
        "- [note] a" + " " * 200_000 + "(b",
        "- [note] a" + " (" * 100_000,
        "\n" * 200_000 + "x",
        "---\ntags: " + "[" * 100_000 + "]" * 100_000 + "\n---\nx",
        "---\ntags:\n" + "- a\n" * 50_000 + "---\nx",
        "```" * 50_000,
        "at " + "(" * 200_000,
        "x" * 2_000_000,
    ],
    ids=range(15),
)
def test_no_text_makes_reading_or_auditing_take_more_than_linear_time(text: str, tmp_path: Path) -> None:
    write(tmp_path / "note.md", text)
    program = (
        "import sys; from pathlib import Path; from skep.integrations.importers.registry import read\n"
        "from skep.integrations.audit import junk_of\n"
        "for item in read(Path(sys.argv[1]))[1]: junk_of(item.text)"
    )

    # quadratic time would be hours; the limit only ends the test
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "note.md")], check=True, timeout=120)


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "export.zip"
    with (
        zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("conversations.json", "w") as file,
    ):
        file.write(b'[{"mapping": {}, "x": "')
        for _ in range(80):
            file.write(b"a" * (1 << 20))
        file.write(b'"}]')

    with pytest.raises(InvalidInputError, match="unpack it yourself"):
        list(read(bomb, "chatgpt")[1])


def test_a_damaged_archive_is_refused_in_words(tmp_path: Path) -> None:
    damaged = tmp_path / "export.zip"
    with zipfile.ZipFile(damaged, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps([{"mapping": {"a": "b" * 5000}}] * 20))
    data = bytearray(damaged.read_bytes())
    data[60:90] = b"\xff" * 30
    damaged.write_bytes(data)

    with pytest.raises(InvalidInputError, match="cannot be unpacked"):
        list(read(damaged, "chatgpt")[1])


def test_a_note_that_links_out_of_its_vault_is_refused_and_never_read(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "secret.md", "permalink: the password is tea")
    write(tmp_path / "vault" / "note.md", "# Note\nplain")
    (tmp_path / "vault" / "inside.md").symlink_to(tmp_path / "vault" / "note.md")
    assert len(list(read(tmp_path / "vault")[1])) == 2

    (tmp_path / "vault" / "outside.md").symlink_to(tmp_path / "elsewhere" / "secret.md")
    with pytest.raises(InvalidInputError, match="outside of"):
        list(read(tmp_path / "vault")[1])


def test_a_graph_nested_as_deep_as_json_allows_is_read(tmp_path: Path) -> None:
    deep = '{"fact": "Ana likes tea"}'
    for _ in range(400):
        deep = f'{{"a": [{deep}]}}'
    write(tmp_path / "graph.json", deep)

    found = list(read(tmp_path / "graph.json", "graphiti")[1])
    assert [one.text for one in found] == ["Ana likes tea"]
