"""Commands about memories, their links and the event log: add, search, revise, link, history, undo and the like."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Generator
from typing import Any

import click
import msgspec

from skep.bank.bank import Bank
from skep.cli.app import (
    JOINED,
    NOTHING_FOUND,
    SPAN,
    asked_scope,
    common,
    memory_line,
    open_bank,
    print_json,
    progress_bar,
    scope_of,
    scope_options,
    stage_line,
    when,
)
from skep.config import POLICIES
from skep.embedding.remote import KEYS
from skep.engine.embeddings import Progress
from skep.errors import InvalidInputError
from skep.model import KINDS, NOT_READ, RELATIONS, STATUSES, WORDS_ALONE, Conflict, Event, Ranked, Recalled
from skep.private_parts import whole_lines, without_private
from skep.validation import CLEARED

MARK = "\ufeff"
"""What some editors and shells put before the first line."""
_ON_CONFLICT = click.Choice(POLICIES)


@click.command()
@click.argument("text", required=False)
@click.option("--kind", type=click.Choice(KINDS), default="fact", show_default=True, help="What sort it is.")
@click.option("--title", help="A short heading.")
@click.option("--domain", help="The field it belongs to.")
@click.option("--agent", help="Who learnt it.")
@click.option("--tag", "tags", multiple=True, help="A label; may be repeated.")
@click.option("--source", help="Where it comes from.")
@click.option("--confidence", type=float, help="How sure, 0 to 1.")
@click.option("--importance", type=float, help="How much it matters, 0 to 1.")
@click.option("--valid-from", help="Since when it holds (ISO 8601).")
@click.option("--valid-to", help="Until when it holds (ISO 8601).")
@click.option("--ttl", type=SPAN, help="After how long it expires: seconds, or 30m, 24h, 7d.")
@click.option("--polarity", type=click.Choice(["-1", "0", "1"]), help="-1: says that something is not so.")
@click.option("--pinned", is_flag=True, help="Maintenance leaves it alone.")
@click.option("--metadata", metavar="JSON", help="Anything else, as a JSON object.")
@click.option("--key", help="Your own name for it; who has it in this scope is revised.")
@click.option("--whole", is_flag=True, help="Standard input is one memory, line breaks and all.")
@click.option(
    "--redact/--no-redact",
    default=True,
    show_default=True,
    help="Take out first what `skep redact` shows; secrets where nobody chose.",
)
@click.option(
    "--redact-kind",
    "redact_kinds",
    multiple=True,
    help="Take this kind out, and no other; `personal` and `all` are known, too; may be repeated.",
)
@click.option(
    "--on-conflict",
    type=_ON_CONFLICT,
    help="Default: what `skep config --on-conflict` has set, else warn; ignore for standard input.",
)
@scope_options
@common
def add(
    text: str | None,
    on_conflict: str | None,
    whole: bool,
    metadata: str | None,
    polarity: str | None,
    user: str | None,
    project: str | None,
    session: str | None,
    bank_path: str | None,
    as_json: bool,
    redact: bool,
    redact_kinds: tuple[str, ...],
    **fields: Any,
) -> None:
    """Remember TEXT. With - or no TEXT: one memory per line of standard input, plain or as JSON objects.

    A private part that goes over several lines joins them.
    """
    fields = {
        key: value
        for key, value in fields.items()
        if value is not None and value is not False and value != ()
    }
    if redact_kinds:
        fields["redact"] = redact_kinds
    elif not redact:
        fields["redact"] = False
    if metadata is not None:
        fields["metadata"] = _object("--metadata", metadata)
    if polarity is not None:
        fields["polarity"] = int(polarity)
    if whole:
        if text not in (None, "-"):
            raise click.UsageError("--whole takes the memory from standard input; leave TEXT out")
        text = _decoded(sys.stdin.buffer.read(), "standard input").removeprefix(MARK).strip()
    scope = scope_of(user, project, session)
    if scope:
        fields["scope"] = scope
    with open_bank(bank_path) as bank:
        if text not in (None, "-"):
            result = bank.remember(text, on_conflict=on_conflict, **fields)  # type: ignore[arg-type]
            if as_json:
                print_json(result)
                return
            click.echo(result.memory.id)
            if result.action != "stored":
                click.echo(f"{result.action}", err=True)
            for conflict in result.conflicts:
                click.echo(_conflict_line(conflict), err=True)
            if result.redactions:
                click.echo(f"taken out: {', '.join(result.redactions)}", err=True)
            return
        if sys.stdin.isatty():
            raise click.UsageError("give a text, or lines on standard input")
        lines = [
            _decoded(line, f"line {number} of standard input").strip("\r\n")
            for number, line in enumerate(sys.stdin.buffer, 1)
        ]
        lines[:1] = [line.removeprefix(MARK) for line in lines[:1]]
        items = {
            number: _item(number, text.strip(), fields)
            for number, text in whole_lines(lines, apart="{")
            if text.startswith("{") or without_private(text).strip()
        }
        with (
            progress_bar("remembering", "memories") as progress,
            _told_where_it_stopped(progress) as counted,
            _told_which_line(list(items)),
        ):
            policy: Any = on_conflict
            results = bank.remember_many(items.values(), on_conflict=policy, progress=counted)
        if as_json:
            print_json([result.memory.id for result in results])
        else:
            for result in results:
                click.echo(result.memory.id)
            taken = dict.fromkeys(kind for result in results for kind in result.redactions)
            if taken:
                click.echo(f"taken out: {', '.join(taken)}", err=True)


@contextlib.contextmanager
def _told_where_it_stopped(progress: Progress) -> Generator[Progress]:
    """Counts what is stored; an interrupt says how much, so that nobody stores it twice."""
    at = (0, 0)

    def counted(done: int, total: int) -> None:
        nonlocal at
        at = (done, total)
        progress(done, total)

    try:
        yield counted
    except KeyboardInterrupt:
        if at[0]:
            click.echo(f"stopped: {at[0]:,} of {at[1]:,} are stored, in the order given", err=True)
        raise


@contextlib.contextmanager
def _told_which_line(numbers: list[int]) -> Generator[None]:
    """Errors about an item name the line it stands on."""
    try:
        yield
    except InvalidInputError as error:
        found = re.match(r"item (\d+): ", str(error))
        if found is not None:
            error.args = (f"line {numbers[int(found[1])]} of standard input: {str(error)[found.end() :]}",)
        raise


def _object(option: str, given: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise click.BadParameter(f"{option} must be a JSON object ({error})") from None


def _decoded(given: bytes, what: str) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"{what} cannot be read: {error}") from error


def _item(number: int, text: str, fields: dict[str, Any]) -> dict[str, Any]:
    if not text.startswith("{"):
        return {**fields, "text": text}
    try:
        return {**fields, **msgspec.json.decode(text, type=dict[str, Any])}
    except msgspec.MsgspecError as error:
        raise InvalidInputError(
            f"line {number} of standard input begins like a JSON object but is none ({error}); mend it, or write it as"
            ' {"text": "..."}'
        ) from error


def _conflict_line(conflict: Conflict) -> str:
    return (
        click.style(JOINED[conflict.kind], fg="yellow")
        + f" {conflict.existing.id}: {conflict.existing.text}"
        + click.style(f"  ({conflict.reason}, {conflict.confidence:.0%} sure)", dim=True)
    )


def _conditions(_ctx: click.Context, _param: click.Parameter, given: str | None) -> dict[str, Any] | None:
    return None if given is None else _object("--metadata", given)


def metadata_option(command: Any) -> Any:
    """`--metadata`: conditions on metadata, checked."""
    return click.option(
        "--metadata",
        metavar="JSON",
        callback=_conditions,
        help='Only where metadata hold this, as {"lang": "en", "price": {"$lt": 5}}.',
    )(command)


@click.command()
@click.argument("query")
@click.option("-n", "--limit", type=int, help="At most so many; 5, or what the deployed config says.")
@click.option("--kind", type=click.Choice(KINDS), multiple=True, help="Only this kind; may be repeated.")
@click.option("--tag", "tags", multiple=True, help="Only with this label; may be repeated.")
@click.option("--domain", help="Only of this field.")
@click.option("--agent", help="Only what this one learnt.")
@click.option("--since", help="Made at or after this time (ISO 8601).")
@click.option("--until", help="Made before this time (ISO 8601).")
@click.option("--valid-at", help="What held at that time, as far as it is known now.")
@click.option("--as-of", help="Answer as the bank would have at that time.")
@click.option("--min-confidence", type=float, help="Only what is at least so sure, 0 to 1.")
@click.option("--min-importance", type=float, help="Only what is at least so important, 0 to 1.")
@metadata_option
@click.option("--preset", help="A named way to rank.")
@click.option("--config", metavar="JSON", help="Fields of a recall config that override the bank's.")
@click.option(
    "--bar",
    type=click.Choice(["weak", "likely", "strong"]),
    help="Nothing below this level; exit code 3 if nothing is left.",
)
@click.option("--include-superseded", is_flag=True, help="Also what was replaced or merged.")
@click.option("--expand/--no-expand", default=None, help="Follow links from the hits, or not.")
@click.option("--rel", "relations", multiple=True, help="Follow links of this kind; may be repeated.")
@click.option("--depth", type=int, help="Follow links so many steps.")
@click.option("--cap", type=int, help="Add at most so many memories by links.")
@click.option("--decay", type=float, help="A linked memory scores this share of where the link came from.")
@click.option("--explain", is_flag=True, help="Say why each was returned and what each stage did.")
@click.option(
    "--reranker",
    metavar="FOLDER|NAME",
    help="Let a cross-encoder order the best: a folder (ONNX, extra 'quality'), cohere:MODEL or voyage:MODEL.",
)
@click.option(
    "--ids", "ids_alone", is_flag=True, help="Only id and score of each, one a line; counts no use."
)
@asked_scope
@common
def search(
    query: str,
    kind: tuple[str, ...],
    explain: bool,
    ids_alone: bool,
    reranker: str | None,
    config: str | None,
    bar: str | None,
    bank_path: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Print the memories that fit QUERY, best first."""
    if ids_alone and explain:
        raise click.UsageError("--ids gives no memory to explain; leave --explain out")
    if config is not None or bar is not None:
        given = {} if config is None else _object("--config", config)
        options["config"] = given if bar is None else {**given, "bar": bar}
    walk = {name: options.pop(name) for name in ("relations", "depth", "cap", "decay")}
    walk = {name: value for name, value in walk.items() if value is not None and value != ()}
    if walk:
        options["expand"] = walk
    if reranker is not None:
        options["reranker"] = _reranker(reranker)
    with open_bank(bank_path, create=False) as bank:
        if ids_alone:
            _show_order(bank.rank(query, kind=kind or None, **options), as_json=as_json)
            return
        found = bank.recall(query, kind=kind or None, explain=explain, **options)
    if as_json:
        print_json(found)
    for hit in () if as_json else found.hits:
        mark = click.style(f" ({', '.join(hit.flags)})", fg="yellow") if hit.flags else ""
        score = click.style(f"{hit.score:.3f} {hit.level:6}", fg="green")
        click.echo(f"{score}  {memory_line(hit.memory)}{mark}")
        if explain:
            click.echo(click.style(f"       {hit.why()}", dim=True))
    if explain and not as_json:
        for stage in found.trace:
            click.echo(click.style(stage_line(stage), dim=True), err=True)
    _say_why(found, quiet=as_json)


