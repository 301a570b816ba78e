"""Findings: one value per problem of a workspace, with a code, a place and a way out.

A check collects all findings at once; its caller prints them, refuses (`RefusedError`), or goes on when they are
only warnings. Nothing in this room answers bad input with a stack trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from skep.errors import ConfigError

Severity = Literal["error", "warning"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem: where it is, what is wrong, and how to fix it."""

    code: str
    """The kind of problem, such as `wrong-type`, for programs."""
    file: str
    """Relative to the workspace; empty when it is about no file."""
    path: str = ""
    """The place inside the file, e.g. `queries[3].relevant[0]`; empty when it is the whole file."""
    what: str
    fix: str
    severity: Severity = "error"

    def line(self) -> str:
        """The finding on one line."""
        place = ":".join(part for part in (self.file, self.path) if part) or "workspace"
        return f"{self.severity} [{self.code}] {place}: {self.what}; {self.fix}"


class RefusedError(ConfigError):
    """Something was refused because of findings; nothing was written."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(finding.line() for finding in findings))


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Only those that must be fixed."""
    return tuple(finding for finding in findings if finding.severity == "error")


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise `RefusedError` when there is any error among `findings`."""
    errors = errors_of(findings)
    if errors:
        raise RefusedError(errors)
