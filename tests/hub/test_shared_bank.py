"""A bank opened by the address of its hub is a bank like any other: several machines write and read it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from skep import Bank
from skep.config import BANK_NAME
from skep.errors import BankNotFoundError, ConfigError, HubAwayError, SyncError
from skep.hub.folder import FolderHub
from skep.hub.hub import START
from skep.hub.hub_urls import replica_file
from skep.hub.replica import LocalReplica
from skep.hub.shared_bank import SharedBank

Open = Callable[..., SharedBank]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/hub"


@pytest.fixture
def machine(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens the bank as another machine would: with a home of its own."""
    opened: list[Bank] = []

    def open_(name: str, options: str = "mode=hub", **more: Any) -> SharedBank:
        monkeypatch.setenv("HOME", str(tmp_path / name))
        bank = Bank.open(f"{url}#{options}&name={name}", **more)
        opened.append(bank)
        return bank  # type: ignore[return-value]

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    yield open_
    for bank in opened:
        bank.close()


def eventually(check: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.05)


def test_what_one_machine_writes_another_recalls(machine: Open) -> None:
    laptop = machine("laptop")
    laptop.remember("Staging runs PostgreSQL 16")

    server = machine("server")

    assert server.recall("which postgres is on staging?")[0].memory.text == "Staging runs PostgreSQL 16"
    assert isinstance(server, Bank)
    assert repr(server).startswith("Bank('file://")


def test_an_open_bank_follows_what_others_write(machine: Open) -> None:
    laptop, server = machine("laptop"), machine("server")
    memory = laptop.remember("The deploy is on Fridays").memory
    eventually(lambda: any(found.id == memory.id for found in server.find()))


def test_a_bank_with_a_bound_on_staleness_reads_what_was_written_a_moment_ago(machine: Open) -> None:
    laptop, server = machine("laptop"), machine("server", "mode=hub&stale=0")
    memory = laptop.remember("The deploy is on Fridays").memory
    assert server.get(memory.id).text == "The deploy is on Fridays"


def test_in_mode_local_a_write_waits_for_nobody_and_is_sent_when_the_hub_is_back(
    machine: Open, tmp_path: Path
) -> None:
    laptop = machine("laptop", "mode=local")
    (tmp_path / "hub").rename(tmp_path / "away")
    (tmp_path / "hub").write_text("a file in the place of the folder")

    memory = laptop.remember("Written on a train").memory

    with pytest.raises(HubAwayError):
        laptop.replica.push()  # type: ignore[union-attr]
    status = laptop.replica.status()  # type: ignore[union-attr]
    assert (status.behind, status.unsent) == (None, 1)
    assert "mounted" in status.why
    laptop.close()
    (tmp_path / "hub").unlink()
    (tmp_path / "away").rename(tmp_path / "hub")
    machine("laptop", "mode=local").close()
    assert machine("server").get(memory.id).text == "Written on a train"


def test_in_mode_hub_a_write_that_the_hub_has_not_got_is_an_error_and_is_kept(
    machine: Open, tmp_path: Path
) -> None:
    server = machine("server", "mode=hub")
    (tmp_path / "hub").rename(tmp_path / "away")
    (tmp_path / "hub").write_text("a file in the place of the folder")

    with pytest.raises(HubAwayError, match="do not write it again"):
        server.remember("Written while the hub is away")
    assert [memory.text for memory in server.find()] == ["Written while the hub is away"]

    (tmp_path / "hub").unlink()
    (tmp_path / "away").rename(tmp_path / "hub")
    server.remember("Written afterwards")
    assert len(machine("laptop").find()) == 2


def test_forgetting_reaches_the_hub_the_snapshot_and_names_who_has_not_confirmed(
    machine: Open, url: str, tmp_path: Path
) -> None:
    laptop, server = machine("laptop"), machine("server")
    secret = laptop.remember("The vault code is 4711").memory
    other = laptop.remember("The deploy is on Fridays").memory
    server.replica.sync()  # type: ignore[union-attr]
    server.revise(secret.id, text="The vault code is 4712")
    assert server.replica.refresh_snapshot(always=True)  # type: ignore[union-attr]
    laptop.replica.sync()  # type: ignore[union-attr]

    receipt = laptop.forget(secret.id)

    assert any("server" in line for line in receipt.unreached)
    everything = b"".join(path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file())
    assert b"vault" not in everything
    assert FolderHub(tmp_path / "hub").status().snapshot is None

    server.replica.sync()  # type: ignore[union-attr]
    laptop.replica.sync()  # type: ignore[union-attr]

    assert laptop.replica.unconfirmed() == {}  # type: ignore[union-attr]
    assert [memory.id for memory in server.find()] == [other.id]
    server.close()
    file = Path(replica_file(url, {"HOME": str(tmp_path / "server")}))
    assert b"vault" not in file.read_bytes()


def test_what_was_written_offline_about_something_forgotten_leaves_no_text_at_the_hub(
    machine: Open, tmp_path: Path
) -> None:
    laptop, train = machine("laptop"), machine("train", "mode=local")
    secret = laptop.remember("The vault code is 4711").memory
    train.replica.sync()  # type: ignore[union-attr]
    file = train.file
    train.close()
    with Bank.open(file) as offline:
        offline.revise(secret.id, text="The vault code is 4712")
    laptop.forget(secret.id)

    train = machine("train", "mode=local")
    train.replica.sync()  # type: ignore[union-attr]

    everything = b"".join(path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file())
    assert b"vault" not in everything
    laptop.replica.sync()  # type: ignore[union-attr]
    assert train.find().memories == laptop.find().memories == ()


