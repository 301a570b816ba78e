"""Each engine's own environment: made once, then reused; a failure is kept as the reason it is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
ROOT = HERE.parent
ENVIRONMENTS = HERE / ".env"


@dataclass(frozen=True)
class Spec:
    """An engine: its adapter's name, what to install, and what to import when timing the import."""

    name: str
    title: str
    packages: tuple[str, ...]
    module: str
    own: bool = True
    """Whether it lives in an environment of its own, or in the harness's."""


def _needed() -> tuple[str, ...]:
    """What skep itself needs, and nothing of what its development does."""
    return tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])


SPECS: tuple[Spec, ...] = (
    Spec("skep", "skep", _needed(), "skep.bank.bank"),
    Spec("floor", "FTS5 + numpy scan (floor)", ("apsw>=3.51.3", "numpy>=2"), "apsw, numpy"),
    Spec("sqlitevec", "FTS5 + sqlite-vec", ("apsw>=3.51.3", "sqlite-vec>=0.1.6"), "apsw, sqlite_vec"),
    Spec("chroma", "Chroma", ("chromadb>=1.5,<2",), "chromadb"),
    Spec("lancedb", "LanceDB", ("lancedb>=0.30", "pyarrow"), "lancedb"),
    Spec("qdrant", "Qdrant Edge", ("qdrant-edge-py>=0.9",), "qdrant_edge"),
    Spec("zvec", "zvec", ("zvec>=0.8",), "zvec"),
    Spec("mem0", "mem0 (infer=False)", ("mem0ai>=2,<3", "qdrant-client>=1.15"), "mem0"),
)
BY_NAME = {spec.name: spec for spec in SPECS}


class UnavailableError(RuntimeError):
    """The engine cannot run here; the message says why."""


def python_of(spec: Spec) -> Path:
    """The interpreter the engine runs in."""
    return ENVIRONMENTS / spec.name / "bin" / "python" if spec.own else Path(sys.executable)


def prepare(spec: Spec, *, timeout_s: float = 600) -> Path:
    """Make the environment if it is missing and return its interpreter."""
    python = python_of(spec)
    done = ENVIRONMENTS / spec.name / ".installed"
    wanted = "\n".join(spec.packages)
    if not spec.own or (done.exists() and done.read_text() == wanted):
        return python
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", str(ENVIRONMENTS / spec.name)],
            check=True,
            capture_output=True,
            timeout=120,
        )
        subprocess.run(
            [str(python), "-m", "pip", "install", "-q", *spec.packages],
            check=True,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"installing took longer than {timeout_s:.0f} s") from error
    except subprocess.CalledProcessError as error:
        lines = [line for line in str(error.stderr).splitlines() if "ERROR" in line] or ["installing failed"]
        raise UnavailableError(lines[-1]) from error
    except OSError as error:
        raise UnavailableError(f"no environment could be made: {error.strerror}") from error
    done.write_text(wanted)
    return python


def versions(spec: Spec) -> dict[str, str]:
    """What is installed, of the packages asked for; UnavailableError where its interpreter does not start."""
    names = [p.split(">")[0].split("<")[0].split("=")[0].strip() for p in spec.packages]
    script = (
        "import json, sys\nfrom importlib.metadata import version, PackageNotFoundError\nout = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: out[name] = version(name)\n    except PackageNotFoundError: pass\n"
        "print(json.dumps(out))"
    )
    try:
        done = subprocess.run(
            [str(python_of(spec)), "-c", script, *names], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(
            f"its environment is broken; remove {ENVIRONMENTS.name}/{spec.name}"
        ) from error
    return json.loads(done.stdout)


def process_environment() -> dict[str, str]:
    """The same for every engine: one BLAS thread, no hash randomness, nothing sent out; skep from this checkout."""
    keep = {
        key: value
        for key, value in os.environ.items()
        if key in ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH")
    }
    return {
        **keep,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "src"))),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "ANONYMIZED_TELEMETRY": "False",
        "MEM0_TELEMETRY": "False",
        "HF_HUB_OFFLINE": "1",
    }
