"""Importing into a bank, and auditing without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError
from skep.integrations.audit import audit, junk_of, report
from skep.integrations.importers.chats import is_export
from skep.integrations.importers.item import item
from skep.integrations.importers.registry import Imported, import_items, read

NOW = 1_790_000_000.0


def take_in(bank: Bank, path: Path, *, dry_run: bool = False) -> Imported:
    return import_items(bank, read(path)[1], dry_run=dry_run)


@pytest.fixture
def bank() -> Bank:
    return Bank.open(":memory:")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    lines = [
        {"type": "entity", "name": "Ana", "entityType": "person", "observations": ["likes tea", "rows"]},
        {"type": "entity", "name": "Acme", "entityType": "company", "observations": []},
        {"type": "relation", "from": "Ana", "to": "Acme", "relationType": "works_at"},
        {"type": "relation", "from": "Ana", "to": "nobody", "relationType": "knows"},
    ]
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_an_import_keeps_texts_links_and_provenance(bank: Bank, graph: Path) -> None:
    done = take_in(bank, graph)

    assert done == Imported(new=4, known=0, links=3)
    [ana] = bank.find(tags=["entity", "entity:Ana"])
    assert "works_at" in {link.rel for link in bank.neighbors(ana.id).links}
    assert ana.source == "reference:Ana"


def test_importing_twice_imports_once(bank: Bank, graph: Path) -> None:
    take_in(bank, graph)

    assert take_in(bank, graph) == Imported(new=0, known=4, links=0)


def test_links_that_an_import_was_cut_off_before_are_made_by_the_next(
    bank: Bank, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = bank.engine.write

    def killed(plans: list[Any], **options: Any) -> Any:
        if plans[0][0] == "link":
            raise KeyboardInterrupt
        return write(plans, **options)

    with monkeypatch.context() as patched:
        patched.setattr(bank.engine, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            take_in(bank, graph)

    assert take_in(bank, graph) == Imported(new=0, known=4, links=3)


def test_a_link_that_was_taken_away_since_does_not_come_back(bank: Bank, graph: Path) -> None:
    take_in(bank, graph)
    [ana] = bank.find(tags=["entity", "entity:Ana"])
    [link] = bank.neighbors(ana.id, "works_at").links
    bank.unlink(link.src, link.dst)

    assert take_in(bank, graph).links == 0


def test_what_was_retracted_since_does_not_come_back(bank: Bank, graph: Path) -> None:
    take_in(bank, graph)
    [tea] = bank.find("likes tea")
    bank.retract(tea.id)

    take_in(bank, graph)

    assert list(bank.find("likes tea")) == []


def test_a_dry_run_only_counts(bank: Bank, graph: Path) -> None:
    assert take_in(bank, graph, dry_run=True).new == 4
    assert bank.status().memories == 0


def test_our_own_export_is_recognised(bank: Bank, graph: Path, tmp_path: Path) -> None:
    bank.remember("Ana likes tea")
    bank.export(tmp_path / "export.jsonl")

    assert is_export(tmp_path / "export.jsonl")
    assert not is_export(graph)
    assert not is_export(tmp_path / "missing")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ok", "too little"),
        ("the of and", "too little"),
        ("a3f5" * 12, "a key"),
        ("Traceback (most recent call last):\n  File x", "a log"),
        ('{"a": 1, "name": "something"}', "raw data"),
        ("As an AI language model I prefer not to", "talk about"),
        ("Ana likes tea in the morning", None),
        ("Use `ruff check --fix` before each commit", None),
    ],
)
def test_junk_is_told_from_knowledge(text: str, why: str | None) -> None:
    found = junk_of(text)

    assert found is None if why is None else found is not None and found.startswith(why)


def test_a_title_makes_a_single_word_mean_something() -> None:
    assert junk_of("rows") is not None
    assert junk_of("rows", "Ana") is None


def test_an_audit_finds_each_kind_of_trouble_and_changes_nothing(bank: Bank, tmp_path: Path) -> None:
    entries = [
        {"text": "Use ruff for linting", "created_at": NOW - 86_400},
        {"text": "Never use ruff for linting", "created_at": NOW - 3600},
        {"text": "Ana likes tea in the morning", "created_at": NOW - 400 * 86_400},
        {"text": "ana likes  TEA in the morning"},
        {"text": "The migration is in progress right now", "created_at": NOW - 90 * 86_400},
        {"text": "The certificate expires on 2019-05-01"},
        {"text": "ok"},
        {"text": "Write to ana@example.org about the invoice"},
    ]
    path = tmp_path / "memories.jsonl"
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    before = path.read_bytes()
    source, items = read(path)

    found = audit(items, source=source.name, now=NOW, bank=bank)
    text = report(found)

    assert found.memories == 8
    assert [finding.name for finding in found.duplicates] == ["word for word"]
    assert found.contradictions[0].count == 1
    assert sum(finding.count for finding in found.junk) == 1
    assert sum(finding.count for finding in found.staleness) == 3
    assert "Junk\n  1 (12.5%) too little to mean anything" in text
    assert "1 pair (2 memories, 25.0%) contradict each other" in text
    assert "Never use ruff for linting" in text
    assert [(finding.name, finding.count) for finding in found.secrets] == [("email", 1)]
    assert "ana@example.org" not in text.split("Secrets")[1]
    assert path.read_bytes() == before


def test_an_audit_of_nothing_is_a_report_too(bank: Bank) -> None:
    text = report(audit([], source="jsonl", now=NOW, bank=bank))

    assert text.startswith("No memories found, read as jsonl.")
    assert "--from" in text


def test_many_links_are_few_transactions_and_any_name_of_a_relation_will_do(
    bank: Bank, tmp_path: Path
) -> None:
    people = [
        {"type": "entity", "name": f"p{n}", "entityType": "person", "observations": []} for n in range(300)
    ]
    knows = [
        {"type": "relation", "from": f"p{n}", "to": f"p{n + 1}", "relationType": "knows " * 100}
        for n in range(299)
    ]
    file = tmp_path / "memory.jsonl"
    file.write_text("\n".join(json.dumps(entry) for entry in (*people, *knows, *knows)))
    begun: list[str] = []
    bank.engine.store.connection.trace = lambda sql, _bindings: (
        begun.append(sql) if "BEGIN IMM" in sql else None
    )

    done = take_in(bank, file)

    assert (done.new, done.links) == (300, 299)
    assert len(begun) <= 4


def test_a_file_that_cannot_be_read_makes_no_bank(tmp_path: Path) -> None:
    file = tmp_path / "broken.jsonl"
    file.write_text('{"text": "fine"}\n{"text": ')

    done = CliRunner().invoke(app, ["--bank", str(tmp_path / "new.skep"), "import", str(file)])

    assert isinstance(done.exception, InvalidInputError)
    assert "line 2" in str(done.exception)
    assert not (tmp_path / "new.skep").exists()


def test_shares_are_of_memories_however_many_pairs_there_are(bank: Bank) -> None:
    texts = [f"The gateway listens on port {port}" for port in range(8400, 8410)]
    items = [made for n, text in enumerate(texts) if (made := item(text, origin="file", key=str(n)))]

    found = audit(items, source="text", now=NOW, bank=bank)

    [differing] = found.contradictions
    assert differing.count > found.memories
    assert differing.memories <= found.memories
    assert f"{differing.count} pairs ({differing.memories} memories, 100.0%)" in report(found)


def test_age_alone_is_shown_but_is_no_fault(bank: Bank) -> None:
    old = item("Ana lives in Oslo with her cat", origin="file", key="1", created_at=NOW - 500 * 86_400)
    assert old is not None

    found = audit([old], source="text", now=NOW, bank=bank)

    assert [finding.name for finding in found.staleness] == ["over a year old and never confirmed"]
    assert found.affected == 0
