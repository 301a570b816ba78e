"""`skep redact`: what is taken out of a text before it is stored."""

from __future__ import annotations

import sys

import click

from skep.cli.shared import bank_exists, common, open_bank, print_json


@click.command()
@click.argument("text", required=False)
@click.option("--kind", "kinds", multiple=True, help="Look for this kind only; may be repeated.")
@click.option(
    "--set",
    "wanted",
    multiple=True,
    help="From now on take this kind out of what hooks capture; may be repeated.",
)
@click.option("--off", is_flag=True, help="From now on take nothing out but what is marked <private>.")
@click.option("--reset", is_flag=True, help="Back to the usual kinds.")
@common
def redact(
    text: str | None,
    kinds: tuple[str, ...],
    wanted: tuple[str, ...],
    off: bool,
    reset: bool,
    bank_path: str | None,
    as_json: bool,
) -> None:
    """Print TEXT (or standard input, for -) without secrets and personal data; nothing is stored.

    Without TEXT: show which kinds the bank takes out, or set them. A kind is one of those listed, or `secrets`,
    `personal` or `all`. The setting holds for hooks and for `--redact`.
    """
    from skep.lifecycle import privacy

    if (wanted or off or reset) and (text is not None or kinds or (bool(wanted) + off + reset) > 1):
        raise click.UsageError("--set, --off and --reset each stand alone")
    chosen = privacy.clean_kinds("--kind", kinds) if kinds else None
    if text is not None:
        if chosen is None and bank_exists(bank_path):
            with open_bank(bank_path, create=False) as bank:
                chosen = privacy.kinds_of(bank.setting(privacy.SETTING))
        kinds = privacy.DEFAULT if chosen is None else chosen
        done = privacy.redact(sys.stdin.read() if text == "-" else text, kinds)
        if as_json:
            print_json(done)
            return
        click.echo(done.text)
        if done.kinds:
            click.echo(f"taken out: {', '.join(done.kinds)}", err=True)
        return
    with open_bank(bank_path, create=bool(wanted) or off) as bank:
        if wanted or off or reset:
            value = None if reset else list(privacy.clean_kinds("--set", wanted))
            bank.set_setting(privacy.SETTING, value)
        inforce = privacy.kinds_of(bank.setting(privacy.SETTING))
        taken = bank.stats()["redacted"]
    if as_json:
        print_json({"kinds": inforce, "redacted": taken})
        return
    click.echo("taken out: " + (", ".join(inforce) or "nothing"))
    others = [kind for kind in privacy.KINDS if kind not in inforce]
    click.echo("left in: " + (", ".join(others) or "nothing"))
    if taken:
        click.echo("so far: " + ", ".join(f"{kind} {count}" for kind, count in taken.items()))


commands = [redact]
