"""What is marked `<private>` is stored nowhere: in no field, no event, no setting, by no way in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.errors import InvalidInputError
from skep.integrations.importers import text_files
from skep.integrations.importers.registry import import_items
from skep.private_parts import public, whole_lines, without_private
from skep.tuning.documents import read_document

HIDDEN = "s3cret"
PART = f"<private>{HIDDEN}</private>"


def leaks(bank: Bank) -> bool:
    return any(HIDDEN.encode() in line for line in bank.export_lines()) or HIDDEN in repr(
        bank.settings() | {"memories": list(bank.find(status=None, limit=1000))}
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"title": f"t {PART}"},
        {"title": f"&lt;private&gt;{HIDDEN}&lt;/private&gt; t"},
        {"tags": [f"tag {PART}", "b"]},
        {"source": f"x {PART}"},
        {"domain": f"d {PART}"},
        {"agent": f"a {PART}"},
        {"evidence": [f"e {PART}"]},
        {"metadata": {"n": PART, "d": {"e": ["x " + PART]}, f"k {PART}": 1}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_no_field_of_a_memory_keeps_it(bank: Bank, fields: dict[str, Any]) -> None:
    stored = bank.remember("The cat is called Miso", **fields)
    revised = {name: value for name, value in fields.items() if name not in ("evidence", "agent")}
    bank.revise(bank.remember("Another").memory.id, **revised, text="New")

    assert not leaks(bank)
    assert HIDDEN not in repr(stored)
    assert "private" in stored.redactions


def test_what_is_wholly_private_is_refused_where_something_must_be_left(bank: Bank) -> None:
    wrong: tuple[dict[str, Any], ...] = (
        {"tags": [PART]},
        {"domain": PART},
        {"agent": PART},
        {"scope": {"user": f"ana{PART}"}},
    )
    for fields in wrong:
        with pytest.raises(InvalidInputError, match="private"):
            bank.remember("The cat is called Miso", **fields)
    assert bank.status().memories == 0


def test_no_other_event_keeps_it(bank: Bank) -> None:
    one = bank.remember("The cat is called Miso").memory.id
    two = bank.remember("Deploys go out on Tuesdays").memory.id
    bank.learn(
        f"t {PART}", "failure", used=[one], task_type=f"y {PART}", domain=f"z {PART}", agent=f"a {PART}"
    )
    bank.learn("t", "success", lesson=f"Feed {PART} it", used=[one], metrics={f"m {PART}": 1.0})
    bank.link(one, two, f"about {PART}")
    bank.confirm(one, by=f"ana {PART}")
    bank.dispute(two, by=f"ben {PART}")
    bank.support(two, [f"seen {PART}"])
    bank.mark(two, "deprecated", f"r {PART}")
    bank.restore(two, f"r {PART}")
    bank.supersede(two, one, f"r {PART}")
    event = bank.set_setting("k", {"v": [PART]})
    bank.undo(event.id, f"r {PART}")
    bank.set_setting(f"k {PART}", PART)
    bank.retract(one, PART.replace("</private>", "</private> r"))

    assert not leaks(bank)
    assert {event.body["reason"].strip() for event in bank.events() if "reason" in event.body} == {"r"}


def test_what_maintenance_is_told_by_a_model_is_not_trusted_either(bank: Bank) -> None:
    for number in range(3):
        bank.remember(f"We saw that the payments service runs in Frankfurt, {number}", kind="episode")

    bank.maintain(distil=lambda groups: [f"Payments run in Frankfurt {PART}" for _ in groups])

    assert not leaks(bank)


def test_a_private_part_over_several_lines_joins_them(tmp_path: Path) -> None:
    path = tmp_path / "b.skep"
    given_in = (
        f'one\r\nPublic <private>\nthe code is {HIDDEN}\n</private> end\n{{"text": "two <private>{HIDDEN}"}}\n'
        f"three\n\nfour <private\n>{HIDDEN}</private>\n<private>{HIDDEN}</private> five\nsix <private>\n{HIDDEN}\n"
    )

    Bank.open(path).close()
    done = CliRunner().invoke(app, ["add", "-", "--bank", str(path)], input=given_in)

    assert done.exit_code == 0, done.output
    with Bank.open(path) as bank:
        assert not leaks(bank)
        texts = sorted(" ".join(memory.text.split()) for memory in bank.find(limit=100))
    assert texts == ["Public end", "five", "four", "one", "six", "three", "two"]


def test_imports_cut_it_before_they_split_a_file(bank: Bank, tmp_path: Path) -> None:
    body = f"# Note\n\n- one\n- two <private>\n- {HIDDEN}\n\n## {HIDDEN}\n\n{HIDDEN}</private>\n- three\n"
    (tmp_path / "a.md").write_text(body)
    (tmp_path / "a.txt").write_text(body)
    (tmp_path / "a.jsonl").write_text(
        f'{{"text": "x {PART}", "tags": ["{PART}", "b"], "title": "{PART}"}}\n"{PART}"\n'
    )

    import_items(bank, text_files.read_markdown(tmp_path / "a.md"))
    import_items(bank, text_files.read_lines(tmp_path / "a.txt"))
    import_items(bank, text_files.read_jsonl(tmp_path / "a.jsonl"))

    assert not leaks(bank)
    assert "three" in {memory.text.strip("- ") for memory in bank.find(limit=100)}


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_documents_are_read_without_it(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a{suffix}"
    file.write_text(f"---\ntitle: T {PART}\n---\nA {PART}\n\n# H\n\n<private>\n\n# {HIDDEN}\n</private> end")

    assert HIDDEN not in repr(read_document(f"a{suffix}", file))


PIECES = st.lists(
    st.sampled_from(
        [
            "<private>",
            "</private>",
            "< Private x>",
            "&lt;private&gt;",
            "&lt;/private&gt;",
            "&",
            "a",
            "\n",
            "<",
            ">",
            "{",
        ]
    ),
    max_size=12,
)


@given(PIECES)
def test_lines_taken_one_by_one_lose_what_the_whole_loses(pieces: list[str]) -> None:
    text = "".join(pieces)
    apart = "\n".join(without_private(part) for _number, part in whole_lines(text.split("\n")))

    assert apart == without_private(text)


@given(
    st.recursive(
        st.text() | PIECES.map("".join), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_public_stays_public_and_is_the_same_object(value: Any) -> None:
    once = public(value)

    assert public(once) is once


def test_marks_that_never_end_cost_no_more_than_their_length() -> None:
    for text in (
        "<private " * 20_000,
        "<" + " " * 100_000,
        "< " * 50_000,
        "<private>" * 20_000,
        "</private>" * 9000,
    ):
        without_private(text)
