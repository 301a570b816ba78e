from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.tuning.document_index import (
    IndexReport,
    data_version,
    index,
    indexed,
    read_sources,
    source_version,
    watch,
)
from skep.tuning.findings import RefusedError
from skep.tuning.workspace import Workspace, load

from .conftest import Write


def run(bank: Bank, folder: Path) -> IndexReport:
    workspace = load(folder)
    return index(bank, read_sources(workspace, workspace.collections["kb"]))


def test_chunks_become_documents_with_fields_as_tags(bank: Bank, folder: Path) -> None:
    report = run(bank, folder)
    chunk = indexed(bank, "kb")["api/keys.md#revoke"]

    assert (report.added, report.documents) == (11, 5)
    assert chunk.kind == "document"
    assert chunk.tags == ("collection:kb", "category:api", "rank:1")
    assert chunk.metadata["path"] == "api/keys.md"
    assert chunk.title == "API keys › Revoke"


def test_indexing_twice_writes_nothing_the_second_time(bank: Bank, folder: Path) -> None:
    first = run(bank, folder)
    events = bank.status().events
    second = run(bank, folder)

    assert (second.added, second.changed, second.removed, second.unchanged) == (0, 0, 0, first.chunks)
    assert bank.status().events == events
    assert first.data == second.data == data_version(bank, "kb")


def test_only_what_changed_is_written_and_its_memory_keeps_its_id(
    bank: Bank, folder: Path, write: Write
) -> None:
    run(bank, folder)
    before = indexed(bank, "kb")
    text = (folder / "documents/api/keys.md").read_text()
    write("documents/api/keys.md", text.replace("Revoke a key.", "Revoke a key within ten seconds."))
    report = run(bank, folder)
    after = indexed(bank, "kb")

    assert (report.added, report.changed, report.removed) == (0, 1, 0)
    assert after["api/keys.md#revoke"].id == before["api/keys.md#revoke"].id
    assert "ten seconds" in after["api/keys.md#revoke"].text


def test_a_changed_field_changes_the_tags_of_every_chunk(bank: Bank, folder: Path, write: Write) -> None:
    run(bank, folder)
    text = (folder / "documents/api/jobs.md").read_text()
    write("documents/api/jobs.md", text.replace("category: api", "category: guide"))

    assert run(bank, folder).changed == 2
    assert "category:guide" in indexed(bank, "kb")["api/jobs.md#cancel"].tags


def test_what_is_removed_from_the_folder_leaves_recall_and_can_come_back(
    bank: Bank, folder: Path, write: Write
) -> None:
    run(bank, folder)
    text = (folder / "documents/faq/login.md").read_text()
    os.unlink(folder / "documents/faq/login.md")
    removed = run(bank, folder)

    assert removed.removed == 1
    assert not [
        hit
        for hit in bank.recall("reset the password", limit=20)
        if hit.memory.source == "faq/login.md#sign-in"
    ]
    write("documents/faq/login.md", text)
    assert run(bank, folder).added == 1


def test_the_bank_of_a_workspace_may_hold_other_memories(bank: Bank, folder: Path) -> None:
    bank.remember("The office is in Oslo")
    run(bank, folder)
    os.unlink(folder / "documents/faq/login.md")
    run(bank, folder)

    assert [memory.text for memory in bank.find(kind="fact")] == ["The office is in Oslo"]


def test_a_document_with_an_error_writes_nothing(bank: Bank, folder: Path, write: Write) -> None:
    write("documents/bad.md", "---\nrank: high\n---\ntext")

    with pytest.raises(RefusedError):
        run(bank, folder)
    assert bank.status().memories == 0


def test_the_source_version_says_what_the_data_version_will_be(bank: Bank, workspace: Workspace) -> None:
    sources = read_sources(workspace, workspace.collections["kb"])

    assert data_version(bank, "kb") != source_version(sources)
    assert index(bank, sources).data == source_version(sources)


def test_watching_acts_at_once_and_then_only_on_changes(folder: Path, write: Write) -> None:
    seen: list[str] = []

    def wait(seconds: float) -> None:
        seen.append(f"wait {seconds:g}")
        if len(seen) == 4:
            write("documents/new.md", "new text")

    watch(folder, lambda: seen.append("index"), interval=2, sleep=wait, rounds=4)

    assert seen == ["index", "wait 2", "wait 2", "wait 2", "index"]


def test_progress_reaches_its_total(bank: Bank, workspace: Workspace) -> None:
    steps: list[tuple[int, int]] = []
    index(
        bank, read_sources(workspace, workspace.collections["kb"]), progress=lambda *step: steps.append(step)
    )

    assert steps[-1] == (11, 11)


def test_a_field_comes_from_the_folder_where_the_document_does_not_state_it(
    bank: Bank, folder: Path, write: Write
) -> None:
    fields = {"category": {"type": "keyword", "filterable": True, "from_folder": True}}
    write("collections/kb.json", {"name": "kb", "folder": "guides", "fields": fields})
    write("documents/guides/faqs/plain.md", "Reset the password in the console.")
    write("documents/guides/faqs/own.md", "---\ncategory: legal\n---\nWe keep logs for a year.")
    run(bank, folder)

    assert "category:faqs" in indexed(bank, "kb")["guides/faqs/plain.md"].tags
    assert "category:legal" in indexed(bank, "kb")["guides/faqs/own.md"].tags
