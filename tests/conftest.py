"""Fixtures every test may use: a clock that stands still until told, and banks on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from skep import runtime
from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

if runtime.native is None and os.environ.get(runtime.SWITCH) != "0":
    pytest.exit(f"the compiled core is not built: run `make core`, or set {runtime.SWITCH}=0", returncode=4)

SEARCH = int(os.environ.get("SKEP_SEARCH", "0"))
"""0: the same examples on every machine, so that a red run is the change's own. `make test-full` looks further."""

os.environ.setdefault("SKEP_EMBEDDER", "static")
"""Most tests are not about meaning and need not wait for a model, nor need the processes that they start."""

settings.register_profile(
    "skep",
    deadline=None,
    max_examples=50 * max(1, SEARCH),
    derandomize=not SEARCH,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("skep")


class Clock:
    """Time that moves only when a test says so."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_days(self, days: float) -> None:
        self.now += days * 86_400

    def pass_seconds(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture(scope="session")
def native() -> Any:
    """The compiled core; a test that compares it with numpy is skipped without."""
    if runtime.native is None:
        pytest.skip("needs the compiled core")
    return runtime.native


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bank(clock: Clock) -> Iterator[Bank]:
    """An empty bank in memory with the bundled embedder."""
    with Bank.open(":memory:", now=clock) as opened:
        yield opened


@pytest.fixture
def plain_bank(clock: Clock) -> Iterator[Bank]:
    """An empty bank in memory with the hashing embedder: no data file, for tests that are not about meaning."""
    with Bank.open(":memory:", embedder=HashingEmbedder(64), now=clock) as opened:
        yield opened


@pytest.fixture
def bank_path(tmp_path: Path) -> Path:
    """Where a test may put a bank."""
    return tmp_path / "bank.skep"
