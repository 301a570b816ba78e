"""`skep install`: the right lines in the right file, and nothing else touched."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.bank.bank import Bank
from skep.cli.clients import install as command
from skep.errors import ConfigError, NotFoundError
from skep.integrations import config_files
from skep.integrations.clients import (
    CLIENTS,
    HOOKED,
    Place,
    client,
    edits,
    plan_install,
    plan_uninstall,
    traces,
    write,
)

NAMES = [one.name for one in CLIENTS]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home, cwd = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    cwd.mkdir()
    return Place(home=home, cwd=cwd, platform="linux", environ={})


def install(name: str, place: Place, **options: object) -> list[Path]:
    planned = plan_install(edits(client(name), place, command=["skep"], **options))  # type: ignore[arg-type]
    return [change.file for change in write(planned, now=0.0) if change.changed]


def uninstall(name: str, place: Place) -> None:
    write(plan_uninstall(traces(client(name), place)), now=1.0)


@pytest.mark.parametrize("name", NAMES)
def test_installing_writes_a_file_that_starts_skep(name: str, place: Place) -> None:
    files = install(name, place)

    written = "".join(file.read_text() for file in files)
    assert files
    assert "skep" in written
    assert "mcp" in written


@pytest.mark.parametrize("name", NAMES)
def test_installing_twice_is_installing_once(name: str, place: Place) -> None:
    install(name, place)

    assert install(name, place) == []


@pytest.mark.parametrize("name", NAMES)
def test_uninstalling_leaves_what_was_there_and_nothing_of_ours(name: str, place: Place) -> None:
    first = edits(client(name), place, command=["skep"], hooks=False)[0]
    before = '[mcp_servers.other]\ncommand = "x"\n' if first.format == "toml" else '{\n  "mine": [1, 2]\n}\n'
    first.file.parent.mkdir(parents=True, exist_ok=True)
    first.file.write_text(before)

    install(name, place)
    uninstall(name, place)

    read = tomllib.loads if first.format == "toml" else config_files.parse_jsonc
    left = read(first.file.read_text())
    assert left == read(before)


def test_a_backup_holds_what_was_there_before(place: Place) -> None:
    file = place.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"other": {"command": "x"}}}')

    install("cursor", place)

    [backup] = file.parent.glob("*.bak")
    assert json.loads(backup.read_text()) == {"mcpServers": {"other": {"command": "x"}}}
    assert json.loads(file.read_text())["mcpServers"]["other"] == {"command": "x"}


def test_a_backup_never_replaces_an_earlier_one(place: Place) -> None:
    file = place.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mine": 1}')

    for _ in range(2):
        write(plan_install(edits(client("cursor"), place, command=["skep"])), now=0.0)
        write(plan_uninstall(traces(client("cursor"), place)), now=0.0)

    kept = [backup.read_text() for backup in sorted(file.parent.glob("*.bak"))]
    assert kept.count('{"mine": 1}') == 2
    assert len(kept) == 4


def test_hooks_of_others_stay_and_an_older_one_of_ours_is_replaced(place: Place) -> None:
    file = place.home / ".claude" / "settings.json"
    file.parent.mkdir()
    other = {"matcher": "startup", "hooks": [{"type": "command", "command": "echo hi"}]}
    older = {"hooks": [{"type": "command", "command": "/opt/bin/skep hook claude-code", "timeout": 1}]}
    file.write_text(json.dumps({"hooks": {"SessionStart": [other, older]}, "model": "x"}))

    install("claude-code", place)

    settings = json.loads(file.read_text())
    assert settings["model"] == "x"
    assert settings["hooks"]["SessionStart"][0] == other
    assert len(settings["hooks"]["SessionStart"]) == 2
    assert set(settings["hooks"]) == {event for event, _timeout, _tools in HOOKED["claude-code"]}
    uninstall("claude-code", place)
    assert json.loads(file.read_text()) == {"hooks": {"SessionStart": [other]}, "model": "x"}


def test_a_broken_file_is_left_alone_and_named(place: Place) -> None:
    file = place.home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text("{ not json")

    with pytest.raises(ConfigError, match=r"mcp\.json"):
        install("cursor", place)

    assert file.read_text() == "{ not json"


def test_a_linked_file_stays_a_link(place: Place) -> None:
    real = place.home / "dotfiles.json"
    real.write_text("{}")
    link = place.home / ".cursor" / "mcp.json"
    link.parent.mkdir()
    link.symlink_to(real)

    install("cursor", place)

    assert link.is_symlink()
    assert "skep" in real.read_text()


def test_the_project_file_is_written_when_asked_for(place: Place) -> None:
    assert place.cwd / ".mcp.json" in install("claude-code", place, project=True)


def test_a_client_without_project_files_says_so(place: Place) -> None:
    with pytest.raises(NotFoundError, match="no file per project"):
        install("windsurf", place, project=True)


def test_an_unknown_client_is_answered_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match="claude-code"):
        client("emacs")


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("darwin", "Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", "AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", ".config/Claude/claude_desktop_config.json"),
    ],
)
def test_the_file_is_where_the_platform_keeps_it(platform: str, expected: str, place: Place) -> None:
    there = Place(home=place.home, cwd=place.cwd, platform=platform, environ={})

    [edit] = edits(client("claude-desktop"), there, command=["skep"])

    assert edit.file == place.home / expected


def test_opencode_keeps_the_shape_its_file_has(place: Place) -> None:
    file = place.home / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text(
        '{\n  // version 2\n  "mcp": {"servers": {"other": {"type": "local", "command": ["x"]}}}\n}\n'
    )

    install("opencode", place)

    servers = config_files.parse_jsonc(file.read_text())["mcp"]["servers"]
    assert servers["skep"] == {"type": "local", "command": ["skep", "mcp"]}
    assert install("opencode", place) == []
    uninstall("opencode", place)
    assert config_files.parse_jsonc(file.read_text()) == {
        "mcp": {"servers": {"other": {"type": "local", "command": ["x"]}}}
    }
    assert "// version 2" in file.read_text()


def test_opencode_is_taken_out_of_either_shape(place: Place) -> None:
    file = place.home / ".config" / "opencode" / "opencode.json"
    install("opencode", place)
    both = config_files.put(
        file.read_text(), ("mcp", "servers"), {"other": {"type": "local", "command": ["x"]}}
    )
    file.write_text(both)

    uninstall("opencode", place)

    assert list(config_files.parse_jsonc(file.read_text())["mcp"]) == ["servers"]


def test_a_projects_opencode_file_with_comments_is_the_one_that_is_edited(place: Place) -> None:
    (place.cwd / "opencode.jsonc").write_text("{} // mine\n")

    assert install("opencode", place, project=True) == [place.cwd / "opencode.jsonc"]


def test_a_path_with_blanks_is_quoted_in_hooks_and_known_again(place: Place) -> None:
    there = "/opt/my tools/skep"
    plan = plan_install(edits(client("claude-code"), place, command=[there]))
    write(plan, now=0.0)
    settings = place.home / ".claude" / "settings.json"
    [group] = json.loads(settings.read_text())["hooks"]["Stop"]

    assert shlex.split(group["hooks"][0]["command"]) == [there, "hook", "claude-code"]
    uninstall("claude-code", place)
    assert "skep" not in settings.read_text()


def test_hooks_of_somebody_elses_program_are_not_ours(place: Place) -> None:
    settings = place.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    other = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "miskep hook x"}]}]}}
    settings.write_text(json.dumps(other))

    install("claude-code", place)
    uninstall("claude-code", place)

    assert json.loads(settings.read_text()) == other


@pytest.mark.parametrize(("words", "made"), [([], True), (["--no-hooks"], False), (["--dry-run"], False)])
def test_hooks_find_a_bank_to_keep_sessions_in(
    words: list[str], made: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SKEP_BANK", str(tmp_path / "mine" / "bank.skep"))

    for _ in range(2):
        CliRunner().invoke(command, ["claude-code", *words], catch_exceptions=False)

    assert (tmp_path / "mine" / "bank.skep").exists() == made


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a folder of a test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("SKEP_BANK", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_a_bank_that_install_makes_never_hides_an_older_one_silently(here: Path) -> None:
    with Bank.open(here / ".skep" / "bank.skep") as bank:
        bank.remember("The kettle is blue")
    told = CliRunner().invoke(command, ["claude-code", "--bank", "new.skep"], catch_exceptions=False).stderr
    assert f"--bank {here / 'new.skep'} import {here / '.skep' / 'bank.skep'}" in told


def test_what_is_written_in_a_virtual_environment_runs_without_it(here: Path) -> None:
    done = CliRunner().invoke(command, ["cursor", "--print"], catch_exceptions=False)
    server = json.loads(done.output.partition("\n")[2])["mcpServers"]["skep"]
    words = [server["command"], *server["args"]]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    source = str(Path(__file__).parents[2] / "src")
    answer = subprocess.run(
        words,
        input=json.dumps(hello) + "\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=here,
        env={"HOME": str(here), "PATH": "/usr/bin:/bin", "PYTHONPATH": source},
    )
    assert json.loads(answer.stdout.splitlines()[0])["result"]["serverInfo"]["name"] == "skep"


def test_a_named_bank_and_user_are_written_down(here: Path) -> None:
    bank = here / "mine" / "b.skep"
    words = ["claude-code", "--bank", "mine/b.skep", "--user", "ana", "--command", "skep"]
    CliRunner().invoke(command, words, catch_exceptions=False)
    server = json.loads((here / ".claude.json").read_text())["mcpServers"]["skep"]
    hooks = json.loads((here / ".claude" / "settings.json").read_text())["hooks"]
    line = hooks["Stop"][0]["hooks"][0]["command"]
    assert server["args"] == ["mcp", "--bank", str(bank)]
    assert shlex.split(line) == ["skep", "hook", "claude-code", "--bank", str(bank), "--user", "ana"]
    assert bank.is_file()


def test_a_client_that_passes_no_environment_on_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_BANK", str(here / "team.skep"))
    assert "--bank" in CliRunner().invoke(command, ["cursor"], catch_exceptions=False).stderr
    assert "--bank" not in CliRunner().invoke(command, ["opencode"], catch_exceptions=False).stderr
