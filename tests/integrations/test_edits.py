"""Editing other people's files: what we did not write stays exactly as it was."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import ConfigError
from skep.integrations import config_files

COMMENTED = """// my settings
{
    "theme": "dark", // the only good one
    /* servers */
    "mcpServers": {
        "other": {"command": "x", "args": []}, // keep
    },
}
"""


def test_a_new_key_leaves_comments_order_and_indentation_alone() -> None:
    edited = config_files.put(COMMENTED, ("mcpServers", "skep"), {"command": "skep"})

    assert config_files.parse_jsonc(edited)["mcpServers"] == {
        "other": {"command": "x", "args": []},
        "skep": {"command": "skep"},
    }
    for kept in ("// my settings", "// the only good one", "/* servers */", "// keep", '    "theme": "dark"'):
        assert kept in edited


def test_putting_the_same_value_twice_changes_nothing_the_second_time() -> None:
    once = config_files.put(COMMENTED, ("mcpServers", "skep"), {"command": "skep"})

    assert config_files.put(once, ("mcpServers", "skep"), {"command": "skep"}) == once


def test_removing_what_was_put_gives_the_same_document_again() -> None:
    edited = config_files.put(COMMENTED, ("mcpServers", "skep"), {"command": "skep"})

    assert config_files.parse_jsonc(
        config_files.remove(edited, ("mcpServers", "skep"))
    ) == config_files.parse_jsonc(COMMENTED)


@pytest.mark.parametrize(
    "text",
    [
        '{\n  // mine\n  "theme": "One Dark",\n}\n',
        '{\n    "a": {\n        "b": [1, 2],\n    },\n}\n',
        '{\n\t"a": 1\n}',
        '{"a": {"command": "b"}, "c": 5}',
        '{\r\n  "a": 1\r\n}\r\n',
    ],
)
def test_a_document_is_the_same_to_the_byte_after_put_and_remove(text: str) -> None:
    edited = config_files.put(text, ("servers", "skep"), {"command": "skep", "args": ["mcp"]})

    assert "skep" in edited
    assert config_files.remove(edited, ("servers", "skep")) == text


def test_an_empty_file_becomes_a_document() -> None:
    assert config_files.parse_jsonc(config_files.put("", ("a", "b"), 1)) == {"a": {"b": 1}}


def test_objects_that_a_removal_leaves_empty_go_too() -> None:
    assert config_files.parse_jsonc(
        config_files.remove('{"x": 1, "a": {"b": {"c": 1}}}', ("a", "b", "c"))
    ) == {"x": 1}


@pytest.mark.parametrize(
    "text", ["{", '{"a": }', "[1,,2]", '{"a": 1} x', "{'a': 1}", '{"a": 01}', "[" * 5000]
)
def test_a_broken_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        config_files.put(text, ("a",), 1)


def test_a_value_in_the_way_is_refused() -> None:
    with pytest.raises(ConfigError, match="not an object"):
        config_files.put('{"mcpServers": []}', ("mcpServers", "skep"), {})


VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=4)


@given(DOCUMENTS, st.sampled_from([None, 1, 2, "\t"]))
def test_whatever_json_writes_is_read_back(document: dict[str, Any], indent: Any) -> None:
    assert config_files.parse_jsonc(json.dumps(document, indent=indent, ensure_ascii=False)) == document


@given(DOCUMENTS, VALUES, st.sampled_from([None, 1, 2, "\t"]))
def test_a_put_changes_one_key_and_a_removal_takes_it_back(
    document: dict[str, Any], value: Any, indent: Any
) -> None:
    text = json.dumps(document, indent=indent)

    edited = config_files.put(text, ("unlikely", "key"), value)

    assert json.loads(edited) == {**document, "unlikely": {"key": value}}
    assert json.loads(config_files.remove(edited, ("unlikely", "key"))) == document


@given(DOCUMENTS, st.lists(st.integers(0, 3), max_size=4), st.sampled_from([None, 2]))
def test_appending_and_removing_items_are_inverse(
    document: dict[str, Any], items: list[int], indent: Any
) -> None:
    text = json.dumps({**document, "unlikely": items}, indent=indent)

    edited = config_files.append(text, ("unlikely",), 7)

    assert json.loads(edited)["unlikely"] == [*items, 7]
    back = json.loads(config_files.remove_items(edited, ("unlikely",), lambda item: item == 7))
    assert back.get("unlikely", []) == items
    assert {key: value for key, value in back.items() if key != "unlikely"} == document


TOML = """# mine
model = "o5"

[mcp_servers.other] # keep
command = "x"

[features]
web = true # yes
"""


def test_a_table_is_added_after_what_was_there() -> None:
    edited = config_files.put_table(TOML, "mcp_servers.skep", {"command": "skep", "args": ["mcp"]})

    assert edited.startswith(TOML.rstrip())
    assert tomllib.loads(edited)["mcp_servers"]["skep"] == {"command": "skep", "args": ["mcp"]}


def test_a_table_is_replaced_in_full_and_removed_in_full() -> None:
    text = TOML + '\n[mcp_servers.skep]\ncommand = "old"\n\n[mcp_servers.skep.env]\nA = "1"\n'

    edited = config_files.put_table(text, "mcp_servers.skep", {"command": "skep", "args": []})

    assert tomllib.loads(edited)["mcp_servers"]["skep"] == {"command": "skep", "args": []}
    assert config_files.remove_table(edited, "mcp_servers.skep") == TOML


def test_a_header_inside_a_text_is_not_taken_for_a_table() -> None:
    text = 'note = """\n[mcp_servers.skep]\ncommand = "fake"\n"""\n\n[mcp_servers.skep]\ncommand = "x"\n'

    with pytest.raises(ConfigError, match="by hand"):
        config_files.remove_table(text, "mcp_servers.skep")
