"""schemathesis asks a real server whatever its OpenAPI description allows, and some things that it does not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the server extra is not installed")

from http_server import Running

from skep.server import http_api

pytestmark = pytest.mark.slow
PROGRAM = shutil.which("schemathesis")


@pytest.mark.skipif(PROGRAM is None, reason="schemathesis is not installed (`pip install schemathesis`)")
def test_every_answer_is_as_it_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_EMBEDDER", "static")
    # Wrong tokens in quick succession get 429 instead of 401, which is meant and tested elsewhere.
    monkeypatch.setattr(http_api, "GUESSES", 1e6)
    assert PROGRAM is not None
    with Running(tmp_path) as running:
        for name in ("billing", "search", "mail"):
            running.verb("remember", text=f"The {name} service is written in Go")
        command = [PROGRAM, "run", f"{running.url}/v1/openapi.json", "--seed", "1", "--max-examples", "3"]
        command += ["--header", f"Authorization: Bearer {running.owner}", "--phases", "coverage,fuzzing"]
        # No schema says which ids there are, or which texts are times: refusing those in words is right.
        command += ["--exclude-checks", "positive_data_acceptance", "--exclude-path-regex", "/changes$"]
        done = subprocess.run(
            [*command, "--suppress-health-check", "all"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    assert re.search(r"[1-9]\d{2,} passed", done.stdout), done.stdout[-2000:]
