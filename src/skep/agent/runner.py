"""Runner: an agent as a process. It takes tasks from its queue, does each, and reports its health.

Tasks are `learn` (a text), `ask` (a question), `feed_complete` (how many texts of a feed there should be) and `tick`
(upkeep). A task is leased while it is worked on: when the process dies, the next one takes it again, and none of them
does harm when it is done twice. A model that is away puts the task off; a task that cannot be done is kept with what
was wrong, and the queue goes on. `skep agent run` starts it.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from skep.clock import Now, system_now
from skep.errors import (
    BudgetError,
    BusyError,
    ConfigError,
    InvalidInputError,
    LLMError,
    SkepError,
    WrongTypeError,
)
from skep.hive.traces import carried, current_trace, tracer

if TYPE_CHECKING:
    from skep.agent.agent import Agent
    from skep.storage.task_queue import Task, TaskQueue


LEASE = 30.0
"""Seconds that a task is held unless it is prolonged."""
ATTEMPTS = 5
FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
KEPT = 7 * 86_400.0
"""Seconds for which finished tasks are kept."""
IDLE = 0.5
"""Seconds between two looks into an empty queue."""

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Learn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="learn", tag_field="kind"
):
    """Learn from a text."""

    text: Text
    source: Text
    feed: str | None = None


class AskIt(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ask", tag_field="kind"
):
    """Answer a question."""

    question: Text


class FedUp(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag="feed_complete",
    tag_field="kind",
):
    """All texts of a feed were sent; wait until as many are learnt."""

    feed: Text
    expected: Annotated[int, msgspec.Meta(ge=0)]


class Tick(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="tick", tag_field="kind"
):
    """Keep the bank clean."""


Work = Learn | AskIt | FedUp | Tick


def work_of(given: object) -> Work:
    """Checked work from a mapping with `kind`.

    >>> work_of({"kind": "ask", "question": "where is the backup?"})
    AskIt(question='where is the backup?')
    """
    try:
        return msgspec.convert(given, Work)  # type: ignore[arg-type]
    except msgspec.ValidationError as error:
        raise InvalidInputError(f"that is no task of an agent: {error}", field="task") from error


def put(queue: TaskQueue, work: Work, *, key: str | None = None) -> Task:
    """Add work to a queue; it carries the trace of whoever sends it."""
    body: dict[str, Any] = msgspec.to_builtins(work)
    kind = body.pop("kind")
    return queue.put(kind, body, key=key, trace=current_trace() or secrets.token_hex(8))


class _Incomplete(Exception):
    """A feed has not come as a whole yet."""


class Runner:
    """Works through the queue of one agent.

    Args:
        agent: Who does the work.
        queue: Its tasks.
        owner: The name of this process among those that may take from the queue.
        lease: Seconds that a task is held unless it is prolonged.
        attempts: How often a task is tried.
        now: The clock.
        intake: Fetches tasks from elsewhere into the queue before each look; see `skep.agent.intake`.
        notify: Told of each task that ended.
    """

    def __init__(
        self,
        agent: Agent,
        queue: TaskQueue,
        *,
        owner: str | None = None,
        lease: float = LEASE,
        attempts: int = ATTEMPTS,
        now: Now = system_now,
        intake: Callable[[], int] | None = None,
        notify: Callable[[Task], None] | None = None,
    ) -> None:
        self.agent, self.queue = agent, queue
        self.owner = owner or f"{os.getpid()}-{secrets.token_hex(4)}"
        self._lease, self._attempts, self._now = lease, attempts, now
        self._intake, self._notify = intake, notify
        self._stop = threading.Event()
        self._working: Task | None = None
        self._problem = ""
        self.started = now()

    def stop(self) -> None:
        """End after the task that is worked on. May be called from a signal handler."""
        self._stop.set()

    def run(self, *, tick: float | None = None, once: bool = False) -> int:
        """Work until stopped, or with `once` until nothing is left to do now; how many tasks ended.

        Args:
            tick: Seconds between two rounds of upkeep.
            once: End when the queue is empty.
        """
        ended = 0
        self.queue.purge(self._now() - KEPT)
        while not self._stop.is_set():
            if tick is not None:
                turn = int(self._now() // tick)
                put(self.queue, Tick(), key=f"tick/{tick:g}/{turn}")
            worked = self.step()
            if worked is not None:
                ended += worked.status in ("done", "failed")
            elif once:
                break
            else:
                self._stop.wait(IDLE)
        return ended

    def step(self) -> Task | None:
        """Do one task; what became of it, or None if there is none now."""
        if self._intake is not None:
            try:
                self._intake()
                self._problem = ""
            except SkepError as error:  # what is in the queue can be done all the same
                self._problem = str(error)
        task = self.queue.take(self.owner, self._lease)
        if task is None:
            return None
        self._working = task
        try:
            with (
                carried(task.trace),
                tracer.span("agent.task", agent=self.agent.name, kind=task.kind, task=task.id),
                self._held(task),
            ):
                self._do(task)
        finally:
            self._working = None
        done = self.queue.get(task.id)
        if self._notify is not None and done.status in ("done", "failed"):
            self._notify(done)
        return done

    def health(self) -> dict[str, Any]:
        """How it is doing, for whoever looks after it."""
        counts = self.queue.counts()
        working = self._working
        llm = self.agent.llm
        return {
            "agent": self.agent.name,
            "ok": not self._stop.is_set() and not self._problem,
            "problem": self._problem,
            "stopping": self._stop.is_set(),
            "working_on": None if working is None else {"task": working.id, "kind": working.kind},
            "seconds": round(self._now() - self.started, 3),
            "tasks": counts,
            "llm": None if llm is None else llm.name,
            "spent": None if llm is None else msgspec.to_builtins(llm.spent),
        }

    @contextmanager
    def _held(self, task: Task) -> Generator[None]:
        """Prolong the lease of a task while it is worked on."""
        over = threading.Event()

        def beat() -> None:
            while not over.wait(self._lease / 3):
                self.queue.prolong(task, self.owner, self._lease)

        thread = threading.Thread(target=beat, name="skep-lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _do(self, task: Task) -> None:
        """Do a task and say what became of it."""
        if task.attempts > self._attempts:
            why = f"it was taken {task.attempts - 1} times and never finished; {task.error or 'its process died'}"
            self.queue.fail(task, self.owner, why)
            return
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(20, task.attempts - 1 + task.put_off))
        try:
            result = self._result(work_of({"kind": task.kind, **task.body}))
        except _Incomplete as missing:
            self._again(task, str(missing), wait)
        except BudgetError as error:
            self.queue.fail(task, self.owner, f"{error}; then `skep agent retry` takes it up again")
        except LLMError as error:
            (self._put_off if error.passing else self._again)(task, str(error), wait)
        except BusyError as error:
            self._put_off(task, str(error), wait)
        except (InvalidInputError, WrongTypeError, ConfigError) as error:  # the same tomorrow
            self.queue.fail(task, self.owner, str(error))
        except SkepError as error:
            self._again(task, str(error), wait)
        except Exception as error:  # noqa: BLE001 - a process starts here: one bad task does not end it
            self._again(task, f"{type(error).__name__}: {error}", wait)
        else:
            self.queue.finish(task, self.owner, result)

    def _again(self, task: Task, error: str, wait: float) -> None:
        if task.attempts >= self._attempts:
            self.queue.fail(task, self.owner, error)
        else:
            self.queue.put_back(task, self.owner, error, wait)

    def _put_off(self, task: Task, error: str, wait: float) -> None:
        """What is away comes back: the try does not count."""
        self.queue.put_back(task, self.owner, error, wait, counts=False)

    def _result(self, work: Work) -> dict[str, Any]:
        match work:
            case Learn():
                told = self.agent.learn_from_content(work.text, work.source)
                return {
                    "facts": [each.id for each in told.facts],
                    "known": told.known,
                    "rejected": len(told.rejected),
                    "quarantined": [each.id for each in told.quarantined],
                    "how": told.how,
                    "tokens": told.spent.tokens,
                }
            case AskIt():
                found = self.agent.answer(work.question)
                return {
                    "answer": found.text,
                    "known": found.known,
                    "citations": [each.memory for each in found.citations],
                    "near": [each.memory for each in found.near],
                    "unsupported": list(found.unsupported),
                    "how": found.how,
                    "tokens": found.spent.tokens,
                }
            case FedUp():
                return self._fed(work)
            case Tick():
                report = self.agent.bank.maintain()
                self.queue.purge(self._now() - KEPT)
                return {"changed": report.changed}

    def _fed(self, work: FedUp) -> dict[str, Any]:
        counts = self.queue.of_feed(work.feed)
        learnt, failed = counts.get("done", 0), counts.get("failed", 0)
        if learnt + failed < work.expected:
            raise _Incomplete(
                f"of {work.expected} texts of feed {work.feed!r} {learnt} are learnt, {failed} failed"
            )
        return {
            "expected": work.expected,
            "learnt": learnt,
            "failed": failed,
            "complete": learnt >= work.expected,
        }


@contextmanager
def health_server(runner: Runner, port: int, host: str = "127.0.0.1") -> Generator[int]:
    """Serve `/health` as JSON while the block runs: 200 while it works, 503 while it does not. Gives the port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/health":
                self.send_error(404)
                return
            health = runner.health()
            body = json.dumps(health).encode()
            self.send_response(200 if health["ok"] else 503)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: it is asked every few seconds."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="skep-health", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
