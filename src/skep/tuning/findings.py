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

CODES: dict[str, str] = {
    # files
    "no-workspace": "the folder is not a workspace",
    "not-empty": "the folder already holds files that would be overwritten",
    "unreadable": "a file could not be read",
    "not-utf8": "a file is not UTF-8 text",
    "too-large": "a file is over the size limit",
    "malformed-json": "a file is not JSON",
    "too-deep": "JSON nested deeper than any of these files needs",
    "duplicate-key": "an object states a key twice",
    "outside-workspace": "a path leaves the workspace",
    "linked-folder": "a folder is a symbolic link and is not followed",
    "cyclic-link": "a folder links to one of its own parents",
    "missing-file": "a file that is named does not exist",
    "write-failed": "a file could not be written",
    # schema
    "wrong-type": "a value has another type than its field",
    "out-of-range": "a number or length is outside its limits",
    "not-a-choice": "a value is not among those allowed",
    "unknown-key": "a key that nothing reads",
    "missing-key": "a key that must be there is absent",
    "bad-name": "a name with characters that are not allowed in names",
    # documents
    "bad-front-matter": "the front matter of a document cannot be read",
    "bad-field-value": "a field of a document has a value of another type",
    "unknown-field": "a document states a field its collection does not have",
    "empty-document": "a document has no text",
    "unsupported-file": "a document of a type that is not read",
    "missing-extra": "an optional dependency is not installed",
    "no-documents": "a collection without documents",
    # meaning
    "name-differs": "the name inside a file is not the name of the file",
    "duplicate-id": "an id is used twice",
    "unknown-config": "no such config",
    "unknown-collection": "no such collection",
    "cyclic-extends": "configs extend each other in a circle",
    "detection-needs-hybrid": "distraction detection compares words and meaning",
    "min-above-max": "a minimum above its maximum",
    "filter-field-unknown": "a filter on a field that does not exist",
    "filter-field-not-filterable": "a filter on a field that is not filterable",
    "filter-value-unknown": "a filter value that no document has",
    "weights-all-zero": "weights that add up to nothing",
    "k-above-collection": "more results asked for than there are documents",
    "config-refused": "the recall pipeline refuses the config",
    "active-differs": "configs/active.json is not what is deployed",
    # evals
    "made-up": "an eval set leaves out ids or splits, and they were made up",
    "no-evals": "there is nothing to measure with",
    "empty-evals": "an eval set without queries",
    "no-holdout": "no query is held out",
    "no-tune": "no query is there to tune on",
    "document-unknown": "a label names a document that does not exist",
    "label-conflict": "a document is both relevant and a distractor",
    "not-indexed": "the bank does not hold the documents of the workspace",
    # behaviour
    "nudcg-lower": "nUDCG on the holdout fell",
    "distractors-higher": "more distractors on the holdout",
    "abstention-worse": "questions without an answer are answered more often",
    "latency-over-budget": "slower than the budget allows",
    "not-comparable": "two results that were not measured on the same things",
    # deploying and learning
    "reason-needed": "forcing a deployment needs a reason",
    "unknown-version": "no such version",
    "no-change": "that config is deployed already",
    "deployed-meanwhile": "another deployment came first",
    "budget-empty": "a budget that allows no trial",
    "no-traffic": "the bank has recorded nothing that can be learnt from",
}
"""Every code, with what it means in general. A finding says what is wrong in particular."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem: where it is, what is wrong, and how to fix it."""

    code: str
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
