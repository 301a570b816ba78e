"""`skep tune`: search configuration as files, measured, compared and deployed through a gate."""

from __future__ import annotations

import contextlib
import getpass
import sys
from collections.abc import Callable, Generator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from skep.cli.app import json_option, opener, print_json, progress_bar
from skep.cli.demo import tune_demo
from skep.tuning import tuning_report
from skep.tuning.deploy import BANK, index_workspace, judge

if TYPE_CHECKING:
    import numpy as np

    from skep.bank.bank import Bank
    from skep.tuning.evaluate import Evaluation
    from skep.tuning.workspace import EvalSet, Split, Workspace


F = TypeVar("F", bound=Callable[..., Any])
SEED = 20_260_101
SPLITS: dict[str, Split | None] = {"tune": "tune", "holdout": "holdout", "all": None}


@click.group("tune")
def group() -> None:
    """Search configuration as code: check, measure, compare, deploy.

    A workspace is a folder; `skep tune guide` says how to work in one.
    """


group.add_command(tune_demo)


def print_findings(command: F) -> F:
    """Findings that refuse a command are printed, and the exit code is 1."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        from skep.tuning.findings import RefusedError

        try:
            return command(*args, **kwargs)
        except RefusedError as refused:
            if kwargs["as_json"]:
                print_json({"findings": refused.findings})
            else:
                click.echo(str(refused), err=True)
            sys.exit(1)

    return run  # type: ignore[return-value]


def workspace_options(command: F) -> F:
    """`-w`, `--bank` and `--json`; findings are printed, not raised."""
    made = json_option(print_findings(command))
    bank = click.option(
        "--bank", "bank_path", type=click.Path(), help="The bank; default: bank.skep in the folder."
    )
    return click.option(
        "-w", "--workspace", "folder", type=click.Path(), default=".", help="The workspace folder."
    )(bank(made))


def evals_option(command: F) -> F:
    """`--evals`: which eval set."""
    return click.option("--evals", "evals_name", help="The eval set; default: golden, or the only one.")(
        command
    )


def split_option(command: F) -> F:
    """`--split`: which queries."""
    choice = click.Choice(list(SPLITS))
    return click.option("--split", type=choice, default="tune", show_default=True, help="Which queries.")(
        command
    )


def bank_file(folder: str, bank_path: str | None) -> Path:
    """The bank that was asked for, after the command or before it, or the workspace's own."""

    outer: dict[str, str | None] = click.get_current_context().find_root().obj or {}
    return Path(bank_path or outer.get("bank") or Path(folder) / BANK)


@contextlib.contextmanager
def opened(folder: str, bank_path: str | None, *, create: bool = False) -> Generator[tuple[Workspace, Bank]]:
    """The workspace and its bank."""
    from skep.tuning.deploy import opened as open_both

    with open_both(Path(folder), bank_file(folder, bank_path), create=create, opener=opener()) as both:
        yield both


def rng() -> np.random.Generator:
    """The generator behind intervals and tests; seeded, so that a result repeats."""
    import numpy as np

    return np.random.default_rng(SEED)


def measure(workspace: Workspace, bank: Bank, name: str, eval_set: EvalSet, split: str) -> Evaluation:
    """A config's result, with a progress bar."""
    from skep.tuning.deploy import measured

    chosen: Split | None = SPLITS[split]
    with progress_bar(f"measuring {name}") as progress:
        return measured(workspace, bank, name, eval_set, chosen, rng=rng(), progress=progress)


@group.command()
@click.argument("folder", type=click.Path())
@click.option("--example", is_flag=True, help="With the documents, configs and evals of the example.")
@json_option
@print_findings
def init(folder: str, example: bool, as_json: bool) -> None:
    """Lay out a workspace in FOLDER."""
    from skep.tuning.workspace import init as lay_out

    written = lay_out(Path(folder), example=example)
    if as_json:
        print_json({"folder": folder, "written": written})
    else:
        click.echo(f"{len(written)} files in {folder}; next: skep tune index -w {folder}")


