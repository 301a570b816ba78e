"""The folder as a hub: the promises of every hub, cut-off lines, files that a service copied, lost folders."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories

from skep.errors import ConfigError, DiskFullError, HubAwayError, SyncError
from skep.hub.folder import FolderHub
from skep.hub.hub import START
from skep.hub.hub_urls import open_hub, options_of, shown


@given(histories())
def test_it_keeps_the_promises_of_a_hub(history: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        names = iter(range(1000))
        congruence.check(lambda: FolderHub(Path(folder) / "hub", writer=f"host{next(names) % 2}"), history)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    congruence.check_writers_at_once(lambda: FolderHub(tmp_path / "hub"))


def test_who_waits_is_woken(tmp_path: Path) -> None:
    congruence.check_waiting(lambda: FolderHub(tmp_path / "hub"))


def test_a_foreign_position_begins_at_the_start(tmp_path: Path) -> None:
    congruence.check_foreign_position(lambda: FolderHub(tmp_path / "hub"))


def test_an_append_that_was_cut_off_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub", writer="host")
    hub.append([event("ana", 1)])
    with (tmp_path / "hub/log/host.jsonl").open("ab") as file:
        file.write(b'{"actor":"ana","counter":2,"bo')

    assert hub.wait(hub.read(START).position, 0.01) is False
    hub.append([event("ana", 3)])

    assert [one.id for one in hub.read(START).events] == ["ana-1", "ana-3"]
    assert "1 damaged line" in hub.status().note


def test_a_second_copy_of_a_file_that_a_service_made_is_read_too(tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub", writer="host")
    hub.append([event("ana", 1)])
    position = hub.read(START).position
    shutil.copy(tmp_path / "hub/log/host.jsonl", tmp_path / "hub/log/host.sync-conflict.jsonl")
    other = FolderHub(tmp_path / "hub", writer="host.sync-conflict")
    other._own = tmp_path / "hub/log/host.sync-conflict.jsonl"
    other.append([event("bob", 1)])

    assert "bob-1" in [one.id for one in hub.read(position).events]


def test_a_folder_that_was_emptied_is_a_new_log_and_is_read_from_the_start(tmp_path: Path) -> None:
    hub = FolderHub(tmp_path / "hub")
    hub.append([event("ana", 1)])
    before = hub.read(START)
    shutil.rmtree(tmp_path / "hub")

    with pytest.raises(HubAwayError, match="mounted"):
        hub.read(before.position)

    again = FolderHub(tmp_path / "hub")
    again.append([event("bob", 1)])
    after = again.read(before.position)
    assert after.log != before.log
    assert [one.id for one in after.events] == ["bob-1"]


def test_a_full_disk_is_told_and_loses_nothing(small_disk: Callable[[str], Path]) -> None:
    hub = FolderHub(small_disk("64k") / "hub")
    stored: set[str] = set()
    with pytest.raises(DiskFullError, match="free some space"):  # noqa: PT012
        for number in range(1, 1000):
            hub.append([event("ana", number, "x" * 1000)])
            stored.add(f"ana-{number}")
    small_disk("1m")
    hub.append([event("ana", 2000)])

    assert {f"{actor}-{counter}" for actor, counter in hub.held().dots()} >= stored | {"ana-2000"}


@pytest.mark.skipif(os.name == "nt", reason="paths of POSIX")
def test_addresses_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    hub = open_hub(f"file://{tmp_path}/hub#mode=hub&stale=5")
    assert hub.url == f"file://{tmp_path}/hub"
    assert options_of("file:///x#stale=2").mode == "local"
    assert shown("postgresql://ana:pw@h/db?x=1#stale=2") == "postgresql://ana@h/db?x=1"
    with pytest.raises(ConfigError, match="did you mean 'file'"):
        open_hub("fil:///x")
    with pytest.raises(ConfigError, match="did you mean 'stale'"):
        options_of("file:///x#stail=2")
    with pytest.raises(ConfigError, match="mode=local"):
        options_of("file:///x#stale=soon")
    with pytest.raises(ConfigError, match="three slashes"):
        open_hub("file://team/x")
    with pytest.raises(HubAwayError, match="mounted"):
        open_hub(f"file://{tmp_path}/no/such/hub")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/hub.json").write_text('{"format":"x","log":"y"}')
    with pytest.raises(SyncError, match="no hub of skep"):
        open_hub(f"file://{tmp_path}/other")
