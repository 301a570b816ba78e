"""What a tool may do besides answering: report progress, log, ask the client, notice a withdrawn request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from skep.server.mcp.protocol import (
    INVALID_PARAMS,
    LOG_LEVELS,
    MISSING_CAPABILITY,
    Envelope,
    Params,
    RpcError,
    meta_of,
)

if TYPE_CHECKING:
    from skep.bank import Bank

CAPABILITY_OF = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""What a client must have declared before it may be asked."""


PROGRESS_STEPS: Final = 100
"""How often a client is told of progress at most; more would only be noise on the wire."""


class ToolError(Exception):
    """A failure that the model can act on; its message is what the model reads."""


class Cancelled(Exception):
    """The client withdrew the request; nothing is sent back."""


class InputRequired(Exception):
    """A stateless request that cannot be finished before the client has answered a question."""

    def __init__(self, requests: dict[str, Params], state: str | None = None) -> None:
        self.requests = requests
        self.state = state
        super().__init__("input required")


class Channel(Protocol):
    """The way back to the client that belongs to one request."""

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification."""
        ...

    def request(self, method: str, params: Mapping[str, Any]) -> Params:
        """Ask the client and wait. Only in the session era."""
        ...

    def cancelled(self) -> bool:
        """Whether the client withdrew the request."""
        ...


class _Nowhere:
    """The way back of work that no request waits for."""

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Nobody listens."""

    def request(self, method: str, params: Mapping[str, Any]) -> Params:  # noqa: ARG002
        """Nobody can be asked."""
        raise ToolError(f"{method} cannot be asked here")

    def cancelled(self) -> bool:
        """Nobody withdraws it."""
        return False


NOWHERE: Channel = _Nowhere()


def no_bank() -> Bank:
    """Stands in where a registry of tools does without a bank."""
    raise ToolError("this server has no bank")


class Call:
    """One request in flight."""

    def __init__(
        self,
        *,
        channel: Channel,
        envelope: Envelope,
        params: Params,
        bank: Callable[[Call], Bank],
        log_level: str | None = None,
    ) -> None:
        self.envelope = envelope
        self.params = params
        self.reads = False
        """Whether it only reads; then it must not even make the file of a bank."""
        self.place: str | None = None
        """The file of the bank, whether it is there yet or not."""
        self.touched: set[str] = set()
        """Resources that this call changed; whoever subscribed to them is told afterwards."""
        self._channel = channel
        self._bank = bank
        self._log_level = envelope.log_level if envelope.stateless else log_level
        self._token: object = meta_of(params).get("progressToken")
        self._progress = float("-inf")

    def bank(self) -> Bank:
        """The bank this client works with, opened on first use."""
        return self._bank(self)

    def check(self) -> None:
        """Stop here if the client has withdrawn the request."""
        if self._channel.cancelled():
            raise Cancelled

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is, if it asked; also a point at which a withdrawn call stops."""
        self.check()
        if not isinstance(self._token, int | str) or done <= self._progress:
            return
        if total is not None and done < total and done - self._progress < total / PROGRESS_STEPS:
            return
        self._progress = done
        body: Params = {"progressToken": self._token, "progress": done}
        if total is not None:
            body["total"] = total
        if message is not None:
            body["message"] = message
        self._channel.notify("notifications/progress", body)

    def log(self, level: str, data: Any, logger: str = "skep") -> None:
        """Send a log line to a client that asked for lines of this level."""
        if self._log_level is None or LOG_LEVELS.index(level) < LOG_LEVELS.index(self._log_level):
            return
        self._channel.notify("notifications/message", {"level": level, "logger": logger, "data": data})

    def can_ask(self, method: str) -> bool:
        """Whether the client declared that it answers `method`."""
        return CAPABILITY_OF[method] in self.envelope.capabilities

    @property
    def state(self) -> str | None:
        """What a stateless client handed back from the round before."""
        value: Any = self.params.get("requestState")
        return value if isinstance(value, str) else None

    def answers(self) -> Params:
        """What a stateless client answered to the questions of the round before."""
        value: Any = self.params.get("inputResponses")
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise RpcError(INVALID_PARAMS, "inputResponses must be an object")
        return cast("Params", value)

    def ask(self, key: str, method: str, params: Params, *, state: str | None = None) -> Params:
        """Ask the client one question, in whichever way its era allows.

        In the session era this waits for the answer. In the stateless era the first round ends with the
        question, and the client repeats the request with the answer in it.

        Raises:
            RpcError: The client did not declare that it answers such questions.
            InputRequired: Stateless, and not answered yet.
        """
        if not self.can_ask(method):
            name = CAPABILITY_OF[method]
            raise RpcError(
                MISSING_CAPABILITY,
                f"this needs a client with the capability {name!r}",
                {"requiredCapabilities": {name: {}}},
            )
        if not self.envelope.stateless:
            return self._channel.request(method, params)
        answer: Any = self.answers().get(key)
        if isinstance(answer, dict):
            return cast("Params", answer)
        raise InputRequired({key: {"method": method, "params": params}}, state)
