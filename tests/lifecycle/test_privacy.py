"""Secrets never reach the bank, and ordinary text stays as it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.bank import Bank
from skep.lifecycle.privacy import PATTERNS, redact, without_private

SECRETS = [
    ("api-key", "key sk-ant-api03-" + "a1B2" * 8),
    ("api-key", "AKIA" + "ABCDEFGH12345678"),
    ("api-key", "ghp_" + "x" * 36),
    ("token", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"),
    ("bearer", "Authorization: Bearer abcdefghijklmnop0123"),
    ("password", "postgres://admin:hunter22@db.internal/prod"),
    ("password", "password=correcthorse"),
    ("card", "card 4111 1111 1111 1111 please"),
    ("iban", "pay to GB82 WEST 1234 5698 7654 32"),
    ("email", "mail ana.b@example.org today"),
    ("phone", "call +44 20 7946 0958"),
    ("phone", "call (555) 123-4567"),
    ("private-key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"),
]
PLAIN = [
    "v2.3.1 was released on 2026-03-01 at 12:30:45",
    "commit 3f2a9b1c4d5e6f7a8b9c0d1e2f3a4b5c6d7e8f90",
    "order 1234567890123456 has the wrong checksum",
    "the range is 100-200-300 and the id is 550e8400-e29b-41d4-a716-446655440000",
    "use foo_bar(x, y) on port 5433, see issue #441",
    "the ratio is 3.14159265358979",
    "decorate it with @dataclass and @property",
]


@pytest.mark.parametrize(("kind", "text"), SECRETS, ids=[f"{k}-{i}" for i, (k, _) in enumerate(SECRETS)])
def test_a_secret_is_replaced_by_its_kind(kind: str, text: str) -> None:
    cleaned = redact(text)
    assert kind in cleaned.kinds
    assert f"[{kind}]" in cleaned.text
    assert redact(cleaned.text).found == ()


@pytest.mark.parametrize("text", PLAIN)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert redact(text).text == text


def test_private_parts_are_gone_even_nested_or_never_closed() -> None:
    assert without_private("a <private>b <private>c</private> d</private> e") == "a  e"
    assert without_private("a <PRIVATE>b") == "a "
    assert without_private("a </private> b") == "a  b"
    assert redact("x <private>y</private>").kinds == ("private",)


def test_machine_addresses_are_redacted_only_when_asked() -> None:
    assert redact("host 10.1.2.3").text == "host 10.1.2.3"
    assert redact("host 10.1.2.3", tuple(PATTERNS)).text == "host [ip-address]"


@given(st.text(max_size=200))
def test_any_text_is_redacted_without_error_and_twice_is_once(text: str) -> None:
    once = redact(text).text
    assert redact(once).text == once
    assert "<private>" not in once.lower()


def test_captured_episodes_are_redacted_and_say_so(bank: Bank) -> None:
    result = bank.remember("My mail is ana@example.org", kind="episode", redact=True)
    assert (result.memory.text, result.redactions) == ("My mail is [email]", ("email",))
    assert bank.remember("Contact ops@example.org").memory.text == "Contact ops@example.org"
    assert "secret" not in bank.remember("keep <private>the secret</private> this").memory.text
