"""The pages of the clients show exactly what `skep install CLIENT --print` prints."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from skep.cli.clients import install
from skep.integrations.clients import CLIENTS
from skep.server.mcp.tool_profiles import PROFILES

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", [one.name for one in CLIENTS])
def test_a_client_page_shows_the_lines_that_print_prints(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(variable, raising=False)
    printed = (
        CliRunner().invoke(install, [name, "--print", "--command", "skep"], catch_exceptions=False).output
    )
    page = (DOCS / "clients" / f"{name}.md").read_text()

    shown = re.findall(r"^`(~/[^`]+)`\n\n```(?:json|toml)\n(.*?)\n```$", page, re.S | re.M)

    assert "\n\n".join(f"# {file}\n{lines}" for file, lines in shown) + "\n" == printed
    assert list(tmp_path.iterdir()) == []


def test_every_client_is_listed_with_its_command() -> None:
    listed = (DOCS / "clients" / "README.md").read_text()

    for one in CLIENTS:
        assert (
            f"]({one.name}.md) | `skep install {one.name}` | {'yes' if one.hooks else ''}".rstrip() in listed
        )


def test_the_page_of_the_server_names_every_tool_of_every_profile() -> None:
    page = (DOCS / "how-to" / "mcp.md").read_text()

    for profile, tools in PROFILES.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{profile}` |"))
        names = {tool.name for tool in tools(None)}
        if profile == "full":
            names -= {tool.name for tool in PROFILES["default"](None)}
        assert set(re.findall(r"`([a-z_]+)`", row)[1:]) == names


def test_the_reference_of_the_tools_is_what_a_model_reads() -> None:
    made = runpy.run_path(str(DOCS.parent / "scripts" / "build_reference.py"), run_name="reference")

    assert (DOCS / "reference" / "mcp.md").read_text(encoding="utf-8") == made["mcp_page"](), (
        "run `make docs`"
    )


def test_the_page_of_imports_names_every_source() -> None:
    from skep.integrations.importers.registry import SOURCES

    page = (DOCS / "how-to" / "import.md").read_text()

    assert {source.name for source in SOURCES} <= set(re.findall(r"`([a-z0-9-]+)`", page))
