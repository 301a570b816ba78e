"""A hive over several processes, each with a folder of its own as on a machine of its own, and a real NATS server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub.nats_server import Server

from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive

AGENTS = ("ana", "bob", "cy", "dora")
FACTS = [f"Server number {n} stands in rack {n}." for n in range(24)]
PATIENT = 40.0
MANIFEST = """\
name: {name}
topology: sharded
store: banks
bus: {url}
agents: [{{name: ana}}, {{name: bob}}, {{name: cy}}, {{name: dora}}]
policies: {{replication: 3, deadline: 8.0, hedge_after: 1.5}}
"""
POLICY = HivePolicy(replication=3, deadline=8.0, hedge_after=1.5)
Start = Callable[..., "Process"]


class Process:
    """`skep hive serve` somewhere."""

    def __init__(self, folder: Path, manifest: str, *members: str, join: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        (folder / "hive.yaml").write_text(manifest)
        words = [word for member in members for word in ("--member", member)] + ["--join"] * join
        self.running = subprocess.Popen(
            [sys.executable, "-m", "skep", "hive", "serve", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.running.stdout is not None
        self.said = self.running.stdout.readline()
        assert "answer for" in self.said, self.said + self.running.stdout.read()

    def close(self) -> None:
        if self.running.poll() is None:
            self.running.send_signal(signal.SIGCONT)
            self.running.terminate()
        self.running.communicate(timeout=30)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "nats")
    yield made
    made.close()


@pytest.fixture
def places() -> dict[str, Process]:
    """The process that runs in each place."""
    return {}


@pytest.fixture
def start(server: Server, tmp_path: Path, places: dict[str, Process]) -> Iterator[Start]:
    made: list[Process] = []

    def begin(place: str, *members: str, **options: Any) -> Process:
        manifest = MANIFEST.format(name="team", url=server.url)
        made.append(Process(tmp_path / place, manifest, *members, **options))
        places[place] = made[-1]
        return made[-1]

    yield begin
    for process in made:
        process.close()


@pytest.fixture
def here(server: Server, tmp_path: Path, start: Start) -> Iterator[Hive]:
    """`ana` in this process; bob, cy and dora in two others. Twenty-four facts are known."""
    start("east", "bob")
    start("west", "cy", "dora")
    with Hive.sharded(
        AGENTS, name="team", bus=server.url, local=["ana"], policy=POLICY, store=tmp_path / "here"
    ) as hive:
        for fact in FACTS:
            hive.agent("ana").remember(fact, on_conflict="ignore")
        yield hive


def found(hive: Hive) -> tuple[set[str], Any]:
    answer = hive.agent("ana").recall("server rack", limit=40)
    return {hit.memory.text for hit in answer}, answer


def until(done: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENT
    while not done():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.1)


def test_members_in_three_processes_answer_together(here: Hive) -> None:
    texts, answer = found(here)

    assert texts == set(FACTS)
    assert (answer.completeness, answer.asked, answer.answered, answer.missing) == (1.0, 4, 4, ())
    held = {
        home
        for memory in here.agent("ana").find(limit=50)
        for home in here.layout.copies("", memory.id, broadcast=False)
    }
    assert held == set(AGENTS), "every member keeps some"


def test_a_process_that_hangs_costs_a_deadline_and_its_copies_answer(
    here: Hive, places: dict[str, Process]
) -> None:
    east = places["east"].running
    east.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    texts, answer = found(here)
    took = time.monotonic() - begun
    east.send_signal(signal.SIGCONT)

    assert texts == set(FACTS)
    assert answer.missing == ("bob",)
    assert answer.completeness == 1.0
    assert took < POLICY.deadline + 10
    until(lambda: found(here)[1].missing == ())


def test_a_process_that_is_killed_and_comes_back_has_what_it_missed(
    here: Hive, start: Start, places: dict[str, Process]
) -> None:
    places["east"].running.kill()
    missed = here.agent("ana").remember("The spare key hangs behind the door.", on_conflict="ignore").memory
    texts, answer = found(here)
    assert texts >= set(FACTS)
    assert answer.missing == ("bob",)
    here.agent("ana").forget(next(m.id for m in here.agent("ana").find(limit=50) if m.text == FACTS[3]))

    start("east", "bob")
    until(lambda: found(here)[1].answered == 4)
    texts, answer = found(here)
    assert answer.completeness == 1.0
    assert FACTS[3] not in texts
    assert here.get(missed.id) is not None


def test_an_agent_joins_a_running_hive_from_another_process_and_leaves(
    here: Hive, start: Start, tmp_path: Path
) -> None:
    north = start("north", "eve", join=True)
    assert "eve answer" in north.said
    until(lambda: "eve" in here.layout.members)
    texts, answer = found(here)
    assert texts == set(FACTS)
    assert (answer.asked, answer.answered) == (5, 5)

    with Hive.sharded(AGENTS, name="team", bus=here.bus, local=["ana"], store=tmp_path / "here") as again:
        assert "eve" in again.layout.members, "who starts later knows of it"


def test_the_command_line_asks_the_whole_hive_where_a_member_is_served(
    here: Hive, start: Start, tmp_path: Path
) -> None:
    def skep(*words: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-m", "skep", "hive", *words]
        return subprocess.run(
            command, cwd=tmp_path / "west", env=env, check=False, capture_output=True, text=True
        )

    told = skep("ask", "cy", "server rack", "--limit", "40")
    assert told.returncode == 0, told.stderr
    assert set(FACTS) == {fact for fact in FACTS if fact in told.stdout}
    assert "heard" not in told.stdout
    assert skep("add", "dora", "The gate code changes on Monday.").returncode == 0
    assert "The gate code" in str(here.agent("ana").recall("gate code")[0].memory.text)
    elsewhere = skep("ask", "bob", "server rack")
    assert elsewhere.returncode != 0
    assert "runs elsewhere" in elsewhere.stderr
