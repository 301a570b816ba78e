"""Object stores as hubs: in memory, and an S3 server where one is installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories

from skep.errors import ConfigError, HubAwayError, SyncError
from skep.hub.hub import START
from skep.hub.hub_urls import open_hub

obstore: Any = pytest.importorskip("obstore")

from obstore.store import LocalStore, MemoryStore  # noqa: E402

from skep.hub.object_store import ObjectHub  # noqa: E402


@given(histories())
def test_it_keeps_the_promises_of_a_hub(history: list[Step]) -> None:
    store = MemoryStore()
    congruence.check(lambda: ObjectHub(store, "memory://"), history)


@settings(max_examples=5)
@given(histories(60))
def test_it_keeps_them_in_long_histories_in_which_segments_are_joined(history: list[Step]) -> None:
    store = MemoryStore()
    congruence.check(lambda: ObjectHub(store, "memory://"), [("append", 0, 1)] * 40 + history)


def test_writers_at_once_lose_nothing() -> None:
    store = MemoryStore()
    congruence.check_writers_at_once(lambda: ObjectHub(store, "memory://"))
    names = [found["path"] for found in obstore.list(store).collect()]
    assert len(names) < 40, "small segments became larger ones"


def test_who_waits_is_woken() -> None:
    store = MemoryStore()
    congruence.check_waiting(lambda: ObjectHub(store, "memory://"))


def test_a_foreign_position_begins_at_the_start() -> None:
    store = MemoryStore()
    congruence.check_foreign_position(lambda: ObjectHub(store, "memory://"))


def test_a_segment_that_nobody_named_is_no_event_and_harms_nobody() -> None:
    store = MemoryStore()
    hub = ObjectHub(store, "memory://")
    hub._put_segment([event("ana", 1)])  # killed between the segment and the manifest
    assert hub.held().count() == 0
    hub.append([event("ana", 1)])
    assert [one.id for one in hub.read(START).events] == ["ana-1"]


def test_a_store_without_conditions_is_refused(tmp_path: Path) -> None:
    hub = ObjectHub(LocalStore(tmp_path), "local://")
    with pytest.raises(SyncError, match="choose another store"):
        hub.append([event("ana", 1)])


def test_a_store_that_is_away_or_wrong_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    with pytest.raises(HubAwayError, match="did not answer"):
        open_hub("s3://bucket/team?region=us-east-1&endpoint=http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="no address"):
        open_hub("s3://bucket/team?regionn=us-east-1")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a new S3 server, as parameters."""
    program = shutil.which("moto_server")
    if program is None:
        pytest.skip("no S3 server: install moto with its server to run this")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    running = subprocess.Popen(
        [program, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(
                    urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
                ).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"region=us-east-1&endpoint=http://127.0.0.1:{port}&access_key_id=x&secret_access_key=y"
    finally:
        running.kill()
        running.wait()


def test_s3_keeps_the_promises_too(s3: str) -> None:
    @settings(max_examples=4)
    @given(histories(12))
    def check(history: list[Step]) -> None:
        url = f"s3://bucket/{uuid4().hex}?{s3}"
        congruence.check(lambda: open_hub(url), history)

    check()
    congruence.check_writers_at_once(lambda: open_hub(f"s3://bucket/at-once?{s3}"), writers=2, batches=5)
    with pytest.raises(SyncError, match="no such bucket"):
        open_hub(f"s3://another/x?{s3}")
