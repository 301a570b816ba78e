"""Autotune on a workspace: checks first, then searches, then writes the result as a new config file."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from skep.bank import Bank
from skep.tuning.autotune import SECONDS, TRIALS, Clock, Live, Tuned, autotune
from skep.tuning.deploy import ready
from skep.tuning.files import is_name, write_json
from skep.tuning.findings import Finding, RefusedError
from skep.tuning.search_config import SearchConfig, to_raw
from skep.tuning.sources import read_sources
from skep.tuning.steady import SteadySearcher
from skep.tuning.workspace import ACTIVE, EvalSet, Workspace


def tune_workspace(
    workspace: Workspace,
    bank: Bank,
    base: SearchConfig,
    eval_set: EvalSet,
    *,
    name: str | None = None,
    seed: int,
    trials: int = TRIALS,
    seconds: float = SECONDS,
    clock: Clock = time.monotonic,
    live: Callable[[Live], None] | None = None,
) -> Tuned:
    """Search from `base` and write the best config to configs/, with a note of what it changed and why."""
    chosen = free_name(workspace, name)
    ready(workspace, bank, base, eval_set)
    collection = workspace.collection_of(base)
    values: dict[str, list[str]] = {}
    if collection is not None:
        known = read_sources(workspace, collection).values()
        values = {field: list(counted) for field, counted in known.items()}
    found = autotune(
        SteadySearcher(bank).ask,
        base,
        eval_set,
        values,
        seed=seed,
        trials=trials,
        seconds=seconds,
        clock=clock,
        live=live,
    )
    config = msgspec.structs.replace(found.config, name=chosen, note=found.note())
    write_json(
        workspace.root / "configs" / f"{chosen}.json", {"$schema": "./config.schema.json", **to_raw(config)}
    )
    return msgspec.structs.replace(found, config=config)


def free_name(workspace: Workspace, name: str | None) -> str:
    """The name for a new config: the one asked for, or the next `auto-N`. No file is ever overwritten."""
    folder = workspace.root / "configs"
    if name is None:
        number = 1
        while (folder / f"auto-{number}.json").exists():
            number += 1
        return f"auto-{number}"
    if not is_name(name) or name == ACTIVE:
        what, fix = f"{name[:80]!r} cannot name a config", "use letters, digits and dashes, and not 'active'"
        raise RefusedError([Finding(code="bad-name", file="configs", what=what, fix=fix)])
    if (folder / f"{name}.json").exists():
        what, fix = f"configs/{name}.json exists already", "choose another name"
        raise RefusedError([Finding(code="not-empty", file=f"configs/{name}.json", what=what, fix=fix)])
    return name
