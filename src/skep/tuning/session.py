"""What every command does first: find the workspace, open its bank, and refuse what cannot work."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from skep.bank import Bank
from skep.embedding import Opener, open_embedder
from skep.tuning.deploy import ready
from skep.tuning.evaluate import Evaluation, Progress, evaluate, save
from skep.tuning.findings import Finding, RefusedError, refuse_errors
from skep.tuning.indexing import IndexReport, index
from skep.tuning.layout import offer_values
from skep.tuning.sources import read_sources
from skep.tuning.workspace import EvalSet, Split, Workspace, load

if TYPE_CHECKING:
    import numpy as np

BANK = "bank.skep"
"""The workspace's own bank, used unless another is named."""


def workspace_at(folder: Path) -> Workspace:
    """The workspace in a folder; refused when it is none."""
    workspace = load(folder)
    refuse_errors(finding for finding in workspace.findings if finding.code == "no-workspace")
    return workspace


@contextlib.contextmanager
def opened(
    folder: Path, bank_file: Path, *, create: bool = False, opener: Opener = open_embedder
) -> Generator[tuple[Workspace, Bank]]:
    """The workspace and its bank. Only indexing creates a bank."""
    workspace = workspace_at(folder)
    if not create and not bank_file.exists():
        what, fix = f"there is no bank {bank_file.name} yet", "run `skep tune index`"
        raise RefusedError([Finding(code="not-indexed", file="documents", what=what, fix=fix)])
    with Bank.open(bank_file, create=create, opener=opener) as bank:
        yield workspace, bank


def index_workspace(workspace: Workspace, bank: Bank, progress: Progress | None = None) -> list[IndexReport]:
    """Index every collection and offer the field values to editors; an error anywhere writes nothing."""
    about = ("collections/", "documents")
    refuse_errors(finding for finding in workspace.findings if finding.file.startswith(about))
    read = [read_sources(workspace, collection) for collection in workspace.collections.values()]
    refuse_errors(finding for sources in read for finding in sources.findings)
    reports = [index(bank, sources, progress=progress) for sources in read]
    values = {field: list(known) for report in reports for field, known in report.fields.items()}
    offer_values(workspace.root, values)
    return reports


def measured(
    workspace: Workspace,
    bank: Bank,
    name: str,
    eval_set: EvalSet,
    split: Split | None,
    *,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Evaluation:
    """A config's result, checked before and saved after."""
    config = workspace.config(name)
    ready(workspace, bank, config, eval_set)
    result = evaluate(bank, config, eval_set, split=split, rng=rng, progress=progress)
    save(bank, result)
    return result
