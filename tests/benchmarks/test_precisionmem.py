"""The wrapper of PrecisionMemBench, on beliefs of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.precisionmem import BAR, SHARE, measured


def belief(name: str, content: str, *aliases: str, **more: Any) -> dict[str, Any]:
    """A belief in the form of the benchmark."""
    return {
        "_id": name,
        "user_id": "test-user",
        "type": "entity",
        "canonical_name": name,
        "aliases": list(aliases),
        "content": content,
        "scope": ["domain:garden"],
        "pinned": False,
        "superseded_by": None,
        "resolved_at": None,
        "created_at": "2026-03-01T00:00:00Z",
        **more,
    }


def test_names_scopes_and_replacements_decide_what_a_case_returns(tmp_path: Path) -> None:
    beliefs = [
        belief("rain_barrel", "Two barrels stand behind the shed and hold 300 litres.", "butt"),
        belief("compost_old", "The heap was beside the gate.", superseded_by="compost"),
        belief("compost", "The heap is under the walnut tree."),
        belief("notebook", "Plans are drawn in a blue notebook.", scope=["domain:office"]),
        belief("neighbour_gate", "The key hangs in the porch.", user_id="somebody-else"),
    ]
    cases = [
        {
            "scope": ["domain:garden"],
            "query": query,
            "expect": {"relevantBeliefs": {"shouldOnlyInclude": only}},
        }
        for query, only in (
            ("is the butt full?", ["rain_barrel"]),
            ("where is the compost heap?", ["compost"]),
            ("", []),
        )
    ]
    (tmp_path / "fixtures").mkdir()
    (tmp_path / "fixtures/beliefs.seed.json").write_text(json.dumps(beliefs))
    (tmp_path / "fixtures/retrieval.cases.json").write_text(json.dumps(cases))

    found = measured(tmp_path)

    assert found[BAR, SHARE].recall == 1.0
    assert found[BAR, SHARE].precise == 2  # nothing is wanted and nothing found where nothing is asked
    assert found[0.0, 0.0].precision < found[BAR, SHARE].precision
