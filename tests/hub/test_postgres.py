"""PostgreSQL as a hub, against a real server: the promises of every hub, late commits, rights, kills, old schemas."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories

from skep import Bank
from skep.errors import DiskFullError, HubAwayError, SyncError
from skep.hub.hub import START
from skep.hub.hub_urls import open_hub, shown

pytest.importorskip("psycopg")
psycopg: Any = __import__("psycopg")

from skep.hub.postgres import PostgresHub  # noqa: E402

NewBank = Callable[[], str]


def test_it_keeps_the_promises_of_a_hub(new_bank: NewBank) -> None:
    @settings(max_examples=15)
    @given(histories())
    def check(history: list[Step]) -> None:
        url = new_bank()
        congruence.check(lambda: PostgresHub(url), history)

    check()


def test_writers_at_once_lose_nothing(new_bank: NewBank) -> None:
    url = new_bank()
    congruence.check_writers_at_once(lambda: PostgresHub(url))


def test_who_waits_is_woken(new_bank: NewBank) -> None:
    url = new_bank()
    congruence.check_waiting(lambda: PostgresHub(url))


def test_a_foreign_position_begins_at_the_start(new_bank: NewBank) -> None:
    url = new_bank()
    congruence.check_foreign_position(lambda: PostgresHub(url))


def test_an_event_that_commits_late_is_not_passed_over(new_bank: NewBank) -> None:
    url = new_bank()
    hub = PostgresHub(url)
    append = "SELECT skep.append(%s, ARRAY['late'], ARRAY[1]::bigint[], ARRAY[1]::bigint[], ARRAY['confirm'],"
    with psycopg.connect(url.partition("#")[0]) as late:
        late.execute(append + " ARRAY['{}'], ARRAY[NULL]::bytea[])", (url.partition("bank=")[2],))
        early = threading.Thread(target=lambda: hub.append([event("early", 1)]))
        early.start()
        position = START
        seen: set[str] = set()
        for _ in range(3):
            batch = hub.read(position)
            position = batch.position
            seen |= {one.id for one in batch.events}
            time.sleep(0.02)
        late.commit()
        early.join()
    batch = hub.read(position)
    assert seen | {one.id for one in batch.events} == {"late-1", "early-1"}
    hub.close()


def test_the_bank_is_a_bank_like_any_other(
    new_bank: NewBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_bank()
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "one"))
    with Bank.open(url) as one:
        memory = one.remember("Staging runs PostgreSQL 16", scope={"project": "web"}).memory
        one.revise(memory.id, tags=["db"])
        gone = one.remember("A secret").memory
        one.forget(gone.id)
        old = one.remember("The deploy is on Fridays").memory
        one.remember("The deploy is on Mondays")
        one.retract(old.id)
        monkeypatch.setenv("HOME", str(tmp_path / "two"))
        with Bank.open(url) as two:
            assert two.recall("which postgres is on staging?")[0].memory.id == memory.id
            assert two.as_of(two.engine.now()).get(memory.id).tags == ("db",)
    with psycopg.connect(url.partition("#")[0]) as connection:
        found = connection.execute(
            "SELECT text, status, scope_project, tags FROM skep.memories WHERE bank = %s ORDER BY created, id",
            (url.partition("bank=")[2],),
        ).fetchall()
    assert [row[:3] for row in found if row[1] == "active"] == [
        ("Staging runs PostgreSQL 16", "active", "web"),
        ("The deploy is on Mondays", "active", None),
    ]
    assert found[0][3] == ["db"]
    assert not any("secret" in row[0] for row in found)


WRITER = """
import sys
from skep import Bank
with Bank.open(sys.argv[1]) as bank:
    for number in range(10_000):
        print(bank.remember(f"Fact {number} of {sys.argv[2]}", on_conflict="ignore").memory.id, flush=True)
