"""Each verb of a bank does what its name says."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.conftest import Clock

from skep.bank.bank import Bank
from skep.embedding.static_table import HashingEmbedder
from skep.errors import (
    ForgottenError,
    InvalidInputError,
    LineageError,
    NotFoundError,
    OutOfRangeError,
    UndoError,
    WrongTypeError,
)
from skep.model import SHARED, STATUSES
from skep.validation import CLEARED


def texts(bank: Bank, query: str, **options: object) -> list[str]:
    return [hit.memory.text for hit in bank.recall(query, **options)]  # type: ignore[arg-type]


def test_a_memory_comes_back_with_everything_it_was_given(plain_bank: Bank, clock: Clock) -> None:
    memory = plain_bank.remember(
        "The cache is cold after a deploy",
        kind="procedure",
        title="Cache",
        domain="ops",
        agent="scout",
        scope={"user": "u", "project": "p"},
        tags=["cache", "deploy"],
        source="runbook.md",
        confidence=0.9,
        importance=0.7,
        polarity=1,
        valid_from="2026-01-01",
        valid_to="2036-01-01",
        ttl=3600,
        metadata={"nested": {"list": [1, None, "x"]}},
    ).memory

    again = plain_bank.get(memory.id)
    assert memory == again
    assert (again.expires_at, again.created_at) == (clock.now + 3600, clock.now)
    assert again.metadata == {"nested": {"list": [1, None, "x"]}}
    assert (again.scope.user, again.scope.project, again.scope.session) == ("u", "p", None)


def test_many_are_stored_in_order_and_reported(plain_bank: Bank) -> None:
    seen: list[tuple[int, int]] = []
    stored = plain_bank.remember_many(
        ["one", {"text": "two", "tags": ["x"]}, "three"],
        progress=lambda done, total: seen.append((done, total)),
    )

    assert [item.memory.text for item in stored] == ["one", "two", "three"]
    assert seen[-1] == (3, 3)
    assert plain_bank.status().memories == 3


def test_revise_changes_what_is_found_and_keeps_the_history(plain_bank: Bank) -> None:
    memory = plain_bank.remember("The meeting is on Monday").memory

    plain_bank.revise(memory.id, text="The meeting is on Friday", importance=0.9)

    assert plain_bank.get(memory.id).text == "The meeting is on Friday"
    assert [m.text for m in plain_bank.find("friday")] == ["The meeting is on Friday"]
    assert list(plain_bank.find("monday")) == []
    assert [event.kind for event in plain_bank.history(memory.id)] == ["remember", "revise"]


def test_none_clears_a_field(plain_bank: Bank) -> None:
    memory = plain_bank.remember("x", title="t", domain="d", ttl=60).memory
    cleared = plain_bank.revise(memory.id, title=None, domain=None, ttl=None)
    assert (cleared.title, cleared.domain, cleared.expires_at) == (None, None, None)


def test_none_clears_every_field_that_may_be_empty(plain_bank: Bank) -> None:
    memory = plain_bank.remember(
        "a fact",
        title="t",
        domain="d",
        agent="ana",
        scope={"user": "ana"},
        tags=["x"],
        source="s",
        polarity=1,
        pinned=True,
        valid_from=1.0,
        valid_to=2.0,
        ttl=1e9,
        metadata={"k": 1},
    ).memory
    cleared = plain_bank.revise(memory.id, **dict.fromkeys(CLEARED))
    assert (cleared.scope, cleared.tags, cleared.metadata) == (SHARED, (), {})
    assert (cleared.title, cleared.domain, cleared.source, cleared.agent) == (None, None, None, "ana")
    assert (cleared.valid_from, cleared.valid_to, cleared.expires_at) == (None,) * 3
    assert (cleared.polarity, cleared.pinned) == (0, False)
    assert [m.id for m in plain_bank.find(scope={})] == [memory.id]
    for field in ("text", "confidence", "importance"):
        with pytest.raises(WrongTypeError, match=field):
            plain_bank.revise(memory.id, **{field: None})


def test_a_revision_may_not_turn_an_interval_round(plain_bank: Bank) -> None:
    memory = plain_bank.remember("a fact", valid_from="2026-03-01").memory
    with pytest.raises(
        OutOfRangeError, match=r"valid_from \(2026-03-01.*must be before valid_to \(2026-02-01"
    ):
        plain_bank.revise(memory.id, valid_to="2026-02-01")
    plain_bank.revise(memory.id, valid_to="2026-02-01", valid_from=None)
    with pytest.raises(OutOfRangeError):
        plain_bank.revise(memory.id, valid_from="2026-03-01")
    assert plain_bank.revise(memory.id, valid_from="2026-01-01").valid_to is not None


def test_evidence_is_not_limited_like_tags(plain_bank: Bank) -> None:
    ids = [m.memory.id for m in plain_bank.remember_many([f"note {i}" for i in range(200)])]
    summary = plain_bank.remember("the notes, summed up", evidence=ids[:150]).memory
    assert len(summary.evidence) == 150
    assert len(plain_bank.support(summary.id, ids).evidence) == 200


def test_retract_hides_and_restore_brings_back(plain_bank: Bank) -> None:
    memory = plain_bank.remember("the moon is cheese").memory

    assert plain_bank.retract(memory.id, "nonsense").status == "retracted"
    assert texts(plain_bank, "moon cheese") == []
    assert plain_bank.restore(memory.id).status == "active"
    assert texts(plain_bank, "moon cheese") == ["the moon is cheese"]


def test_a_chain_of_replacements_shows_only_its_head(plain_bank: Bank) -> None:
    a, b, c = (m.memory.id for m in plain_bank.remember_many(["port is 1", "port is 2", "port is 3"]))
    plain_bank.supersede(a, b)
    plain_bank.supersede(b, c)

    assert texts(plain_bank, "port") == ["port is 3"]
    assert {"port is 1", "port is 2", "port is 3"} == set(texts(plain_bank, "port", include_superseded=True))
    assert plain_bank.get(a).superseded_by == b


def test_cycles_and_self_replacement_are_refused(plain_bank: Bank) -> None:
    a, b, c = (m.memory.id for m in plain_bank.remember_many(["one", "two", "three"]))
    plain_bank.supersede(a, b)
    plain_bank.supersede(b, c)

    with pytest.raises(LineageError):
        plain_bank.supersede(a, a)
    with pytest.raises(LineageError):
        plain_bank.supersede(c, a)
    assert plain_bank.get(c).status == "active"


def test_merge_keeps_the_loser_and_hands_on_its_evidence(plain_bank: Bank) -> None:
    a, b, e = (m.memory.id for m in plain_bank.remember_many(["tea is hot", "hot is the tea", "it steamed"]))
    plain_bank.support(a, [e])

    winner = plain_bank.merge(a, b)

    assert set(winner.evidence) == {a, e}
    assert (plain_bank.get(a).status, plain_bank.get(a).merged_into) == ("merged", b)


def test_undo_makes_any_event_as_if_it_never_was(plain_bank: Bank) -> None:
    memory = plain_bank.remember("original").memory
    plain_bank.revise(memory.id, text="changed")
    revision = plain_bank.history(memory.id)[-1]

    undone = plain_bank.undo(revision.id)
    assert plain_bank.get(memory.id).text == "original"
    plain_bank.undo(undone.id)
    assert plain_bank.get(memory.id).text == "changed"
    plain_bank.undo(memory.id)
    assert plain_bank.get(memory.id).status == "retracted"


def test_undo_reaches_links_settings_and_replacements(plain_bank: Bank) -> None:
    a, b = (m.memory.id for m in plain_bank.remember_many(["one", "two"]))
    plain_bank.link(a, b)
    plain_bank.undo(plain_bank.history(a)[-1].id)
    assert plain_bank.neighbors(a).links == ()
    plain_bank.supersede(a, b)
    plain_bank.undo(plain_bank.history(a)[-1].id)
    assert plain_bank.get(a).status == "active"
    first = plain_bank.set_setting("colour", "red")
    plain_bank.undo(plain_bank.set_setting("colour", "blue").id)
    assert plain_bank.setting("colour") == "red"
    plain_bank.undo(first.id)
    assert plain_bank.setting("colour") is None


def test_what_is_undone_already_is_refused_so_that_a_redo_really_restores_it(plain_bank: Bank) -> None:
    memory = plain_bank.remember("original").memory
    plain_bank.revise(memory.id, text="changed")
    revision = plain_bank.history(memory.id)[-1]
    undo = plain_bank.undo(revision.id)

    with pytest.raises(UndoError, match=f"undone already; to bring it back, undo {undo.id}"):
        plain_bank.undo(revision.id)
    redo = plain_bank.undo(undo.id)
    with pytest.raises(UndoError, match=f"undo {redo.id}"):
        plain_bank.undo(undo.id)

    assert plain_bank.get(memory.id).text == "changed"
    plain_bank.undo(revision.id)
    assert plain_bank.get(memory.id).text == "original"


def test_where_two_replicas_undid_the_same_event_one_redo_brings_it_back(plain_bank: Bank) -> None:
    memory = plain_bank.remember("original").memory
    plain_bank.revise(memory.id, text="changed")
    revision = plain_bank.history(memory.id)[-1]
    with Bank.open(":memory:", embedder=HashingEmbedder(64), now=plain_bank.engine.now) as other:
        other.apply(plain_bank.events(other.versions()))
        other.undo(revision.id)
        mine = plain_bank.undo(revision.id)
        plain_bank.apply(other.events(plain_bank.versions()))
        plain_bank.undo(mine.id)
        other.apply(plain_bank.events(other.versions()))
        assert [bank.get(memory.id).text for bank in (plain_bank, other)] == ["changed", "changed"]


def test_an_outcome_that_was_undone_counts_nowhere(plain_bank: Bank) -> None:
    memory = plain_bank.remember("use ruff").memory
    learned = plain_bank.learn("lint", "success", used=[memory.id])
    undo = plain_bank.undo(learned.outcome.id)
    assert (plain_bank.stats()["outcomes"], plain_bank.outcomes(memory.id)) == (0, [])
    assert plain_bank.get(memory.id).successes == 0
    plain_bank.undo(undo.id)
    assert (plain_bank.stats()["outcomes"], plain_bank.get(memory.id).successes) == (1, 1)


def test_what_cannot_be_undone_says_so(plain_bank: Bank) -> None:
    memory = plain_bank.remember("secret").memory
    receipt = plain_bank.forget(memory.id)

    with pytest.raises(UndoError):
        plain_bank.undo(receipt.event or "")
    with pytest.raises(UndoError, match="forgotten"):
        plain_bank.undo(memory.id)
    with pytest.raises(NotFoundError):
        plain_bank.undo("nobody-7")


def test_blame_names_the_event_behind_each_field(plain_bank: Bank) -> None:
    memory = plain_bank.remember("a", importance=0.2).memory
    plain_bank.revise(memory.id, importance=0.9)

    blame = plain_bank.blame(memory.id)

    assert (blame["text"].kind, blame["importance"].kind) == ("remember", "revise")


def test_nothing_replaces_or_repeats_a_memory_before_it_was_written(plain_bank: Bank, clock: Clock) -> None:
    memory = plain_bank.remember("The office is in Rome").memory
    then = clock.now
    clock.pass_days(2)
    copy = plain_bank.remember("The office is in Rome.", on_conflict="ignore").memory
    older = plain_bank.remember("The office is in Oslo", on_conflict="ignore").memory
    plain_bank.merge(copy.id, memory.id)
    plain_bank.supersede(older.id, memory.id)

    past = plain_bank.as_of(then)

    assert past.neighbors(memory.id).links == ()
    assert len(plain_bank.neighbors(memory.id).links) == 2


def test_the_past_can_be_read_and_not_written(plain_bank: Bank, clock: Clock) -> None:
    memory = plain_bank.remember("The office is in Rome").memory
    then = clock.now
    clock.pass_days(2)
    plain_bank.revise(memory.id, text="The office is in Oslo")
    plain_bank.remember("The office has a garden")
    gone = plain_bank.remember("The office door code is 1234").memory
    plain_bank.forget(gone.id)

    past = plain_bank.as_of(then)

    assert past.get(memory.id).text == "The office is in Rome"
    assert texts(past, "office") == ["The office is in Rome"]
    assert texts(plain_bank, "office Rome", as_of=then) == ["The office is in Rome"]
    assert "The office is in Oslo" in texts(plain_bank, "office")
    with pytest.raises(Exception, match="reading only"):
        past.remember("rewriting history")


def test_find_pages_through_everything_newest_first(plain_bank: Bank) -> None:
    plain_bank.remember_many([f"note {i}" for i in range(25)])
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = plain_bank.find(limit=10, cursor=cursor)
        seen += [memory.text for memory in page]
        cursor = page.cursor
        if cursor is None:
            break
    assert [f"note {i}" for i in reversed(range(25))] == seen
    with pytest.raises(InvalidInputError, match="cursor"):
        plain_bank.find(cursor="abc")


def test_find_filters_by_every_field(plain_bank: Bank, clock: Clock) -> None:
    plain_bank.remember("red fact", tags=["red", "x"], domain="a", agent="one", importance=0.9)
    clock.pass_days(10)
    plain_bank.remember(
        "blue episode", kind="episode", tags=["blue"], domain="b", agent="two", confidence=0.2
    )

    def found(**where: object) -> list[str]:
        return [m.text for m in plain_bank.find(**where)]  # type: ignore[arg-type]

    assert found(kind="episode") == ["blue episode"]
    assert found(tags=["red", "x"]) == ["red fact"]
    assert found(tags=["red", "blue"]) == []
    assert found(domain="a") == found(agent="one") == found(min_importance=0.8) == ["red fact"]
    assert found(min_confidence=0.5) == ["red fact"]
    assert found(since=clock.now - 1) == ["blue episode"]
    assert found(until=clock.now - 1) == ["red fact"]
    assert found(status="retracted") == []
    with pytest.raises(InvalidInputError, match="did you mean 'active'"):
        plain_bank.find(status="activ")


def test_unknown_and_forgotten_ids_are_told_apart(plain_bank: Bank) -> None:
    memory = plain_bank.remember("soon gone").memory
    plain_bank.forget(memory.id)

    with pytest.raises(ForgottenError):
        plain_bank.get(memory.id)
    with pytest.raises(NotFoundError, match="no memory"):
        plain_bank.get("nobody-1")


def test_expired_memories_are_not_recalled(plain_bank: Bank, clock: Clock) -> None:
    plain_bank.remember("the password of the week is swordfish", ttl=60)
    assert len(plain_bank.recall("password week")) == 1
    clock.pass_seconds(61)
    assert len(plain_bank.recall("password week")) == 0


def test_use_is_counted_without_a_write_per_recall(plain_bank: Bank) -> None:
    memory = plain_bank.remember("often needed").memory
    before = plain_bank.status().events
    for _ in range(3):
        plain_bank.recall("often needed")
    assert plain_bank.status().events == before
    plain_bank.engine.flush_uses()
    assert plain_bank.get(memory.id).uses == 3
    assert plain_bank.status().events == before + 1


def test_export_and_import_carry_everything(bank_path: Path, tmp_path: Path, clock: Clock) -> None:
    embedder = HashingEmbedder(32)
    with Bank.open(bank_path, embedder=embedder, now=clock) as bank:
        a, b, c = (m.memory.id for m in bank.remember_many(["one", {"text": "two", "tags": ["t"]}, "three"]))
        bank.link(a, b, "refines", 0.5)
        bank.supersede(b, c)
        bank.revise(a, text="eins")
        bank.forget(bank.remember("secret").memory.id)
        bank.set_setting("k", {"v": 1})
        count = bank.export(tmp_path / "out.jsonl")
        with Bank.open(tmp_path / "other.skep", embedder=embedder, now=clock) as other:
            assert other.import_preview(tmp_path / "out.jsonl")["new"] == count
            assert other.import_(tmp_path / "out.jsonl").new == count
            assert other.import_(tmp_path / "out.jsonl").new == 0
            assert list(bank.find(status=STATUSES)) == list(other.find(status=STATUSES))
            assert bank.engine.store.all_links() == other.engine.store.all_links()
            assert bank.settings() == other.settings()
            assert [e.id for e in bank.history(a)] == [e.id for e in other.history(a)]
            other.export(tmp_path / "again.jsonl")
    lines = {path: sorted(path.read_bytes().splitlines()[1:]) for path in tmp_path.glob("*.jsonl")}
    assert lines[tmp_path / "out.jsonl"] == lines[tmp_path / "again.jsonl"]


@pytest.mark.parametrize(
    "damage", [b"", b"not json\n", b'{"format":"other","version":1,"bank":"","events":0}\n']
)
def test_a_file_that_is_no_export_changes_nothing(plain_bank: Bank, tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "bad.jsonl").write_bytes(damage)
    with pytest.raises(InvalidInputError):
        plain_bank.import_(tmp_path / "bad.jsonl")
    assert plain_bank.status().events == 0


def test_an_export_that_was_cut_short_changes_nothing(plain_bank: Bank, tmp_path: Path) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(16)) as other:
        other.remember_many(["a", "b", "c"])
        other.export(tmp_path / "full.jsonl")
    lines = (tmp_path / "full.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:-1]))
    with pytest.raises(InvalidInputError, match="cut short: 2 of 3"):
        plain_bank.import_(tmp_path / "cut.jsonl")
    assert plain_bank.status().events == 0


def test_status_counts_what_there_is(plain_bank: Bank) -> None:
    a, b = (m.memory.id for m in plain_bank.remember_many(["one", "two"]))
    plain_bank.retract(b)
    plain_bank.link(a, b)
    status = plain_bank.status()
    assert (status.memories, status.pending, status.links) == (1, 0, 1)
    assert status.by_status == {"active": 1, "retracted": 1}
    assert msgspec.json.encode(status)


def test_settings_are_listed_by_prefix(plain_bank: Bank) -> None:
    plain_bank.set_setting("trust/a", 1.5)
    plain_bank.set_setting("trust/b", 0.5)
    plain_bank.set_setting("other", 1)
    assert plain_bank.settings("trust/") == {"trust/a": 1.5, "trust/b": 0.5}


@pytest.mark.parametrize("count", [3, 200])
def test_a_list_among_the_tags_asks_for_one_of_them(tmp_path: Path, count: int) -> None:
    with Bank.open(tmp_path / "bank.skep", embedder=HashingEmbedder()) as bank:
        for i in range(count):
            tags = ("tea", ("red", "green", "blue")[i % 3])
            bank.remember(f"leaf {i} of the harvest", tags=tags, on_conflict="ignore")
        asked = ["tea", ["red", "green"]]

        found = {memory.tags for memory in bank.find(tags=asked, limit=1000)}
        recalled = {hit.memory.tags for hit in bank.recall("leaf of the harvest", tags=asked, limit=1000)}

        assert found == recalled == {("tea", "red"), ("tea", "green")}
        with pytest.raises(InvalidInputError, match="empty list"):
            bank.recall("leaf", tags=["tea", []])
        with pytest.raises(WrongTypeError):
            bank.find(tags=[["tea", 7]])  # type: ignore[list-item]


@pytest.mark.parametrize(("rel", "verb"), [("supersedes", "supersede"), ("duplicate_of", "merge")])
def test_a_link_cannot_stand_for_a_replacement(bank: Bank, rel: str, verb: str) -> None:
    a, b = (bank.remember(f"note {word}", on_conflict="ignore").memory.id for word in "ab")
    with pytest.raises(InvalidInputError, match=verb):
        bank.link(a, b, rel)
    assert bank.neighbors(a).links == ()


def test_undoing_the_making_of_a_memory_lets_what_it_replaced_stand_again(plain_bank: Bank) -> None:
    old = plain_bank.remember("The port of the gateway is 80").memory.id
    twin = plain_bank.remember("Port 80 is the gateway's", on_conflict="ignore").memory.id
    new = plain_bank.remember("The port of the gateway is 90", on_conflict="supersede").memory.id
    plain_bank.merge(twin, new)
    assert [plain_bank.get(i).status for i in (old, twin, new)] == ["superseded", "merged", "active"]

    undone = plain_bank.undo(new)
    assert [plain_bank.get(i).status for i in (old, twin, new)] == ["active", "active", "retracted"]
    assert plain_bank.recall("port of the gateway")[0].memory.id in (old, twin)

    plain_bank.undo(undone.id)
    assert [plain_bank.get(i).status for i in (old, twin, new)] == ["superseded", "merged", "active"]
    plain_bank.undo(new)
    plain_bank.forget(new)
    assert [plain_bank.get(i).status for i in (old, twin)] == ["active", "active"]
    assert not [finding for finding in plain_bank.doctor(deep=True) if finding.level == "error"]


def test_what_two_replicas_undid_is_brought_back_with_all_that_went_along(plain_bank: Bank) -> None:
    old = plain_bank.remember("The port of the gateway is 80").memory.id
    new = plain_bank.remember("The port of the gateway is 90", on_conflict="supersede").memory.id
    with Bank.open(":memory:", embedder=HashingEmbedder(64), now=plain_bank.engine.now) as other:
        other.apply(plain_bank.events())
        undone = plain_bank.undo(new)
        other.undo(new)
        plain_bank.apply(other.events())
        plain_bank.undo(undone.id)
        other.apply(plain_bank.events())
        for bank in (plain_bank, other):
            assert [bank.get(i).status for i in (old, new)] == ["superseded", "active"]


def test_merge_leads_what_led_to_the_copy_to_the_one_that_is_kept_and_undo_takes_it_back(
    plain_bank: Bank,
) -> None:
    copy = plain_bank.remember("tea is hot", tags=["drink"], importance=0.9, metadata={"a": 1}).memory.id
    kept = plain_bank.remember("hot is the tea", on_conflict="ignore").memory.id
    note, cold = (plain_bank.remember(text, on_conflict="ignore").memory.id for text in ("a note", "ice"))
    plain_bank.link(note, copy, "related", 0.5)
    plain_bank.link(copy, cold, "contradicts")
    before = plain_bank.get(kept)

    winner = plain_bank.merge(copy, kept)

    assert (winner.tags, winner.importance, winner.metadata) == (("drink",), 0.9, {"a": 1})
    assert {
        (k.src, k.dst, k.rel, k.strength) for k in plain_bank.neighbors(kept).links if k.rel != "duplicate_of"
    } == {
        (note, kept, "related", 0.5),
        (kept, cold, "contradicts", 1.0),
    }
    merge = next(event for event in plain_bank.history(copy) if event.kind == "merge")
    undone = plain_bank.undo(merge.id)
    assert plain_bank.get(kept) == msgspec.structs.replace(before, version=plain_bank.get(kept).version)
    assert plain_bank.neighbors(kept).links == ()
    assert {(k.src, k.dst, k.rel) for k in plain_bank.neighbors(copy).links} == {
        (note, copy, "related"),
        (copy, cold, "contradicts"),
    }
    plain_bank.undo(undone.id)
    assert plain_bank.get(kept).tags == ("drink",)
    assert [k.dst for k in plain_bank.neighbors(note).links] == [kept]
    plain_bank.restore(copy)
    assert [k.dst for k in plain_bank.neighbors(note).links] == [copy]
    plain_bank.undo(next(event.id for event in plain_bank.history(copy) if event.kind == "restore"))
    assert [k.dst for k in plain_bank.neighbors(note).links] == [kept]


@pytest.mark.parametrize("way", ["undo", "restore"])
def test_taking_back_the_first_of_two_merges_takes_its_links_from_where_the_second_led_them(
    plain_bank: Bank, way: str
) -> None:
    texts = ("tea is hot", "hot is the tea", "the tea, it is hot", "a note", "another note", "ice")
    a, b, c, note, other, ice = (plain_bank.remember(text, on_conflict="ignore").memory.id for text in texts)
    plain_bank.link(note, a)
    plain_bank.link(a, ice, "contradicts")
    plain_bank.link(other, a)
    plain_bank.link(other, b)
    plain_bank.merge(a, b)
    plain_bank.merge(b, c)

    def led(*names: str) -> set[tuple[str, str]]:
        found = (link for name in names for link in plain_bank.neighbors(name).links)
        return {(link.src, link.dst) for link in found if link.rel != "duplicate_of"}

    together = {(note, c), (other, c), (a, ice), (b, ice), (c, ice)}  # what a copy says, it goes on saying
    assert led(note, other, ice) == together

    if way == "undo":
        back = plain_bank.undo(next(e.id for e in plain_bank.history(a) if e.kind == "merge"))
    else:
        plain_bank.restore(a)
        back = next(e for e in plain_bank.history(a) if e.kind == "restore")

    assert led(note, ice) == {(note, a), (a, ice)}
    assert led(other) == {(other, a), (other, c)}  # it led to b as well, and b has become c
    plain_bank.undo(back.id)
    assert led(note, other, ice) == together
    assert not [finding for finding in plain_bank.doctor(deep=True) if finding.level == "error"]


@pytest.mark.parametrize("verb", ["undo", "forget"])
def test_a_copy_that_stands_again_because_the_one_that_was_kept_is_gone_has_its_links(
    plain_bank: Bank, verb: str
) -> None:
    copy = plain_bank.remember("tea is hot").memory.id
    kept = plain_bank.remember("hot is the tea", on_conflict="ignore").memory.id
    note = plain_bank.remember("a note", on_conflict="ignore").memory.id
    plain_bank.link(note, copy, "derived_from", 0.5)
    plain_bank.merge(copy, kept)

    gone = getattr(plain_bank, verb)(kept)

    assert plain_bank.get(copy).status == "active"
    assert [(k.src, k.dst, k.strength) for k in plain_bank.neighbors(note).links] == [(note, copy, 0.5)]
    assert not plain_bank.get(note).stale
    assert not [finding for finding in plain_bank.doctor(deep=True) if finding.level == "error"]
    if verb == "undo":
        plain_bank.undo(gone.id)
        assert [k.dst for k in plain_bank.neighbors(note).links] == [kept]


def test_merge_takes_nothing_that_a_copy_of_another_scope_says_of_itself(plain_bank: Bank) -> None:
    copy = plain_bank.remember("tea is hot", scope={"user": "ann"}, metadata={"pin": 4711}).memory.id
    kept = plain_bank.remember("hot is the tea").memory.id
    assert plain_bank.merge(copy, kept).metadata == {}
