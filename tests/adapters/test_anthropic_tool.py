"""Claude's memory tool over a bank: what its own tests do not ask."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.lib.tools import ToolError

from skep.adapters.anthropic_tool import MemoryTool
from skep.bank.bank import Bank


def run(tool: MemoryTool, command: str, **fields: Any) -> str:
    return str(tool.call({"command": command, **fields}))


def test_a_file_is_a_memory_with_a_history(bank: Bank) -> None:
    tool = MemoryTool(bank, scope=("agents", "support"))
    run(tool, "create", path="/memories/ana.md", file_text="Ana edits in Helix\n")
    run(tool, "str_replace", path="/memories/ana.md", old_str="Helix", new_str="Zed")

    (memory,) = bank.find(key="/memories/ana.md")
    assert memory.text == "Ana edits in Zed\n"
    assert bank.recall("editor of Ana", scope=("agents", "support"))[0].memory.id == memory.id
    bank.undo(bank.history(memory.id)[-1].id)
    assert "Helix" in run(tool, "view", path="/memories/ana.md")


def test_scopes_do_not_see_each_others_files(bank: Bank) -> None:
    run(MemoryTool(bank, scope=("a",)), "create", path="/memories/x", file_text="one")
    other = MemoryTool(bank, scope=("b",))
    assert "/memories/x" not in run(other, "view", path="/memories")
    with pytest.raises(ToolError, match="does not exist"):
        run(other, "view", path="/memories/x")


def test_what_the_model_deletes_a_person_can_bring_back(bank: Bank) -> None:
    tool = MemoryTool(bank)
    run(tool, "create", path="/memories/x", file_text="one")
    memory_id = bank.find(key="/memories/x")[0].id
    run(tool, "delete", path="/memories/x")
    bank.restore(memory_id)
    assert "one" in run(tool, "view", path="/memories/x")


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = MemoryTool(bank)
    run(tool, "create", path="/memories/x", file_text="one two")
    seen = tool._existing("/memories/x")
    bank.revise(seen.id, text="one three")
    monkeypatch.setattr(tool, "_existing", lambda _path: seen)
    with pytest.raises(ToolError, match="changed by somebody else"):
        run(tool, "str_replace", path="/memories/x", old_str="two", new_str="four")
    assert bank.get(seen.id).text == "one three"


@pytest.mark.parametrize("content", ["", "\n", "  \n\n", "no end", "end\n", "cr\r\nlf\n", "tab\tbed"])
def test_content_comes_back_to_the_byte(bank: Bank, content: str) -> None:
    tool = MemoryTool(bank)
    run(tool, "create", path="/memories/x", file_text=content)
    numbered = run(tool, "view", path="/memories/x").split("\n", 1)[1]
    assert "\n".join(line.split("\t", 1)[1] for line in numbered.split("\n")) == content


def test_renaming_a_folder_moves_what_is_in_it(bank: Bank) -> None:
    tool = MemoryTool(bank)
    run(tool, "create", path="/memories/a/b/c.md", file_text="c")
    run(tool, "rename", old_path="/memories/a", new_path="/memories/z")
    assert "c" in run(tool, "view", path="/memories/z/b/c.md")
    with pytest.raises(ToolError, match="does not exist"):
        run(tool, "view", path="/memories/a/b/c.md")


def test_everything_is_erased_on_request(bank: Bank) -> None:
    tool = MemoryTool(bank)
    run(tool, "create", path="/memories/x", file_text="one")
    tool.clear_all_memory()
    assert bank.find(status=None).memories == ()