"""


def test_writers_and_server_processes_that_are_killed_lose_nothing_acknowledged(
    new_bank: NewBank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_bank()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, url, name],
            env={**os.environ, "HOME": str(tmp_path / name)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in ("one", "two")
    ]
    acknowledged: set[str] = set()
    with psycopg.connect(url.partition("#")[0], autocommit=True) as admin:
        for process in running:
            for _ in range(15):
                acknowledged.add(process.stdout.readline().strip())  # type: ignore[union-attr]
        victims = [
            pid
            for (pid,) in admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'skep' LIMIT 1"
            )
        ]
    # -9 to a process of the server makes the server end all of them and recover from its log, as after a crash
    assert victims
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    for process in running:
        process.kill()
        with process.stdout as left:  # type: ignore[union-attr]
            acknowledged |= {line.strip() for line in left if line.endswith("\n")}
        process.wait()
    monkeypatch.setenv("HOME", str(tmp_path / "new"))
    found = _when_back(lambda: [memory.id for memory in _all(url)])
    assert acknowledged - {""} <= set(found)


def _all(url: str) -> Any:
    with Bank.open(url) as bank:
        return bank.find(limit=10_000).memories


def _when_back(call: Callable[[], Any]) -> Any:
    """A server that was killed needs a moment to recover."""
    for _ in range(100):
        try:
            return call()
        except HubAwayError:
            time.sleep(0.1)
    return call()


def test_a_hub_goes_on_after_its_connections_were_cut(new_bank: NewBank) -> None:
    url = new_bank()
    hub = PostgresHub(url)
    hub.append([event("ana", 1)])
    with psycopg.connect(url.partition("#")[0], autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'skep'"
        )
    hub.append([event("ana", 2)])
    assert hub.held().count() == 2
    hub.close()


def test_errors_say_what_is_wrong(postgres: str, tmp_path: Path) -> None:
    with pytest.raises(SyncError, match="createdb"):
        open_hub(postgres.replace("/postgres?", "/nowhere?"))
    with pytest.raises(SyncError, match="check user and password"):
        open_hub(postgres.replace("postgres:@", "nobody:secret@"))
    with pytest.raises(HubAwayError, match="is the server up") as caught:
        open_hub(f"postgresql://ana:secret@/db?host={tmp_path}")
    assert "secret" not in str(caught.value)
    with pytest.raises(HubAwayError):
        open_hub("postgresql://ana:secret@127.0.0.1:1/db")
    assert "secret" not in shown("postgresql://ana:secret@h/db")


def test_a_wrong_password_is_told_and_not_shown(postgres: str, postgres_folder: Path) -> None:
    rules = postgres_folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right'")
        rules.write_text(f"local all locked scram-sha-256\n{before}")
        admin.execute("SELECT pg_reload_conf()")
        try:
            wrong, right = (
                postgres.replace("postgres:@", f"locked:{word}@") for word in ("mistaken", "right")
            )
            for _ in range(100):  # the server reads its rules in a moment
                try:
                    PostgresHub(wrong).close()
                except SyncError as error:
                    told = str(error)
                    break
                time.sleep(0.05)
            assert "check user and password" in told
            assert "mistaken" not in told
            PostgresHub(right).close()
        finally:
            rules.write_text(before)
            admin.execute("SELECT pg_reload_conf()")


def test_a_full_disk_at_the_server_is_told_and_loses_nothing(
    postgres: str, postgres_folder: Path, small_disk: Callable[[str], Path]
) -> None:
    space = small_disk("12m") / "space"
    space.mkdir()
    space.parent.chmod(0o755)
    owner = (postgres_folder / "data").stat()
    os.chown(space, owner.st_uid, owner.st_gid)
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute(f"CREATE TABLESPACE small LOCATION '{space}'")
        admin.execute("CREATE DATABASE narrow TABLESPACE small")
    hub = PostgresHub(postgres.replace("/postgres?", "/narrow?"))
    acknowledged: set[tuple[str, int]] = set()
    try:
        with pytest.raises(DiskFullError, match="nothing was lost"):  # noqa: PT012
            for number in range(1, 3000):
                hub.append([event("ana", number, os.urandom(8000).hex())])
                acknowledged.add(("ana", number))
        small_disk("40m")
        hub.append([event("ana", 5000)])
        assert set(hub.held().dots()) >= acknowledged | {("ana", 5000)}
        assert acknowledged
    finally:
        hub.close()
        with psycopg.connect(postgres, autocommit=True) as admin:
            admin.execute("DROP DATABASE narrow WITH (FORCE)")
            admin.execute("DROP TABLESPACE small")


def test_a_database_with_an_older_schema_is_brought_up_to_date_and_a_newer_one_refused(postgres: str) -> None:
    from skep.hub import postgres as module

    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("CREATE DATABASE older")
    url = postgres.replace("/postgres?", "/older?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA skep; CREATE TABLE skep.version(version int NOT NULL)")
        connection.execute(module._migrations()[1])  # type: ignore[reportPrivateUsage]
        connection.execute("INSERT INTO skep.version VALUES (1)")
        connection.execute("INSERT INTO skep.logs(bank, bank_id, last) VALUES ('main', 'b', 1)")
        connection.execute(
            "INSERT INTO skep.events VALUES ('main', 1, 'ana', 1, 0, 'remember', '{\"text\":\"x\"}')"
        )
    hub = PostgresHub(url)
    assert [one.id for one in hub.read(START).events] == ["ana-1"]
    hub.append([event("ana", 2)])
    hub.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE skep.version SET version = 99")
    with pytest.raises(SyncError, match="newer skep"):
        PostgresHub(url)


def test_a_role_sees_and_writes_the_banks_and_scopes_it_was_admitted_to(
    new_bank: NewBank, postgres: str
) -> None:
    url = new_bank()
    name = url.partition("bank=")[2]
    owner = PostgresHub(url)
    with psycopg.connect(postgres, autocommit=True) as admin:
        for role in ("whole", "scoped", "reader", "stranger"):
            if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
                admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute("SELECT skep.admit('whole', %s)", (name,))
        admin.execute("SELECT skep.admit('scoped', %s, only_project => 'web')", (name,))
        admin.execute("SELECT skep.admit('reader', %s, may_write => false)", (name,))
        admin.execute("SELECT skep.admit('stranger', 'another bank')")

    def scoped_event(counter: int, project: str, **more: Any) -> Any:
        made = event("ana", counter)
        return made.__class__(
            **{**_fields(made), "body": {**made.body, "scope": {"project": project}}, **more}
        )

    owner.append([scoped_event(1, "web"), scoped_event(2, "payroll")])
    owner.append([_about("ana", 3, "ana-1"), _about("ana", 4, "ana-2")])

    whole, scoped, reader = (
        PostgresHub(url.replace("postgres:@", f"{who}@")) for who in ("whole", "scoped", "reader")
    )
    assert whole.held().count() == reader.held().count() == 4
    assert [one.id for one in scoped.read(START).events] == ["ana-1", "ana-3"]
    scoped.append([scoped_event(1, "web", actor="bob"), _about("bob", 2, "bob-1")])
    with pytest.raises(SyncError, match="may not write"):
        scoped.append([scoped_event(3, "payroll", actor="bob")])
    with pytest.raises(SyncError, match="may not write"):
        scoped.append([_about("bob", 4, "ana-2")])
    with pytest.raises(SyncError, match="may not write"):
        reader.append([event("eve", 1)])
    with pytest.raises(SyncError, match="admit"):
        PostgresHub(url.replace("postgres:@", "stranger@"))
    assert owner.held().count() == 6
    with psycopg.connect(postgres.replace("postgres:@", "scoped@"), autocommit=True) as connection:
        rows = connection.execute("SELECT count(*) FROM skep.memories WHERE bank = %s", (name,)).fetchone()
        assert rows == (2,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM skep.events")
    for hub in (owner, whole, scoped, reader):
        hub.close()


def _fields(made: Any) -> dict[str, Any]:
    return {name: getattr(made, name) for name in made.__struct_fields__}


def _about(actor: str, counter: int, memory: str) -> Any:
    made = event(actor, counter)
    return made.__class__(**{**_fields(made), "kind": "confirm", "body": {"memory": memory}})
