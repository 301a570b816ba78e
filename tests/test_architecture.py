"""The house rules that a machine can check."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "skep").rglob("*.py"))


def test_imports_point_one_way() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 kept, 0 broken" in done.stdout, done.stdout + done.stderr


def test_no_two_modules_share_a_name() -> None:
    names = Counter(path.name for path in SOURCES if "cli" not in path.parts)
    assert [name for name, count in names.items() if count > 1 and name != "__init__.py"] == []


def test_sql_lives_in_storage_and_in_hubs_that_are_databases() -> None:
    sql = re.compile(r"""["'](?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|PRAGMA) """)
    outside = [
        path
        for path in SOURCES
        if not ("storage" in path.parts or path.match("hub/postgres.py"))
        and sql.search(path.read_text(encoding="utf-8"))
    ]
    assert [str(p.relative_to(ROOT)) for p in outside] == []


def test_nothing_is_swallowed_and_nothing_is_a_stub() -> None:
    bad = re.compile(
        r"except(?: Exception| BaseException)?:\s*\n\s*pass|NotImplementedError|\bTODO\b|\bFIXME\b"
    )
    assert [p.name for p in SOURCES if bad.search(p.read_text(encoding="utf-8"))] == []


def test_no_module_reads_the_wall_clock_behind_our_back() -> None:
    clock = re.compile(r"\btime\.time\(\)|datetime\.(?:now|utcnow)\(")
    entry_points = {"clock.py", "hooks.py", "clients.py", "audit.py"}
    found = {p.name for p in SOURCES if clock.search(p.read_text(encoding="utf-8"))}
    assert found <= entry_points


def test_rooms_above_the_engine_ask_the_engine_and_not_its_store() -> None:
    below = {"storage", "engine", "index"}
    found = [
        str(p.relative_to(ROOT))
        for p in SOURCES
        if not below & set(p.parts) and re.search(r"engine\.store\.", p.read_text(encoding="utf-8"))
    ]
    assert found == []
