"""Agents in several processes, over a real NATS server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.test_evaluation import ASKED, TURNS
from tests.conftest import Clock
from tests.hub.nats_server import Server

from skep.agent import Agent
from skep.agent.evaluation import compared, evaluate
from skep.agent.intake import Intake
from skep.agent.runner import Runner
from skep.errors import InvalidInputError
from skep.hive import Hive
from skep.hive.bus.nats_bus import NatsBus
from skep.hive.messages import LearnContent, Query
from skep.storage.task_queue import TaskQueue


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "nats")
    yield made
    made.close()


def test_agents_in_three_processes_answer_as_in_one(server: Server) -> None:
    near = evaluate("flat", 6, TURNS, ASKED)
    far = evaluate("distributed", 6, TURNS, ASKED, bus=server.url)
    assert far.memories == len(TURNS)
    assert abs(compared(far, near)[0]) <= 10


def test_a_distributed_layout_needs_a_bus_and_enough_agents(server: Server) -> None:
    with pytest.raises(InvalidInputError, match="needs a bus"):
        evaluate("distributed", 6, TURNS, ASKED)
    with pytest.raises(InvalidInputError, match="3 agents or more"):
        evaluate("distributed", 2, TURNS, ASKED, bus=server.url)


def test_an_agent_is_fed_and_asked_from_another_connection(
    server: Server, tmp_path: Path, clock: Clock
) -> None:
    with Hive.flat(["ana"], name="team", bus=server.url, now=clock) as hive:
        queue = TaskQueue(tmp_path / "ana.sqlite", clock)
        intake = Intake(hive, "ana", queue)
        feeder = NatsBus(server.url, "feeder")
        heard: list[Any] = []
        feeder.subscribe(f"{hive.subjects.root}.feed.all", lambda envelope: heard.append(envelope.frame))
        feeder.publish(
            intake.subject, LearnContent(text="A restore takes 40 minutes.", source="a.md"), id="one"
        )
        feeder.publish(
            intake.subject, LearnContent(text="A restore takes 40 minutes.", source="a.md"), id="one"
        )
        feeder.publish(intake.subject, Query(query="how long does a restore take?"), id="two")
        agent = Agent(hive.agent("ana"), "ana", now=clock)
        runner = Runner(agent, queue, now=clock, intake=intake, notify=intake.answer)
        done = 0
        for _ in range(100):
            done += runner.run(once=True)
            if done == 2:
                break
        assert done == 2
        assert queue.tasks()[0].result["answer"].startswith("\u201cA restore takes 40 minutes")
        queue.close()
        feeder.close()