def _say_why(found: Recalled | Ranked, *, quiet: bool) -> None:
    """Say why there is nothing, or less than there might be; the exit code tells a script that there is nothing."""
    if not quiet and (not found or WORDS_ALONE in found.reason or NOT_READ in found.reason):
        click.echo(found.reason or "nothing found", err=True)
    if not found:
        raise click.exceptions.Exit(NOTHING_FOUND)


def _reranker(named: str) -> Any:
    """A service by name, with its key from the environment; or a cross-encoder in a folder."""
    from skep.retrieval.rerank_services import RERANK_SERVICES, open_reranker

    name = named.partition(":")[0]
    if name in RERANK_SERVICES and ":" in named:
        key = next((os.environ[each] for each in KEYS[name] if os.environ.get(each)), None)
        return open_reranker(named, api_key=key)
    from skep.retrieval.rerankers import CrossEncoder

    return CrossEncoder(named)


def _show_order(found: Ranked, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    for memory_id, score in () if as_json else found:
        click.echo(f"{memory_id}  {score:.3f}")
    _say_why(found, quiet=as_json)


@click.command()
@click.argument("memory_id")
@common
def get(memory_id: str, bank_path: str | None, as_json: bool) -> None:
    """Print the memory MEMORY_ID with all of its fields."""
    with open_bank(bank_path, create=False) as bank:
        memory = bank.get(memory_id)
    if as_json:
        print_json(memory)
        return
    for name, value in msgspec.to_builtins(memory).items():
        if value not in (None, "", [], (), {}, False):
            shown = when(value) if name.endswith("_at") or name in ("valid_from", "valid_to") else value
            click.echo(f"{click.style(name, fg='cyan'):>30}  {shown}")


@click.command("list")
@click.argument("text", required=False)
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="At most so many.")
@click.option("--kind", type=click.Choice(KINDS), multiple=True, help="Only this kind; may be repeated.")
@click.option(
    "--status",
    type=click.Choice([*STATUSES, "all"]),
    multiple=True,
    help="Default: what is current; may be repeated.",
)
@click.option("--tag", "tags", multiple=True, help="Only with this label; may be repeated.")
@click.option("--domain", help="Only of this field.")
@click.option("--agent", help="Only what this one learnt.")
@click.option("--since", help="Made at or after this time (ISO 8601).")
@click.option("--until", help="Made before this time (ISO 8601).")
@click.option("--valid-at", help="What held at that time, as far as it is known now.")
@metadata_option
@click.option("--key", help="Only what has this key.")
@click.option("--cursor", help="Go on where the last page ended.")
@asked_scope
@common
def list_(
    text: str | None,
    kind: tuple[str, ...],
    status: tuple[str, ...],
    bank_path: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """List memories, newest first; with TEXT, those that hold all of its words."""
    if status:
        options["status"] = None if "all" in status else status
    with open_bank(bank_path, create=False) as bank:
        page = bank.find(text, kind=kind or None, **options)
    if as_json:
        print_json(page)
    for memory in () if as_json else page:
        click.echo(memory_line(memory))
    if page.cursor and not as_json:
        click.echo(f"more: --cursor {page.cursor}", err=True)
    if not page:
        click.echo("nothing found", err=True)
        raise click.exceptions.Exit(NOTHING_FOUND)


@click.command()
@click.argument("memory_id")
@click.argument("text", required=False)
@click.option("--title", help="A short heading.")
@click.option("--domain", help="The field it belongs to.")
@click.option("--agent", help="Who learnt it.")
@click.option("--source", help="Where it comes from.")
@click.option("--tag", "tags", multiple=True, help="Replaces all tags; may be repeated.")
@click.option("--confidence", type=float, help="How sure, 0 to 1.")
@click.option("--importance", type=float, help="How much it matters, 0 to 1.")
@click.option("--valid-from", help="Since when it holds (ISO 8601).")
@click.option("--valid-to", help="Until when it holds (ISO 8601).")
@click.option("--ttl", type=SPAN, help="How long from now it expires: seconds, or 30m, 24h, 7d.")
@click.option("--key", help="Your own name for it.")
@click.option("--expect", "expected_version", type=int, help="Only if it still has this version.")
@click.option(
    "--clear", multiple=True, type=click.Choice(sorted(CLEARED)), help="Empty this field; may be repeated."
)
@scope_options
@common
def revise(
    memory_id: str,
    clear: tuple[str, ...],
    user: str | None,
    project: str | None,
    session: str | None,
    bank_path: str | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Change MEMORY_ID; what it said before stays in its history. A scope replaces the whole scope."""
    changes: dict[str, Any] = {key: value for key, value in fields.items() if value not in (None, ())}
    scope = scope_of(user, project, session)
    if scope:
        changes["scope"] = scope
    both = sorted(set(clear) & set(changes))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be set and cleared at once")
    changes |= dict.fromkeys(clear)
    with open_bank(bank_path, create=False) as bank:
        memory = bank.revise(memory_id, **changes)
    print_json(memory) if as_json else click.echo(memory_line(memory))


def _simple(name: str, verb: str, help_: str) -> click.Command:
    @click.command(name, help=help_)
    @click.argument("memory_id")
    @click.option("--reason", help="Why; kept in the history.")
    @common
    def command(memory_id: str, reason: str | None, bank_path: str | None, as_json: bool) -> None:
        with open_bank(bank_path, create=False) as bank:
            memory = getattr(bank, verb)(memory_id, reason)
        print_json(memory) if as_json else click.echo(memory_line(memory))

    return command


retract = _simple("retract", "retract", "Take MEMORY_ID back: out of every recall, kept in history.")
restore = _simple("restore", "restore", "Make MEMORY_ID current again.")


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--reason", help="Why; kept in the history.")
@common
def supersede(old: str, new: str, reason: str | None, bank_path: str | None, as_json: bool) -> None:
    """Say that the memory NEW replaces OLD."""
    with open_bank(bank_path, create=False) as bank:
        memory = bank.supersede(old, new, reason)
    print_json(memory) if as_json else click.echo(memory_line(memory))


def _about(bank: Bank, subject: str) -> list[str]:
    """The ids of what is stored about a subject, whatever its status."""
    anyone = {"user": "*", "project": "*", "session": "*"}
    conditions: list[dict[str, Any]] = [
        {"text": subject},
        {"tags": [subject]},
        {"scope": {**anyone, "user": subject}},
        {"scope": {**anyone, "project": subject}},
    ]
    found: dict[str, None] = {}
    for condition in conditions:
        cursor: str | None = None
        while True:
            page = bank.find(**condition, status=None, limit=1000, cursor=cursor)
            found.update(dict.fromkeys(memory.id for memory in page))
            cursor = page.cursor
            if cursor is None:
                break
    hits = bank.recall(subject, limit=20, include_superseded=True)
    return [*found, *(hit.memory.id for hit in hits if hit.level != "weak" and hit.memory.id not in found)]


@click.command()
@click.argument("memory_ids", nargs=-1)
@click.option("--about", metavar="SUBJECT", help="Everything about this: a name, a user, a tag, a subject.")
@click.option("--dry-run", is_flag=True, help="Say what would be erased, and erase nothing.")
@click.option("--derived", is_flag=True, help="Also what was derived from them or merged with them.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def forget(
    memory_ids: tuple[str, ...],
    about: str | None,
    dry_run: bool,
    derived: bool,
    yes: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Erase MEMORY_IDS for good, from the file, the index and the backups skep made.

    With --about: whatever holds all of these words, is for the user or the project or has the tag of that name, and
    what recall probably means by it; shown first, and asked about unless --yes is given.
    """
    if bool(memory_ids) == (about is not None):
        raise click.UsageError("give ids, or --about SUBJECT")
    with open_bank(bank_path, create=False) as bank:
        ids = memory_ids if about is None else tuple(_about(bank, about))
        asks = not (dry_run or yes) and sys.stdin.isatty() and not as_json
        if about is not None and not (asks or dry_run or yes):
            raise click.UsageError(
                "--about finds by words; look at what it finds with --dry-run, then give --yes"
            )
        if asks or about is not None:
            for memory_id in ids:
                click.echo(memory_line(bank.get(memory_id)), err=True)
        if not ids:
            click.echo(f"nothing is stored about {about!r}", err=True)
            raise click.exceptions.Exit(NOTHING_FOUND)
        if asks:
            click.confirm("Erase for good? Nothing brings it back.", abort=True, err=True)
        receipt = bank.forget(ids, dry_run=dry_run, derived=derived)
    if as_json:
        print_json(receipt)
        return
    places = ", ".join(f"{place} {count}" for place, count in receipt.erased.items())
    click.echo(f"{'would erase' if dry_run else 'erased'}: {places}")
    for memory_id in receipt.derived:
        click.echo(f"derived from it and now stale: {memory_id} (--derived erases it too)", err=True)
    for memory_id in receipt.copies:
        click.echo(f"merged with it and says the same: {memory_id} (--derived erases it too)", err=True)
    for copy in receipt.unreached:
        click.echo(f"not reached: {copy}", err=True)


@click.command()
@click.argument("memory_id", required=False)
@click.option(
    "--threshold",
    type=float,
    default=0.3,
    show_default=True,
    help="How near by meaning two must be to be compared, 0 to 1; those that share most words always are.",
)
@asked_scope
@common
def conflicts(memory_id: str | None, bank_path: str | None, as_json: bool, **options: Any) -> None:
    """Find duplicates, contradictions and updates: of MEMORY_ID, or in the whole bank."""
    with open_bank(bank_path, create=False) as bank, progress_bar("comparing", "pairs") as progress:
        found = bank.find_conflicts(memory_id, progress=progress, **options)
    if as_json:
        print_json(found)
        return
    for conflict in found:
        if conflict.memory is not None:
            click.echo(memory_line(conflict.memory))
        click.echo("  " + _conflict_line(conflict))
    if not found:
        click.echo("no conflicts", err=True)


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option(
    "--rel",
    default="related",
    show_default=True,
    help=f"How they relate: {', '.join(RELATIONS)}, or a word of your own.",
)
@click.option("--strength", type=float, default=1.0, show_default=True, help="How strongly, 0 to 1.")
@click.option("--dangling", is_flag=True, help="DST need not be there (yet).")
@common
def link(
    src: str, dst: str, rel: str, strength: float, dangling: bool, bank_path: str | None, as_json: bool
) -> None:
    """Link the memory SRC to DST."""
    with open_bank(bank_path, create=False) as bank:
        made = bank.link(src, dst, rel, strength, dangling=dangling)
    print_json(made) if as_json else click.echo(f"{made.src} -{made.rel}-> {made.dst}")


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option("--rel", help="Only this relation.")
@common
def unlink(src: str, dst: str, rel: str | None, bank_path: str | None, as_json: bool) -> None:
    """Remove the links from SRC to DST."""
    with open_bank(bank_path, create=False) as bank:
        removed = bank.unlink(src, dst, rel)
    print_json({"removed": removed}) if as_json else click.echo(f"removed {removed}")


@click.command()
@click.argument("memory_id")
@click.option("--rel", help="Only this relation.")
@click.option(
    "--direction",
    type=click.Choice(["out", "in", "both"]),
    default="both",
    show_default=True,
    help="Links from it, to it, or both.",
)
@click.option("--depth", type=int, default=1, show_default=True, help="How many links away.")
@asked_scope
@common
def neighbors(
    memory_id: str,
    rel: str | None,
    direction: str,
    depth: int,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show what MEMORY_ID is linked to."""
    with open_bank(bank_path, create=False) as bank:
        graph = bank.neighbors(
            memory_id,
            rel,
            direction,  # type: ignore[arg-type]
            depth,
            scope=scope,
            include_shared=include_shared,
        )
    if as_json:
        print_json(graph)
        return
    for made in graph.links:
        click.echo(f"{made.src} -{made.rel}-> {made.dst}")
    for memory in graph.memories.values():
        click.echo(memory_line(memory))
    for gone in graph.dangling:
        click.echo(f"{gone}  (gone)", err=True)


@click.command()
@click.argument("src")
@click.argument("dst")
@click.option("--max-depth", type=int, default=6, show_default=True, help="Look no further than this.")
@asked_scope
@common
def path(
    src: str,
    dst: str,
    max_depth: int,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show the fewest links that lead from SRC to DST."""
    with open_bank(bank_path, create=False) as bank:
        found = bank.path(src, dst, max_depth, scope=scope, include_shared=include_shared)
    if as_json:
        print_json(found)
        return
    for made in found:
        click.echo(f"{made.src} -{made.rel}-> {made.dst}")
    if not found and src != dst:
        click.echo("no links lead there", err=True)


def _line(event: Event) -> str:
    body = msgspec.json.encode(event.body).decode()
    shown = body if len(body) <= 100 else body[:97] + "..."
    kind = click.style(f"{event.kind:<10}", bold=True)
    return f"{click.style(event.id, fg='cyan')}  {when(event.at)}  {kind} {shown}"


@click.command()
@click.argument("memory_id", required=False)
@click.option("-n", "--limit", type=int, default=20, show_default=True, help="The newest so many.")
@asked_scope
@common
def history(
    memory_id: str | None,
    limit: int,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show what happened to MEMORY_ID, oldest first; without it, what happened last, newest first."""
    with open_bank(bank_path, create=False) as bank:
        events = bank.history(memory_id, limit=limit, scope=scope, include_shared=include_shared)
    if as_json:
        print_json(
            [{"id": event.id, "at": event.at, "kind": event.kind, "body": event.body} for event in events]
        )
        return
    for event in events:
        click.echo(_line(event))


@click.command()
@click.argument("memory_id")
@asked_scope
@common
def blame(
    memory_id: str,
    scope: dict[str, str] | None,
    include_shared: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Show which event last set each field of MEMORY_ID."""
    with open_bank(bank_path, create=False) as bank:
        found = bank.blame(memory_id, scope=scope, include_shared=include_shared)
    if as_json:
        print_json({field: {"event": e.id, "at": e.at, "kind": e.kind} for field, e in found.items()})
        return
    for field, event in sorted(found.items()):
        click.echo(f"{field:>16}  {event.id}  {when(event.at)}  {event.kind}")


@click.command()
@click.argument("event_id")
@click.option("--reason", help="Why; kept in the history.")
@click.option("--dry-run", is_flag=True, help="Show the event, and undo nothing.")
@common
def undo(event_id: str, reason: str | None, dry_run: bool, bank_path: str | None, as_json: bool) -> None:
    """Make EVENT_ID as if it had never been; undoing the undo brings it back."""
    with open_bank(bank_path, create=False) as bank:
        event = bank.event(event_id) if dry_run else bank.undo(event_id, reason)
    if as_json:
        print_json({"id": event.id, "kind": event.kind, "body": event.body, "dry_run": dry_run})
    else:
        click.echo(_line(event))
