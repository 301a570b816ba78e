"""A bank as the hub of others: directly, over a stream as `ssh` has it, and over HTTP from `skep serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories

from skep import Bank
from skep.errors import ConfigError, HubAwayError, SyncError
from skep.hub.bank_hub import BankHub
from skep.hub.hub_urls import open_hub
from skep.hub.ssh import SshHub


@settings(max_examples=8)
@given(histories())
def test_a_bank_keeps_the_promises_of_a_hub(history: list[Step]) -> None:
    with TemporaryDirectory() as folder, Bank.open(Path(folder) / "bank.skep") as bank:
        congruence.check(lambda: BankHub(bank), history)


def served(file: Path) -> Callable[[], SshHub]:
    """Opens lines to a bank file, without `ssh`."""
    command = [sys.executable, "-m", "skep", "--bank", str(file), "sync", "serve"]
    return lambda: SshHub(command, url=f"ssh://host{file}")


@settings(max_examples=1)
@given(histories(12))
def test_a_stream_keeps_the_promises_of_a_hub(history: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        congruence.check(served(Path(folder) / "bank.skep"), history)


def test_writers_over_streams_lose_nothing(tmp_path: Path) -> None:
    congruence.check_writers_at_once(served(tmp_path / "bank.skep"), writers=2, batches=3)


def test_who_waits_at_the_end_of_a_stream_is_woken(tmp_path: Path) -> None:
    congruence.check_waiting(served(tmp_path / "bank.skep"))


@pytest.mark.skipif(os.name == "nt", reason="needs a shell script")
def test_an_address_of_ssh_opens_the_bank_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\ntest "$1" = -p && test "$2" = 2222 || exit 255\nshift 3\nexec sh -c "$1"\n')
    script.chmod(0o755)
    skep = tmp_path / "skep"
    skep.write_text(f'#!/bin/sh\nexec {sys.executable} -m skep "$@"\n')
    skep.chmod(0o755)
    monkeypatch.setenv("SKEP_SSH", str(script))
    monkeypatch.setenv("HOME", str(tmp_path / "laptop"))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    url = f"ssh://ana@host:2222{tmp_path}/bank.skep?skep={skep}"
    with Bank.open(url) as bank:
        memory = bank.remember("Staging runs PostgreSQL 16").memory
    with Bank.open(tmp_path / "bank.skep") as there:
        assert there.get(memory.id).text == "Staging runs PostgreSQL 16"

    with pytest.raises(SyncError, match="not installed there"):
        open_hub(f"ssh://ana@host:2222{tmp_path}/bank.skep?skep=/no/such/skep")
    with pytest.raises(HubAwayError, match="did not answer"):
        open_hub(f"ssh://ana@host{tmp_path}/bank.skep?skep={skep}")
    with pytest.raises(ConfigError, match="names no bank"):
        open_hub("ssh://host")


def test_a_server_keeps_the_promises_of_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn")
    from tests.server.http_server import Running

    names = iter(range(1000))
    with Running(tmp_path, names=tuple(f"bank{number}" for number in range(12))) as server:

        def url(name: str, token: str = server.owner) -> str:
            return f"http://:{token}@127.0.0.1:{server.port}/{name}"

        @settings(max_examples=3)
        @given(histories())
        def check(history: list[Step]) -> None:
            name = f"bank{next(names)}"
            congruence.check(lambda: open_hub(url(name)), history)

        check()
        congruence.check_writers_at_once(lambda: open_hub(url("bank10")), writers=3, batches=5)
        congruence.check_waiting(lambda: open_hub(url("bank11")))

        reader, _ = server.tokens.add("reader", rights=("read",))
        with pytest.raises(SyncError, match="manage"):
            open_hub(url("bank10", reader)).append([event("ana", 1)])
        with pytest.raises(SyncError, match="token"):
            open_hub(url("bank10", "wrong"))
        with pytest.raises(SyncError, match="has no bank"):
            open_hub(url("nowhere"))
        with pytest.raises(ConfigError, match="names no bank"):
            open_hub(f"http://127.0.0.1:{server.port}/")
    with pytest.raises(HubAwayError):
        open_hub(url("bank10"))
