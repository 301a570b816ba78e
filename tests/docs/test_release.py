"""A release says one version, and tells what it consists of."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import skep

ROOT = Path(__file__).parents[2]
CHECK: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "check_release.py"), run_name="check")
SBOM: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "build_sbom.py"), run_name="sbom")
PACKAGE = '"""Doc."""\n__version__ = "1.2.0"\n'


def test_a_release_whose_tag_version_and_changelog_agree_passes() -> None:
    assert CHECK["findings"]("v1.2.0", PACKAGE, "# Changelog\n\n## 1.2.0 (2027-01-31)\n") == []


def test_a_release_that_says_two_versions_is_refused_with_what_to_mend() -> None:
    tag, chapter = CHECK["findings"]("v1.3.0", PACKAGE, "# Changelog\n\n## Unreleased\n")
    assert "or tag v1.2.0" in tag
    assert "`## 1.2.0 (YYYY-MM-DD)`" in chapter


def test_the_version_stands_in_the_package_alone() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "skep.__version__"}
    assert (
        CHECK["findings"](
            f"v{skep.__version__}",
            (ROOT / "src/skep/__init__.py").read_text(encoding="utf-8"),
            f"## {skep.__version__} (2027-01-31)",
        )
        == []
    )


def test_the_description_on_a_package_index_has_no_picture_and_no_link_that_leads_nowhere(
    tmp_path: Path,
) -> None:
    pytest.importorskip("setuptools")
    command = [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    shown = (tmp_path / "skep.egg-info" / "PKG-INFO").read_text(encoding="utf-8")

    assert "Description-Content-Type: text/markdown" in shown
    assert "**A memory for AI agents, in one file.**" in shown
    assert "![" not in shown
    assert [link for link in re.findall(r"\]\(([^)]*)\)", shown) if not link.startswith("https://")] == []


def test_the_bill_of_materials_names_what_the_package_needs_and_whose_data_it_holds(tmp_path: Path) -> None:
    assert SBOM["main"](["--out", str(tmp_path / "sbom.json")]) == 0
    bill = json.loads((tmp_path / "sbom.json").read_text(encoding="utf-8"))
    names = {part["name"] for part in bill["components"]}
    assert {"apsw", "click", "msgspec", "numpy", "WordNet"} <= names
    refs = [part["bom-ref"] for part in bill["components"]]
    assert len(refs) == len(set(refs))
    root = bill["metadata"]["component"]["bom-ref"]
    assert {name for name in refs if name.startswith("data:")} <= next(
        set(each["dependsOn"]) for each in bill["dependencies"] if each["ref"] == root
    )


def test_workflows_are_yaml_with_few_rights_and_name_the_versions_of_their_actions() -> None:
    for path in sorted((ROOT / ".github").rglob("*.yml")):
        text = path.read_text(encoding="utf-8")
        assert isinstance(yaml.safe_load(text), dict), path
        if path.parent.name == "workflows":
            assert "permissions: { contents: read }" in text
            assert [use for use in re.findall(r"uses: (\S+)", text) if "@" not in use] == []


def test_the_tests_run_on_every_python_that_is_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == promised


def test_tests_that_the_security_policy_names_are_there() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/.]+)`", policy)
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).exists()] == []
