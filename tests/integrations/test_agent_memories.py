"""What Letta, LangGraph, Claude, Claude Code and supermemory remember is taken in, once, and recognised by itself."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError
from skep.integrations.importers.registry import detect, import_items, read


def taken(bank: Bank, path: Path, name: str) -> list[str]:
    """The texts after a file was imported twice."""
    assert detect(path).name == name
    for _ in range(2):
        import_items(bank, read(path)[1])
    return sorted(memory.text for memory in bank.find(limit=100))


def written(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def message(role: str, text: str, number: int) -> dict[str, Any]:
    return {
        "id": f"message-{number}",
        "role": role,
        "content": [{"type": "text", "text": text}],
        "created_at": "2026-05-01T10:00:00Z",
    }


def test_an_agent_file_of_letta(plain_bank: Bank, tmp_path: Path) -> None:
    told = json.dumps({"type": "user_message", "message": "I moved to Oslo", "time": "now"})
    notice = json.dumps({"type": "heartbeat", "reason": "none"})
    path = written(
        tmp_path / "agent.af",
        {
            "agents": [
                {
                    "id": "agent-0",
                    "name": "helper",
                    "block_ids": ["block-0"],
                    "messages": [
                        message("system", "You are a helper", 0),
                        message("user", notice, 1),
                        message("user", told, 2),
                        message("assistant", "Noted", 3),
                    ],
                }
            ],
            "blocks": [
                {"id": "block-0", "label": "human", "value": "Ana prefers tea.\n\nAna edits in Helix."}
            ],
            "groups": [],
            "tools": [],
        },
    )
    assert taken(plain_bank, path, "letta") == [
        "Ana edits in Helix.",
        "Ana prefers tea.",
        "User: I moved to Oslo\n\nAssistant: Noted",
    ]
    assert {tag for memory in plain_bank.find(kind="fact") for tag in memory.tags} == {"from:letta", "human"}


def test_an_older_agent_file_of_one_agent(plain_bank: Bank, tmp_path: Path) -> None:
    path = written(
        tmp_path / "agent.af",
        {
            "agent_type": "memgpt_agent",
            "name": "helper",
            "core_memory": [{"label": "persona", "value": "I speak plainly."}],
            "messages": [],
        },
    )
    assert taken(plain_bank, path, "letta") == ["I speak plainly."]


def test_a_langgraph_store(plain_bank: Bank, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as db:
        db.execute(
            "CREATE TABLE store (prefix text NOT NULL, key text NOT NULL, value text NOT NULL, created_at TIMESTAMP,"
            " updated_at TIMESTAMP, PRIMARY KEY (prefix, key))"
        )
        kind = {"kind": "Memory", "content": {"content": "Ana edits in Helix"}}
        rows = [
            ("memories.ana", "m1", json.dumps(kind)),
            ("prefs.bo", "p1", json.dumps({"editor": "Zed", "n": 3})),
        ]
        db.executemany(
            "INSERT INTO store VALUES(?, ?, ?, '2024-05-01 10:00:00', '2024-05-01 10:00:00')", rows
        )
    db.close()
    assert taken(plain_bank, path, "langgraph") == ["Ana edits in Helix", "Zed"]
    found = plain_bank.find(scope=("memories", "ana"))[0]
    assert found.metadata == {"value": kind, "key": "m1"}
    assert found.created.year == 2024


def test_the_memories_of_a_claude_export(plain_bank: Bank, tmp_path: Path) -> None:
    path = written(
        tmp_path / "memories.json",
        [
            {
                "conversations_memory": "**Work context**\n\nAna leads the data team.\n\nShe writes Rust.",
                "project_memories": {"p-1": "# Style\n\nShort answers."},
                "account_uuid": "a-1",
            }
        ],
    )
    assert taken(plain_bank, path, "claude-memories") == [
        "Ana leads the data team.",
        "She writes Rust.",
        "Short answers.",
    ]
    assert plain_bank.find("leads")[0].title == "Work context"
    assert [memory.text for memory in plain_bank.find(scope={"project": "p-1"})] == ["Short answers."]


def test_the_memory_folder_of_claude_code(plain_bank: Bank, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "MEMORY.md").write_text(
        "- [Build](build.md): how it is built\n- [Tests](tests.md): how they run\n"
    )
    (folder / "build.md").write_text("---\nname: build\ntype: project\n---\nThe build needs make.\n")
    (folder / "tests.md").write_text("The tests run with pytest.\n")
    assert taken(plain_bank, folder, "claude-code") == ["The build needs make.", "The tests run with pytest."]


def test_an_index_that_stands_alone_is_read(plain_bank: Bank, tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "MEMORY.md").write_text("The build needs make.\n")
    assert taken(plain_bank, tmp_path / "memory", "claude-code") == ["The build needs make."]


def test_a_list_of_supermemory(plain_bank: Bank, tmp_path: Path) -> None:
    path = written(
        tmp_path / "export.json",
        {
            "memories": [
                {
                    "id": "m1",
                    "content": "Ana edits in Helix",
                    "containerTags": ["user_ana"],
                    "metadata": {"topic": "tools"},
                    "createdAt": "2026-05-01T10:00:00Z",
                }
            ],
            "pagination": {"currentPage": 1},
        },
    )
    assert taken(plain_bank, path, "supermemory") == ["Ana edits in Helix"]
    assert [memory.tags for memory in plain_bank.find(metadata={"topic": "tools"})] == [
        ("from:supermemory", "user_ana")
    ]


def archive(folder: Path, **files: list[dict[str, Any]]) -> Path:
    folder.mkdir()
    written(folder / "manifest.json", {"cogx_version": "0.1", "source_system": "cognee"})
    for name, records in files.items():
        lines = (json.dumps(record) for record in records)
        (folder / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def test_an_archive_of_cognee(plain_bank: Bank, tmp_path: Path) -> None:
    ana, helix, chunk, node = (f"00000000-0000-0000-0000-00000000000{n}" for n in range(4))
    fact = {"kind": "fact", "object_ref": helix, "predicate": "edits_in"}
    path = archive(
        tmp_path / "cogx",
        entities=[
            {"kind": "entity", "external_id": ana, "name": "Ana", "description": "Ana leads the data team"},
            {"kind": "entity", "external_id": helix, "name": "Helix"},
        ],
        documents=[{"kind": "document", "external_id": chunk, "content": "Ana wrote that she edits in Helix."}],
        facts=[
            {**fact, "external_id": "f1", "subject_ref": ana, "valid_at": "2026-05-01T10:00:00Z"},
            {**fact, "external_id": "f2", "subject_ref": node, "fact_text": "a node of the graph"},
            {**fact, "external_id": "f3", "subject_ref": "Bo", "object_ref": "Zed", "confidence": 0.6},
            {**fact, "external_id": "f4", "subject_ref": chunk, "object_ref": ana, "predicate": "contains"},
        ],
        memories=[{"kind": "memory", "external_id": "m1", "content": "Bo likes tea", "categories": ["taste"],
                   "scope": {"user_id": "bo"}}],
        episodes=[{"kind": "episode", "external_id": "e1", "turns": [
            {"role": "user", "content": "Which editor?"}, {"role": "assistant", "content": "Helix"}]}],
    )  # fmt: skip

    assert taken(plain_bank, path, "cognee") == [
        "Ana edits in Helix",
        "Ana leads the data team",
        "Ana wrote that she edits in Helix.",
        "Bo edits in Zed",
        "Bo likes tea",
        "User: Which editor?\n\nAssistant: Helix",
    ]
    assert [memory.text for memory in plain_bank.find(scope={"user": "bo"})] == ["Bo likes tea"]
    known = plain_bank.find("edits in Helix", kind="fact")[0]
    assert (known.valid_from, plain_bank.find("Zed")[0].confidence) == (1777629600.0, 0.6)
    document = plain_bank.find(kind="document")[0]
    assert [link.rel for link in plain_bank.neighbors(document.id).links] == ["contains"]


def test_a_packed_archive_is_read_as_its_folder_is(plain_bank: Bank, tmp_path: Path) -> None:
    folder = archive(tmp_path / "cogx", memories=[{"external_id": "m1", "content": "Bo likes tea"}])
    packed = tmp_path / "team.cogx.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        for one in sorted(folder.iterdir()):
            tar.add(one, arcname=one.name)

    assert taken(plain_bank, packed, "cognee") == ["Bo likes tea"]


def test_an_archive_that_is_damaged_is_refused_in_words(tmp_path: Path) -> None:
    packed = tmp_path / "team.cogx.tar.gz"
    packed.write_bytes(b"\x1f\x8b cut short")

    with pytest.raises(InvalidInputError, match="cannot be read as a COGX archive"):
        list(read(packed)[1])


def test_an_archive_of_a_later_version_is_refused(tmp_path: Path) -> None:
    folder = archive(tmp_path / "cogx")
    written(folder / "manifest.json", {"cogx_version": "1.0"})

    with pytest.raises(InvalidInputError, match=r"COGX 1\.0; skep reads version 0"):
        list(read(folder)[1])


def test_a_file_in_which_nothing_was_found_is_named_with_what_it_was_taken_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKEP_BANK", str(tmp_path / "bank.skep"))
    path = written(tmp_path / "odd.json", {"a": {"b": 1}})
    result = CliRunner().invoke(app, ["import", str(path)])
    assert "taken for JSON, and nothing to remember was found" in result.output
