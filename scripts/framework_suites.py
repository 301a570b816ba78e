"""Run the frameworks' own tests against skep's adapters, and print how many pass.

    $ make test-adapters
    $ .venv-adapters/bin/python scripts/framework_suites.py --repos FOLDER

Each framework's tests stay in its repository: a clone at the commit below is made in FOLDER unless one is there. A
plugin of `tests/adapters/suites` puts skep's class in the place of theirs. What is not expected to pass is named, with
the reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLUGINS = ROOT / "tests" / "adapters" / "suites"


class Suite(NamedTuple):
    """Some tests of one framework."""

    name: str
    package: str
    """The package that must be installed; a suite without its own is left to another environment."""
    repository: str
    commit: str
    folder: str
    """Where pytest is started, below the repository."""
    files: tuple[str, ...]
    plugin: str
    apart: dict[str, str]
    """Tests that ask for something else than the contract (a part of their names), and what."""
    options: tuple[str, ...] = ()


SUITES = (
    Suite(
        name="LangGraph store",
        package="langgraph",
        repository="https://github.com/langchain-ai/langgraph",
        commit="f09cfe8ff",
        folder="libs/checkpoint-sqlite",
        files=("tests/test_store.py", "tests/test_async_store.py", "tests/test_ttl.py"),
        plugin="langgraph_store",
        apart={
            "test_scores": "wants the raw cosine; skep's score also counts words",
            "test_embed_with_path": "wants one vector per field; skep has one per memory",
            "test_vector_store_initialization": "looks for tables of their SQLite file",
            "test_no_running_loop": "wants the synchronous calls to be refused inside a loop; ours work there",
        },
    ),
    Suite(
        name="Anthropic memory tool",
        package="anthropic",
        repository="https://github.com/anthropics/anthropic-sdk-python",
        commit="009b0353",
        folder=".",
        files=("tests/lib/tools/memory_tools/test_filesystem.py",),
        plugin="anthropic_memory",
        apart={
            "symlink": "about symbolic links; a bank has none",
            "mkdir_parents": "about the mode of folders; a bank has none",
            "too_many_lines": "writes a file of 5 MB; skep refuses it when it is created",
        },
        options=("--noconftest",),
    ),
    Suite(
        name="OpenAI Agents session",
        package="agents",
        repository="https://github.com/openai/openai-agents-python",
        commit="7f7a44f8d",
        folder=".",
        files=("tests/memory/test_session.py", "tests/memory/test_session_limit.py"),
        plugin="openai_sessions",
        apart={
            "corrupt": "damages rows of their SQLite table",
            "close": "looks at their SQLite connections",
            "failed_": "breaks their SQLite connection",
            "rollback_failure": "breaks their SQLite connection",
            "post_commit_cancellation": "replaces their SQLite connection",
            "file_lock": "looks at their locks",
        },
    ),
    Suite(
        name="CrewAI memory",
        package="crewai",
        repository="https://github.com/crewAIInc/crewAI",
        commit="f4731f502",
        folder="lib/crewai",
        files=("tests/memory/test_unified_memory.py", "tests/memory/test_memory_root_scope.py"),
        plugin="crewai_storage",
        apart={
            "reranks_results": "every text has the same vector; skep knows a question by its vector",
            "root_scope_only_returns": "the same, in a second storage over the same path",
        },
        options=("--noconftest",),
    ),
)


def checkout(suite: Suite, repos: Path) -> Path:
    """A clone of the repository at the commit; one that is there is taken as it is."""
    folder = repos / suite.repository.rsplit("/", 1)[1]
    if not folder.exists():
        subprocess.run(
            ["git", "clone", "--quiet", "--filter=blob:none", suite.repository, folder], check=True
        )
        subprocess.run(["git", "-C", folder, "checkout", "--quiet", suite.commit], check=True)
    return folder / suite.folder


def run(suite: Suite, repos: Path) -> tuple[int, int, list[str]]:
    """How many pass, how many are apart, and the names of those that fail."""
    where = checkout(suite, repos)
    paths = [str(ROOT / "src"), str(PLUGINS), str(where)]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--no-header", "-p", suite.plugin]
    command += ["-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "-o", "addopts=", "-W", "ignore"]
    command += ["--rootdir", str(where), *suite.options, *suite.files]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=where, env=environ, capture_output=True, text=True, check=False)
    passed = len(re.findall(r"^PASSED ", done.stdout, re.MULTILINE))
    others = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    failed = [name for name in others if not any(part in name.split("::", 1)[-1] for part in suite.apart)]
    if not passed:
        print(done.stdout[-3000:], done.stderr[-1000:], sep="\n", file=sys.stderr)
    return passed, len(others) - len(failed), failed


def main() -> int:
    """Run all of them; 1 if one fails that should pass."""
    parser = argparse.ArgumentParser(description="Run the frameworks' own tests against skep's adapters.")
    parser.add_argument("--repos", type=Path, default=ROOT / ".frameworks", help="where the repositories are")
    repos: Path = parser.parse_args().repos.absolute()
    repos.mkdir(parents=True, exist_ok=True)
    bad = False
    for suite in SUITES:
        if importlib.util.find_spec(suite.package) is None:
            print(f"{suite.name}: not run, {suite.package} is not installed here")
            continue
        passed, apart, failed = run(suite, repos)
        print(f"{suite.name}: {passed} pass, {apart} ask for something else, {len(failed)} fail", flush=True)
        for name in failed:
            print(f"  failed: {name}")
        for part, reason in suite.apart.items():
            print(f"  apart: {part}: {reason}")
        bad = bad or bool(failed) or not passed
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
