"""A hub that sees ciphertext alone: the promises of every hub, no plain text in it; wrong keys, forgeries."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from tests.hub import congruence
from tests.hub.congruence import Step, event, histories

from skep import Bank
from skep.errors import ConfigError, CorruptBankError, SyncError
from skep.hub.folder import FolderHub
from skep.hub.hub import START
from skep.hub.hub_urls import open_hub

pytest.importorskip("nacl")

from skep.hub.encryption import EncryptedHub

KEY = bytes(range(32))


@given(histories())
def test_it_keeps_the_promises_of_a_hub(history: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        congruence.check(lambda: EncryptedHub(FolderHub(Path(folder) / "hub"), KEY), history)


def test_the_hub_holds_no_text_and_other_machines_read_it_with_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "team.key").write_text(KEY.hex())
    url = f"file://{tmp_path}/hub#mode=hub&key={tmp_path}/team.key"
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "one"))
    with Bank.open(url) as one:
        memory = one.remember("The vault code is 4711", scope={"project": "safe"}).memory
        one.replica.refresh_snapshot(always=True)  # type: ignore[attr-defined]
        everything = b"".join(path.read_bytes() for path in (tmp_path / "hub").rglob("*") if path.is_file())
        assert b"vault" not in everything
        assert b"safe" not in everything
        monkeypatch.setenv("HOME", str(tmp_path / "two"))
        with Bank.open(url) as two:
            assert two.get(memory.id).text == "The vault code is 4711"
            two.forget(memory.id)
        assert FolderHub(tmp_path / "hub").status().snapshot is None

    (tmp_path / "team.key").write_text(bytes(32).hex())
    monkeypatch.setenv("HOME", str(tmp_path / "three"))
    with pytest.raises(SyncError, match="does not open with this key"):
        Bank.open(url)


def test_forgeries_are_refused(tmp_path: Path) -> None:
    plain = FolderHub(tmp_path / "hub")
    hub = EncryptedHub(plain, KEY)
    hub.append([event("ana", 1)])
    (sealed,) = plain.read(START).events
    plain.append([msgspec.structs.replace(sealed, counter=2)])
    with pytest.raises(CorruptBankError, match="changed"):
        hub.read(START)

    plain = FolderHub(tmp_path / "plain")
    plain.append([event("ana", 1)])
    with pytest.raises(SyncError, match="not encrypted"):
        EncryptedHub(plain, KEY).read(START)

    source = tmp_path / "long"
    source.write_bytes(bytes(9 << 20))
    hub.put_snapshot(source, hub.held(), START)
    (stored,) = (tmp_path / "hub").glob("snapshot-*.bin")
    stored.write_bytes(stored.read_bytes()[: 5 << 20])
    with pytest.raises((CorruptBankError, SyncError)):
        hub.get_snapshot(tmp_path / "target")


def test_keys_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("00ff")
    for name in ("short", "missing"):
        with pytest.raises(ConfigError, match="openssl"):
            open_hub(f"file://{tmp_path}/hub#key={tmp_path}/{name}")
    with pytest.raises(ConfigError, match="leave #key= out"):
        open_hub(f"http://host/team#key={tmp_path}/short")