@group.command()
@click.option("--watch", "keep_watching", is_flag=True, help="Index again whenever a file changes.")
@click.option("--interval", default=1.0, show_default=True, help="Seconds between looks when watching.")
@workspace_options
def index(keep_watching: bool, interval: float, folder: str, bank_path: str | None, as_json: bool) -> None:
    """Put the documents into the bank; only what changed is written."""
    from skep.tuning.document_index import watch
    from skep.tuning.findings import RefusedError

    def report() -> None:
        with (
            opened(folder, bank_path, create=True) as (workspace, bank),
            progress_bar("indexing") as progress,
        ):
            reports = index_workspace(workspace, bank, progress)
        print_json(reports) if as_json else click.echo(
            "\n".join(tuning_report.index_report(each) for each in reports)
        )

    def report_and_go_on() -> None:
        try:
            report()
        except RefusedError as refused:
            click.echo(str(refused), err=True)

    if keep_watching:
        watch(Path(folder), report_and_go_on, interval=interval)
    else:
        report()


@group.command()
@workspace_options
def fields(folder: str, bank_path: str | None, as_json: bool) -> None:  # noqa: ARG001
    """Say which fields can be filtered, and with which values."""
    from skep.tuning.deploy import workspace_at
    from skep.tuning.document_index import read_sources

    workspace = workspace_at(Path(folder))
    values = {name: read_sources(workspace, one).values() for name, one in workspace.collections.items()}
    if as_json:
        print_json(values)
    else:
        for name, known in values.items():
            click.echo(f"{name}\n{tuning_report.fields(known)}")


