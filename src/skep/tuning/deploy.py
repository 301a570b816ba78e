"""Deploying a config through the gate, and going back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from skep.bank import Bank
from skep.tuning import versions
from skep.tuning.evaluate import Evaluation, Progress, Timer, evaluate, save
from skep.tuning.files import write_json
from skep.tuning.findings import Finding, RefusedError, errors_of
from skep.tuning.gate import gate
from skep.tuning.indexing import data_version, source_version
from skep.tuning.search_config import SearchConfig, config_hash, to_raw
from skep.tuning.sources import Sources, read_sources
from skep.tuning.validate import check_config, check_evals
from skep.tuning.versions import Version
from skep.tuning.workspace import ACTIVE, EvalSet, Workspace

if TYPE_CHECKING:
    import numpy as np


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What the gate says about a config."""

    config: SearchConfig
    candidate: Evaluation
    deployed: Evaluation | None
    findings: tuple[Finding, ...]
    mark: float | None
    """The mark the deployment will carry on if it is made."""
    number: int
    """The version it will be; taken when it was judged, so that nothing can be deployed in between unseen."""

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.findings


def ready(workspace: Workspace, bank: Bank, config: SearchConfig, eval_set: EvalSet) -> None:
    """Refuse, with every finding, a config, eval set or bank that cannot be measured."""
    read: dict[str, Sources] = {}
    findings: list[Finding] = []
    for name, collection in workspace.collections.items():
        if name in (config.collection, eval_set.collection):
            read[name] = read_sources(workspace, collection)
            findings.extend(read[name].findings)
    findings.extend(check_config(config, read))
    findings.extend(check_evals([eval_set], read))
    if not errors_of(findings):
        for name, sources in read.items():
            if data_version(bank, name) != source_version(sources):
                what = f"the bank does not hold the documents of {name!r} as they are now"
                findings.append(
                    Finding(code="not-indexed", file="documents", what=what, fix="run `skep tune index`")
                )
    errors = errors_of(findings)
    if errors:
        raise RefusedError(errors)


def judge(
    workspace: Workspace,
    bank: Bank,
    config: SearchConfig,
    eval_set: EvalSet,
    *,
    rng: np.random.Generator,
    latency_budget_ms: float | None = None,
    timer: Timer = time.perf_counter,
    progress: Progress | None = None,
) -> Judgement:
    """Measure a config and what is deployed on the holdout, and ask the gate. Nothing is deployed."""
    ready(workspace, bank, config, eval_set)
    number, current = versions.next_number(bank), versions.active(bank)
    candidate = evaluate(bank, config, eval_set, split="holdout", rng=rng, timer=timer, progress=progress)
    deployed: Evaluation | None = None
    mark: float | None = None
    if current is not None and current.config is not None:
        deployed = evaluate(bank, current.config, eval_set, split="holdout", rng=rng, timer=timer)
        mark = current.mark if current.on == deployed.on else None
        mark = max(mark or deployed.overall.nudcg, deployed.overall.nudcg)
    budget = eval_set.latency_budget_ms if latency_budget_ms is None else latency_budget_ms
    findings = gate(candidate, deployed, latency_budget_ms=budget, mark=mark, rng=rng)
    best = max(candidate.overall.nudcg, mark) if mark is not None else candidate.overall.nudcg
    return Judgement(
        config=config, candidate=candidate, deployed=deployed, findings=findings, mark=best, number=number
    )


def deploy(
    workspace: Workspace,
    bank: Bank,
    judgement: Judgement,
    *,
    author: str,
    reason: str = "",
    force: bool = False,
) -> Version:
    """Make a judged config the one that recalls use; what the gate refuses needs force and a reason."""
    findings = list(judgement.findings)
    current = versions.active(bank)
    if current is not None and current.hash == judgement.candidate.hash:
        what = f"version {current.number} is already this config"
        raise RefusedError([Finding(code="no-change", file="", what=what, fix="change something first")])
    if force and not reason.strip():
        what, fix = "a forced deployment has no reason", "say why with --reason"
        raise RefusedError([Finding(code="reason-needed", file="", what=what, fix=fix), *findings])
    if findings and not force:
        raise RefusedError(findings)
    version = versions.make_version(
        bank,
        judgement.config,
        number=judgement.number,
        action="deploy",
        author=author,
        reason=reason,
        forced=bool(findings),
        overridden=tuple(finding.line() for finding in findings),
        on=judgement.candidate.on,
        results=judgement.candidate.overall,
        baseline=judgement.deployed.overall if judgement.deployed else None,
        mark=judgement.candidate.overall.nudcg if findings else judgement.mark,
    )
    versions.put(bank, version)
    save(bank, judgement.candidate)
    write_active(workspace, version)
    return version


def rollback(workspace: Workspace, bank: Bank, number: int, *, author: str, reason: str = "") -> Version:
    """Return to an earlier version; 0 returns to the bank's own default. The gate is not asked."""
    earlier = versions.version_of(bank, number) if number else None
    version = versions.make_version(
        bank,
        earlier.config if earlier else None,
        number=versions.next_number(bank),
        action="rollback",
        author=author,
        reason=reason or f"back to version {number}",
        of=number,
        on=earlier.on if earlier else None,
        results=earlier.results if earlier else None,
        mark=earlier.results.nudcg if earlier and earlier.results else None,
    )
    versions.put(bank, version)
    write_active(workspace, version)
    return version


def write_active(workspace: Workspace, version: Version) -> None:
    """Copy what is deployed to configs/active.json, for people; the bank is what counts."""
    file = workspace.root / "configs" / f"{ACTIVE}.json"
    if version.config is None:
        file.unlink(missing_ok=True)
        return
    raw = to_raw(version.config)
    note = f"Version {version.number}, deployed by {version.author}. {version.config.note}".strip()
    write_json(file, {"$schema": "./config.schema.json", **raw, "note": note[:4000]})


def check_active(workspace: Workspace, bank: Bank) -> tuple[Finding, ...]:
    """A warning when configs/active.json is not what the bank uses."""
    current = versions.active(bank)
    copy = workspace.configs.get(ACTIVE)
    hashes = [config_hash(config) if config else "" for config in (copy, current.config if current else None)]
    if hashes[0] == hashes[1]:
        return ()
    what = f"it is not version {current.number}, which is deployed" if current else "nothing is deployed"
    fix = "edit another config and deploy that; this file is only a copy"
    return (
        Finding(code="active-differs", file=f"configs/{ACTIVE}.json", what=what, fix=fix, severity="warning"),
    )