def test_a_hub_that_lost_everything_gets_it_back_from_the_replicas(machine: Open, tmp_path: Path) -> None:
    laptop, server = machine("laptop"), machine("server")
    kept = {laptop.remember("One").memory.id, server.remember("Two").memory.id}
    server.replica.sync()  # type: ignore[union-attr]
    shutil.rmtree(tmp_path / "hub")
    FolderHub(tmp_path / "hub")

    server.replica.sync()  # type: ignore[union-attr]

    assert {memory.id for memory in machine("new").find()} == kept


def test_a_hub_that_lost_its_last_events_gets_them_back(machine: Open, tmp_path: Path) -> None:
    laptop = machine("laptop")
    laptop.remember("One")
    (log,) = (tmp_path / "hub/log").glob("*.jsonl")
    short = log.read_bytes()
    lost = laptop.remember("Two").memory
    log.write_bytes(short)
    other = machine("other").remember("Three").memory

    laptop.replica.sync()  # type: ignore[union-attr]

    assert {lost.id, other.id} <= {memory.id for memory in machine("new").find()}
    assert {lost.id, other.id} <= {memory.id for memory in laptop.find()}


def test_a_new_replica_starts_from_the_snapshot(machine: Open, tmp_path: Path) -> None:
    laptop = machine("laptop")
    laptop.remember_many([f"Fact number {number} stands here" for number in range(300)])
    laptop.replica.refresh_snapshot(always=True)  # type: ignore[union-attr]
    late = laptop.remember("Written after the snapshot").memory

    new = machine("new")

    assert new.status().memories == 301
    assert new.get(late.id).text == "Written after the snapshot"
    assert new.actor != laptop.actor
    assert new.backups() == []
    position = new.replica.position  # type: ignore[union-attr]
    assert position != START
    assert new.replica.unsent().count() == 0  # type: ignore[union-attr]


def test_replicas_that_are_no_more_can_be_retired(machine: Open) -> None:
    laptop, old = machine("laptop"), machine("old")
    memory = laptop.remember("A secret").memory
    old.close()
    laptop.replica.sync()  # type: ignore[union-attr]
    laptop.forget(memory.id)
    ((actor, name),) = [
        (actor, entry.name)
        for actor, entry in laptop.replica.replicas().items()
        if actor != laptop.actor  # type: ignore[union-attr]
    ]
    assert name == "old"
    assert laptop.replica.unconfirmed() == {memory.id: (f"old ({actor})",)}  # type: ignore[union-attr]

    laptop.replica.retire(actor)  # type: ignore[union-attr]

    assert laptop.replica.unconfirmed() == {}  # type: ignore[union-attr]


def test_a_hub_of_another_bank_is_refused_and_left_as_it_is(tmp_path: Path, url: str) -> None:
    hub = FolderHub(tmp_path / "hub")
    hub.claim("somebody-else")
    with Bank.open(tmp_path / "mine.skep") as bank:
        bank.remember("Mine alone")
        with pytest.raises(SyncError, match="belongs to another bank"):
            LocalReplica(bank, lambda: FolderHub(tmp_path / "hub"), url=url).sync()
        assert hub.held().count() == 0

        LocalReplica(bank, lambda: FolderHub(tmp_path / "hub"), url=url, join=True).sync()
        assert hub.held().count() == 1


def test_opening_a_bank_that_is_not_there_creates_nothing_unless_asked(
    tmp_path: Path, url: str, machine: Open
) -> None:
    with pytest.raises(BankNotFoundError, match="first memory"):
        machine("laptop", create=False)
    with pytest.raises(HubAwayError, match="mounted"):
        Bank.open(f"file://{tmp_path}/no/such/folder")


def test_a_view_of_the_past_needs_no_hub(machine: Open) -> None:
    bank = machine("laptop")
    memory = bank.remember("Staging runs PostgreSQL 16").memory
    past = bank.as_of(bank.engine.now() + 1)
    assert past.get(memory.id).text == memory.text


def test_a_read_only_bank_catches_up_once_and_writes_nothing(machine: Open) -> None:
    memory = machine("laptop").remember("Staging runs PostgreSQL 16").memory
    reader = machine("reader", read_only=True)
    assert reader.get(memory.id).text == memory.text


WRITER = """
import sys
from skep import Bank
with Bank.open(sys.argv[1]) as bank:
    for number in range(10_000):
        print(bank.remember(f"Fact {number} of {sys.argv[2]}", on_conflict="ignore").memory.id, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_writers_that_are_killed_lose_nothing_that_was_acknowledged(
    machine: Open, url: str, tmp_path: Path
) -> None:
    acknowledged: set[str] = set()
    for turn in range(2):
        running = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, f"{url}#mode=hub", name],
                env={**os.environ, "HOME": str(tmp_path / name)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for name in ("one", "two")
        ]
        for process in running:
            for _ in range(15 + 3 * turn):
                acknowledged.add(process.stdout.readline().strip())  # type: ignore[union-attr]
            process.kill()
            acknowledged |= {line.strip() for line in process.stdout if line.endswith("\n")}  # type: ignore[union-attr]
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]

    found = {memory.id for memory in machine("new").find(limit=10_000)}

    assert acknowledged <= found
    assert BANK_NAME in replica_file(url, os.environ)


@pytest.mark.parametrize(
    "address", ["file:///x\x00", "file:///\ud800", "https://h/\x1b[2J", "ssh://-oProxyCommand=x/y"]
)
def test_an_address_that_is_none_is_refused_in_words(address: str) -> None:
    with pytest.raises(ConfigError):
        Bank.open(address)
