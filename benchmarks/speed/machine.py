"""Where and when a measurement was made."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

MEASURED = ("src", "core")
"""What every measurement is of; `commit` is told what measures."""


def _first(path: str, key: str) -> str:
    try:
        with open(path) as lines:
            for line in lines:
                if line.startswith(key):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def load() -> float:
    """The one-minute load average, or -1 where there is none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else -1.0


def commit(root: Path, measures: str = "benchmarks/speed") -> dict[str, Any]:
    """The commit under test, and whether what is measured or what measures (a folder) differs from it."""

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=False
        ).stdout.strip()

    return {
        "commit": git("rev-parse", "HEAD"),
        "dirty": bool(git("status", "--porcelain", "-uno", "--", *MEASURED, measures)),
    }


def describe() -> dict[str, Any]:
    """The machine: processor, cores, memory, system, Python."""
    memory = _first("/proc/meminfo", "MemTotal").split()
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(int(memory[0]) / 2**20, 1) if memory else None,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": load(),
    }
