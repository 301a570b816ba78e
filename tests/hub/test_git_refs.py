"""A git repository as a hub: the promises of every hub, two machines, erasing, what people see."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories

from skep.errors import ConfigError, HubAwayError, SyncError
from skep.hub.git_refs import GitRefsHub
from skep.hub.hub import START
from skep.hub.hub_urls import open_hub
from skep.model import Event

if shutil.which("git") is None:
    pytest.skip("git is not installed", allow_module_level=True)


def machines(folder: Path) -> Callable[[], GitRefsHub]:
    """Opens handles of a new repository, on two machines by turns."""
    subprocess.run(["git", "init", "--quiet", "--bare", str(folder / "team.git")], check=True)
    number = count()
    return lambda: GitRefsHub(
        f"file://{folder}/team.git", folder / f"cache{next(number) % 2}", url=f"git+file://{folder}/team.git"
    )


@settings(max_examples=4)
@given(histories(8))
def test_it_keeps_the_promises_of_a_hub(history: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        congruence.check(machines(Path(folder)), history)


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    congruence.check_writers_at_once(machines(tmp_path), writers=2, batches=4)


def test_who_waits_is_woken(tmp_path: Path) -> None:
    congruence.check_waiting(machines(tmp_path))


def test_a_foreign_position_begins_at_the_start(tmp_path: Path) -> None:
    congruence.check_foreign_position(machines(tmp_path))


def test_a_long_log_lies_in_several_files(tmp_path: Path) -> None:
    make = machines(tmp_path)
    one, two = make(), make()
    one.append([event("ana", number) for number in range(1, 2301)])
    one.append([event("ana", 2301)])
    position, found = START, 0
    while events := (batch := two.read(position, 700)).events:
        position, found = batch.position, found + len(events)
    assert found == two.status().events == two.held().count() == 2301


def test_erased_text_is_in_no_copy_and_no_history(tmp_path: Path) -> None:
    make = machines(tmp_path)
    one, two = make(), make()
    one.append([event("ana", 1, "the vault code"), event("ana", 2, "harmless")])
    two.read(START)
    two.append([event("bob", 1, "other words")])
    bare = Event(actor="ana", counter=1, hlc=event("ana", 1).hlc, kind="remember", body={})

    two.erase([Event(actor="bob", counter=2, hlc=9, kind="forget", body={"memories": ["ana-1"]}), bare])
    one.read(START)

    subprocess.run(["git", "-C", str(tmp_path / "team.git"), "gc", "--quiet", "--prune=now"], check=True)
    for repository in ("team.git", "cache0", "cache1"):
        listed = subprocess.run(
            ["git", "-C", str(tmp_path / repository), "cat-file", "--batch-all-objects", "--batch"],
            capture_output=True,
            check=True,
        ).stdout
        assert b"vault" not in listed
        assert b"harmless" in listed
    one.append([event("ana", 3)])
    assert one.held().count() == 4


def test_people_see_the_memories_and_no_branch_is_touched(tmp_path: Path) -> None:
    hub = machines(tmp_path)()
    hub.append([event("ana", 1, "Staging runs\nPostgreSQL 16")])
    refs = subprocess.run(
        ["git", "-C", str(tmp_path / "team.git"), "for-each-ref", "--format=%(refname)"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()
    assert all(ref.startswith("refs/skep/") for ref in refs)
    (log,) = (ref for ref in refs if "/log/" in ref)
    shown = subprocess.run(
        ["git", "-C", str(tmp_path / "team.git"), "show", f"{log}:MEMORIES.md"],
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert "- Staging runs PostgreSQL 16" in shown


def test_errors_say_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(SyncError, match="no git repository"):
        open_hub(f"git+file://{tmp_path}/nowhere.git")
    with pytest.raises(HubAwayError, match="did not answer"):
        open_hub("git+http://127.0.0.1:1/team.git")
    with pytest.raises(ConfigError, match="git\\+ssh"):
        open_hub("git://host/team.git")
