"""Conflicts in a hive are those of one bank: within a scope, and nothing private replaces what everybody sees."""

from __future__ import annotations

import pytest
from tests.conftest import Clock

from skep.embedding.embedder import open_embedder
from skep.hive.hive import Hive
from skep.model import Scope

from .conftest import MakeHive

KNOWN, NEW = "The server has 16 GB of RAM", "The server has 32 GB of RAM"


@pytest.mark.parametrize("policy", ["raise", "supersede", "warn"])
def test_another_users_memory_is_not_told_and_not_touched(hive: Hive, policy: str) -> None:
    kept = hive.agent("ana").remember(KNOWN, scope={"user": "u1"}).memory
    done = hive.agent("bob").remember(NEW, scope={"user": "u2"}, on_conflict=policy)  # type: ignore[arg-type]
    assert done.conflicts == ()
    assert done.action == "stored"
    assert hive.agent("ana").get(kept.id).status == "active"


def test_what_everybody_sees_is_told_and_not_replaced_by_what_one_does(hive: Hive) -> None:
    kept = hive.agent("ana").remember(KNOWN).memory
    done = hive.agent("bob").remember(NEW, scope={"user": "u2"}, on_conflict="supersede")
    assert [conflict.existing.id for conflict in done.conflicts] == [kept.id]
    assert done.action == "stored"
    assert hive.agent("ana").get(kept.id).status == "active"


def test_what_everybody_sees_does_not_stand_in_for_what_one_does(hive: Hive) -> None:
    hive.agent("ana").remember(KNOWN)
    done = hive.agent("bob").remember(KNOWN, scope={"user": "u2"}, on_conflict="supersede")
    assert (done.action, done.memory.scope) == ("stored", Scope(user="u2"))


def test_a_memory_of_the_same_scope_is_replaced(hive: Hive) -> None:
    old = hive.agent("ana").remember(KNOWN, scope={"user": "u1"}).memory
    done = hive.agent("bob").remember(NEW, scope={"user": "u1"}, on_conflict="supersede")
    assert done.action == "superseded"
    assert hive.agent("ana").get(old.id).superseded_by == done.memory.id


def test_several_values_of_one_relation_are_not_refused(hive: Hive) -> None:
    hive.agent("ana").remember("Ana speaks French", on_conflict="raise")
    assert hive.agent("bob").remember("Ana speaks German", on_conflict="raise").action == "stored"


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_what_is_told_to_have_moved_updates_where_it_was(
    make_hive: MakeHive, clock: Clock, kind: str
) -> None:
    hive = make_hive(kind, embedder=open_embedder("minilm"))
    old = hive.agent("ana").remember("Ana lives in Rome").memory
    clock.pass_days(1)
    (conflict,) = hive.agent("bob").remember("Ana moved from Rome to Oslo").conflicts
    assert (conflict.kind, conflict.existing.id) == ("update", old.id)
    hive.agent("cy").remember("Ana moved from Rome to Paris", on_conflict="ignore")
    found = hive.agent("cy").find_conflicts(old.id)
    assert [conflict.kind for conflict in found] == ["update", "update"]
