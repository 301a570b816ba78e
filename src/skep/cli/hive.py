"""`skep hive`: many banks that share, from a manifest."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.app import json_option, memory_line, print_json, when
from skep.cli.demo import hive_demo

if TYPE_CHECKING:
    from skep.hive.controller import Change, Controller
    from skep.hive.hive import Hive


F = TypeVar("F", bound=Callable[..., Any])

REPAIR_SECONDS = 60.0
"""Seconds after which a running member looks whether a copy is missing somewhere."""
TEMPLATE = """\
# What the hive should look like. `skep hive plan` shows what is missing, `skep hive apply` makes it so.
name: {name}
topology: federated        # single, flat, federated or sharded
store: banks               # a folder beside this file, or: memory
groups:
  - name: infra
    domains: [servers, networks]
  - name: people
    domains: [staff, hiring]
agents:
  - name: ana
    group: infra
  - name: bob
    group: people
policies:
  promote_at: 0.3          # confidence from which a memory leaves its agent
  broadcast_at: 0.9        # and from which every group gets a copy
"""


@click.group()
def group() -> None:
    """Many banks that share, without a coordinator.

    A hive is described in hive.yaml: `init` writes one, `plan` and `diff` show what applying it would change,
    `apply` makes it so, `status` shows how it is doing.
    """


group.add_command(hive_demo)


def manifest_option(command: F) -> F:
    """`-f hive.yaml`."""
    return click.option(
        "-f",
        "--file",
        "path",
        type=click.Path(),
        default="hive.yaml",
        show_default=True,
        help="The manifest.",
    )(command)


def _controller(path: str) -> Controller:
    from skep.hive.controller import Controller
    from skep.hive.hive_manifest import load

    return Controller(load(path, os.environ), folder=Path(path).parent)


def _open(path: str) -> Hive:
    return _controller(path).open()


@group.command()
@click.argument("name", default="hive")
@manifest_option
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@json_option
def init(name: str, path: str, force: bool, as_json: bool) -> None:
    """Write a manifest to start from."""
    target = Path(path)
    if target.exists() and not force:
        raise click.ClickException(f"{target} is already there; pass --force to write over it")
    target.write_text(TEMPLATE.format(name=name), encoding="utf-8")
    if as_json:
        print_json({"path": str(target)})
    else:
        click.echo(f"wrote {target}; edit it, then: skep hive apply")


@group.command()
@manifest_option
@json_option
def plan(path: str, as_json: bool) -> None:
    """Show what applying the manifest would change."""
    _show_changes(_controller(path).plan(), as_json, nothing="nothing to do")


@group.command()
@manifest_option
@json_option
def diff(path: str, as_json: bool) -> None:
    """Show how the hive differs from its manifest; the exit code is 1 if it does."""
    changes = _controller(path).plan()
    _show_changes(changes, as_json, nothing="no differences")
    if changes:
        sys.exit(1)


@group.command()
@manifest_option
@click.option("--migrate", is_flag=True, help="Lay the hive out anew when its topology changed.")
@json_option
def apply(path: str, migrate: bool, as_json: bool) -> None:
    """Make the hive what the manifest says; a second time changes nothing."""
    _show_changes(_controller(path).apply(migrate=migrate), as_json, nothing="nothing to do")


def _show_changes(changes: list[Change], as_json: bool, *, nothing: str) -> None:
    if as_json:
        print_json(changes)
        return
    colours = {"create": "green", "update": "yellow", "remove": "red"}
    for change in changes:
        click.secho(change.line(), fg=colours[change.action])
    if not changes:
        click.echo(nothing)


@group.command()
@click.option(
    "--member", "members", multiple=True, help="A member to run here; may be repeated. Default: all."
)
@click.option(
    "--join", is_flag=True, help="Take members that the manifest does not name into a sharded hive."
)
@manifest_option
def serve(members: tuple[str, ...], join: bool, path: str) -> None:
    """Run members in this process, so that the others reach them over the bus; Ctrl-C ends it."""
    controller = _controller(path)
    if controller.manifest.bus == "local":
        raise click.ClickException(
            "the manifest says bus: local; name one between processes, as nats://HOST:4222"
        )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    with controller.serve(members, join=join) as hive:
        click.echo(f"{', '.join(hive.members)} answer for {hive.name}; Ctrl-C ends it")
        while not stop.wait(REPAIR_SECONDS):
            hive.repair()


@group.command()
@json_option
def key(as_json: bool) -> None:
    """Make a key: a seed to keep secret, and the public key to hand out."""
    from skep.replication.signatures import Signer

    seed = os.urandom(32)
    made = {"seed": seed.hex(), "public": Signer(seed).public.hex()}
    print_json(made) if as_json else click.echo(f"seed    {made['seed']}\npublic  {made['public']}")


@group.command()
@click.argument("actors", nargs=-1, required=True)
@click.option("--holder", required=True, help="The holder's public key, as `skep hive key` printed it.")
@click.option(
    "--allow", "operations", multiple=True, help="recall, answer, write, forget, join; may be repeated."
)
@click.option("--spend", type=int, help="Frames that all members together do something about.")
@click.option("--hours", type=float, default=24.0, show_default=True, help="How long it is good.")
@click.option("--scope", help="Only memories of this scope, such as user=ana,project=docs.")
@manifest_option
@json_option
def grant(
    actors: tuple[str, ...],
    holder: str,
    operations: tuple[str, ...],
    spend: int | None,
    hours: float,
    scope: str | None,
    path: str,
    as_json: bool,
) -> None:
    """Sign a token that lets a process speak for ACTORS; the issuer's seed is in SKEP_ISSUER_SEED."""
    from skep.hive.capabilities import Issuer, read_token
    from skep.hive.hive_manifest import load_name
    from skep.validation import clean_scope

    try:
        seed, public = bytes.fromhex(os.environ.get("SKEP_ISSUER_SEED", "")), bytes.fromhex(holder)
    except ValueError:
        raise click.ClickException("SKEP_ISSUER_SEED and --holder are 64 hexadecimal digits each") from None
    pairs = [] if scope is None else [part.partition("=") for part in scope.split(",")]
    parts = None if scope is None else {name: value for name, _, value in pairs}
    issuer = Issuer(seed)
    token = issuer.grant(
        load_name(path),
        actors,
        public,
        operations=operations or ("recall", "answer", "write"),
        spend=spend,
        hours=hours,
        scope=None if parts is None else clean_scope("scope", parts, 500),
    )
    number = read_token(token.encode(), issuer.public).nonce.hex()
    if as_json:
        print_json({"token": token, "number": number})
    else:
        click.echo(token)
        click.echo(f"number {number}, to revoke it with", err=True)


