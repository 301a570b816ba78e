"""Which rows a filter admits, apart from what depends on the time of asking."""

from __future__ import annotations

from skep.storage.base import Filter, IndexRow


def admits(where: Filter, row: IndexRow) -> bool:
    """Whether a row passes the parts of a filter that do not depend on the time of asking."""
    if row.status not in where.statuses:
        return False
    if where.kinds and row.kind not in where.kinds:
        return False
    if where.domains and row.domain not in where.domains:
        return False
    if where.agents and row.agent not in where.agents:
        return False
    if any(not set(group).intersection(row.tags) for group in where.tags):
        return False
    if where.since is not None and row.created_at < where.since:
        return False
    if where.until is not None and row.created_at >= where.until:
        return False
    if where.scope is None:
        return True
    parts = zip((row.user, row.project, row.session), _scope_parts(where), strict=True)
    if all(wanted in ("*", part) for part, wanted in parts):
        return True
    return where.include_shared and (row.user, row.project, row.session) == (None, None, None)


def _scope_parts(where: Filter) -> tuple[str | None, str | None, str | None]:
    scope = where.scope
    return (None, None, None) if scope is None else (scope.user, scope.project, scope.session)
