"""Manifests: everything wrong is found at once, and said in a way that helps."""

from __future__ import annotations

import builtins
import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.errors import MissingExtraError, NotFoundError, SkepError
from skep.hive.hive_manifest import ManifestError, load, parse

pytest.importorskip("yaml")

GOOD = """
name: research
topology: federated
store: ${STORE:-banks}
policies: {promote_at: 0.4, replication: 2}
gateway: {signatures: known}
groups:
  - {name: infra, domains: [servers, networks]}
  - {name: people, parent: infra}
agents:
  - {name: ana, group: infra, domains: [servers], trust: 1.5}
  - {name: worker, group: people, replicas: 3}
"""


def findings(text: str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse(text, environ or {})
    return [finding.line() for finding in caught.value.findings]


def test_a_good_manifest_is_read_with_its_variables() -> None:
    manifest = parse(GOOD, {"STORE": "/data"})

    assert manifest.store == "/data"
    assert parse(GOOD, {}).store == "banks"
    assert list(manifest.instances()) == ["ana", "worker-0", "worker-1", "worker-2"]
    assert manifest.policies.promote_at == 0.4


def test_all_problems_are_found_at_once() -> None:
    found = findings(
        """
        name: research
        topologie: flat
        policies: {promot_at: 0.4, fanout: 0}
        agents:
          - {name: ana, trusst: 1}
          - {domains: [x]}
          - {name: bob, replicas: many}
        """
    )

    assert found == [
        "topologie: is not known; did you mean 'topology'?",
        "policies.promot_at: is not known; did you mean 'promote_at'?",
        "policies.fanout: fanout must lie between 1 and inf, got 0",
        "agents[0].trusst: is not known; did you mean 'trust'?",
        "agents[1].name: is missing",
        "agents[2].replicas: Expected `int`, got `str`",
    ]


def test_every_policy_that_cannot_work_is_named() -> None:
    found = findings("{name: x, policies: {promote_at: high, fanout: 0, replication: 0}}")

    assert [line.partition(":")[0] for line in found] == [
        "policies.promote_at",
        "policies.fanout",
        "policies.replication",
    ]


def test_a_misspelt_topology_is_recognised() -> None:
    (line,) = findings("{name: x, topology: federeted}")

    assert "did you mean 'federated'?" in line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{topology: flat}", "name: is missing"),
        ("{name: a b}", "'a b' is not a name"),
        ("{name: x, bus: carrier-pigeon}", "is no bus"),
        ("{name: x, bus: 'natz://localhost'}", "no bus that skep knows"),
        ("{name: x, agents: [{name: a}, {name: a}]}", "'a' is already agents[0]"),
        ("{name: x, agents: [{name: a-1}, {name: a, replicas: 2}]}", "'a-1' is already agents[0]"),
        ("{name: x, agents: [{name: a, trust: 3}]}", "must be 0 to 2"),
        ("{name: x, agents: [{name: a, key: abc}]}", "64 hexadecimal digits"),
        ("{name: x, agents: [{name: a, replicas: 0}]}", "must be 1 to 1000"),
        ("{name: x, agents: {name: a}}", "agents: must be a list"),
        ("{name: x, agents: [a]}", "agents[0]: must be a mapping"),
        ("{name: x, topology: single, agents: [{name: a}, {name: b}]}", "one agent, not 2"),
        ("{name: x, groups: [{name: g}]}", "set topology: federated"),
        (
            "{name: x, topology: federated, groups: [{name: infra}], agents: [{name: a, group: infa}]}",
            "did you mean 'infra'?",
        ),
        (
            "{name: x, topology: federated, groups: [{name: a, parent: b}, {name: b, parent: a}]}",
            "leads back to itself",
        ),
        ("{name: x, store: '${NOWHERE}'}", "the variable NOWHERE is not set"),
        ("name: [", "syntax"),
        ("just text", "must be a mapping"),
        ("", "must be a mapping"),
        ("- a\n- b", "must be a mapping"),
    ],
)
def test_bad_manifests_say_what_is_wrong(text: str, expected: str) -> None:
    assert any(expected in line for line in findings(text))


@given(st.text(max_size=80))
def test_any_text_is_a_manifest_or_a_named_problem(text: str) -> None:
    with contextlib.suppress(SkepError):
        parse(text, {})


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "agents", "x"]), inner)
        ),
        max_leaves=8,
    )
)
def test_any_structure_is_a_manifest_or_a_named_problem(value: Any) -> None:
    import yaml

    with contextlib.suppress(SkepError):
        parse(yaml.safe_dump(value), {})


def test_json_is_read_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    (tmp_path / "hive.json").write_text('{"name": "x"}')
    (tmp_path / "hive.yaml").write_text("name: x")

    assert load(tmp_path / "hive.json", {}).name == "x"
    with pytest.raises(MissingExtraError, match=r"skep\[yaml\]"):
        load(tmp_path / "hive.yaml", {})


def test_a_missing_file_and_a_binary_one_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="skep hive init"):
        load(tmp_path / "hive.yaml", {})
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="UTF-8"):
        load(tmp_path / "binary.yaml", {})


def test_parts_that_repeat_others_are_refused_because_nine_lines_would_become_a_billion() -> None:
    lines = ["name: research", "a: &a [x, x]"]
    lines += [f"{new}: &{new} [*{old}, *{old}]" for old, new in zip("abcdefgh", "bcdefghi", strict=True)]

    assert findings("\n".join(lines)) == [
        "syntax: line 3: *a repeats another part; write that part out instead"
    ]


def test_a_manifest_nested_without_end_is_refused_in_words() -> None:
    assert findings("name: " + "[" * 5000 + "]" * 5000) == ["syntax: nested too deep to be read"]
