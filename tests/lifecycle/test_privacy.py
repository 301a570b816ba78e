"""Secrets never reach the bank, and ordinary text stays as it is."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError
from skep.private_parts import without_private
from skep.text.redaction import KINDS, redact

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
    ("phone", "ring 030 1234567"),
    ("phone", "ring 555 123 4567"),
    ("phone", "call me at 4155552671"),
    ("phone", "+49 (0)30 123456"),
    ("ssn", "SSN: 123-45-6789"),
    ("email", '<a href="mailto:ana@example.org">'),
    ("iban", "de89370400440532013000"),
    ("card", "3782 822463 10005"),
    ("password", "password:hunter22"),
    ("password", "Password = hunter22"),
    ("password", "my wifi password is sunshine99, ok?"),
    ("password", '{"password": "hunter22x"}'),
    ("password", '{\\"password\\": \\"hunter22x\\"}'),
    ("password", "'password': 'hunter22x'"),
    ("password", "DB_PASS=hunter2"),
    ("password", "PGPASSWORD=hunter22 psql"),
    ("password", "Server=x;User Id=sa;Password=Str0ng!pw;"),
    ("password", "password: correcthorse"),
    ("password", "password: 12345678"),
    ("password", 'passphrase: "correct horse battery staple"'),
    ("password", "redis://:pw@host:6379"),
    ("password", "mysqldump --password hunter22x"),
    ("password", "mysql -u root -pS3cretPw"),
    ("password", "curl -s -u bob:hunter22 https://example.org"),
    ("password", "sshpass -p 'Hunter!22' ssh root@box"),
    ("password", "docker login -u ana -p S3cretPass99 registry.example.org"),
    ("password", "machine api.example.org login ana password 3f1b-99aa-77cc"),
    ("password", "login ana password hunter22"),
    ("password", "default login ana password letmein"),
    ("password", "Passwort: Sommer2026!"),
    ("password", "Das Passwort ist Sommer2026"),
    ("password", "mot de passe : Ete2026!!"),
    ("token", "Set-Cookie: sessionid=38afes7a8f9d0c1b2e3a4f5; HttpOnly"),
    ("token", "GET /a.png?X-Amz-Signature=fe5f80f77d5fa3beca038a248ff027d0445342fe2855ddc9"),
    ("token", "https://blobs.example.org/a?sv=2020&sig=7Yk2p9Qx3Zr8Lm1Nv5Bt4Cw6Ds0Ea%3D"),
    ("secret", "AZURE_STORAGE_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVE=="),
    ("secret", "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("secret", "api_key: abcd1234efgh5678"),
    ("secret", "my api key is 9f8e7d6c5b4a3f2e1d0c"),
    ("secret", "secret: s3cr3tvalue"),
    ("secret", "client_secret=abcdefghijk"),
    ("secret", "token: ghx_12345678abcdef"),
    ("secret", "const accessToken = 'abcdef0123456789'"),
    ("secret", "x-api-key: 0123456789abcdef0123"),
    ("bearer", "Authorization: Basic dXNlcjpwYXNzd29yZDEyMw=="),
    ("api-key", "https://hooks.slack.com/services/T000/B000/" + "X" * 24),
    ("private-key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----"),
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
    "git clone git@github.com:org/repo.git, then scp it to ops@files.example.org:/srv",
    "abfss://container@account.dfs.core.windows.net/folder",
    "range +10 200 300 400, lines 100-200-3000, x = +1234567890, offset +0000 2026, ratio 123.456.7890",
    "the token: a gift",
    "password: must be 8 characters",
    "password: 8-16 characters",
    "the password is incorrect; the password is 12 characters long; it was changed in v1.2.3",
    "Enter your password: please",
    "the --password option sets it",
    "Password: required",
    "def f(password: SecretStr, token: str | None = None) -> None:",
    "connect(password=password, token=self.token, api_key=os.environ['KEY'], secret=get_secret())",
    "password=******** token=<your token> secret=${SECRET} api_key={key} passwd=$PASS",
    "token: Bearer, private key: id_rsa, access key: see below, secret: my-app-secret-1",
    "tokenizer: o200k_base, max_tokens=1500, password_file=/run/x1y2z3, token_count: 12k345678",
    "secret santa is on 12-24",
    "authorization: required",
    "getty@tty1.service failed, backup@home.timer is active",
    "mysql -u root -p app_production",
    "db.query(session=get_async_session_v2(), signature=inspect_the_signature)",
    "Cookie: consent=true",
    "The login page password field is empty, see the login and password reset flow",
    "Das Passwort ist wichtig, le mot de passe est obligatoire, la contraseña es segura",
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


def test_long_numbers_are_no_cards() -> None:
    rng = Random(1)
    numbers = [rng.randrange(1_600_000_000_000, 1_790_000_000_000) for _ in range(2000)]
    numbers += [rng.randrange(10**17, 10**18) for _ in range(2000)]
    assert not [number for number in numbers if redact(f"id {number} ms").found]


@pytest.mark.parametrize(
    "piece",
    [
        "a@b.co ", "a@b.", "a.", "eyJaaaaaaaa-", "-----BEGIN A PRIVATE KEY----- ", "a://b:", "+1 22 ", "AB12 ", "1 ",
        "1", "password ", "password=", "token: ", "curl -u ", "mysql ", "docker login ", "login a ", "sid=", "sig=",
        "bearer ", "authorization: ", "SG.a-", "sk-",
        "x" * 50,
    ],
)  # fmt: skip
def test_a_long_text_is_read_through_without_starting_over(piece: str) -> None:
    text = piece * (140_000 // len(piece))
    found = redact(text)
    assert len(found.found) in (0, 1) or len(found.found) == text.count(piece.strip())


def test_private_parts_are_gone_even_nested_or_never_closed() -> None:
    assert without_private("a <private>b <private>c</private> d</private> e") == "a  e"
    assert without_private("a <PRIVATE>b") == "a "
    assert without_private("a </private> b") == "a  b"
    assert redact("x <private>y</private>").kinds == ("private",)


def test_machine_addresses_are_redacted_only_when_asked() -> None:
    assert redact("host 10.1.2.3").text == "host 10.1.2.3"
    assert redact("host 10.1.2.3", KINDS).text == "host [ip-address]"


@given(st.text(max_size=200))
def test_any_text_is_redacted_without_error_and_twice_is_once(text: str) -> None:
    once = redact(text).text
    assert redact(once).text == once
    assert "<private>" not in once.lower()


def test_captured_episodes_are_redacted_and_say_so(bank: Bank) -> None:
    result = bank.remember("My mail is ana@example.org", kind="episode", redact="all")
    assert (result.memory.text, result.redactions) == ("My mail is [email]", ("email",))
    assert bank.remember("Contact ops@example.org").memory.text == "Contact ops@example.org"
    assert "secret" not in bank.remember("keep <private>the secret</private> this").memory.text


def test_every_field_that_is_text_is_redacted_and_counted(bank: Bank) -> None:
    result = bank.remember(
        "write to ana@example.org",
        title="mail ana@example.org",
        source="https://bob:hunter22@example.org/x",
        tags=["ana@example.org"],
        metadata={"by": ["ana@example.org"], "password": "hunter22x", "n": 1},
        redact="all",
    )
    memory = result.memory
    assert (memory.text, memory.title, memory.tags) == ("write to [email]", "mail [email]", ("[email]",))
    assert memory.source == "https://[password]@example.org/x"
    assert memory.metadata == {"by": ["[email]"], "password": "[password]", "n": 1}
    assert set(result.redactions) == {"email", "password"}
    assert bank.stats()["redacted"] == {"email": 4, "password": 2}
    assert bank.stats(scope={"user": "ben"})["redacted"] == {}


def test_the_kinds_can_be_named_in_the_call_and_set_for_the_bank(bank: Bank) -> None:
    text = "mail ana@example.org, password=hunter22"
    assert bank.remember(text, redact="email").memory.text == "mail [email], password=hunter22"
    assert bank.remember(text, redact=["secrets"]).memory.text == "mail ana@example.org, password=[password]"
    bank.set_setting("redact/kinds", ["password"])
    assert bank.remember(text, redact=True).memory.text == "mail ana@example.org, password=[password]"
    bank.set_setting("redact/kinds", "what is this")
    assert bank.remember(text, redact=True).memory.text == "mail ana@example.org, password=[password]"
    with pytest.raises(InvalidInputError, match="'email'"):
        bank.remember(text, redact="emial")
    with pytest.raises(InvalidInputError, match="redact must be true"):
        bank.remember(text, redact=3)  # type: ignore[arg-type]


def test_the_command_shows_tries_and_sets_what_is_taken_out(tmp_path: Path) -> None:
    Bank.open(tmp_path / "b.skep").close()

    def run(*args: str) -> str:
        done = CliRunner().invoke(app, ["--bank", str(tmp_path / "b.skep"), *args])
        assert done.exit_code == 0, done.output
        return done.output

    assert run("redact", "--kind", "all", "mail ana@example.org").startswith("mail [email]\n")
    assert "taken out: email, phone\nleft in: private-key" in run(
        "redact", "--set", "email", "--set", "phone"
    )
    assert run("redact", "password=hunter22 ana@example.org").startswith("password=hunter22 [email]")
    assert "taken out: email" in run("add", "ring ana@example.org")
    assert "taken out: password" in run("add", "--redact-kind", "secrets", "ring password=hunter22")
    assert "so far: email 1, password 1" in run("redact", "--off")
    assert "taken out: nothing" in run("redact")
    assert run("redact", "mail ana@example.org") == "mail ana@example.org\n"
    assert "taken out before storing: email 1, password 1" in run("stats")
    assert "taken out: private-key" in run("redact", "--reset")
