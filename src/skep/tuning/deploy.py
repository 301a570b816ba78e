"""Deployment of a config: versions in the bank, comparison of two configs, the gate, and the way back.

A deployment writes two settings in one transaction: `recall/config`, which `Bank.recall` reads, and a record under
`tuning/version/` of who deployed what and why. Readers see the old config or the new one.

The gate judges on the holdout, on queries that neither config was tuned on. A candidate passes when

1. its nUDCG is not lower than that of the deployed config. A drop passes only as noise: it is at most `TOLERANCE`,
and the confidence interval of the paired difference reaches 0. It must also stay within `TOLERANCE` of the best
result since the last forced deployment (the mark), so that small drops do not add up; 2. it returns no more
distractors, and abstains rightly no less often; 3. its 95th percentile of latency is within the budget.

Called by `skep tune`; writes the bank and configs/active.json.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from skep.bank.bank import Bank
from skep.embedding.embedder import Opener, open_embedder
from skep.tuning.document_index import IndexReport, Sources, data_version, index, read_sources, source_version
from skep.tuning.evaluate import Circumstances, Evaluation, Progress, Timer, evaluate, save
from skep.tuning.findings import Finding, RefusedError, errors_of, refuse_errors
from skep.tuning.metrics import Interval, Overall, bootstrap_interval, paired_p_value
from skep.tuning.search_config import (
    Change,
    SearchConfig,
    config_hash,
    difference,
    recall_settings,
    to_raw,
    without_retired,
)
from skep.tuning.validate import check_config, check_evals
from skep.tuning.workspace import ACTIVE, EvalSet, Split, Workspace, load, offer_values, write_json

if TYPE_CHECKING:
    import numpy as np


RECALL_CONFIG = "recall/config"
KEY = "tuning/version/"


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment. Number 0 is the state before the first."""

    number: int
    action: Literal["deploy", "rollback"]
    config: SearchConfig | None
    """What was deployed; None is the bank's own default."""
    hash: str
    author: str
    reason: str
    at: float
    of: int | None = None
    """For a rollback: the version it returned to."""
    forced: bool = False
    overridden: tuple[str, ...] = ()
    """Findings that a forced deployment went over."""
    on: Circumstances | None = None
    results: Overall | None = None
    """On the holdout."""
    baseline: Overall | None = None
    """What was deployed before, on the same holdout."""
    mark: float | None = None
    """The best nUDCG since the last forced deployment, in the same circumstances."""


def _readable(record: Any) -> Any:
    config = record.get("config")
    return record if config is None else {**record, "config": without_retired(config)}


def history(bank: Bank) -> list[Version]:
    """Every deployment, oldest first."""
    kept: dict[str, Any] = bank.settings(KEY)
    found = (msgspec.convert(_readable(value), Version) for value in kept.values())
    return sorted(found, key=lambda version: version.number)


def active(bank: Bank) -> Version | None:
    """The version that recalls use now: the newest one whose config is in place; None when there is none."""
    current: object = bank.setting(RECALL_CONFIG)
    for version in reversed(history(bank)):
        if _settings_of(version.config) == current:
            return version
    return None


def version_of(bank: Bank, number: int) -> Version:
    """A version by its number."""
    versions = history(bank)
    for version in versions:
        if version.number == number:
            return version
    known = ", ".join(str(version.number) for version in versions) or "none"
    what = f"there is no version {number}"
    raise RefusedError([Finding(code="unknown-version", file="", what=what, fix=f"versions: {known}")])


def put(bank: Bank, version: Version) -> None:
    """Write a version and make its config the one in use; all of it or nothing.

    A deployment that came first is not overwritten: it takes the number, and this one is refused.
    """
    key = f"{KEY}{version.number:06d}"

    def still_free() -> None:
        if bank.setting(key) is not None:
            what = f"version {version.number} was deployed by somebody else just now"
            fix = "look at `skep tune history` and deploy again"
            raise RefusedError([Finding(code="deployed-meanwhile", file="", what=what, fix=fix)])

    bank.engine.write(
        [
            ("setting", {"key": key, "value": msgspec.to_builtins(version)}),
            ("setting", {"key": RECALL_CONFIG, "value": _settings_of(version.config)}),
        ],
        check=still_free,
    )


def next_number(bank: Bank) -> int:
    """The number the next version will have."""
    versions = history(bank)
    return versions[-1].number + 1 if versions else 1


def make_version(
    bank: Bank,
    config: SearchConfig | None,
    *,
    number: int,
    action: Literal["deploy", "rollback"],
    author: str,
    reason: str,
    **details: Any,
) -> Version:
    """A version, not yet written."""
    return Version(
        number=number,
        action=action,
        config=config,
        hash=config_hash(config) if config else "",
        author=author,
        reason=reason,
        at=bank.engine.now(),
        **details,
    )


def _settings_of(config: SearchConfig | None) -> Any:
    """The recall settings as they come back from the bank."""
    if config is None:
        return None
    return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(recall_settings(config))))


