from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.tuning.document_index import index, read_sources
from skep.tuning.workspace import Workspace, load

COLLECTION = {
    "name": "kb",
    "fields": {
        "category": {"type": "keyword", "filterable": True},
        "rank": {"type": "number", "filterable": True},
        "note": {"type": "text"},
    },
    "chunking": {"strategy": "by_heading", "max_tokens": 128, "heading_level": 2},
}


def _document(category: str, text: str, extra: str = "") -> str:
    return f"---\ncategory: {category}\n{extra}---\n{text}"


DOCUMENTS = {
    "api/keys.md": _document(
        "api", "# API keys\n\nSend the key as a bearer token.\n\n## Revoke\n\nRevoke a key.", "rank: 1\n"
    ),
    "api/jobs.md": _document(
        "api", "# Jobs\n\nCreate a job with a payload.\n\n## Cancel\n\nCancel a waiting job."
    ),
    "api/misc.md": "# Colours\n\n"
    + "\n\n".join(f"## {c}\n\nA {c} kite over the sea." for c in ("Red", "Blue", "Grey", "Pink", "Tan")),
    "faq/login.md": _document("faq", "# Sign in\n\nReset the password of the console with a key card."),
    "faq/careers.md": _document("faq", "# Careers\n\nCreate a profile to find a job in our office."),
}
EVALS: dict[str, Any] = {
    "name": "golden",
    "k": 5,
    "latency_budget_ms": 60_000,
    "queries": [
        {
            "id": "t1",
            "query": "send the key as a token",
            "relevant": ["api/keys.md"],
            "distractors": ["faq/login.md"],
        },
        {"id": "t2", "query": "create a job", "relevant": ["api/jobs.md"], "distractors": ["faq/careers.md"]},
        {
            "id": "h1",
            "query": "revoke a key",
            "relevant": ["api/keys.md"],
            "distractors": ["faq/login.md"],
            "split": "holdout",
        },
        {
            "id": "h2",
            "query": "cancel a job",
            "relevant": ["api/jobs.md"],
            "distractors": ["faq/careers.md"],
            "split": "holdout",
        },
    ],
}
CONFIGS: dict[str, dict[str, Any]] = {
    "naive": {"name": "naive", "retrieval": {"top_k": 5}},
    "filtered": {"name": "filtered", "extends": "naive", "filters": {"category": ["api"]}},
    "faq-only": {"name": "faq-only", "filters": {"category": ["faq"]}},
}
Write = Callable[[str, Any], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Puts a file into the workspace folder: text as it is, anything else as JSON."""

    def put(relative: str, content: Any) -> Path:
        file = tmp_path / relative
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    return put


@pytest.fixture
def folder(tmp_path: Path, write: Write) -> Path:
    """A small workspace that has nothing wrong with it."""
    write("collections/kb.json", COLLECTION)
    write("evals/golden.json", EVALS)
    for name, config in CONFIGS.items():
        write(f"configs/{name}.json", config)
    for path, text in DOCUMENTS.items():
        write(f"documents/{path}", text)
    return tmp_path


@pytest.fixture
def workspace(folder: Path) -> Workspace:
    return load(folder)


@pytest.fixture
def bank() -> Iterator[Bank]:
    clock = iter(range(1_700_000_000, 1_800_000_000))
    with Bank.open(":memory:", now=lambda: float(next(clock))) as opened:
        yield opened


@pytest.fixture
def indexed(bank: Bank, workspace: Workspace) -> Bank:
    index(bank, read_sources(workspace, workspace.collections["kb"]))
    return bank


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)
