"""Clients of MCP and the edits that add skep to their configuration, or take it out again.

The table of clients, their files and keys; plans of edits; and their writing, whole or not at all per file, with a
backup beside. Called by `skep install` and `skep uninstall`; touches only the files that a plan names.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, cast

import msgspec

from skep.errors import ConfigError, NotFoundError
from skep.integrations import config_files

Format = Literal["json", "toml"]
HOOK_COMMAND: Final = re.compile(r"""\bskep(?:\.exe)?["']?\s+hook\b""")
"""By this a hook of ours is known again, whatever stands before it."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The machine as an installer sees it; passed in, so that tests have their own."""

    home: Path
    cwd: Path
    platform: str
    environ: Mapping[str, str]


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One change to one file."""

    file: Path
    format: Format
    path: tuple[str, ...]
    value: Any
    how: Literal["put", "append"] = "put"
    """Set the value, or add it to an array."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client and what it can do."""

    name: str
    title: str
    hooks: bool = False
    project: bool = True
    """Whether it also reads a file of the project."""
    after: str = "Restart the client."
    environment: bool = False
    """Whether it hands the environment of the shell that it was started in on to servers."""


CLIENTS: Final[tuple[Client, ...]] = (
    Client(
        name="claude-code",
        title="Claude Code",
        hooks=True,
        environment=True,
        after="Start a new session; /mcp lists skep.",
    ),
    Client(
        name="codex",
        title="Codex",
        hooks=True,
        after="Start a new session; codex asks once whether to trust the hooks.",
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        hooks=True,
        after="Start a new session in a folder that you trust; /mcp lists skep.",
    ),
    Client(name="opencode", title="opencode", environment=True),
    Client(name="cursor", title="Cursor", after="Settings, MCP: skep is listed; switch it on if it is off."),
    Client(name="vscode", title="VS Code", after="Run MCP: List Servers and start skep."),
    Client(name="zed", title="Zed", after="The agent panel's settings list skep."),
    Client(name="windsurf", title="Windsurf", project=False, after="Cascade, MCP servers: refresh."),
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        project=False,
        after="Quit Claude Desktop completely and start it again.",
    ),
)


def client(name: str) -> Client:
    """A client by name.

    Raises:
        NotFoundError: There is none of that name; the message lists them.
    """
    for one in CLIENTS:
        if one.name == name:
            return one
    raise NotFoundError(f"unknown client {name!r}; there are {', '.join(one.name for one in CLIENTS)}")


def edits(
    chosen: Client,
    place: Place,
    *,
    command: list[str],
    project: bool = False,
    hooks: bool = True,
    bank: str | None = None,
    user: str | None = None,
) -> list[Edit]:
    """Everything to change for a client.

    Args:
        chosen: The client.
        place: The machine.
        command: What starts skep, usually `["skep"]`.
        project: Change the project's file instead of the user's.
        hooks: Also install hooks, where the client has them.
        bank: The bank, if it is not to be the one of the folder in which the client works.
        user: Whose memories hooks show besides those for everybody.
    """
    if project and not chosen.project:
        raise NotFoundError(f"{chosen.title} has no file per project; leave --project out")
    named = [] if bank is None else ["--bank", bank]
    server = _server(chosen.name, place, [*command, "mcp", *named], project=project)
    if not (hooks and chosen.hooks):
        return server
    own = [*named, *([] if user is None else ["--user", user])]
    return server + _hooks(chosen.name, place, [*command, "hook", chosen.name, *own], project=project)


def traces(chosen: Client, place: Place, *, project: bool = False) -> list[Edit]:
    """Everything that an installation may have left, whichever shape the client's file had then."""
    found = edits(chosen, place, command=["skep"], project=project)
    if chosen.name == "opencode":
        file = _opencode(place, project)
        found = [_json(file, path, None) for path in (("mcp", "skep"), ("mcp", "servers", "skep"))]
    return found


