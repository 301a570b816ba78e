"""A coding agent: it runs commands, and its memory keeps it from repeating what failed.

    python examples/coding_agent.py [FOLDER]

Run it twice on one folder: the second run does at once what worked in the first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from skep import Bank
from skep.agent import Agent, Tool
from skep.llm import Budget, open_llm


def project(folder: Path) -> Path:
    """A project whose tests need `src` on the path, which nobody wrote down."""
    root = folder / "shop"
    (root / "src").mkdir(parents=True, exist_ok=True)
    (root / "src" / "prices.py").write_text("def gross(net):\n    return round(net * 1.19, 2)\n")
    (root / "test_prices.py").write_text(
        "import unittest\nimport prices\n\n\n"
        "class Prices(unittest.TestCase):\n"
        "    def test_gross(self):\n        self.assertEqual(prices.gross(100), 119.0)\n"
    )
    return root


def command(root: Path, name: str, about: str, *words: str, **environment: str) -> Tool:
    """A tool that runs one command in the project; an exit code other than 0 is a failure."""

    def call(_text: str) -> str:
        done = subprocess.run(
            words, cwd=root, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return "passed"

    return Tool(name=name, about=about, call=call)


def main(folder: Path) -> None:
    """Run the tests of the project twice over: by trying, or by what was learnt before."""
    root = project(folder)
    test = (sys.executable, "-m", "unittest", "-q")
    tools = [
        command(root, "unittest", "run the tests as they are", *test, PYTHONPATH=""),
        command(root, "unittest_discover", "let unittest look for tests", *test, "discover", PYTHONPATH=""),
        command(root, "unittest_src", "run the tests with src on the path", *test, PYTHONPATH="src"),
    ]
    spec = os.environ.get("SKEP_LLM")
    llm = open_llm(spec, environ=os.environ, budget=Budget(max_tokens=50_000)) if spec else None
    with Bank.open(folder / "coding.skep") as bank:
        agent = Agent(bank, "coder", llm=llm, tools=tools, domain="python")
        run = agent.act(
            "run the tests of the shop", check=lambda answer: answer == "passed", task_type="run the tests"
        )
        print(run.line())
        for number, step in enumerate(run.steps, 1):
            print(f"  {number}. {step.decision.tool}: {'failed, ' if step.failed else ''}{step.result}")
        for best in bank.recommend("run the tests of the shop", 1):
            print(f"next time: {best.memory.text} ({best.record})")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