@group.command()
@manifest_option
@json_option
def status(path: str, as_json: bool) -> None:
    """Show members, memories, trust and what differs from the manifest."""
    found = _controller(path).status()
    if as_json:
        print_json(found)
        return
    click.echo(f"{found.name}: {found.topology}, {found.memories} memories, {len(found.agents)} agents")
    for member in found.members:
        notes = [f"{member.memories} memories", f"{member.events} events"]
        notes += [f"{member.quarantined} to review"] if member.quarantined else []
        notes += [f"{member.held} held back"] if member.held else []
        notes += [f"{member.behind} behind"] if member.behind else []
        click.echo(f"  {member.name}: {', '.join(notes)}")
    for name, trust in found.agents.items():
        if trust != 1.0:
            click.echo(f"  trust {name}: {trust:g}")
    if found.changes:
        click.echo(f"{found.changes} differences to the manifest; see: skep hive plan")


@group.command()
@click.argument("agent")
@click.argument("text")
@click.option("--confidence", type=float, help="How sure, 0 to 1.")
@manifest_option
@json_option
def add(agent: str, text: str, confidence: float | None, path: str, as_json: bool) -> None:
    """Let AGENT learn TEXT, and share it if the gateway agrees."""
    with _open(path) as hive:
        done = hive.agent(agent).remember(text, confidence=confidence)
    if as_json:
        print_json(done)
        return
    click.echo(memory_line(done.memory))
    click.echo(f"{done.decision.why()}" + (f", {done.copies} copies" if done.copies else ""))


@group.command()
@click.argument("agent")
@click.argument("query")
@click.option("--limit", default=5, show_default=True, help="At most this many.")
@manifest_option
@json_option
def ask(agent: str, query: str, limit: int, path: str, as_json: bool) -> None:
    """Ask the hive as AGENT."""
    with _open(path) as hive:
        answer = hive.agent(agent).recall(query, limit=limit)
    if as_json:
        print_json(answer)
        return
    for hit in answer:
        click.echo(f"{memory_line(hit.memory)}  ({hit.memory.agent}, {hit.score:.3f})")
    share = getattr(answer, "completeness", 1.0)
    if not answer.hits or share < 1.0:
        click.echo(f"{answer.reason or 'nothing found'} ({share:.0%} of the hive was heard)")


