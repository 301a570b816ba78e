"""A run that forgets what it summed up is killed in between; the next run finishes it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.lifecycle.maintain import MaintainConfig

CONSOLIDATOR = Path(__file__).with_name("consolidator.py")
TEXT = b"Backup to nas3 failed again, attempt 3"


def killed(path: Path, moment: str) -> None:
    done = subprocess.run([sys.executable, str(CONSOLIDATOR), str(path), moment], check=False)
    assert done.returncode == -signal.SIGKILL


def later(path: Path) -> Bank:
    """The bank after the lease of the killed run has ended."""
    return Bank.open(path, embedder=HashingEmbedder(64), now=lambda: time.time() + 3600)


@pytest.mark.parametrize("moment", ["marked", "repointed", "forgotten"])
def test_the_next_run_forgets_what_a_killed_one_left(bank_path: Path, moment: str) -> None:
    killed(bank_path, moment)
    with later(bank_path) as bank:
        left = [memory.text for memory in bank.find(status=("superseded",), limit=10)]
        assert len(left) == (4 if moment == "marked" else 0)
        planned = bank.maintain(MaintainConfig(steps=("embed",)), dry_run=True)
        assert len(list(bank.find(status=("superseded",), limit=10))) == len(left)
        assert ("would forget 4 episodes" in str(planned)) == bool(left)

        report = bank.maintain(MaintainConfig(steps=("embed",)))

        assert ("forgot 4 episodes" in str(report)) == bool(left)
        assert list(bank.find(status=("superseded",), limit=10)) == []
        [summary] = bank.find(limit=10)
        assert summary.level == 1
        assert not summary.stale
        assert bank.maintain(MaintainConfig(steps=("embed",))).steps[0].step == "embed"
        assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []
    held = [file for file in bank_path.parent.rglob("*") if file.is_file() and TEXT in file.read_bytes()]
    assert not held or TEXT.decode() in summary.text


def test_what_was_restored_after_the_crash_is_not_forgotten(bank_path: Path) -> None:
    killed(bank_path, "marked")
    with later(bank_path) as bank:
        kept = next(iter(bank.find(status=("superseded",), limit=10)))
        bank.restore(kept.id)
        bank.maintain()
        assert bank.get(kept.id).text == kept.text
        assert list(bank.find(status=("superseded",), limit=10)) == []