def _server(name: str, place: Place, command: list[str], *, project: bool) -> list[Edit]:
    plain = {"command": command[0], "args": command[1:]}
    home, cwd = place.home, place.cwd
    if name == "claude-code":
        chosen = place.environ.get("CLAUDE_CONFIG_DIR")
        file = cwd / ".mcp.json" if project else (Path(chosen) if chosen else home) / ".claude.json"
        return [_json(file, ("mcpServers", "skep"), {"type": "stdio", **plain})]
    if name == "codex":
        return [
            Edit(
                file=_codex(place, project) / "config.toml",
                format="toml",
                path=("mcp_servers", "skep"),
                value=plain,
            )
        ]
    if name == "gemini":
        return [_json(_gemini(place, project), ("mcpServers", "skep"), plain)]
    if name == "opencode":
        file = _opencode(place, project)
        local: dict[str, Any] = {"type": "local", "command": command}
        if _has(file, ("mcp", "servers")):
            return [_json(file, ("mcp", "servers", "skep"), local)]
        return [_json(file, ("mcp", "skep"), {**local, "enabled": True})]
    if name == "cursor":
        return [_json((cwd if project else home) / ".cursor" / "mcp.json", ("mcpServers", "skep"), plain)]
    if name == "vscode":
        file = cwd / ".vscode" / "mcp.json" if project else app_data(place) / "Code" / "User" / "mcp.json"
        return [_json(file, ("servers", "skep"), {"type": "stdio", **plain})]
    if name == "zed":
        file = (cwd / ".zed" if project else _zed(place)) / "settings.json"
        return [_json(file, ("context_servers", "skep"), {**plain, "env": {}})]
    if name == "windsurf":
        return [_json(home / ".codeium" / "windsurf" / "mcp_config.json", ("mcpServers", "skep"), plain)]
    file = app_data(place) / "Claude" / "claude_desktop_config.json"
    return [_json(file, ("mcpServers", "skep"), plain)]


HOOKED: Final[dict[str, tuple[tuple[str, int, str], ...]]] = {
    "claude-code": (
        ("SessionStart", 10, ""),
        ("UserPromptSubmit", 5, ""),
        ("PreToolUse", 5, "Bash|Edit|MultiEdit|Write|NotebookEdit"),
        ("PostToolUseFailure", 5, "Bash|Edit|MultiEdit|Write|NotebookEdit"),
        ("Stop", 10, ""),
        ("SessionEnd", 10, ""),
    ),
    "codex": (
        ("SessionStart", 10, ""),
        ("UserPromptSubmit", 5, ""),
        ("PreToolUse", 5, "Bash|apply_patch"),
        ("Stop", 10, ""),
    ),
    "gemini": (
        ("SessionStart", 10_000, ""),
        ("BeforeAgent", 5_000, ""),
        ("AfterTool", 5_000, "run_shell_command|replace|write_file"),
        ("AfterAgent", 10_000, ""),
        ("SessionEnd", 10_000, ""),
    ),
}
"""Per client: event, time limit in the client's unit, and the tools it is for."""


def _hooks(name: str, place: Place, words: list[str], *, project: bool) -> list[Edit]:
    line = subprocess.list2cmdline(words) if place.platform == "win32" else shlex.join(words)
    files = {
        "claude-code": (place.cwd / ".claude" if project else _claude(place)) / "settings.json",
        "codex": _codex(place, project) / "hooks.json",
        "gemini": _gemini(place, project),
    }
    own = {"name": "skep"} if name == "gemini" else {}
    return [
        _hook(files[name], event, matcher, line, timeout=timeout, **own)
        for event, timeout, matcher in HOOKED[name]
    ]


def _hook(file: Path, event: str, matcher: str, command: str, **extra: Any) -> Edit:
    group = {"hooks": [{"type": "command", "command": command, **extra}]}
    value = {"matcher": matcher, **group} if matcher else group
    return Edit(file=file, format="json", path=("hooks", event), value=value, how="append")


def _json(file: Path, path: tuple[str, ...], value: Any) -> Edit:
    return Edit(file=file, format="json", path=path, value=value)


def _claude(place: Place) -> Path:
    chosen = place.environ.get("CLAUDE_CONFIG_DIR")
    return Path(chosen) if chosen else place.home / ".claude"


def _codex(place: Place, project: bool) -> Path:
    if project:
        return place.cwd / ".codex"
    chosen = place.environ.get("CODEX_HOME")
    return Path(chosen) if chosen else place.home / ".codex"


def _gemini(place: Place, project: bool) -> Path:
    return (place.cwd if project else place.home) / ".gemini" / "settings.json"


def _opencode(place: Place, project: bool) -> Path:
    return _existing(place.cwd if project else _config(place) / "opencode", "opencode")


def _has(file: Path, path: tuple[str, ...]) -> bool:
    """True if a file has an object at `path`: version 2 of opencode keeps servers one level deeper than version 1,
    and reads both shapes."""
    try:
        found: Any = config_files.parse_jsonc(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, ConfigError):  # whoever edits the file says what is wrong with it
        return False
    for key in path:
        found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
    return isinstance(found, dict)


def _config(place: Place) -> Path:
    return Path(place.environ.get("XDG_CONFIG_HOME") or place.home / ".config")


def _existing(folder: Path, stem: str) -> Path:
    """The file the user already has, whichever ending it has."""
    with_comments = folder / f"{stem}.jsonc"
    return with_comments if with_comments.exists() else folder / f"{stem}.json"


def _zed(place: Place) -> Path:
    return app_data(place) / "Zed" if place.platform == "win32" else _config(place) / "zed"


