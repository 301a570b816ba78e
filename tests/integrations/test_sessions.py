"""Sessions that agents left on disk: read once, with where they came from, and without secrets."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import NotFoundError
from skep.integrations.capture import capture
from skep.integrations.clients import Place
from skep.integrations.hooks import Payload
from skep.integrations.importers.registry import import_items
from skep.integrations.importers.sessions import files, read_sessions, stores
from skep.text.redaction import DEFAULT

ASKED = "Why does the login loop on staging? We use pnpm here, not npm."
ANSWERED = "The cookie had no path; the key was AKIAIOSFODNN7EXAMPLE."


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home = tmp_path / "home"
    home.mkdir()
    return Place(home=home, cwd=tmp_path, platform="linux", environ={})


def lines(path: Path, *entries: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def claude_code(home: Path, then: str = "CI=1 pnpm build") -> Path:
    def said(role: str, content: object, identity: str) -> dict[str, Any]:
        return {"type": role, "uuid": identity, "sessionId": "s1", "cwd": "/w/shop",
                "timestamp": "2026-10-01T10:00:00Z", "message": {"role": role, "content": content}}  # fmt: skip

    def ran(name: str, command: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": command}}

    def ended(name: str, output: str, *, error: bool) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": name, "content": output, "is_error": error}

    return lines(
        home / ".claude" / "projects" / "-w-shop" / "s1.jsonl",
        {"type": "summary", "summary": "login"},
        said("user", ASKED + " <private>hunter2</private>", "u1"),
        said("assistant", [ran("t1", "pnpm build"), ran("t2", then)], "a1"),
        said("user", [ended("t1", "npm ERR! Error: no lockfile", error=True)], "u2"),
        said("user", [ended("t2", "ok", error=False)], "u3"),
        said("assistant", [{"type": "text", "text": ANSWERED}], "a2"),
    )


def codex(home: Path) -> Path:
    name = "01999c3a-1111-7000-8000-00000000abcd"

    def said(role: str, kind: str, text: str) -> dict[str, Any]:
        body = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        return {"timestamp": f"2026-10-01T10:00:0{len(text) % 10}Z", "type": "response_item", "payload": body}

    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-10-01T10:00:05Z", "type": "response_item", "payload": payload}

    failed = json.dumps({"output": "fatal: no upstream branch", "metadata": {"exit_code": 1}})
    fine = json.dumps({"output": "done", "metadata": {"exit_code": 0}})
    return lines(
        home / ".codex" / "sessions" / "2026" / "10" / "01" / f"rollout-2026-10-01T10-00-00-{name}.jsonl",
        {"type": "session_meta", "payload": {"id": name, "cwd": "/w/shop"}},
        said("user", "input_text", "<environment_context>shell: bash</environment_context>"),
        said("user", "input_text", ASKED),
        item(
            type="function_call",
            call_id="c1",
            name="shell",
            arguments='{"command": ["bash", "-lc", "git push"]}',
        ),
        item(type="function_call_output", call_id="c1", output=failed),
        item(
            type="function_call",
            call_id="c2",
            name="shell",
            arguments='{"command": ["git", "push", "-u", "origin"]}',
        ),
        item(type="function_call_output", call_id="c2", output=fine),
        said("assistant", "output_text", ANSWERED),
    )


def gemini(home: Path) -> Path:
    path = home / ".gemini" / "tmp" / "shop" / "chats" / "session-2026-10-01T10-00-abc.jsonl"
    answer = {"id": "m2", "timestamp": "2026-10-01T10:01:00Z", "type": "gemini"}
    return lines(
        path,
        {"sessionId": "g1", "projectHash": "x", "kind": "main"},
        {"id": "m1", "timestamp": "2026-10-01T10:00:00Z", "type": "user", "content": [{"text": ASKED}]},
        {**answer, "content": "Let me look."},
        {**answer, "content": ANSWERED},
    )


def copilot(home: Path) -> Path:
    return lines(
        home / ".copilot" / "session-state" / "p1" / "events.jsonl",
        {"type": "session.start", "id": "e0", "data": {"context": {"cwd": "/w/shop"}}},
        {"type": "user.message", "id": "e1", "timestamp": "2026-10-01T10:00:00Z", "data": {"content": ASKED}},
        {"type": "assistant.message", "id": "e2", "data": {"content": ANSWERED}},
    )


def continue_(home: Path) -> Path:
    folder = home / ".continue" / "sessions"
    lines(folder / "sessions.json", {"not": "a session"})
    history = [
        {"message": {"role": "user", "content": ASKED}},
        {"message": {"role": "assistant", "content": ANSWERED}},
    ]
    return lines(folder / "c1.json", {"sessionId": "c1", "workspaceDirectory": "/w/shop", "history": history})


def cursor(home: Path) -> Path:
    path = home / ".config" / "Cursor" / "User" / "globalStorage" / "state.vscdb"
    path.parent.mkdir(parents=True)
    rows = {
        "composerData:k1": {"fullConversationHeadersOnly": [{"bubbleId": "b1"}, {"bubbleId": "b2"}]},
        "bubbleId:k1:b2": {"type": 2, "text": ANSWERED},
        "bubbleId:k1:b1": {"type": 1, "text": ASKED, "createdAt": "2026-10-01T10:00:00Z"},
    }
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE cursorDiskKV (key TEXT UNIQUE, value BLOB)")
        db.executemany(
            "INSERT INTO cursorDiskKV VALUES (?, ?)", [(k, json.dumps(v)) for k, v in rows.items()]
        )
    db.close()
    return path


def opencode(home: Path) -> Path:
    path = home / ".local" / "share" / "opencode" / "opencode.db"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE session (id TEXT, directory TEXT)")
        db.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
        db.execute("CREATE TABLE part (id TEXT, message_id TEXT, data TEXT)")
        db.execute("INSERT INTO session VALUES ('o1', '/w/shop')")
        for name, role, text in (("m1", "user", ASKED), ("m2", "assistant", ANSWERED)):
            db.execute(
                "INSERT INTO message VALUES (?, 'o1', 1790000000000, ?)", (name, json.dumps({"role": role}))
            )
            part = json.dumps({"type": "text", "text": text})
            db.execute("INSERT INTO part VALUES (?, ?, ?)", (f"p-{name}", name, part))
            db.execute(
                "INSERT INTO part VALUES (?, ?, ?)",
                (f"q-{name}", name, '{"type": "reasoning", "text": "hm"}'),
            )
    db.close()
    return path


MAKERS = {
    "claude-code": claude_code, "codex": codex, "cursor": cursor, "gemini": gemini, "opencode": opencode,
    "copilot": copilot, "continue": continue_,
}  # fmt: skip


def test_every_client_that_is_read_is_tested(place: Place) -> None:
    assert set(stores(place)) == set(MAKERS)


@pytest.mark.parametrize("client", MAKERS)
def test_a_turn_comes_with_its_session_and_message_and_without_secrets(client: str, place: Place) -> None:
    MAKERS[client](place.home)
    read = read_sessions(files(place), DEFAULT)
    [turn] = [one for one in read.items if one.fields.get("kind") == "episode"]

    assert turn.text.startswith("User: Why does the login loop on staging?")
    assert "The cookie had no path" in turn.text
    assert "AKIA" not in turn.text
    assert "hunter2" not in turn.text
    assert turn.fields["source"].startswith(f"{client}:")
    assert turn.fields["metadata"]["message"]
    assert read.redacted["api-key"] == 1
    [rule] = [one for one in read.items if one.links]
    assert (rule.text, rule.links) == ("We use pnpm here, not npm.", (("derived_from", turn.key),))


def test_what_failed_and_then_worked_in_another_form_is_a_lesson(place: Place) -> None:
    claude_code(place.home)
    codex(place.home)
    lessons = [one.text for one in read_sessions(files(place), ()).items if " failed: " in one.text]
    assert sorted(lessons) == [
        "`git push` failed: fatal: no upstream branch. `git push -u origin` worked instead.",
        "`pnpm build` failed: npm ERR! Error: no lockfile. `CI=1 pnpm build` worked instead.",
    ]


def test_another_command_of_the_same_program_is_no_lesson(place: Place) -> None:
    claude_code(place.home, "pnpm list")
    assert not [one for one in read_sessions(files(place), ()).items if " failed: " in one.text]


def test_importing_twice_imports_once_and_a_hook_keeps_nothing_twice(place: Place, bank: Bank) -> None:
    path = claude_code(place.home)
    read = read_sessions(files(place), DEFAULT)
    first = import_items(bank, read.items)
    again = import_items(bank, read_sessions(files(place), DEFAULT).items)
    assert (first.new, first.links) == (3, 1)
    assert (again.new, again.known, again.links) == (0, 3, 0)

    with Bank.open(":memory:") as other:
        payload = Payload(session_id="s1", transcript_path=str(path), cwd="/w/shop")
        assert capture(other, "claude-code", payload).turns == 1
        assert import_items(other, read.items).known == 1


def test_a_dry_run_writes_nothing_and_a_question_is_answered_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude_code(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    bank = tmp_path / "bank.skep"

    def run(*words: str) -> str:
        return CliRunner().invoke(app, ["--bank", str(bank), *words], catch_exceptions=False).output

    planned = run("import", "sessions", "--dry-run")
    assert "claude-code: 1 sessions, 1 turns, 1 rules, 1 lessons" in planned
    assert "new 3" in planned
    assert not bank.exists()
    assert "new 3" in run("import", "sessions", "--from", "claude-code")
    assert "cookie" in run("search", "why did the login loop?")


def test_an_unknown_client_and_an_empty_machine_are_said(place: Place) -> None:
    with pytest.raises(NotFoundError, match="claude-code"):
        files(place, "emacs")
    assert files(place) == []


def test_a_broken_transcript_stops_nobody(place: Place) -> None:
    claude_code(place.home)
    folder = place.home / ".claude" / "projects" / "-w-shop"
    (folder / "s2.jsonl").write_bytes(b'\xff\xfe{"type": "user", [[[')
    (folder / "s3.jsonl").write_text('{"type": "user", "message": {"content": 7}}\n[]\n')
    assert len(read_sessions(files(place), ()).items) == 3
