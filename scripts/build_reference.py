"""Write docs/reference/{bank,cli,mcp,http}.md from the docstrings, the commands, the tools and the table of verbs.

Run it with `make docs`; a test fails when the pages are behind the code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import click

from skep.bank.bank import Bank
from skep.cli.app import COMMANDS, app
from skep.server.mcp.tool_calls import Tool
from skep.server.mcp.tool_profiles import PROFILES
from skep.server.openapi import FAILURES, openapi

PAGES = Path(__file__).parents[1] / "docs" / "reference"
GROUPS = (
    ("Opening", ("open", "close")),
    (
        "Writing",
        ("remember", "remember_many", "revise", "retract", "restore", "supersede", "merge", "mark", "confirm",
         "dispute", "support", "forget"),
    ),
    (
        "Reading",
        ("recall", "search_memory", "stream", "get", "find", "find_conflicts"),
    ),
    ("Links", ("link", "unlink", "neighbors", "subgraph", "path")),
    ("History", ("history", "event", "blame", "undo", "as_of")),
    (
        "Keeping clean and learning",
        ("maintain", "pending_judgements", "resolve_judgement", "learn", "recommend", "outcomes", "stats", "utility"),
    ),
)  # fmt: skip


def bank_page() -> str:
    """The reference of `Bank`."""
    names = [name for name in dir(Bank) if not name.startswith("_")]
    grouped = {name for _, group in GROUPS for name in group}
    rest = tuple(name for name in names if name not in grouped)
    parts = [
        "# Bank\n",
        "Made from the docstrings by `scripts/build_reference.py`. `AsyncBank` has the same methods, to be awaited.\n",
    ]
    for title, group in (*GROUPS, ("The bank as a whole", rest)):
        parts.append(f"## {title}\n")
        parts += [_method(name) for name in group if name in names]
    return "\n".join(parts)


def _method(name: str) -> str:
    value = inspect.getattr_static(Bank, name)
    if isinstance(value, property):
        return f"### `{name}`\n\n{inspect.getdoc(value)}\n"
    function = getattr(Bank, name)
    signature = _signature(function)
    text, _, arguments = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    parts = [f"### `{name}`\n", f"```text\n{name}{signature}\n```\n", text.strip() + "\n"]
    if arguments:
        parts.append(_arguments(arguments) + "\n")
    return "\n".join(parts)


def _signature(function: Callable[..., object]) -> str:
    """The parameters one per line, as they stand in the code."""
    lines: list[str] = []
    found = inspect.signature(function)
    starred = False
    for parameter in found.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            lines.append("*")
        text = f"**{parameter.name}" if parameter.kind is parameter.VAR_KEYWORD else parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            default = parameter.default
            text += f" = {default.__name__ if callable(default) else repr(default)}"
        lines.append(text)
    inside = "".join(f"\n    {line}," for line in lines) + "\n" if lines else ""
    return f"({inside}) -> {found.return_annotation}"


def _arguments(text: str) -> str:
    lines: list[str] = []
    for line in inspect.cleandoc(text).splitlines():
        if line and not line.startswith(" "):
            name, _, rest = line.partition(":")
            lines.append(f"- `{name}`:{rest}")
        elif line.strip():
            lines[-1] += " " + line.strip()
    return "\n".join(lines)


def cli_page() -> str:
    """The reference of the command line."""
    context = click.Context(app, info_name="skep")
    parts = [
        "# Command line\n",
        "Made from the commands by `scripts/build_reference.py`. Every command takes `--bank PATH`; the answer goes to"
        " standard output, everything else to standard error. Exit codes: 0 done, 1 an error in plain words, 2 wrong"
        " usage, 3 nothing found. `skep completion bash` prints a completion script.\n",
    ]
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        parts.append(_command(f"skep {name}", command))
        if isinstance(command, click.Group):
            sub = click.Context(command, info_name=name, parent=context)
            parts += [
                _command(f"skep {name} {child}", command.get_command(sub, child))
                for child in command.list_commands(sub)
            ]
    return "\n".join(parts)


def _command(name: str, command: click.Command | None) -> str:
    assert command is not None
    arguments = " ".join(
        p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)
    )
    parts = [
        f"## `{name}{' ' + arguments if arguments else ''}`\n",
        inspect.cleandoc(command.help or "") + "\n",
    ]
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            flags = ", ".join(option.opts + option.secondary_opts)
            parts.append(f"- `{flags}`" + (f": {option.help}" if option.help else ""))
    return "\n".join(parts) + "\n"


def mcp_page() -> str:
    """The reference of the MCP tools."""
    parts = [
        "# MCP tools\n",
        "Made from the tools by `scripts/build_reference.py`; it is what a model reads. How to serve them is in"
        " [Serve a bank over MCP](../how-to/mcp.md).\n",
    ]
    own = {tool.name for tool in PROFILES["default"](None)}
    for profile, tools in PROFILES.items():
        parts.append(f"## Profile `{profile}`\n")
        if profile == "full":
            parts.append("Those of the default profile, and:\n")
        parts += [_tool(tool) for tool in tools(None) if profile != "full" or tool.name not in own]
    return "\n".join(parts)


def _tool(tool: Tool) -> str:
    marks = {
        "reads only": tool.reads,
        "can take something away": tool.destroys,
        "may be repeated": tool.repeats,
    }
    notes = ", ".join(name for name, holds in marks.items() if holds)
    parts = [f"### `{tool.name}`\n", tool.description + (f" ({notes})" if notes else "") + "\n"]
    required = tool.schema.get("required", [])
    for name, schema in tool.schema.get("properties", {}).items():
        kind = (
            " or ".join(f"`{one}`" for one in schema["enum"])
            if "enum" in schema
            else schema.get("type", "any")
        )
        low, high = schema.get("minimum"), schema.get("maximum")
        bounds = f" {low:g} to {high:g}" if low is not None and high is not None else ""
        default = f", default `{schema['default']}`" if "default" in schema else ""
        must = ", required" if name in required else default
        told = f": {schema['description']}" if "description" in schema else ""
        parts.append(f"- `{name}` ({kind}{bounds}{must}){told}")
    return "\n".join(parts) + "\n"


def http_page() -> str:
    """The reference of the HTTP API."""
    parts = [
        "# HTTP API\n",
        "Made from the table of verbs by `scripts/build_reference.py`. How to serve it is in"
        " [Serve banks over HTTP](../how-to/server.md); `/v1/openapi.json` holds the same for programs.\n",
    ]
    described = openapi("")
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            name = f"{method.upper()} {path}"
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            answers = one["responses"]["200"]["content"]
            answer = next(iter(answers.values()))["schema"]
            right = f"Right: `{one['tags'][0]}`. " if one["tags"][0] != "server" else ""
            lines = [f"## `{name}`\n", one["summary"] + "\n", f"{right}Answers: {_form(answer)}.\n"]
            home = described["components"]["schemas"].get(body.get("$ref", "").rpartition("/")[2], {})
            needed = home.get("required", ())
            lines += [
                f"- `{field}` ({_form(form)}{', required' if field in needed else ''})"
                for field, form in home.get("properties", {}).items()
            ]
            parts.append("\n".join(lines) + "\n")
    parts.append("## Statuses\n\n| status | means |\n|---|---|")
    parts += [f"| {status} | {text} |" for status, text in FAILURES.items()]
    return "\n".join(parts) + "\n"


def _form(schema: dict[str, object]) -> str:
    """A form of JSON in words."""
    if "$ref" in schema:
        return f"`{str(schema['$ref']).rpartition('/')[2]}`"
    if "anyOf" in schema:
        return " or ".join(_form(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_form(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))


def main() -> None:
    """Write all pages."""
    PAGES.mkdir(parents=True, exist_ok=True)
    (PAGES / "bank.md").write_text(bank_page(), encoding="utf-8")
    (PAGES / "cli.md").write_text(cli_page(), encoding="utf-8")
    (PAGES / "mcp.md").write_text(mcp_page(), encoding="utf-8")
    (PAGES / "http.md").write_text(http_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