SAME = 1e-9
"""nUDCG differences below this are none."""


class QueryDelta(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of the second config on one query."""

    query: str
    before: float | None
    after: float | None
    appeared: tuple[str, ...] = ()
    """Distractors that only the second config hands over."""
    left: tuple[str, ...] = ()
    """Distractors that only the first config handed over."""

    @property
    def delta(self) -> float:
        """Change of nUDCG; 0 for a query without an answer."""
        return (self.after or 0.0) - (self.before or 0.0)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The second config against the first."""

    before: Evaluation
    after: Evaluation
    changes: tuple[Change, ...]
    deltas: tuple[QueryDelta, ...]
    interval: Interval
    """Of the mean change of nUDCG."""
    p_value: float

    @property
    def mean_delta(self) -> float:
        """Mean change of nUDCG over the queries that have an answer."""
        return self.after.overall.nudcg - self.before.overall.nudcg

    @property
    def wins(self) -> int:
        """Queries that got better."""
        return sum(item.delta > SAME for item in self.deltas)

    @property
    def losses(self) -> int:
        """Queries that got worse."""
        return sum(item.delta < -SAME for item in self.deltas)

    def verdict(self) -> str:
        """The result in one sentence."""
        if all(abs(item.delta) <= SAME for item in self.deltas):
            return "the two answer every query alike"
        direction = (
            "better" if self.mean_delta > 0 else "worse" if self.mean_delta < 0 else "no different on average"
        )
        sure = "significant" if self.p_value < 0.05 else "within noise"
        return (
            f"{self.after.config} is {direction}: nUDCG {self.mean_delta:+.3f} "
            f"({self.wins} better, {self.losses} worse, p = {self.p_value:.3f}, {sure})"
        )


def compare(
    before: Evaluation,
    after: Evaluation,
    *,
    configs: tuple[SearchConfig, SearchConfig] | None = None,
    rng: np.random.Generator,
) -> Comparison:
    """Compare two results that were measured on the same things."""
    if not before.like(after):
        what = f"{before.config} and {after.config} were not measured on the same data, queries and embedder"
        fix = "evaluate both again"
        raise RefusedError([Finding(code="not-comparable", file="", what=what, fix=fix)])
    left, right = before.by_query(), after.by_query()
    deltas = tuple(
        QueryDelta(
            query=query,
            before=left[query].nudcg,
            after=right[query].nudcg,
            appeared=tuple(item for item in right[query].distractors if item not in left[query].distractors),
            left=tuple(item for item in left[query].distractors if item not in right[query].distractors),
        )
        for query in left
    )
    pairs = [
        (item.before, item.after) for item in deltas if item.before is not None and item.after is not None
    ]
    return Comparison(
        before=before,
        after=after,
        changes=difference(*configs) if configs else (),
        deltas=deltas,
        interval=bootstrap_interval([b - a for a, b in pairs], rng),
        p_value=paired_p_value([a for a, _ in pairs], [b for _, b in pairs], rng),
    )


TOLERANCE = 0.01
"""The largest drop of mean nUDCG that may be called noise."""
_ROUNDING = 1e-9


def gate(
    candidate: Evaluation,
    deployed: Evaluation | None,
    *,
    latency_budget_ms: float,
    mark: float | None = None,
    rng: np.random.Generator,
) -> tuple[Finding, ...]:
    """Everything that speaks against deploying `candidate`; empty means it may pass.

    Args:
        candidate: The config's result on the holdout.
        deployed: The result of what is deployed on the same holdout; None when nothing is.
        latency_budget_ms: The 95th percentile that is allowed.
        mark: The best nUDCG reached by deployed versions under the same circumstances, if known.
        rng: For the confidence interval.
    """
    return tuple(_against(candidate, deployed, latency_budget_ms, mark, rng))


def _against(
    candidate: Evaluation,
    deployed: Evaluation | None,
    budget: float,
    mark: float | None,
    rng: np.random.Generator,
) -> Iterator[Finding]:
    now = candidate.overall
    if not now.latency_ms <= budget:
        what = f"the 95th percentile is {now.latency_ms:.1f} ms, over the budget of {budget:g} ms"
        fix = "lower pool, or raise latency_budget_ms in the eval set"
        yield _found("latency-over-budget", candidate, what, fix)
    if deployed is None:
        return
    was = deployed.overall
    paired = compare(deployed, candidate, rng=rng)
    if now.distractors > was.distractors:
        new = sorted({document for item in paired.deltas for document in item.appeared})
        what = f"{now.distractors} distractors against {was.distractors}; new: {', '.join(new[:5])}"
        yield _found("distractors-higher", candidate, what, "filter them out, or stop earlier with dynamic_k")
    if now.abstained_right < was.abstained_right:
        what = (
            f"{now.abstained_right} of {now.unanswerable} queries without an answer are left unanswered, "
            f"against {was.abstained_right}"
        )
        yield _found("abstention-worse", candidate, what, "raise abstention.bar")
    drop = was.nudcg - now.nudcg
    if drop > _ROUNDING and (drop > TOLERANCE or paired.interval.high < 0):
        what = f"nUDCG {now.nudcg:.3f} against {was.nudcg:.3f} deployed"
        fix = f"see `skep tune compare` for the {paired.losses} queries that got worse"
        yield _found("nudcg-lower", candidate, what, fix)
    elif mark is not None and now.nudcg < mark - TOLERANCE - _ROUNDING:
        what = f"nUDCG {now.nudcg:.3f} against {mark:.3f}, the best that was deployed"
        fix = "small drops may not add up; improve on the best version, or roll back to it"
        yield _found("nudcg-lower", candidate, what, fix)


def _found(code: str, candidate: Evaluation, what: str, fix: str) -> Finding:
    return Finding(code=code, file=f"configs/{candidate.config}.json", what=what, fix=fix)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """The gate's verdict on a config."""

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
        """True when nothing speaks against it."""
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
    number, current = next_number(bank), active(bank)
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
    current = active(bank)
    if current is not None and current.hash == judgement.candidate.hash:
        what = f"version {current.number} is already this config"
        raise RefusedError([Finding(code="no-change", file="", what=what, fix="change something first")])
    if force and not reason.strip():
        what, fix = "a forced deployment has no reason", "say why with --reason"
        raise RefusedError([Finding(code="reason-needed", file="", what=what, fix=fix), *findings])
    if findings and not force:
        raise RefusedError(findings)
    version = make_version(
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
    put(bank, version)
    save(bank, judgement.candidate)
    write_active(workspace, version)
    return version


def rollback(workspace: Workspace, bank: Bank, number: int, *, author: str, reason: str = "") -> Version:
    """Return to an earlier version; 0 returns to the bank's own default. The gate is not asked."""
    earlier = version_of(bank, number) if number else None
    version = make_version(
        bank,
        earlier.config if earlier else None,
        number=next_number(bank),
        action="rollback",
        author=author,
        reason=reason or f"back to version {number}",
        of=number,
        on=earlier.on if earlier else None,
        results=earlier.results if earlier else None,
        mark=earlier.results.nudcg if earlier and earlier.results else None,
    )
    put(bank, version)
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
    current = active(bank)
    copy = workspace.configs.get(ACTIVE)
    hashes = [config_hash(config) if config else "" for config in (copy, current.config if current else None)]
    if hashes[0] == hashes[1]:
        return ()
    what = f"it is not version {current.number}, which is deployed" if current else "nothing is deployed"
    fix = "edit another config and deploy that; this file is only a copy"
    return (
        Finding(code="active-differs", file=f"configs/{ACTIVE}.json", what=what, fix=fix, severity="warning"),
    )


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


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to try next, and why."""

    why: str
    change: dict[str, Any]
    """Keys for a new config that extends the one measured; empty when it is time to deploy it."""

    def line(self) -> str:
        """In one readable line."""
        return self.why + (f": {msgspec.json.encode(self.change).decode()}" if self.change else "")


def advice(workspace: Workspace, eval_set: EvalSet, result: Evaluation) -> tuple[Advice, ...]:
    """The next steps after a measurement, the one that usually helps most first: filter, cut, deploy."""
    config = workspace.config(result.config)
    found = list(_filters(workspace, eval_set, config, result))
    if not config.dynamic_k.enabled and result.overall.precision < ANSWERS:
        why = f"of what is returned {result.overall.precision:.0%} answers; stop at the cliff"
        found.append(Advice(why=why, change={"dynamic_k": {"enabled": True}}))
    return tuple(found) or (Advice(why=f"deploy it: skep tune deploy {config.name} --reason …", change={}),)


ANSWERS = 0.5
"""The share of relevant documents in an answer below which it should be shorter."""


def _filters(
    workspace: Workspace, eval_set: EvalSet, config: SearchConfig, result: Evaluation
) -> Iterator[Advice]:
    """Per filterable field the values that distractors have and no relevant document has."""
    collection = workspace.collection_of(config)
    if collection is None:
        return
    read = read_sources(workspace, collection)
    fields = {source.document.path: source.fields for source in read.sources}
    asked = {query.id: query for query in eval_set.queries}
    answers = {document for score in result.scores for document in asked[score.query].relevant}
    misled = [document for score in result.scores for document in score.distractors]
    for field, known in read.values().items():
        stated = all(fields.get(document, {}).get(field) for document in answers)
        if field in config.filters or len(known) < 2 or not stated:  # a filter leaves out what states nothing
            continue
        useful = {value for document in answers for value in fields.get(document, {}).get(field, ())}
        bad = [d for d in misled if (has := fields.get(d, {}).get(field)) and not useful.intersection(has)]
        if bad:
            kept = sorted(
                {value for each in fields.values() for value in each.get(field, ())} & useful, key=str
            )
            left = ", ".join(sorted({str(value) for d in bad for value in fields[d][field]}))
            why = f"{len(bad)} of {len(misled)} distractors have a {field} that answers nothing here ({left})"
            yield Advice(why=why, change={"filters": {field: kept}})
