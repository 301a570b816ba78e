"""Intake: what is fed to an agent over the bus of its hive, put into its queue before it is acknowledged.

LEARN_CONTENT, QUERY and FEED_COMPLETE become tasks; a message that comes twice is one task. Answers go back over the
bus. So an agent whose hive spans machines is fed from any of them. `skep agent run` uses it where the hive has a bus.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skep.agent.runner import AskIt, FedUp, Learn, Work, put
from skep.hive.bus.bus import safe_part
from skep.hive.messages import AgentReady, Envelope, FeedComplete, LearnContent, Query, QueryResponse
from skep.hive.traces import carried

if TYPE_CHECKING:
    from skep.hive.hive import Hive
    from skep.storage.task_queue import Task, TaskQueue

AT_ONCE = 100


class Intake:
    """Fetches what the bus holds for one agent."""

    def __init__(self, hive: Hive, agent: str, queue: TaskQueue) -> None:
        self._hive, self._agent, self._queue = hive, agent, queue
        root, name = hive.subjects.root, safe_part(agent)
        self.subject = f"{root}.feed.{name}"
        self._everybody = f"{root}.feed.all"
        self._reader = hive.bus.follow(f"{hive.name}/{name}/tasks", f"{root}.feed.>")

    def __call__(self) -> int:
        """Put what has come into the queue; how many tasks that were."""
        taken = 0
        for delivery in self._reader.fetch(AT_ONCE):
            envelope = delivery.envelope
            work = self._work(envelope) if envelope.subject in (self.subject, self._everybody) else None
            if work is not None:
                with carried(envelope.trace):
                    put(
                        self._queue,
                        work,
                        key=f"bus/{envelope.id or f'{delivery.position}-{envelope.sent_at}'}",
                    )
                taken += 1
            delivery.ack()
        return taken

    def _work(self, envelope: Envelope) -> Work | None:
        match envelope.frame:
            case LearnContent(text=text, source=source):
                return Learn(text=text, source=source or "feed", feed=self.subject)
            case Query(query=question):
                return AskIt(question=question)
            case FeedComplete(expected=expected) if self._agent in expected:
                return FedUp(feed=self.subject, expected=expected[self._agent])
            case _:
                return None

    def answer(self, task: Task) -> None:
        """Publish what became of a task: an answer, or that all of a feed is learnt."""
        result: dict[str, Any] = task.result or {}
        with carried(task.trace):
            if task.kind == "ask" and task.status == "done":
                cited: list[str] = result["citations"]
                hits = tuple((memory, "") for memory in cited)
                said = QueryResponse(agent=self._agent, hits=(("", result["answer"]), *hits))
                self._hive.bus.publish(self._everybody, said)
            elif task.kind == "feed_complete" and task.status == "done":
                self._hive.bus.publish(
                    self._everybody, AgentReady(agent=self._agent, learnt=result["learnt"])
                )