def _say_missing(names: tuple[str, ...]) -> None:
    if names:
        click.echo(f"not heard: {', '.join(names)}; ask again when they are back")


@group.command()
@manifest_option
@json_option
def review(path: str, as_json: bool) -> None:
    """List what the gateway held back, and changes that agents propose, by [the id to approve]."""
    with _open(path) as hive:
        waiting = hive.review()
    if as_json:
        print_json(waiting)
        return
    for one in waiting:
        click.echo(f"{memory_line(one.memory)}  by {one.memory.agent} on {when(one.memory.created_at)}")
        asked = f"[{one.proposal}] " if one.proposal else ""
        click.echo(f"    {asked}{one.reasons}")
    if not waiting:
        click.echo("nothing to review")
    _say_missing(waiting.missing)


@group.command()
@click.argument("memory_id")
@manifest_option
@json_option
def approve(memory_id: str, path: str, as_json: bool) -> None:
    """Let a memory that was held back into the hive, or make a change that was proposed."""
    with _open(path) as hive:
        memory = hive.approve(memory_id)
    print_json(memory) if as_json else click.echo(memory_line(memory))


@group.command()
@click.argument("memory_id")
@click.option("--reason", default="dismissed in review", help="Why, for its history.")
@manifest_option
@json_option
def dismiss(memory_id: str, reason: str, path: str, as_json: bool) -> None:
    """Refuse a memory that was held back, or a change that was proposed."""
    with _open(path) as hive:
        memory = hive.dismiss(memory_id, reason)
    print_json(memory) if as_json else click.echo(memory_line(memory))


@group.command()
@click.argument("agent")
@click.argument("verb", default="*")
@click.option("--of", default="*", help="Whose memories; everybody's by default.")
@click.option("--revoke", is_flag=True, help="Take all rights of AGENT back.")
@manifest_option
@json_option
def right(agent: str, verb: str, of: str, revoke: bool, path: str, as_json: bool) -> None:
    """Let AGENT change what others wrote: one VERB, such as retract, or everything."""
    with _open(path) as hive:
        hive.rights.revoke(agent) if revoke else hive.rights.grant(agent, verb, of=of)
        held = hive.rights.of(agent)
    print_json(held) if as_json else click.echo(f"{agent}: {', '.join(held) or 'what it wrote itself'}")


@group.command()
@click.argument("question")
@click.option("--limit", default=5, help="Agents at most.")
@manifest_option
@json_option
def route(question: str, limit: int, path: str, as_json: bool) -> None:
    """Name the agents that know about QUESTION."""
    with _open(path) as hive:
        experts = hive.route(question, limit=limit)
    if as_json:
        print_json(experts)
        return
    for one in experts:
        click.echo(f"{one.agent}  {one.score:.2f}  {len(one.memories)} memories")


@group.command()
@click.argument("agent", required=False)
@click.argument("value", type=float, required=False)
@manifest_option
@json_option
def trust(agent: str | None, value: float | None, path: str, as_json: bool) -> None:
    """Show how far agents are trusted, or set it for AGENT: 0 to 2, 1 is usual.

    The manifest's value is restored by the next `apply`.
    """
    with _open(path) as hive:
        if agent is not None and value is not None:
            hive.trust.set(agent, value)
        found = hive.trust.all() if agent is None else {agent: hive.trust.of(agent)}
    if as_json:
        print_json(found)
        return
    for name, level in sorted(found.items()):
        click.echo(f"{name}: {level:g}")


@group.command()
@click.argument("source")
@click.option("--since", help="Only what was written at or after this time, such as 2026-05-01.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Show the blast radius; change nothing.")
@manifest_option
@json_option
def rollback(source: str, since: str | None, yes: bool, dry_run: bool, path: str, as_json: bool) -> None:
    """Take back all that SOURCE (an agent, a file, an address) wrote, and what was derived from it."""
    from skep.validation import clean_time

    moment = None if since is None else clean_time("since", since)
    with _open(path) as hive:
        radius = hive.rollback(source, since=moment, dry_run=True)
        if not as_json:
            click.echo("\n".join(radius.lines()))
        empty = not (radius.written or radius.derived or radius.confirmations or radius.changes)
        if not dry_run and not empty:
            if not yes:
                click.confirm("retract all of these, in every copy?", abort=True)
            radius = hive.rollback(source, since=moment)
    if as_json:
        print_json(radius)
    elif radius.applied:
        click.echo("done; `skep hive rollback` retracts, so each can be restored")


