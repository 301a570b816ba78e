"""Memories whose files, symbols and versions are gone say so; what never was there is no news."""

from __future__ import annotations

import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.integrations.anchor_check import Verified, verify
from skep.integrations.hooks import standing


def git(root: Path, *words: str, at: float) -> str:
    dates = {name: f"{int(at)} +0000" for name in ("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE")}
    names = {
        f"GIT_{role}_{part}": "x@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for part in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", "-C", str(root), *words],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(root), **dates, **names},
    )
    return done.stdout.strip()


@pytest.fixture
def project(tmp_path: Path, clock: Clock) -> Path:
    """A repository in which things were there when memories were written."""
    root = tmp_path / "shop"
    (root / "src").mkdir(parents=True)
    (root / "src" / "auth.py").write_text("def new_session(user):\n    return reset_cache()\n")
    (root / "src" / "cart.py").write_text("LIMIT = 3  # --fast-path\n")
    (root / "requirements.txt").write_text("numpy==1.26.4\nhttpx>=0.27\n")
    git(root, "init", "-q", "-b", "main", at=clock.now)
    git(root, "add", "-A", at=clock.now)
    git(root, "commit", "-qm", "one", at=clock.now - 3600)
    return root


def change(root: Path, clock: Clock) -> None:
    """Everything that memories name goes away."""
    (root / "src" / "auth.py").unlink()
    (root / "src" / "cart.py").write_text("LIMIT = 3\n")
    (root / "requirements.txt").write_text("numpy==2.1.0\nhttpx>=0.27\n")
    git(root, "add", "-A", at=clock.now)
    git(root, "commit", "-qm", "two", at=clock.now)


def gone(found: Verified) -> list[str]:
    return sorted(one for finding in found.findings for one in finding.gone)


def test_what_was_there_and_is_gone_is_told_and_what_never_was_is_not(
    bank: Bank, project: Path, clock: Clock
) -> None:
    for text in (
        "src/auth.py makes the session",
        "auth.py calls reset_cache() too often",
        "Start it with --fast-path in tests",
        "The wavelet feature needs numpy==1.26.4",
        "src/cart.py holds the limit",
        "src/never.py would be a good place for never_written()",
        "httpx==0.27 is fine",
    ):
        bank.remember(text, on_conflict="ignore")
    assert gone(verify(bank, project)) == []
    clock.pass_days(3)
    change(project, clock)
    found = verify(bank, project)
    assert gone(found) == [
        "file auth.py is gone",
        "file src/auth.py is gone",
        "flag --fast-path is gone",
        "package numpy 1.26.4 is 2.1.0 now",
        "symbol reset_cache is gone",
    ]


def test_a_hit_says_what_is_gone_and_what_was_derived_from_it_is_stale(
    bank: Bank, project: Path, clock: Clock
) -> None:
    source = bank.remember("src/auth.py makes the session").memory
    derived = bank.remember("Sessions are made at login").memory
    bank.link(derived.id, source.id, "derived_from")
    clock.pass_days(3)
    change(project, clock)
    verify(bank, project)

    hit = next(hit for hit in bank.recall("what makes the session?") if hit.memory.id == source.id)
    assert "gone" in hit.flags
    assert "file src/auth.py is gone" in hit.why()
    assert "file src/auth.py is gone" in standing(hit.memory)
    assert bank.get(derived.id).stale
    events = len(bank.history(source.id))
    assert len(verify(bank, project).findings) == 1
    assert len(bank.history(source.id)) == events, "a second pass writes nothing"


def test_what_is_back_is_no_longer_in_doubt(bank: Bank, project: Path, clock: Clock) -> None:
    source = bank.remember("src/auth.py makes the session", metadata={"mine": 1}).memory
    derived = bank.remember("Sessions are made at login").memory
    bank.link(derived.id, source.id, "derived_from")
    clock.pass_days(3)
    change(project, clock)
    verify(bank, project)
    (project / "src" / "auth.py").write_text("def new_session(user): ...\n")

    assert verify(bank, project).back == (source.id,)
    again = bank.get(source.id)
    assert (again.metadata, again.disputes, again.confidence) == ({"mine": 1}, 0, source.confidence)
    assert not bank.get(derived.id).stale


def test_a_commit_that_no_branch_holds_is_told(bank: Bank, project: Path, clock: Clock) -> None:
    (project / "new.txt").write_text("x")
    git(project, "add", "-A", at=clock.now)
    git(project, "commit", "-qm", "later", at=clock.now)
    sha = git(project, "rev-parse", "--short=10", "HEAD", at=clock.now)
    bank.remember(f"The fix for the login is in commit {sha}")
    assert gone(verify(bank, project)) == []
    git(project, "reset", "-q", "--hard", "HEAD~1", at=clock.now)
    assert gone(verify(bank, project)) == [f"commit {sha} is on no branch any more"]


def test_a_pass_is_bounded_and_the_next_one_goes_on(bank: Bank, project: Path, clock: Clock) -> None:
    for number in range(5):
        bank.remember(f"src/auth.py has part {number}", on_conflict="ignore")
    clock.pass_days(3)
    change(project, clock)
    seen: set[str] = set()
    for expected_more in (True, True, False):
        found = verify(bank, project, limit=2)
        seen |= {finding.memory.id for finding in found.findings}
        assert found.more == expected_more
    assert len(seen) == 5


def test_a_dry_run_writes_nothing_and_a_folder_without_git_accuses_nobody(
    bank: Bank, project: Path, clock: Clock, tmp_path: Path
) -> None:
    bank.remember("src/auth.py makes the session")
    clock.pass_days(3)
    change(project, clock)
    before = bank.status().events
    assert len(verify(bank, project, dry_run=True).findings) == 1
    (tmp_path / "plain").mkdir()
    assert verify(bank, tmp_path / "plain").findings == ()
    assert bank.status().events == before


def test_urls_are_asked_for_only_when_online(bank: Bank, project: Path) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(404 if "gone" in self.path else 200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        bank.remember(f"The runbook is at {address}/gone and the plan at {address}/there")
        assert verify(bank, project).findings == ()
        assert gone(verify(bank, project, online=True)) == [f"url {address}/gone answers 404"]
    finally:
        server.shutdown()
        server.server_close()


def test_the_command_and_maintenance_of_a_projects_bank_check_it(project: Path, clock: Clock) -> None:
    path = project / ".skep" / "bank.skep"
    with Bank.open(path, now=clock) as bank:
        bank.remember("src/auth.py makes the session")
    clock.pass_days(3)
    change(project, clock)

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["--bank", str(path), *words])
        return done.exit_code, done.output

    assert run("verify", "--dry-run")[0] == 1
    code, told = run("maintain")
    assert code == 0
    assert "file src/auth.py is gone" in told
    assert "file src/auth.py is gone" in run("search", "session")[1]
