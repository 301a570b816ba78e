"""Where a bank is, how light it is to import, and how it is looked over."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from skep import AsyncBank, Bank
from skep.config import Settings, find_bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import ConfigError

READING_MODULES = 93
"""Modules of skep that are loaded for the first answer of a process; each takes a fifth of a millisecond."""


def test_the_path_given_comes_first_then_the_variable_then_the_project_then_the_user(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home")}
    deep = tmp_path / "project" / "src" / "deep"
    deep.mkdir(parents=True)

    assert find_bank("x.skep", {"SKEP_BANK": "y.skep"}, deep) == Path("x.skep")
    assert find_bank(None, {"SKEP_BANK": "y.skep"}, deep) == Path("y.skep")
    assert str(find_bank(None, home, deep)).startswith(str(tmp_path / "home"))
    (tmp_path / "project" / ".skep").mkdir()
    assert find_bank(None, home, deep) == tmp_path / "project" / ".skep" / "bank.skep"


@pytest.mark.skipif(sys.platform != "linux", reason="the convention of one platform")
def test_the_users_folder_follows_the_platform(tmp_path: Path) -> None:
    assert find_bank(None, {"HOME": "/h"}, tmp_path) == Path("/h/.local/share/skep/bank.skep")
    assert find_bank(None, {"HOME": "/h", "XDG_DATA_HOME": "/d"}, tmp_path) == Path("/d/skep/bank.skep")


def imported(code: str) -> set[str]:
    found = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(' '.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.split())


def test_importing_skep_imports_next_to_nothing() -> None:
    modules = imported("import skep")
    assert {"numpy", "apsw", "msgspec", "click"} & modules == set()


def test_opening_and_listing_do_without_numpy(tmp_path: Path) -> None:
    path = tmp_path / "b.skep"
    with Bank.open(path) as bank:
        bank.remember("x")
    modules = imported(
        f"from skep import Bank\nwith Bank.open({str(path)!r}) as b:\n"
        "    list(b.find())\n    b.status()\n    b.history()"
    )
    assert "numpy" not in modules


def test_a_process_that_only_reads_loads_nothing_of_what_writes(tmp_path: Path) -> None:
    path = tmp_path / "b.skep"
    with Bank.open(path, embedder="hash:32") as bank:
        bank.remember("The harbour opens at nine", on_conflict="ignore")
    modules = imported(
        f"from skep import Bank\nwith Bank.open({str(path)!r}, read_only=True) as b:\n"
        "    assert b.recall('harbour', preset='rrf').hits"
    )
    writes = (
        "semantics.writing storage.fold storage.tables storage.wording storage.handover engine.forgetting"
    )
    assert {f"skep.{name}" for name in writes.split()} & modules == set()
    assert len([name for name in modules if name.partition(".")[0] == "skep"]) <= READING_MODULES


@pytest.mark.parametrize(
    "url", ["postgres-like://host/team", "gopher://host", "file://x.skep", "x://bucket/x"]
)
def test_a_url_is_refused_and_makes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no kind of hub|three slashes"):
        Bank.open(url)
    assert list(tmp_path.iterdir()) == []


def test_a_bank_can_be_awaited(bank_path: Path) -> None:
    async def work() -> list[str]:
        async with await AsyncBank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
            await asyncio.gather(*(bank.remember(f"note {i}", on_conflict="ignore") for i in range(20)))
            found = await bank.recall("note", limit=50)
            assert (await bank.status()).memories == 20
            with pytest.raises(AttributeError):
                bank.actor  # noqa: B018
            return [hit.memory.text for hit in found]

    assert len(asyncio.run(work())) > 0


def test_threads_may_share_a_bank(bank_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> int:
            bank.remember(f"thread note {number}", on_conflict="ignore")
            return len(bank.recall("thread note", limit=5))

        assert all(count >= 1 for count in pool.map(work, range(60)))
        assert bank.status().memories == 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_opens_its_own_connection(bank_path: Path) -> None:
    code = f"""
import os
from skep import Bank
bank = Bank.open({str(bank_path)!r}, embedder="hash:32")
bank.remember("before the fork", on_conflict="ignore")
child = os.fork()
bank.remember(f"after the fork {{child == 0}}", on_conflict="ignore")
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(bank.status().memories)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "3", done.stderr


def test_the_doctor_finds_what_is_wrong_and_says_how_to_mend_it(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        memory = bank.remember("healthy").memory
        assert {f.level for f in bank.doctor(deep=True)} <= {"ok", "warning"}
        bank_path.chmod(0o644)
        assert any(f.check == "permissions" and "chmod 600" in f.fix for f in bank.doctor())
        connection = bank.engine.store.connection
        connection.execute("UPDATE memories SET text = 'tampered' WHERE id = ?", (memory.id,))
        sick = [f for f in bank.doctor(deep=True) if f.level == "error"]
        assert sick
        assert all(f.fix for f in sick)
        bank.mend()
        assert bank.get(memory.id).text == "healthy"
        assert [f for f in bank.doctor(deep=True) if f.level == "error"] == []


def test_a_deep_look_reads_every_byte_of_the_index_and_says_how_to_mend_it(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(16)) as bank:
        bank.remember_many([f"note {i} about topic {i % 97}" for i in range(5000)])
        bank.engine.index.refresh()
        assert all(f.level == "ok" for f in bank.doctor(deep=True))
    segment = max(bank_path.with_name("bank.skep.index").glob("*.seg"), key=lambda path: path.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[-100] ^= 0xFF
    segment.write_bytes(content)
    with Bank.open(bank_path, embedder=HashingEmbedder(16)) as bank:
        (sick,) = (f for f in bank.doctor(deep=True) if f.level != "ok")
        assert (sick.check, segment.name in sick.message) == ("index", True)
        assert "skep doctor --mend" in sick.fix
        bank.mend()
        assert all(f.level == "ok" for f in bank.doctor(deep=True))


def test_a_deep_look_compares_links_and_settings_with_the_log(bank_path: Path) -> None:
    with Bank.open(bank_path, embedder=HashingEmbedder(32)) as bank:
        a, b = (m.memory.id for m in bank.remember_many(["one", "two"]))
        bank.link(a, b)
        bank.set_setting("colour", "red")
        bank.engine.store.connection.execute("DELETE FROM links")
        bank.engine.store.connection.execute("UPDATE settings SET value = '1'")
        (sick,) = (f for f in bank.doctor(deep=True) if f.level == "error")
        assert sick.message.startswith("2 memories, links or settings")
        bank.mend()
        assert (bank.setting("colour"), len(bank.neighbors(a).links)) == ("red", 1)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="busy_seconds"):
        Settings(busy_seconds=0)


def test_answering_one_question_imports_no_more_than_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "b.skep"
    with Bank.open(path) as bank:
        bank.remember("The deploy key lives in the vault")
    modules = imported(
        f"from skep import Bank\nb = Bank.open({str(path)!r})\n"  # closing it would write how often it was used
        "assert b.recall('where is the deploy key?', preset='rrf')"
    )
    rooms = (
        "storage.doctor",
        "storage.bank_export",
        "index.neighbour_join",
        "lifecycle",
    )
    assert {*(f"skep.{room}" for room in rooms), "asyncio", "difflib", "numpy.ma"} & modules == set()
