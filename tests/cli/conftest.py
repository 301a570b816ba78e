from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.cli.app import app


@pytest.fixture
def run(bank_path: Path) -> Any:
    """Calls a command on a bank, and looks at how it ends."""

    def call(*args: str, stdin: str | None = None, code: int = 0, **environ: str) -> Any:
        environ = {"SKEP_BANK": str(bank_path), **environ}
        result = CliRunner().invoke(app, list(args), input=stdin, env=environ)
        if code == 0 and result.exception is not None:
            raise result.exception
        assert result.exit_code == code, result.output
        return result

    return call
