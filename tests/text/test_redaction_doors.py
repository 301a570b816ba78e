"""Secrets are taken out at every door, however they are written; personal data where somebody asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from skep.bank.bank import Bank
from skep.text.redaction import redact

TOKEN = "ghp_" + "x1" * 18
SEED = "abandon ability able about above absent absorb abstract absurd abuse access accident"
MISSED_BEFORE = [
    ("a name before a name", "the secret password: hunter22", "hunter22"),
    ("a no-break space", "password:\u00a0hunter22", "hunter22"),
    ("characters that are not seen", "pass\u200bword: hun\u2060ter22", "hun\u2060ter22"),
    ("full-width letters", "\uff30\uff41\uff53\uff53\uff57\uff4f\uff52\uff44\uff1a hunter22", "hunter22"),
    ("a card with dots", "card 4111.1111.1111.1111", "4111"),
    ("Pwd", "Pwd: hunter22", "hunter22"),
    ("a Telegram token in an address", f"https://api.telegram.org/bot12345678:A{'Ab1_' * 8}xy/getMe", "Ab1_"),
    ("a Twilio key", "SK" + "0123456789abcdef" * 2, "0123"),
    ("a seed phrase", f"seed phrase: {SEED}", "abstract"),
    ("a Databricks token", "dapi" + "0123456789abcdef" * 2, "0123"),
]


@pytest.mark.parametrize(
    ("text", "secret"), [each[1:] for each in MISSED_BEFORE], ids=[m[0] for m in MISSED_BEFORE]
)
def test_forms_that_an_attack_found_are_taken_out(text: str, secret: str) -> None:
    done = redact(text)
    assert secret not in done.text
    assert done.kinds


@pytest.mark.parametrize(
    "prose",
    [
        "the recovery of the server took three hours and then nobody knew where the wallet was left by him",
        "password: must be 8 characters",
        "the token count is 1200",
        "Caf\u00e9 na\u00efve \u2014 \u4e2d\u6587 text without any secret",
    ],
)
def test_prose_stays_as_it_is(prose: str) -> None:
    assert redact(prose).text == prose


def test_every_door_takes_secrets_out_without_being_asked(bank: Bank) -> None:
    one = bank.remember(f"The crawler uses {TOKEN}")
    (many,) = bank.remember_many([{"text": "The relay", "metadata": {"password": "hunter22x"}}])
    bank.revise(one.memory.id, title=f"key {TOKEN}")
    learnt = bank.learn(f"deploy with {TOKEN}", "success", lesson=f"pass {TOKEN} first")
    assert one.redactions == ("api-key",)
    assert many.memory.metadata == {"password": "[password]"}
    events: list[Any] = [event.body for event in bank.engine.log.after(0)]
    assert learnt
    assert TOKEN not in repr(events)
    assert "hunter22x" not in repr(events)


def test_personal_data_stays_unless_somebody_asks(bank: Bank) -> None:
    assert bank.remember("Write to ana@example.org").memory.text == "Write to ana@example.org"
    asked = bank.remember("Write to bo@example.org", redact="personal").memory.text
    assert asked == "Write to [email]"
    bank.set_setting("redact/kinds", ["all"])
    assert bank.remember("Write to cy@example.org").memory.text == "Write to [email]"


def test_who_wants_a_secret_kept_says_so(bank: Bank) -> None:
    assert TOKEN in bank.remember(f"The crawler uses {TOKEN}", redact=False).memory.text
