"""Settings that decide how this file is read and written do not travel; a config that cannot be used is a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank

TOKEN = "ghp_" + "x1" * 18


def told(source: Bank, target: Bank) -> None:
    target.apply(list(source.engine.log.after(0)))


def test_a_peer_switches_no_redaction_off_and_stops_no_recall(bank: Bank, clock: Clock) -> None:
    bank.remember("The relay runs in Oslo")
    with Bank.open(":memory:", now=clock) as peer:
        peer.set_setting("recall/config", 5)
        peer.set_setting("redact/kinds", [])
        peer.set_setting("colour", "blue")
        told(peer, bank)

    assert [hit.memory.text for hit in bank.recall("where does the relay run?")] == ["The relay runs in Oslo"]
    assert TOKEN not in bank.remember(f"The key is {TOKEN}").memory.text
    assert bank.setting("colour") == "blue"
    assert not [finding for finding in bank.doctor(deep=True) if finding.level == "error"]


def test_who_may_deploy_is_said_by_the_owner(bank: Bank, clock: Clock) -> None:
    bank.set_setting("redact/kinds", ["all"])
    with Bank.open(":memory:", now=clock) as chief:
        clock.pass_seconds(5)
        chief.set_setting("redact/kinds", ["email"])
        chief.set_setting("settings/from", ["anybody"])
        told(chief, bank)
        assert bank.setting("redact/kinds") == ["all"]
        bank.set_setting("settings/from", [chief.actor])
        assert bank.setting("redact/kinds") == ["email"]
    assert not [finding for finding in bank.doctor(deep=True) if finding.level == "error"]


def test_a_copied_file_keeps_what_was_set_in_the_original(tmp_path: Path, clock: Clock) -> None:
    with Bank.open(tmp_path / "one.skep", now=clock) as bank:
        bank.set_setting("redact/kinds", ["all"])
        first = bank.actor
    (tmp_path / "two.skep").write_bytes((tmp_path / "one.skep").read_bytes())
    with Bank.open(tmp_path / "two.skep", now=clock) as copy:
        copy.remember("The relay runs in Oslo")
        assert copy.actor != first
        copy.mend()
        assert copy.setting("redact/kinds") == ["all"]


@pytest.mark.parametrize(
    "broken", [5, "fast", [1], {"weights": 5}, {"limit": "many"}, {"kinds": ["x"]}, {"no": 1}]
)
def test_a_config_that_cannot_be_used_is_a_finding_and_recall_goes_on(bank: Bank, broken: object) -> None:
    bank.remember("The relay runs in Oslo")
    bank.set_setting("recall/config", broken)

    found = bank.recall("where does the relay run?")
    assert [hit.memory.text for hit in found] == ["The relay runs in Oslo"]
    assert "recall config" in found.reason
    (finding,) = [finding for finding in bank.doctor() if finding.check == "recall config"]
    assert finding.level == "error"
    bank.set_setting("recall/config", None)
    assert "recall config" not in bank.recall("where does the relay run?").reason
