"""AsyncBank has the methods of Bank, awaited, with types that a reader of the code can rely on."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_async_bank.py"
USE = """
from skep import AsyncBank


async def ask(bank: AsyncBank) -> None:
    reveal_type(await AsyncBank.open("bank.skep"))
    reveal_type(await bank.recall("tea", limit=3))
    reveal_type(await bank.revise("a-1", text="tea", tags=["x"]))
    reveal_type(await bank.events())
    reveal_type(await bank.as_of(0.0))
    await bank.recall("tea", limit="three")
    await bank.revise("a-1", colour="red")
"""


def test_the_file_is_what_the_script_writes_from_the_methods_of_bank() -> None:
    made = runpy.run_path(str(SCRIPT))
    advice = "run python scripts/build_async_bank.py"
    assert made["TARGET"].read_text(encoding="utf-8") == made["source"](), advice


def test_a_type_checker_knows_what_every_method_takes_and_gives(tmp_path: Path) -> None:
    (tmp_path / "use.py").write_text(USE, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text('{"extraPaths": ["%s"]}' % (SCRIPT.parents[1] / "src"))
    said = subprocess.run(
        [sys.executable, "-m", "pyright", "-p", str(tmp_path)], capture_output=True, text=True, check=False
    ).stdout

    for kind in ("AsyncBank", "Recalled", "Memory", "list[Event]"):
        assert f'is "{kind}"' in said, said
    assert said.count(" - error: ") == 2, said
