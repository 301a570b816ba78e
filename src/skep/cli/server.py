"""Commands of the server: serve, and the tokens that open it. Requests are answered by `server`; the environment is
read here."""

from __future__ import annotations

import os

import click

from skep.cli.app import SPAN, json_option, outer_bank, print_json, scope_of, scope_options, when
from skep.config import bank_file, bank_url
from skep.model import Scope

TOKENS = click.option(
    "--tokens", type=click.Path(), help="The file of tokens; default: in the user's data folder."
)


@click.command()
@click.argument("banks", nargs=-1, metavar="[BANK|NAME=BANK]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8420, show_default=True, help="0 takes a free one."
)
@click.option("--no-auth", is_flag=True, help="On the loopback address: ask for no token.")
@click.option("--allow-host", "hosts", multiple=True, help="A host name that clients may use.")
@click.option("--origin", "origins", multiple=True, help="A web origin that may call the server.")
@click.option(
    "--rate",
    type=click.FloatRange(0.1),
    default=500.0,
    show_default=True,
    help="Requests per second, per token.",
)
@click.option("--demo", is_flag=True, help="Serve a sample bank that is thrown away, and open the page.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser.")
@TOKENS
def serve(
    *,
    banks: tuple[str, ...],
    host: str,
    port: int,
    no_auth: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    rate: float,
    demo: bool,
    opens: bool,
    tokens: str | None,
) -> None:
    """Serve banks over HTTP: the API, the page in the browser, and MCP.

    Without a BANK, the one that other commands would use. On the loopback address a token is made up for this run and
    printed with the address of the page; everywhere else `skep token add` makes one first.
    """
    import contextlib
    from tempfile import TemporaryDirectory

    from skep.server.serve_process import serve as run
    from skep.server.serve_process import token_file
    from skep.server.served_banks import ServedBanks, named_banks, opener

    if demo and banks:
        raise click.UsageError("--demo serves a sample bank; leave BANK out")
    opening = opener(os.environ)

    def started(url: str, secret: str | None) -> None:
        page = f"{url}#token={secret}" if secret else url
        for name, place in served.places.items():
            if place in new:
                click.echo(f"{place} was not there and is a new bank, {name}", err=True)
        click.echo(f"serving {url} with {', '.join(served.places)}", err=True)
        if secret:
            click.echo(f"token for this run: {secret}", err=True)
        click.echo(f"page: {page}", err=True)
        if opens or demo:
            import threading
            import webbrowser

            threading.Timer(0.5, webbrowser.open, [page]).start()

    with contextlib.ExitStack() as stack:
        if demo:
            from skep.clock import system_now
            from skep.embedding.remote import from_environment
            from skep.server.sample_bank import fill

            folder = stack.enter_context(TemporaryDirectory())
            places = {"demo": os.path.join(folder, "demo.skep")}
            fill(places["demo"], system_now(), from_environment(os.environ))
        elif banks:
            places = {
                name: bank_url(place, {}) or bank_file(place, {}, ".")
                for name, place in named_banks(banks).items()
            }
        else:
            named = outer_bank()
            url = bank_url(named, os.environ)
            places = {"main": url} if url else named_banks([bank_file(named, os.environ, os.getcwd())])
        new = {place for place in places.values() if "://" not in place and not os.path.exists(place)}
        served = ServedBanks(places, opening)
        run(
            served,
            token_file(tokens, os.environ),
            host=host,
            port=port,
            no_auth=no_auth,
            allowed_hosts=hosts,
            origins=origins,
            rate=rate,
            started=started,
        )


@click.group("token")
def token_group() -> None:
    """Who may use the server: add, list and revoke tokens."""


def _listed(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


@token_group.command()
@click.argument("name")
@click.option(
    "--rights",
    default="read,write",
    show_default=True,
    callback=_listed,
    help="read, write, erase, review, manage, or single verbs; separated by commas.",
)
@click.option(
    "--banks", default="*", show_default=True, callback=_listed, help="Names of banks, separated by commas."
)
@click.option("--person", is_flag=True, help="A person holds it: it may decide what waits for one.")
@click.option("--expires", type=SPAN, help="For how long it is valid, such as 30d; for good if not said.")
@click.option("--rate", type=float, help="Requests per second, in place of the server's limit.")
@scope_options
@TOKENS
@json_option
def add(
    *,
    name: str,
    rights: list[str],
    banks: list[str],
    person: bool,
    expires: float | None,
    rate: float | None,
    user: str | None,
    project: str | None,
    session: str | None,
    tokens: str | None,
    as_json: bool,
) -> None:
    """Make a token NAME and print it, this once.

    With --user, --project or --session it sees memories of that scope and shared ones alone; * stands for any.
    """
    from skep.server.serve_process import token_file
    from skep.validation import clean_scope

    parts = scope_of(user, project, session)
    scope: Scope | None = None if parts is None else clean_scope("scope", parts, 500, asked=True)
    secret, token = token_file(tokens, os.environ).add(
        name, rights=rights, banks=banks, scope=scope, person=person, rate=rate, seconds=expires
    )
    if as_json:
        print_json({"token": secret, "name": token.name, "expires_at": token.expires_at})
        return
    click.echo(secret)
    click.echo("keep it now: it is not shown again", err=True)


@token_group.command("list")
@TOKENS
@json_option
def list_(*, tokens: str | None, as_json: bool) -> None:
    """List the tokens and what each opens; the tokens themselves are not kept."""
    from skep.server.serve_process import token_file

    found = token_file(tokens, os.environ).list()
    if as_json:
        shown = [{"name": t.name, "rights": t.rights, "banks": t.banks, "scope": t.scope, "person": t.person,
                  "expires_at": t.expires_at} for t in found]  # fmt: skip
        print_json(shown)
        return
    for token in found:
        notes = [", ".join(token.rights), "banks " + ", ".join(token.banks)]
        if token.scope is not None:
            parts = {"user": token.scope.user, "project": token.scope.project, "session": token.scope.session}
            notes.append("scope " + " ".join(f"{key}={value}" for key, value in parts.items() if value))
        notes += ["a person's"] if token.person else []
        notes += [f"until {when(token.expires_at)}"] if token.expires_at else []
        click.echo(f"{token.name}  {'; '.join(notes)}")
    if not found:
        click.echo("there is no token; `skep token add NAME` makes one", err=True)


@token_group.command()
@click.argument("name")
@TOKENS
def revoke(*, name: str, tokens: str | None) -> None:
    """Take a token away; running servers refuse it at once."""
    from skep.server.serve_process import token_file

    token_file(tokens, os.environ).revoke(name)
    click.echo(f"revoked {name}")
