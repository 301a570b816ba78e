"""Banks for the adapters; the tests of a framework that is not installed are skipped."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder

NEEDS = {
    "test_langgraph_store.py": "langgraph",
    "test_anthropic_tool.py": "anthropic",
    "test_openai_session.py": "agents",
    "test_langchain_retriever.py": "langchain_tests",
    "test_pydantic_capability.py": "pydantic_ai",
    "test_strands_store.py": "strands",
    "test_adk_service.py": "google.adk",
    "test_agent_framework_provider.py": "agent_framework",
    "test_llamaindex_block.py": "llama_index.core",
    "test_crewai_storage.py": "crewai",
    "test_telemetry.py": "opentelemetry.sdk",
}
"""The package that the tests of a file need."""


def there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


collect_ignore = ["suites"]


class Absent(pytest.Item):
    """Stands for the tests of a framework that is not installed."""

    def runtest(self) -> None:
        pytest.skip(f"{self.name} is not installed; `make test-adapters` runs its tests")


class Without(pytest.File):
    """A file of tests whose framework is not installed."""

    def collect(self) -> Iterator[pytest.Item]:
        yield Absent.from_parent(self, name=NEEDS[self.path.name])


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Without | None:
    package = NEEDS.get(module_path.name)
    return None if package is None or there(package) else Without.from_parent(parent, path=module_path)


@pytest.fixture
def bank() -> Iterator[Bank]:
    with Bank.open(":memory:", embedder=HashingEmbedder(64)) as opened:
        yield opened


@pytest.fixture
def file_bank(tmp_path: Path) -> Iterator[Bank]:
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(64)) as opened:
        yield opened
