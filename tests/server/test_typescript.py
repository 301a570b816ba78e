"""A TypeScript client whose types come from the OpenAPI description: it compiles in strict mode, and it works."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from http_server import Running
from official import node, require

HERE = Path(__file__).parent


@pytest.mark.slow
def test_a_client_with_types_from_the_description_remembers_and_recalls(tmp_path: Path) -> None:
    modules = require("typescript") / "node_modules"
    (tmp_path / "node_modules").symlink_to(modules)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copy(HERE / "node" / "typed_client.mts", tmp_path / "client.mts")

    def run(*words: str) -> str:
        done = subprocess.run([node(), *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with Running(tmp_path) as server:
        _, _, described = server.ask("GET", "/v1/openapi.json")
        (tmp_path / "openapi.json").write_text(json.dumps(described))
        run(str(modules / "openapi-typescript" / "bin" / "cli.js"), "openapi.json", "-o", "skep.d.ts")
        compiler = str(modules / "typescript" / "bin" / "tsc")
        run(
            compiler, "--module", "nodenext", "--target", "es2022", "--strict", "--skipLibCheck", "client.mts"
        )
        told = json.loads(run("client.mjs", server.url, server.owner))
    assert (told["text"], told["refused"]) == ("Staging runs PostgreSQL 16", 400)
    assert told["id"]