def app_data(place: Place) -> Path:
    """The folder in which programs of this platform keep their settings."""
    if place.platform == "win32":
        return Path(place.environ.get("APPDATA") or place.home / "AppData" / "Roaming")
    if place.platform == "darwin":
        return place.home / "Library" / "Application Support"
    return _config(place)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One file before and after."""

    file: Path
    before: str | None
    """None when there was no such file."""
    after: str
    backup: Path | None = None

    @property
    def changed(self) -> bool:
        """True if anything is different."""
        return (self.before or "") != self.after


def plan_install(edits: Iterable[Edit]) -> list[Change]:
    """The files as they will be; nothing is written.

    Raises:
        ConfigError: A file cannot be read or edited safely.
    """
    return _plan(edits, _apply)


def plan_uninstall(edits: Iterable[Edit]) -> list[Change]:
    """The files as they will be without skep; nothing is written."""
    return [change for change in _plan(edits, _revert) if change.before is not None]


def write(changes: Iterable[Change], now: float) -> list[Change]:
    """Write what changed, whole or not at all per file, each with a backup beside it."""
    done: list[Change] = []
    for change in changes:
        if not change.changed:
            done.append(change)
            continue
        file = Path(os.path.realpath(change.file))
        backup = None
        if change.before is not None:
            backup = _unused(file, time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)))
            _replace(backup, change.before, like=file)
        file.parent.mkdir(parents=True, exist_ok=True)
        _replace(file, change.after, like=file)
        done.append(msgspec.structs.replace(change, backup=backup))
    return done


def _unused(file: Path, stamp: str) -> Path:
    """A name for a backup that no earlier backup has, however soon after it this one is."""
    names = (f"{file.name}.skep-{stamp}{suffix}.bak" for suffix in ("", *(f"-{n}" for n in range(1, 1000))))
    return next(found for name in names if not (found := file.with_name(name)).exists())


def show(edits: Iterable[Edit], home: Path) -> str:
    """The lines to add by hand, per file."""
    per_file: dict[tuple[Path, str], str] = {}
    for edit in edits:
        key = (edit.file, edit.format)
        per_file[key] = _apply(per_file.get(key, ""), edit)
    blocks = [f"# {_short(file, home)}\n{text.rstrip()}" for (file, _), text in per_file.items()]
    return "\n\n".join(blocks) + "\n"


def _short(file: Path, home: Path) -> str:
    with contextlib.suppress(ValueError):
        return "~/" + file.relative_to(home).as_posix()
    return str(file)


def _plan(edits: Iterable[Edit], step: Any) -> list[Change]:
    before: dict[Path, str | None] = {}
    after: dict[Path, str] = {}
    for edit in edits:
        if edit.file not in before:
            before[edit.file] = _read(edit.file)
        try:
            after[edit.file] = step(after.get(edit.file, before[edit.file] or ""), edit)
        except ConfigError as error:
            raise ConfigError(f"{edit.file}: {error}") from error
    return [Change(file=file, before=before[file], after=after[file]) for file in before]


def _apply(text: str, edit: Edit) -> str:
    name = ".".join(edit.path)
    if edit.format == "toml":
        return config_files.put_table(text, name, edit.value)
    if edit.how == "append":
        return config_files.append(_drop_other_hooks(text, edit), edit.path, edit.value)
    return config_files.put(text, edit.path, edit.value)


def _drop_other_hooks(text: str, edit: Edit) -> str:
    """An older line of ours, with another command or timeout, makes way for the new one."""
    if not text.strip():
        return text
    return config_files.remove_items(text, edit.path, lambda item: _ours(item) and item != edit.value)


def _revert(text: str, edit: Edit) -> str:
    if not text.strip():
        return text
    if edit.format == "toml":
        return config_files.remove_table(text, ".".join(edit.path))
    if edit.how == "append":
        return config_files.remove_items(text, edit.path, _ours)
    return config_files.remove(text, edit.path)


def _ours(group: Any) -> bool:
    """True if a group of hooks runs nothing but our command."""
    handlers: Any = cast("dict[str, Any]", group).get("hooks") if isinstance(group, dict) else None
    commands = [
        str(cast("dict[str, Any]", one).get("command", ""))
        for one in cast("list[Any]", handlers or [])
        if isinstance(one, dict)
    ]
    return bool(commands) and all(HOOK_COMMAND.search(command) for command in commands)


def _read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text; nothing was changed") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}; nothing was changed") from error


def _replace(file: Path, text: str, *, like: Path) -> None:
    """Write beside, then rename, with the permissions of the file it stands in for."""
    mode = like.stat().st_mode & 0o777 if like.exists() else 0o600
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        os.chmod(name, mode)
        os.replace(name, file)
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}") from error
