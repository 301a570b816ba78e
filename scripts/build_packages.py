"""Write what registries and clients take skep in by: server.json, skep.mcpb, a Claude Code plugin, a Gemini extension.

Run it with `make packages`. All of it is made from the package's version and the table of hooks.
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

from skep import __version__
from skep.integrations.clients import Place, client, edits

DESCRIPTION = "A memory for AI agents: one local file, no server, no LLM needed; history, undo and conflicts."
PAGE = "https://github.com/skep-memory/skep"
START = "from skep.server.mcp.start import Plain, serve_plain\n\nserve_plain(Plain(None, 'default'))\n"
"""The entry of the bundle; uv installs skep for it."""


def server_json() -> dict[str, Any]:
    """The entry of the MCP registry."""
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.skep-memory/skep",
        "description": DESCRIPTION,
        "repository": {"url": PAGE, "source": "github"},
        "version": __version__,
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "skep",
                "version": __version__,
                "runtimeHint": "uvx",
                "packageArguments": [{"type": "positional", "value": "mcp"}],
                "environmentVariables": [
                    {
                        "name": "SKEP_BANK",
                        "description": "The bank file; default: the project's, or the user's own.",
                    }
                ],
                "transport": {"type": "stdio"},
            }
        ],
    }


def bundle_files() -> dict[str, str]:
    """The files of the bundle for desktop clients."""
    manifest = {
        "manifest_version": "0.4",
        "name": "skep",
        "version": __version__,
        "description": DESCRIPTION,
        "author": {"name": "The skep authors", "url": PAGE},
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "server.py"]},
        },
        "compatibility": {"runtimes": {"python": ">=3.11"}},
        "license": "Apache-2.0",
    }
    project = (
        f'[project]\nname = "skep-bundle"\nversion = "{__version__}"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["skep=={__version__}"]\n'
    )
    return {"manifest.json": text(manifest), "pyproject.toml": project, "server.py": START}


def extension_files(name: str) -> dict[str, str]:
    """The files of a plugin of Claude Code or an extension of Gemini: the server and the hooks."""
    place = Place(home=Path("/home"), cwd=Path("/work"), platform="linux", environ={})
    hooks: dict[str, list[Any]] = {}
    for edit in edits(client(name), place, command=["skep"]):
        if edit.how == "append":
            hooks.setdefault(edit.path[1], []).append(edit.value)
    server = {"skep": {"command": "skep", "args": ["mcp"]}}
    files = {"hooks/hooks.json": text({"hooks": hooks})}
    head = {"name": "skep", "version": __version__, "description": DESCRIPTION}
    if name == "gemini":
        return {**files, "gemini-extension.json": text({**head, "mcpServers": server})}
    about = {**head, "author": {"name": "The skep authors"}, "homepage": PAGE, "license": "Apache-2.0"}
    return {**files, ".claude-plugin/plugin.json": text(about), ".mcp.json": text({"mcpServers": server})}


def text(value: object) -> str:
    """A value as it stands in a file."""
    return json.dumps(value, indent=2) + "\n"


def build(target: Path) -> list[Path]:
    """Write everything below a folder; the files that were written."""
    target.mkdir(parents=True, exist_ok=True)
    made = [target / "server.json", target / "skep.mcpb"]
    made[0].write_text(text(server_json()))
    with zipfile.ZipFile(made[1], "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in bundle_files().items():
            archive.writestr(name, content)
    for folder, name in (("claude-code-plugin", "claude-code"), ("gemini-extension", "gemini")):
        for place, content in extension_files(name).items():
            file = target / folder / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            made.append(file)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write what registries take.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("dist"), help="where to; default: dist")
    for path in build(parser.parse_args().folder):
        print(path)
