"""The memory stream over a server: the same `Stream`, whose searches are recalls of a remote bank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from skep.filters import Filter
from skep.recall.memory_stream import Stream

if TYPE_CHECKING:
    from skep.model import Hit, Recalled
    from skep.recall.recaller import Recaller

Call = Callable[[str, Mapping[str, Any]], Any]


class _RemoteRecaller:
    """Answers the searches of a stream."""

    def __init__(self, call: Call, conditions: Mapping[str, Any]) -> None:
        self._call = call
        self._conditions = conditions

    def run(self, query: str, where: Filter, *, limit: int, preset: str, count_uses: bool) -> Recalled:  # noqa: ARG002
        """The hits for one query; `where` says which kinds, and how sure at least."""
        asked = {
            "query": query,
            "limit": limit,
            "preset": preset,
            "kind": list(where.kinds or ()),
            "min_confidence": where.min_confidence,
        }
        return self._call("recall", {**self._conditions, **asked})

    def without_erased(self, hits: tuple[Hit, ...]) -> tuple[Hit, ...]:
        """The hits: what was forgotten at the server since is not known here."""
        return hits


def remote_stream(call: Call, *, scope: Any, include_shared: bool, turns: int, inline: bool) -> Stream:
    """A stream whose searches a server answers."""
    recaller = _RemoteRecaller(call, {"scope": scope, "include_shared": include_shared})
    return Stream(cast("Recaller", recaller), Filter, turns=turns, inline=inline)
