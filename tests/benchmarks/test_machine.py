"""`python -m benchmarks.machine` measures, and leaves the user's bank as it was."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import machine as module
from skep.bank.bank import Bank
from skep.cli.app import opener
from skep.errors import InvalidInputError


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", (60, 4))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.skep"
    with Bank.open(path) as bank:
        bank.remember_many(module.texts(30, 5))
    return path


def names(report: module.BenchReport) -> set[str]:
    return {timing.name for timing in report.timings}


def test_without_a_bank_everything_is_measured_in_a_scratch_bank() -> None:
    report = module.run(None)

    assert report.bank is None
    assert {"recall", "remember", "remember, then recall", "embed a question"} <= names(report)
    assert all(timing.wall_p95 >= timing.wall_p50 >= 0 for timing in report.timings)
    assert report.load_per_second > 0


def test_the_users_bank_is_read_and_not_changed(own: Path) -> None:
    before = hashlib.sha256(own.read_bytes()).hexdigest()

    report = module.run(own)

    assert report.memories == 30
    assert "open the bank" in names(report)
    assert hashlib.sha256(own.read_bytes()).hexdigest() == before
    with Bank.open(own, read_only=True) as bank:
        assert bank.status().memories == 30
        assert bank.status().events == 30


def test_a_bank_with_next_to_nothing_in_it_is_refused(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "tiny.skep") as bank:
        bank.remember("One thing")

    with pytest.raises(InvalidInputError, match="too few to measure"):
        module.run(tmp_path / "tiny.skep")


def test_made_up_memories_are_distinct_and_repeat_with_the_seed() -> None:
    made = list(module.texts(500, 3))

    assert len(set(made)) == 500
    assert made == list(module.texts(500, 3))


def test_the_command_prints_a_table_or_json(own: Path) -> None:
    shown = CliRunner().invoke(module.bench, ["--bank", str(own)])
    told = CliRunner().invoke(module.bench, ["--bank", str(own), "--json"])

    assert shown.exit_code == 0, shown.output
    assert "recall by words alone" in shown.output
    assert json.loads(told.output)["memories"] == 30


def test_a_small_bank_found_by_itself_does_not_stop_the_measuring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bank.open(tmp_path / "tiny.skep") as bank:
        bank.remember("One thing")
    monkeypatch.setenv("SKEP_BANK", str(tmp_path / "tiny.skep"))

    result = CliRunner().invoke(module.bench, ["--json"])

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["bank"] is None
    assert "fewer than 5 memories" in result.stderr


def test_scratch_leaves_even_a_named_bank_alone(own: Path) -> None:
    result = CliRunner().invoke(module.bench, ["--bank", str(own), "--scratch", "--json"])

    assert json.loads(result.stdout)["bank"] is None


def test_a_bank_of_short_and_like_texts_is_measured_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "short.skep"
    with Bank.open(path) as bank:
        bank.remember_many([f"a b {number}" for number in range(6)])

    report = module.run(path)

    assert {timing.calls for timing in report.timings if timing.name.startswith("recall")} == {4}


def test_no_question_is_asked_twice() -> None:
    asked = module.questions(["ok"], 50, 1)

    assert len(set(asked)) == len(asked) == 50


def test_nothing_beside_the_bank_is_changed_either(own: Path) -> None:
    def there() -> dict[str, str]:
        files = [file for file in own.parent.rglob("*") if file.is_file()]
        # an empty log and its index are SQLite's way of reading; they hold nothing
        return {
            str(file): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
            if not file.name.endswith(("-wal", "-shm"))
        }

    before = there()
    module.run(own)

    assert there() == before
    assert not (log := own.with_name(own.name + "-wal")).exists() or log.stat().st_size == 0


def test_the_report_says_what_was_measured_with() -> None:
    report = module.run(None)

    assert report.memories == 60
    assert {"skep", "sqlite", "python", "cores", "load", "compiled loops"} <= set(report.machine)


def test_nothing_made_up_is_sent_to_the_service_that_embeds_for_a_bank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_error(503)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("OLLAMA_HOST", f"http://127.0.0.1:{server.server_port}")
    path = tmp_path / "served.skep"
    try:
        with Bank.open(path, embedder="ollama:nomic-embed-text", opener=opener()) as bank:
            bank.remember_many([f"Anna keeps the key of drawer {number}" for number in range(8)])
        report = module.run(path)
    finally:
        server.shutdown()
        server.server_close()

    assert asked  # the questions were
    assert not [text for text in asked if "case k" in text]
    assert report.embedder.startswith("ollama")
    assert any("no made-up memory was sent" in note for note in report.notes)
