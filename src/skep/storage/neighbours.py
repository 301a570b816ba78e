"""The rows around a row in the time of its scope."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_SCOPED = "(n.scope_user IS NOT NULL OR n.scope_project IS NOT NULL OR n.scope_session IS NOT NULL)"
_NEIGHBOUR = (
    "(SELECT n.row FROM memories n INDEXED BY memories_scope WHERE n.scope_user IS m.scope_user AND n.scope_project IS"
    " m.scope_project AND n.scope_session IS m.scope_session AND "
    + _SCOPED.replace("n.", "")
    + " AND (n.created_at, n.row) {compare} (m.created_at, m.row) ORDER BY n.created_at {order}, n.row {order} LIMIT 1"
    " OFFSET {skip})"
)


def around(
    of_rows: Callable[[str, Sequence[int]], list[tuple[Any, ...]]],
    rows: Sequence[int],
    window: int,
    seconds: float,
) -> dict[int, tuple[list[int], list[int]]]:
    """See `Reads.around`; `of_rows` runs a statement over the rows that it names as `:rows`."""
    wanted = ", ".join(
        _NEIGHBOUR.format(compare=compare, order=order, skip=skip)
        for compare, order in (("<", "DESC"), (">", "ASC"))
        for skip in range(window)
    )
    scoped = _SCOPED.replace("n.", "m.")
    found = of_rows(f"SELECT m.row, {wanted} FROM memories m WHERE m.row IN (:rows) AND {scoped}", rows)
    if not found:
        return {}
    every = list({row for line in found for row in line if row is not None})
    sql = "SELECT row, created_at, agent, kind, forgotten FROM memories WHERE row IN (:rows)"
    about = {row: rest for row, *rest in of_rows(sql, every)}
    return {
        row: (_walk(row, near[:window], about, seconds), _walk(row, near[window:], about, seconds))
        for row, *near in found
    }


def _walk(
    start: int, near: Sequence[int | None], about: Mapping[int, Sequence[Any]], seconds: float
) -> list[int]:
    """How far one may walk from a row along its neighbours."""
    last, _, kind, _ = about[start]
    walked: list[int] = []
    for row in near:
        if row is None:
            break
        at, _, its_kind, forgotten = about[row]
        if abs(at - last) > seconds or its_kind != kind or forgotten:
            break
        walked.append(row)
        last = at
    return walked
