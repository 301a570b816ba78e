"""A bank that may be read but not written: read as it is, refused in words that help, and written again later."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skep import Bank

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="a root's powers are given up as Linux does it"
)
POWERS = (1, 2, 3)
"""To write, to read and to change what permissions forbid."""


def without_powers() -> None:
    """In a child: permissions count, also for root."""
    libc = ctypes.CDLL(None)
    for power in POWERS:
        libc.prctl(24, power, 0, 0, 0)


def call(code: str, path: Path) -> str:
    """What some lines print about a bank, in a process for which permissions count."""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        preexec_fn=without_powers,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def refuses(path: Path) -> bool:
    """Whether permissions count in such a process."""
    return "PermissionError" in call(
        "import sys\ntry:\n    open(sys.argv[1], 'ab')\nexcept OSError as error:\n    print(type(error).__name__)",
        path,
    )


READ = """
import sys
from skep import Bank
with Bank.open(sys.argv[1]) as bank:
    print(bank.recall("when do deploys happen")[0].memory.text)
    try:
        bank.remember("something new")
    except Exception as error:
        print(type(error).__name__, error)
    print([finding.fix for finding in bank.doctor() if finding.level != "ok"])
"""
OPEN = """
import sys
from skep import Bank
try:
    Bank.open(sys.argv[1])
except Exception as error:
    print(error)
"""
WRITE = """
import sys
from skep import Bank
with Bank.open(sys.argv[1]) as bank:
    bank.remember("something new")
    print(bank.status().memories, [finding.check for finding in bank.doctor() if finding.level != "ok"])
"""


@pytest.fixture
def locked(bank_path: Path) -> Path:
    """A bank of one memory whose file may not be written."""
    with Bank.open(bank_path) as bank:
        bank.remember("Deploys happen on Tuesdays")
    bank_path.chmod(0o400)
    if not refuses(bank_path):
        pytest.skip("permissions do not count here")
    return bank_path


def test_a_file_that_cannot_be_written_is_read_and_later_written_again(locked: Path) -> None:
    text, refusal, findings = call(READ, locked).splitlines()
    assert text == "Deploys happen on Tuesdays"
    assert refusal.startswith("ReadOnlyError")
    assert "permissions" in refusal
    assert f"chmod u+w {locked}'" in findings
    locked.chmod(0o600)
    with contextlib.suppress(FileNotFoundError):
        assert os.stat(f"{locked}-shm").st_mode & 0o200 == 0  # what the reader left behind
    assert call(WRITE, locked).strip() == "2 []"


def test_a_bank_in_a_folder_that_cannot_be_written_is_searched_and_the_folder_is_named(locked: Path) -> None:
    locked.parent.chmod(0o500)
    try:
        said = call(READ, locked)
        assert said.startswith("Deploys happen on Tuesdays")
        assert "those of its folder" in said
        assert "choose a folder" in call(OPEN, locked.with_name("new.skep"))
    finally:
        locked.parent.chmod(0o700)
