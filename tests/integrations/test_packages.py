"""What registries and clients take skep in by is made from the same table as `skep install`, and starts skep."""

from __future__ import annotations

import json
import runpy
import zipfile
from pathlib import Path
from typing import Any

import pytest

from skep import __version__
from skep.integrations.clients import HOOKED

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_packages.py"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    runpy.run_path(str(SCRIPT), run_name="packages")["build"](tmp_path)
    return tmp_path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_registry_entry_starts_the_server_of_this_version(made: Path) -> None:
    entry = read(made / "server.json")
    assert len(entry["description"]) <= 100
    [package] = entry["packages"]
    assert (package["identifier"], package["version"]) == ("skep", __version__)
    assert [one["value"] for one in package["packageArguments"]] == ["mcp"]


def test_the_bundle_holds_a_server_that_runs(made: Path) -> None:
    with zipfile.ZipFile(made / "skep.mcpb") as archive:
        manifest = json.loads(archive.read("manifest.json"))
        entry = archive.read(manifest["server"]["entry_point"]).decode()
        assert f"skep=={__version__}" in archive.read("pyproject.toml").decode()
    compile(entry, "server.py", "exec")
    names = runpy.run_path(str(SCRIPT), run_name="packages")
    assert names["START"] == entry


@pytest.mark.parametrize(
    ("folder", "client"), [("claude-code-plugin", "claude-code"), ("gemini-extension", "gemini")]
)
def test_a_plugin_has_the_hooks_that_install_writes(made: Path, folder: str, client: str) -> None:
    hooks = read(made / folder / "hooks" / "hooks.json")["hooks"]
    assert set(hooks) == {event for event, _timeout, _tools in HOOKED[client]}
    [group] = hooks["SessionStart"]
    assert group["hooks"][0]["command"] == f"skep hook {client}"


def test_a_plugin_starts_the_server(made: Path) -> None:
    plugin, extension = made / "claude-code-plugin", made / "gemini-extension"
    assert read(plugin / ".claude-plugin" / "plugin.json")["name"] == "skep"
    for file in (plugin / ".mcp.json", extension / "gemini-extension.json"):
        assert read(file)["mcpServers"]["skep"] == {"command": "skep", "args": ["mcp"]}