@group.command()
@manifest_option
@json_option
def gc(path: str, as_json: bool) -> None:
    """Mark what has expired, in every copy."""
    with _open(path) as hive:
        gone = hive.gc()
    if as_json:
        print_json(gone)
    else:
        click.echo(f"{len(gone)} memories had expired")
        _say_missing(gone.missing)


@group.command()
@manifest_option
@json_option
def repair(path: str, as_json: bool) -> None:
    """Bring every copy up to date."""
    with _open(path) as hive:
        done = hive.repair()
    if as_json:
        print_json(done)
        return
    click.echo(f"{done.events} events moved")
    if done.missing:
        click.echo(f"not reached: {', '.join(done.missing)}; repair again when they are back")
    for event, fault in list(done.refused.items())[:5]:
        click.echo(f"  refused {event}: {fault}")


@group.command("eval")
@click.argument("turns", type=click.Path())
@click.argument("questions", type=click.Path())
@click.option(
    "--agents", "counts", multiple=True, type=click.IntRange(1, 1000), help="How many; may be repeated."
)
@click.option(
    "--topology",
    "topologies",
    multiple=True,
    type=click.Choice(["single", "flat", "federated", "sharded", "distributed"]),
    help="The layout; may be repeated; default: all, distributed only with --bus.",
)
@click.option("--bus", help="The bus of a distributed layout: three processes that talk over it.")
@click.option(
    "--learn", "learns", is_flag=True, help="Learn the facts of each turn instead of keeping it as it is."
)
@click.option(
    "--llm", "llm_spec", envvar="SKEP_LLM", help="The language model that words answers; none: quotes."
)
@click.option("--llm-url", help="Another address that speaks the same dialect.")
@click.option("--llm-price", type=float, default=0.0, help="The price of a million tokens.")
@click.option("--max-tokens", type=int, default=1_000_000, show_default=True, help="Spend at most this many.")
@json_option
def evaluate(
    turns: str,
    questions: str,
    counts: tuple[int, ...],
    topologies: tuple[str, ...],
    bus: str | None,
    learns: bool,
    llm_spec: str | None,
    llm_url: str | None,
    llm_price: float,
    max_tokens: int,
    as_json: bool,
) -> None:
    """Feed TURNS to agents in every layout, ask them QUESTIONS, and grade the answers.

    Both are files of JSON lines (or .gz): turns with a "text", questions with a "text" and the "keywords" that a right
    answer holds. The score is the share of keywords in the answer, "read" the share in what was read for it.
    """
    from skep.agent import evaluation

    told, asked = evaluation.read_turns(Path(turns)), evaluation.read_questions(Path(questions))
    llm = None
    if llm_spec is not None:
        from skep.llm import Budget, open_llm

        budget = Budget(max_tokens=max_tokens)
        llm = open_llm(llm_spec, base_url=llm_url, price=llm_price, budget=budget, environ=os.environ)
    plan: list[tuple[Any, int]] = []
    for topology in topologies or (*evaluation.TOPOLOGIES, *(("distributed",) if bus else ())):
        plan += [(topology, 1)] if topology == "single" else [(topology, n) for n in counts or (10,)]
    grades: list[Any] = []
    if not as_json:
        click.echo(evaluation.HEADING)
    for topology, count in plan:
        grade = evaluation.evaluate(topology, count, told, asked, llm=llm, learns=learns, bus=bus)
        grades.append(grade)
        if not as_json:
            click.echo(grade.line())
    if as_json:
        print_json(grades)
        return
    for grade in grades:
        flat = next((one for one in grades if one.topology == "flat" and one.agents == grade.agents), None)
        if flat is not None and grade is not flat:
            difference, margin = evaluation.compared(grade, flat)
            click.echo(
                f"{grade.topology} against flat, {grade.agents} agents: {difference:+.1f} ±{margin:.1f}"
            )