@group.command()
@click.argument("config", required=False)
@click.option("--behaviour", is_flag=True, help="Also measure CONFIG against what is deployed.")
@evals_option
@workspace_options
def validate(
    config: str | None,
    behaviour: bool,
    evals_name: str | None,
    folder: str,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Check the workspace, or one CONFIG: syntax, meaning and, if asked, behaviour."""
    from skep.tuning.deploy import check_active, workspace_at
    from skep.tuning.findings import errors_of
    from skep.tuning.validate import check_files

    workspace = workspace_at(Path(folder))
    found = list(check_files(workspace))
    if bank_file(folder, bank_path).exists():
        with opened(folder, bank_path) as (_, bank):
            found += check_active(workspace, bank)
    if config is not None:
        chosen = workspace.config(config)
        file = f"configs/{chosen.name}.json"
        found = [
            finding for finding in found if finding.file == file or not finding.file.startswith("configs/")
        ]
        if behaviour and not errors_of(found):
            with opened(folder, bank_path) as (_, bank):
                found += judge(workspace, bank, chosen, workspace.eval_set(evals_name), rng=rng()).findings
    if as_json:
        print_json({"findings": found})
    else:
        click.echo(tuning_report.findings(found) or "nothing to report")
    if errors_of(found):
        sys.exit(1)


@group.command()
@click.argument("text")
@click.option("--config", "name", help="The config; default: what is deployed.")
@click.option("--curve", is_flag=True, help="Draw the scores and where the answer was cut.")
@workspace_options
def query(
    text: str,
    name: str | None,
    curve: bool,
    folder: str,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Answer TEXT and show why: ranks per signal, flags, where dynamic-k cut."""
    from skep.tuning import deploy
    from skep.tuning.evaluate import Searcher, look

    with opened(folder, bank_path) as (workspace, bank):
        current = deploy.active(bank)
        deployed = current.config if current else None
        config = deployed if name is None and deployed is not None else workspace.config(name or "naive")
        answer = look(Searcher(bank), text, config)
    print_json(answer) if as_json else click.echo(tuning_report.looked(answer, curve=curve))


@group.command()
@click.argument("config")
@split_option
@evals_option
@workspace_options
def evaluate(
    config: str, split: str, evals_name: str | None, folder: str, bank_path: str | None, as_json: bool
) -> None:
    """Measure CONFIG and save the result in the bank."""

    from skep.tuning.deploy import advice

    with opened(folder, bank_path) as (workspace, bank):
        eval_set = workspace.eval_set(evals_name)
        result = measure(workspace, bank, config, eval_set, split)
    steps = advice(workspace, eval_set, result) if split == "tune" else ()
    made_up = [each for each in workspace.findings if each.file == f"evals/{eval_set.name}.json"]
    if as_json:
        print_json({**msgspec.to_builtins(result), "advice": steps, "findings": made_up})
    else:
        click.echo(tuning_report.evaluation(result))
        click.echo(
            "\n" + "\n".join([each.line() for each in made_up] + [f"next: {step.line()}" for step in steps])
        )


@group.command()
@click.argument("before")
@click.argument("after")
@split_option
@evals_option
@workspace_options
def compare(
    before: str,
    after: str,
    split: str,
    evals_name: str | None,
    folder: str,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show what AFTER does differently from BEFORE, query by query."""
    from skep.tuning.deploy import compare as put_side_by_side

    with opened(folder, bank_path) as (workspace, bank):
        eval_set = workspace.eval_set(evals_name)
        results = [measure(workspace, bank, name, eval_set, split) for name in (before, after)]
        configs = (workspace.config(before), workspace.config(after))
    result = put_side_by_side(results[0], results[1], configs=configs, rng=rng())
    if as_json:
        raw = msgspec.to_builtins(result)
        print_json({**raw, "wins": result.wins, "losses": result.losses, "verdict": result.verdict()})
    else:
        click.echo(tuning_report.comparison(result))


@group.command()
@click.argument("config")
@click.option("--reason", default="", help="Why; recorded with the version.")
@click.option("--author", default=None, help="Who; default: the user.")
@click.option("--force", is_flag=True, help="Deploy even what the gate refuses; needs a reason.")
@click.option("--latency-ms", type=float, help="The latency budget; default: that of the eval set.")
@evals_option
@workspace_options
def deploy(
    config: str,
    reason: str,
    author: str | None,
    force: bool,
    latency_ms: float | None,
    evals_name: str | None,
    folder: str,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Make CONFIG the one that recalls use, if it is at least as good on the holdout."""
    from skep.tuning.deploy import deploy as put_in_place

    with opened(folder, bank_path) as (workspace, bank):
        eval_set = workspace.eval_set(evals_name)
        chosen = workspace.config(config)
        with progress_bar("judging") as progress:
            verdict = judge(
                workspace, bank, chosen, eval_set, rng=rng(), latency_budget_ms=latency_ms, progress=progress
            )
        if not as_json:
            click.echo(tuning_report.judgement(verdict))
        version = put_in_place(
            workspace, bank, verdict, author=author or getpass.getuser(), reason=reason, force=force
        )
    print_json(version) if as_json else click.echo(f"deployed {config} as version {version.number}")


@group.command()
@click.argument("version", type=click.IntRange(min=0))
@click.option("--reason", default="", help="Why; recorded with the version.")
@click.option("--author", default=None, help="Who; default: the user.")
@workspace_options
def rollback(
    version: int, reason: str, author: str | None, folder: str, bank_path: str | None, as_json: bool
) -> None:
    """Return to an earlier VERSION; 0 is the bank's own default."""
    from skep.tuning.deploy import rollback as go_back

    with opened(folder, bank_path) as (workspace, bank):
        made = go_back(workspace, bank, version, author=author or getpass.getuser(), reason=reason)
    print_json(made) if as_json else click.echo(f"version {made.number} is version {version} again")


@group.command()
@workspace_options
def history(folder: str, bank_path: str | None, as_json: bool) -> None:
    """Show every version: who, why, and how it did."""
    from skep.tuning import deploy

    with opened(folder, bank_path) as (_workspace, bank):
        found, current = deploy.history(bank), deploy.active(bank)
    active = current.number if current else None
    print_json({"active": active, "versions": found}) if as_json else click.echo(
        tuning_report.history(found, active)
    )


@group.command()
@workspace_options
def results(folder: str, bank_path: str | None, as_json: bool) -> None:
    """List the results saved in the bank; only those of one group can be compared."""
    from skep.tuning.evaluate import saved

    with opened(folder, bank_path) as (_workspace, bank):
        kept = saved(bank)
    print_json(kept) if as_json else click.echo(tuning_report.results(kept))


@group.command()
@click.argument("config")
@click.option("--name", help="Name of the new config; default: auto-1, auto-2, …")
@click.option("--trials", default=600, show_default=True, help="At most so many configs are tried.")
@click.option("--seconds", default=40.0, show_default=True, help="No new trial is begun after so long.")
@click.option("--deploy", "and_deploy", is_flag=True, help="Deploy the result if the gate lets it pass.")
@evals_option
@workspace_options
def autotune(
    config: str,
    name: str | None,
    trials: int,
    seconds: float,
    and_deploy: bool,
    evals_name: str | None,
    folder: str,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Search for a better config than CONFIG on the tune split, and write it as a new file."""
    from skep.tuning.autotune import tune_workspace
    from skep.tuning.deploy import deploy as put_in_place

    with opened(folder, bank_path) as (workspace, bank):
        eval_set = workspace.eval_set(evals_name)
        with progress_bar("searching") as progress:
            result = tune_workspace(
                workspace, bank, workspace.config(config), eval_set,
                name=name, trials=trials, seconds=seconds, progress=progress,
            )  # fmt: skip
        verdict = judge(workspace, bank, result.config, eval_set, rng=rng())
        version = None
        if and_deploy and verdict.passed:
            version = put_in_place(
                workspace, bank, verdict, author=getpass.getuser(), reason=f"autotune from {config}"
            )
    if as_json:
        print_json({"tuned": result, "judgement": verdict, "version": version})
        return
    click.echo(
        f"{tuning_report.tuned(result)}\n\nwrote configs/{result.config.name}.json\n{tuning_report.judgement(verdict)}"
    )
    if version is not None:
        click.echo(f"deployed as version {version.number}")


@group.command()
@click.option("--name", default="harvest", show_default=True, help="Name of the eval set to write.")
@click.option("--review", type=click.IntRange(min=1), help="Print so many queries and write nothing.")
@click.option("--since", type=float, help="Leave out what happened before; seconds since the epoch.")
@workspace_options
def harvest(
    name: str, review: int | None, since: float | None, folder: str, bank_path: str | None, as_json: bool
) -> None:
    """Turn recorded outcomes into an eval set. Nothing leaves this machine."""
    from skep.tuning.document_index import harvest as gather
    from skep.tuning.document_index import write

    with opened(folder, bank_path) as (workspace, bank):
        found = gather(bank, name=name, since=since)
        file = None if review else write(workspace, found)
    if as_json:
        print_json({"written": file, "harvest": found})
    else:
        click.echo(tuning_report.harvest(found, review or 3) + (f"\n\nwrote {file}" if file else ""))


@group.command()
@json_option
def guide(as_json: bool) -> None:
    """Print what an agent needs to know to tune by itself."""

    print_json({"guide": GUIDE}) if as_json else click.echo(GUIDE, nl=False)


GUIDE = """\
How to tune search, with files and commands alone

The loop: read the figures, write a config, check it, measure it, compare it, deploy it. Repeat.

  skep tune fields                    which fields can be filtered, and their values
  skep tune evaluate NAME             nUDCG, distractors and the rest, per query, on the tune split; and what to
                                      try next, as keys for a new config
  skep tune query TEXT --config NAME  one answer in detail: ranks per signal, flags, where it was cut and why
  (write configs/NEW.json; "extends": "NAME" keeps everything you do not state)
  skep tune validate NEW              every problem at once, each with a code and a fix
  skep tune compare NAME NEW          per-query deltas, which distractors left or appeared, significance
  skep tune deploy NEW --reason TEXT  refused unless at least as good on the holdout
  skep tune history | rollback N      every version; back to any of them

Every command takes --json, and -w DIR for the workspace. Exit code 0: done. 1: refused, and the findings
say why.

Facts
- A distractor looks right and misleads the reader. It counts -1; an irrelevant result counts 0. Removing one
  distractor is usually worth more than finding one more relevant document.
- nUDCG is at most 1 and may be negative. k is fixed by the eval set, so returning fewer results is no trick.
- Only the best chunk of a document counts. Queries with no relevant document are right when nothing is returned.
- The tune split is yours to look at. Do not look at the holdout: the gate uses it, and only it.
- What usually helps, in this order: filters that leave out categories that never answer; dynamic_k, to stop at
  the cliff; abstention.bar, to withhold weak results; fusion and weights; coverage.
- distraction_detection flags results that share words and lie far behind in meaning; it removes none. It needs
  method "hybrid". `evaluate` says how many distractors it finds, and how many relevant documents it hits.
- `skep tune autotune NAME` runs this loop by itself and writes the config with a note of what mattered.
- Nothing is deployed by editing configs/active.json: it is a copy.
"""
