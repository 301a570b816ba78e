"""Whatever stands for an argument of a verb: it is taken as what it is worth, or refused in words."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import SkepError


class Text(str):
    """A text that is more than one."""

    __slots__ = ()


ODD: tuple[Callable[[], Any], ...] = tuple(
    lambda value=value: value
    for value in (
        *(np.str_("a text"), Text("a text"), "half \ud800", b"x", "", "9" * 5000, "2025-13-40", "x" * 70_000),
        *(
            np.int64(3),
            np.float32(0.5),
            np.float64(0.5),
            np.bool_(True),
            True,
            -1,
            10**400,
            float("nan"),
            1e308,
        ),
        *(
            np.array([1, 2]),
            np.array("x"),
            np.array(["a", "b"]),
            [np.str_("x")],
            ["\ud800"],
            [None],
            [["a"], [["b"]]],
        ),
        *(
            {"\ud800": 1},
            {1: 2},
            {"a": np.str_("x")},
            {"user": "\ud800"},
            {"x"},
            range(3),
            memoryview(b"a"),
            slice(1),
        ),
        *(None, object(), Ellipsis, type, datetime.datetime.max, datetime.date.min, Path("/nonexistent")),
    )
)
APART = ("close", "open", "stream")
FREE = ("text", "tags", "confidence", "metadata", "scope", "valid_to", "title", "pinned", "agent")
"""Some of the changes that `revise` takes."""
CALLED = ("progress", "reranker", "contradiction_fn", "judge", "distil")
"""What is called may raise what it likes."""


VERBS = {
    name: verb
    for name, verb in inspect.getmembers(Bank, inspect.isfunction)
    if not name.startswith("_") and name not in APART
}


@pytest.mark.parametrize("name", VERBS)
def test_an_odd_argument_ends_in_words(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verb = VERBS[name]
    monkeypatch.chdir(tmp_path)  # an odd path may be a good name of a file
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(32)) as bank:
        ids = [
            bank.remember(text).memory.id
            for text in ("Use ruff", "Ana likes tea", "A third thing", "A fourth")
        ]
        usual: dict[str, Any] = {
            "memory_id": ids[0],
            "memory_ids": ids[:1],
            "a": ids[0],
            "b": ids[1],
            "src": ids[0],
            "dst": ids[1],
            "old": ids[0],
            "new": ids[1],
            "loser": ids[2],
            "winner": ids[3],
            "used": ids[:1],
            "key": "k",
            "event_id": next(iter(bank.events())).id,
            "text": "hello there",
            "query": "tea",
            "task": "t",
            "outcome": True,
            "by": "me",
            "sources": ids[1:2],
            "items": ["x y"],
            "status": "active",
            "value": 1,
            "path": tmp_path / "out",
            "events": [],
            "decision": "KEEP",
            "decide": lambda _: None,
        }
        parameters = [p for p in inspect.signature(verb).parameters.values() if p.name != "self"]
        names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in CALLED]
        names += FREE if any(p.kind is p.VAR_KEYWORD for p in parameters) else ()
        needed = {p.name: usual.get(p.name) for p in parameters if p.default is p.empty and p.name in names}
        for field in names:
            for odd in ODD:
                try:
                    found = verb(bank, **{**needed, field: odd()})
                    if inspect.isgenerator(found):
                        list(found)
                except (SkepError, OSError):
                    pass
                except Exception as error:
                    raise AssertionError(f"{name}({field}={odd()!r:.60}): {error!r}") from error
        assert [finding for finding in bank.doctor(deep=True) if finding.level == "error"] == []


def test_a_text_that_is_more_than_one_is_stored_as_the_text_that_it_is(tmp_path: Path) -> None:
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder(32)) as bank:
        kept = bank.remember(np.str_("Ana likes tea"), tags=np.array(["drinks", "ana"])).memory
        assert (kept.text, kept.tags) == ("Ana likes tea", ("drinks", "ana"))
        assert bank.find(tags=np.array(["drinks"])).memories == (kept,)
        assert bank.learn("make tea", np.float64(0.75), used=[np.str_(kept.id)]).outcome.success
