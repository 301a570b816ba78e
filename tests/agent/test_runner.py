"""The runner: every task is finished or taken again, whatever dies, is away or makes no sense."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import Clock
from tests.llm.chat_server import Busy, ChatServer, chat_server

from skep.agent import Agent
from skep.agent.intake import Intake
from skep.agent.runner import AskIt, FedUp, Learn, Runner, Tick, health_server, put, work_of
from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError, NotFoundError
from skep.hive import Hive
from skep.hive.messages import FeedComplete, LearnContent, Query
from skep.hive.traces import carried
from skep.llm import Budget, open_llm
from skep.storage.task_queue import TaskQueue

TEXT = "The nightly backup goes to nas3. A restore takes 40 minutes."


@pytest.fixture
def queue(tmp_path: Path, clock: Clock) -> Iterator[TaskQueue]:
    opened = TaskQueue(tmp_path / "tasks" / "ana.sqlite", clock)
    yield opened
    opened.close()


@pytest.fixture
def runner(bank: Bank, queue: TaskQueue, clock: Clock) -> Runner:
    return Runner(Agent(bank, "ana", now=clock), queue, now=clock)


def test_tasks_are_done_in_their_order(runner: Runner, queue: TaskQueue, bank: Bank) -> None:
    put(queue, Learn(text=TEXT, source="notes.md"))
    asked = put(queue, AskIt(question="how long does a restore take?"))
    put(queue, Tick())
    assert runner.run(once=True) == 3
    assert queue.counts() == {"waiting": 0, "taken": 0, "done": 3, "failed": 0}
    result = queue.get(asked.id).result
    assert result["known"]
    assert "40 minutes" in result["answer"]
    assert bank.get(result["citations"][0])


def test_the_text_of_what_was_learnt_does_not_stay_in_the_queue(
    runner: Runner, queue: TaskQueue, tmp_path: Path
) -> None:
    task = put(queue, Learn(text="The vault code is kept by Bo.", source="notes.md"))
    runner.run(once=True)
    assert queue.get(task.id).body == {"source": "notes.md", "feed": None}


def test_a_feed_is_complete_when_all_of_its_texts_are_learnt(
    runner: Runner, queue: TaskQueue, clock: Clock
) -> None:
    put(queue, Learn(text=TEXT, source="a.md", feed="day1"))
    end = put(queue, FedUp(feed="day1", expected=2))
    runner.run(once=True)
    assert queue.get(end.id).status == "waiting"
    assert "of 2 texts of feed 'day1' 1 are learnt" in str(queue.get(end.id).error)
    put(queue, Learn(text="The key is with Bo.", source="b.md", feed="day1"))
    for _ in range(2):  # it is older than the text that it waits for
        clock.pass_seconds(60)
        runner.run(once=True)
    assert queue.get(end.id).result == {"expected": 2, "learnt": 2, "failed": 0, "complete": True}


def test_a_feed_that_never_comes_as_a_whole_fails_with_what_is_missing(
    runner: Runner, queue: TaskQueue, clock: Clock
) -> None:
    end = put(queue, FedUp(feed="day1", expected=3))
    for _ in range(6):
        runner.run(once=True)
        clock.pass_seconds(1000)
    assert queue.get(end.id).status == "failed"
    assert "of 3 texts" in str(queue.get(end.id).error)


def test_a_task_of_a_dead_process_is_taken_again_and_the_dead_one_cannot_finish_it(
    runner: Runner, queue: TaskQueue, clock: Clock
) -> None:
    task = put(queue, Learn(text=TEXT, source="a.md"))
    taken = queue.take("dead", lease=30)
    assert taken is not None
    assert runner.step() is None
    clock.pass_seconds(31)
    assert runner.step() is not None
    assert queue.get(task.id).status == "done"
    assert not queue.finish(taken, "dead", {})
    assert not queue.prolong(taken, "dead", 30)


def test_what_kills_its_process_again_and_again_is_set_aside(
    runner: Runner, queue: TaskQueue, clock: Clock
) -> None:
    task = put(queue, Learn(text=TEXT, source="a.md"))
    after = put(queue, AskIt(question="what is left?"))
    for _ in range(5):
        assert queue.take("dead", lease=30) is not None
        clock.pass_seconds(31)
    runner.run(once=True)
    assert queue.get(task.id).status == "failed"
    assert "never finished" in str(queue.get(task.id).error)
    assert queue.get(after.id).status == "done"
    assert queue.retry(task.id).status == "waiting"
    runner.run(once=True)
    assert queue.get(task.id).status == "done"


def test_a_model_that_is_away_puts_tasks_off_and_the_rest_goes_on(
    bank: Bank, queue: TaskQueue, clock: Clock, chat: ChatServer
) -> None:
    chat.says = [Busy(503)]
    llm = open_llm("openai:m", base_url=chat.url, sleep=lambda _seconds: None)
    runner = Runner(Agent(bank, "ana", llm=llm, now=clock), queue, now=clock)
    asked = put(queue, AskIt(question="how long does a restore take?"))
    upkeep = put(queue, Tick())
    for _ in range(20):
        runner.run(once=True)
        clock.pass_seconds(400)
    assert queue.get(upkeep.id).status == "done"
    waiting = queue.get(asked.id)
    assert (waiting.status, waiting.attempts) == ("waiting", 0)
    assert "503" in str(waiting.error)
    chat.says = [json.dumps({"known": False})]
    runner.run(once=True)
    assert queue.get(asked.id).status == "done"


def test_a_model_that_talks_nonsense_fails_the_task_and_not_the_queue(
    bank: Bank, queue: TaskQueue, clock: Clock, chat: ChatServer
) -> None:
    chat.says = ["I am a teapot"]
    llm = open_llm("openai:m", base_url=chat.url, sleep=lambda _seconds: None)
    runner = Runner(Agent(bank, "ana", llm=llm, now=clock), queue, now=clock)
    task = put(queue, Learn(text=TEXT, source="a.md"))
    for _ in range(6):
        runner.run(once=True)
        clock.pass_seconds(400)
    assert queue.get(task.id).status == "failed"
    assert "no usable JSON" in str(queue.get(task.id).error)
    assert list(bank.find(kind="fact")) == []


def test_a_budget_that_is_used_up_fails_tasks_at_no_cost(
    bank: Bank, queue: TaskQueue, clock: Clock, chat: ChatServer
) -> None:
    chat.says = [json.dumps({"known": False})]
    llm = open_llm("openai:m", base_url=chat.url, budget=Budget(max_calls=1))
    runner = Runner(Agent(bank, "ana", llm=llm, now=clock), queue, now=clock)
    ids = [put(queue, AskIt(question=f"what is {n}?")).id for n in range(4)]
    runner.run(once=True)
    assert [queue.get(i).status for i in ids] == ["done", "failed", "failed", "failed"]
    assert "skep agent retry" in str(queue.get(ids[1]).error)
    assert len(chat.asked) == 1


@pytest.mark.parametrize(
    "given",
    [{"kind": "dance"}, {"kind": "learn"}, {"kind": "learn", "text": "", "source": "a"}, {}, 7,
     {"kind": "feed_complete", "feed": "a", "expected": -1}, {"kind": "ask", "question": "a", "more": 1}],
)  # fmt: skip
def test_what_is_no_task_is_refused_before_it_is_queued(given: object) -> None:
    with pytest.raises(InvalidInputError, match="no task"):
        work_of(given)


def test_a_task_that_somebody_wrote_by_hand_and_is_none_fails_alone(runner: Runner, queue: TaskQueue) -> None:
    bad = queue.put("dance", {"with": "me"})
    good = put(queue, Tick())
    runner.run(once=True)
    assert (queue.get(bad.id).status, queue.get(good.id).status) == ("failed", "done")
    with pytest.raises(NotFoundError):
        queue.get(999)


@given(st.lists(st.sampled_from(["take", "die", "finish", "later"]), max_size=30))
def test_no_task_is_lost_whatever_order_things_happen_in(steps: list[str]) -> None:
    clock = Clock()
    queue = TaskQueue(":memory:", clock)
    put(queue, Tick(), key="a")
    put(queue, Tick(), key="b")
    held: list[Any] = []
    for step in steps:
        if step == "take" and (task := queue.take("me", lease=10)) is not None:
            held.append(task)
        elif step == "die":
            held.clear()
        elif step == "finish" and held:
            queue.finish(held.pop(), "me", {})
        elif step == "later":
            clock.pass_seconds(11)
    clock.pass_seconds(11)
    while (task := queue.take("last", lease=10)) is not None:
        assert queue.finish(task, "last", {})
    assert queue.counts() == {"waiting": 0, "taken": 0, "done": 2, "failed": 0}
    queue.close()


def test_a_task_with_a_key_is_one_task(queue: TaskQueue) -> None:
    assert put(queue, Tick(), key="a").id == put(queue, Tick(), key="a").id
    assert put(queue, Tick()).id != put(queue, Tick()).id


def test_what_is_fed_over_the_bus_becomes_tasks_once_and_is_answered(tmp_path: Path, clock: Clock) -> None:
    with Hive.flat(["ana", "bob"], now=clock) as hive:
        queue = TaskQueue(tmp_path / "ana.sqlite", clock)
        intake = Intake(hive, "ana", queue)
        runner = Runner(
            Agent(hive.agent("ana"), "ana", now=clock), queue, now=clock, intake=intake, notify=intake.answer
        )
        heard: list[Any] = []
        hive.bus.subscribe(f"{hive.subjects.root}.feed.all", lambda envelope: heard.append(envelope.frame))
        with carried("trace-1"):
            hive.bus.publish(intake.subject, LearnContent(text=TEXT, source="a.md"), id="m1")
            hive.bus.publish(intake.subject, LearnContent(text=TEXT, source="a.md"), id="m1")
            hive.bus.publish(intake.subject, FeedComplete(expected={"ana": 1}), id="m2")
            hive.bus.publish(intake.subject, Query(query="how long does a restore take?"), id="m3")
        hive.bus.publish(f"{hive.subjects.root}.feed.bob", Query(query="not for ana"), id="m4")
        assert runner.run(once=True) == 3
        assert {task.trace for task in queue.tasks()} == {"trace-1"}
        hive.bus.settle(wait=5.0)  # type: ignore[attr-defined]
        said = [frame for frame in heard if type(frame).__name__ in ("QueryResponse", "AgentReady")]
        assert [type(frame).__name__ for frame in said] == ["AgentReady", "QueryResponse"]
        assert "40 minutes" in said[1].hits[0][1]
        queue.close()


def test_health_is_served_and_says_when_it_stops(runner: Runner, queue: TaskQueue) -> None:
    put(queue, Tick())
    with health_server(runner, 0) as port:
        health = json.loads(fetched(port))
        assert health["ok"]
        assert (health["agent"], health["tasks"]["waiting"]) == ("ana", 1)
        runner.stop()
        with pytest.raises(urllib.error.HTTPError, match="503") as caught:
            fetched(port)
        caught.value.close()


def fetched(port: int) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as response:
        return response.read()


# From the shell, with processes


def call(path: Path, *args: str) -> Result:
    if not path.exists():
        Bank.open(path).close()  # a bank that is named on the command line is not made by the way
    return CliRunner().invoke(app, ["agent", args[0], "--bank", str(path), *args[1:]])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    file = tmp_path / "notes.md"
    file.write_text(TEXT)
    return file


def test_learn_and_ask_from_the_shell(tmp_path: Path, notes: Path) -> None:
    bank = tmp_path / "b.skep"
    assert "2 facts" in call(bank, "learn", str(notes)).output
    assert "1 passages were known" in call(bank, "learn", str(notes)).output
    asked = call(bank, "ask", "how long does a restore take?")
    assert "40 minutes" in asked.output
    unknown = json.loads(call(bank, "ask", "who won the cup in 1974?", "--json").output)
    assert unknown["known"] is False


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["ask", "x", "--max-money", "1"], "belong to --llm"),
        (["ask", "x", "--llm", "nothing:x"], "no language model"),
        (["ask", "x", "--name", "../x"], "--name must be"),
        (["ask", "x", "--hive", "no.yaml"], "--bank or --hive"),
        (["send", "learn"], "say what to learn"),
        (["send", "feed-complete", "f"], "--expected"),
        (["tasks", "7"], "no task 7"),
    ],
)
def test_what_makes_no_sense_on_the_command_line_is_told(tmp_path: Path, args: list[str], told: str) -> None:
    result = call(tmp_path / "b.skep", *args)
    assert result.exit_code != 0
    assert told in result.output + str(result.exception)


def started(path: Path, *args: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "skep", "agent", "run", "--bank", str(path), *args]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ.copy()
    )


def test_a_killed_run_loses_nothing_and_the_next_one_goes_on(tmp_path: Path, notes: Path) -> None:
    bank = tmp_path / "b.skep"
    asked = threading.Event()

    def hangs(_prompt: str) -> str:
        asked.set()
        release.wait(60)
        return "{}"

    release = threading.Event()
    with chat_server() as chat:
        chat.says = [hangs]
        assert call(bank, "send", "learn", str(notes)).exit_code == 0
        model = ["--llm", "openai:m", "--llm-url", chat.url]
        first = started(bank, *model, "--lease", "1")
        assert asked.wait(60)
        first.send_signal(signal.SIGKILL)
        first.communicate()
        release.set()
        assert json.loads(call(bank, "tasks", "1", "--json").output)["status"] == "taken"
        second = started(bank, "--lease", "1")
        assert second.stdout is not None
        assert "task 1: learn, done: 2 facts" in second.stdout.readline()
        second.send_signal(signal.SIGTERM)
        _, said = second.communicate(timeout=60)
    assert second.returncode == 0
    assert "stopped after 1 tasks" in said
    with Bank.open(bank) as opened:
        assert len(list(opened.find(kind="fact"))) == 2


def test_two_runs_share_a_queue_and_do_each_task_once(tmp_path: Path) -> None:
    bank = tmp_path / "b.skep"
    with Bank.open(bank):
        pass
    with_path = bank.with_name("b.skep.tasks") / "agent.sqlite"
    queue = TaskQueue(with_path, lambda: 1.0e9)
    for n in range(30):
        put(queue, Learn(text=f"The lamp in room {n} is {n} years old.", source=f"{n}.md"))
    queue.close()
    runs = [started(bank, "--once") for _ in range(2)]
    done = [run.communicate(timeout=120)[0].count("done") for run in runs]
    assert sum(done) == 30
    with Bank.open(bank) as opened:
        assert len(list(opened.find(kind="fact", limit=100))) == 30


def test_a_member_of_a_hive_runs_from_its_manifest(tmp_path: Path, notes: Path) -> None:
    manifest = tmp_path / "hive.yaml"
    manifest.write_text(
        "name: team\ntopology: federated\nstore: banks\ngroups: [{name: infra}, {name: people}]\n"
        "agents: [{name: ana, group: infra}, {name: bob, group: people}]\n"
    )

    def agent(*args: str) -> str:
        result = CliRunner().invoke(app, ["agent", args[0], "--hive", str(manifest), *args[1:]])
        assert result.exit_code == 0, result.output
        return result.output

    agent("send", "learn", str(notes), "--name", "ana")
    assert "2 facts" in agent("run", "--once", "--name", "ana")
    assert "40 minutes" in agent("ask", "how long does a restore take?", "--name", "bob")
