"""A bank for the adapters; the tests of a framework that is not installed are left out."""

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
    "test_crewai_backend.py": "crewai",
    "test_llamaindex_block.py": "llama_index.core",
}
"""The package that the tests of a file need."""


def there(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


collect_ignore = [name for name, package in NEEDS.items() if not there(package)]
collect_ignore.append("suites")


def pytest_report_header() -> list[str]:
    missing = sorted({package for package in NEEDS.values() if not there(package)})
    return (
        [f"adapters not tested, as not installed: {', '.join(missing)} (make test-adapters)"]
        if missing
        else []
    )


@pytest.fixture
def bank() -> Iterator[Bank]:
    with Bank.open(":memory:", embedder=HashingEmbedder(64)) as opened:
        yield opened


@pytest.fixture
def file_bank(tmp_path: Path) -> Iterator[Bank]:
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(64)) as opened:
        yield opened
