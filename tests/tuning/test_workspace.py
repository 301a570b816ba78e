"""Malformed input of every kind: a named finding, never a stack trace."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skep.errors import did_you_mean
from skep.tuning import workspace as workspace_module
from skep.tuning.document_index import read_sources
from skep.tuning.findings import RefusedError
from skep.tuning.schemas import check
from skep.tuning.search_config import CONFIG, config_schema
from skep.tuning.validate import check_files
from skep.tuning.workspace import COLLECTION, EVALS, init, load

from .conftest import CONFIGS, Write
from .conftest import EVALS as GOLDEN


def codes(folder: Path) -> list[str]:
    return sorted(finding.code for finding in check_files(load(folder)))


def test_a_sound_workspace_has_no_findings(folder: Path) -> None:
    assert codes(folder) == []


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("{", "malformed-json"),
        ("", "malformed-json"),
        ("[]", "wrong-type"),
        ('{"name": "a", "name": "b"}', "duplicate-key"),
        ('{"name": NaN}', "malformed-json"),
        ('{"name": ' + "9" * 5000 + "}", "malformed-json"),
        ("[" * 100_000, "too-deep"),
        ('{"a": ' * 40 + "1" + "}" * 40, "too-deep"),
        ('{"name": "other"}', "name-differs"),
        ('{"name": "bad", "retrieval": {"topk": 3}}', "unknown-key"),
        ('{"name": "bad", "retrieval": {"top_k": "3"}}', "wrong-type"),
        ('{"name": "bad", "retrieval": {"top_k": true}}', "wrong-type"),
        ('{"name": "bad", "retrieval": {"top_k": 0}}', "out-of-range"),
        ('{"name": "bad", "retrieval": {"method": "hybird"}}', "not-a-choice"),
        ('{"note": "no name"}', "missing-key"),
        ('{"name": "../../etc/passwd"}', "bad-name"),
        ('{"name": "bad", "filters": {"category\'; DROP TABLE memories;--": ["x"]}}', "bad-name"),
        ('{"name": "bad", "filters": {"category": []}}', "out-of-range"),
        ('{"name": "bad", "extends": "bad"}', "cyclic-extends"),
        ('{"name": "bad", "extends": "nowhere"}', "unknown-config"),
        ('{"name": "bad", "collection": "kbb"}', "unknown-collection"),
        ('{"name": "bad", "filters": {"categori": ["api"]}}', "filter-field-unknown"),
        ('{"name": "bad", "filters": {"note": ["api"]}}', "filter-field-not-filterable"),
        ('{"name": "bad", "filters": {"category": ["apis"]}}', "filter-value-unknown"),
        (
            '{"name": "bad", "retrieval": {"method": "vector"}, "distraction_detection": {"enabled": true}}',
            "detection-needs-hybrid",
        ),
        ('{"name": "bad", "dynamic_k": {"min_results": 9, "max_results": 3}}', "min-above-max"),
        ('{"name": "bad", "retrieval": {"weights": {"semantic": 0, "lexical": 0}}}', "weights-all-zero"),
        ('{"name": "bad", "retrieval": {"fusion": "rrf", "weights": {"recency": 1}}}', "config-refused"),
        ('{"name": "bad", "retrieval": {"top_k": 500}}', "k-above-collection"),
    ],
)
def test_a_bad_config_is_a_named_finding_about_its_file(
    folder: Path, write: Write, content: str, code: str
) -> None:
    write("configs/bad.json", content)
    found = [finding for finding in check_files(load(folder)) if finding.file == "configs/bad.json"]

    assert [code] == sorted({finding.code for finding in found})
    assert all(finding.what and finding.fix for finding in found)


def test_all_findings_come_at_once_and_name_their_place(folder: Path, write: Write) -> None:
    write(
        "configs/bad.json",
        {"name": "bad", "retrieval": {"topk": 1, "rrf_k": -1}, "dynamic_k": {"enabled": "yes"}},
    )
    found = {finding.path: finding for finding in check_files(load(folder))}

    assert set(found) == {"retrieval.topk", "retrieval.rrf_k", "dynamic_k.enabled"}
    assert found["retrieval.topk"].fix == "did you mean 'top_k'?"


def test_configs_that_extend_each_other_are_a_cycle(folder: Path, write: Write) -> None:
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a")):
        write(f"configs/{name}.json", {"name": name, "extends": parent})

    assert set(codes(folder)) == {"cyclic-extends"}


def test_a_config_takes_what_it_does_not_state_from_the_one_it_extends(folder: Path, write: Write) -> None:
    write("configs/child.json", {"name": "child", "extends": "filtered", "retrieval": {"fusion": "weighted"}})
    child = load(folder).configs["child"]

    assert (child.retrieval.fusion, child.retrieval.top_k, child.filters) == (
        "weighted",
        5,
        {"category": ("api",)},
    )


def test_filters_are_replaced_as_a_whole(folder: Path, write: Write) -> None:
    write("configs/child.json", {"name": "child", "extends": "filtered", "filters": {}})

    assert load(folder).configs["child"].filters == {}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"queries": []}, "empty-evals"),
        ({"queries": [{**GOLDEN["queries"][0], "relevant": ["../../secret.md"]}]}, "outside-workspace"),
        ({"queries": [{**GOLDEN["queries"][0], "relevant": ["/etc/passwd"]}]}, "outside-workspace"),
        ({"queries": [{**GOLDEN["queries"][0], "relevant": ["api/kees.md"]}]}, "document-unknown"),
        ({"queries": [{**GOLDEN["queries"][0], "distractors": ["api/keys.md"]}]}, "label-conflict"),
        ({"queries": [{**GOLDEN["queries"][0], "grades": {"api/jobs.md": 2}}]}, "document-unknown"),
        ({"queries": [GOLDEN["queries"][0], GOLDEN["queries"][0]]}, "duplicate-id"),
        ({"queries": [{**GOLDEN["queries"][0], "relevant": ["api/keys.md", "api/keys.md"]}]}, "duplicate-id"),
        ({"queries": [{**GOLDEN["queries"][0], "split": "test"}]}, "not-a-choice"),
        ({"queries": [{**GOLDEN["queries"][0], "query": "  "}]}, "out-of-range"),
        ({"k": 0}, "out-of-range"),
        ({"collection": "nowhere"}, "unknown-collection"),
    ],
)
def test_bad_evals_are_a_named_finding(folder: Path, write: Write, change: dict[str, Any], code: str) -> None:
    write("evals/golden.json", {**GOLDEN, **change})

    assert code in codes(folder)


def test_a_query_id_used_in_two_files_is_found(folder: Path, write: Write) -> None:
    write("evals/more.json", {**GOLDEN, "name": "more"})

    assert codes(folder) == ["duplicate-id"] * 4


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("---\ncategory: api\n", "bad-front-matter"),
        ("---\nrank: high\n---\ntext", "bad-field-value"),
        ("---\ncategori: api\n---\ntext", "unknown-field"),
        ("---\ncategory: " + "x" * 500 + "\n---\ntext", "bad-field-value"),
        ("---\ncategory: api\n---\n", "empty-document"),
    ],
)
def test_a_bad_document_is_a_named_finding(folder: Path, write: Write, text: str, code: str) -> None:
    write("documents/bad.md", text)

    assert codes(folder) == [code]


def test_files_that_cannot_be_read_are_named(
    folder: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "documents" / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "configs" / "latin.json").write_bytes(b'{"name": "caf\xe9"}')
    (folder / "configs" / "folder.json").mkdir()
    monkeypatch.setattr(workspace_module, "MAX_JSON_BYTES", 5000)
    write("configs/huge.json", {"name": "huge", "note": "x" * 6000})

    assert set(codes(folder)) == {"not-utf8", "unreadable", "too-large"}


def test_a_huge_document_is_named(folder: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.tuning.document_index.MAX_DOCUMENT_BYTES", 1000)
    write("documents/huge.md", "x" * 1001)

    assert codes(folder) == ["too-large"]


def test_links_that_leave_the_workspace_or_turn_in_circles_are_named(
    folder: Path, tmp_path_factory: Any
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.md").write_text("secret")
    os.symlink(outside / "secret.md", folder / "documents" / "secret.md")
    os.symlink(outside, folder / "documents" / "outside")
    os.symlink(folder / "documents", folder / "documents" / "api" / "loop")
    found = {finding.file: finding.code for finding in check_files(load(folder))}

    assert found == {
        "documents/secret.md": "outside-workspace",
        "documents/outside": "outside-workspace",
        "documents/api/loop": "cyclic-link",
    }


def test_a_collection_folder_that_leaves_documents_is_refused(folder: Path, write: Write) -> None:
    raw = json.loads((folder / "collections" / "kb.json").read_text())
    write("collections/kb.json", {**raw, "folder": "../evals"})

    assert "outside-workspace" in codes(folder)


def test_a_field_may_not_take_the_reserved_name(folder: Path, write: Write) -> None:
    raw = json.loads((folder / "collections" / "kb.json").read_text())
    write("collections/kb.json", {**raw, "fields": {**raw["fields"], "collection": {"type": "keyword"}}})

    assert codes(folder) == ["bad-name"]


def test_a_folder_that_is_no_workspace_is_said_to_be_none(tmp_path: Path) -> None:
    assert codes(tmp_path / "nowhere") == ["no-workspace"]


@pytest.mark.parametrize("name", ["naiv", "../naive", "configs/../../x", "", "a" * 500, "\0"])
def test_asking_for_a_config_that_is_not_there_is_refused_with_a_hint(folder: Path, name: str) -> None:
    with pytest.raises(RefusedError) as caught:
        load(folder).config(name)

    assert [finding.code for finding in caught.value.findings] == ["unknown-config"]


def test_a_config_with_errors_is_refused_with_those_errors(folder: Path, write: Write) -> None:
    write("configs/bad.json", {"name": "bad", "retrieval": {"top_k": 0}})

    with pytest.raises(RefusedError) as caught:
        load(folder).config("bad")

    assert [finding.code for finding in caught.value.findings] == ["out-of-range"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    st.fixed_dictionaries(
        {"name": st.just("random") | json_values},
        optional={
            "extends": st.sampled_from(["naive", "random"]) | json_values,
            "collection": st.sampled_from(["kb", "*"]) | json_values,
            "retrieval": st.dictionaries(
                st.sampled_from(["method", "top_k", "weights", "fusion", "rrf_k", "coverage"]),
                json_values,
                max_size=3,
            )
            | json_values,
            "filters": st.dictionaries(st.sampled_from(["category", "rank", "x"]), json_values, max_size=2)
            | json_values,
            "dynamic_k": json_values,
        },
    )
)
def test_no_config_whatever_it_holds_raises(folder: Path, write: Write, raw: dict[str, Any]) -> None:
    write("configs/random.json", raw)

    for finding in check_files(load(folder)):
        assert finding.what
        assert finding.fix


@given(json_values, st.sampled_from([COLLECTION, CONFIG, EVALS]))
def test_the_checker_reports_and_never_raises(value: object, schema: dict[str, Any]) -> None:
    for finding in check(value, schema, "file.json"):
        assert finding.what
        assert finding.fix


def test_init_writes_schemas_beside_the_files_and_refuses_to_overwrite(tmp_path: Path) -> None:
    written = init(tmp_path / "new")

    assert {
        "configs/config.schema.json",
        "collections/collection.schema.json",
        "evals/evals.schema.json",
    } <= set(written)
    assert [finding.code for finding in load(tmp_path / "new").findings] == []
    with pytest.raises(RefusedError) as caught:
        init(tmp_path / "new")
    assert [finding.code for finding in caught.value.findings] == ["not-empty"]


def test_the_shipped_example_is_sound_and_names_its_schemas(tmp_path: Path) -> None:
    init(tmp_path / "example", example=True)
    workspace = load(tmp_path / "example")

    assert check_files(workspace) == ()
    assert len(workspace.documents) >= 20
    assert {query.split for query in workspace.eval_set().queries} == {"tune", "holdout"}
    for kind in ("collections", "configs", "evals"):
        for file in (tmp_path / "example" / kind).glob("*.json"):
            if not file.name.endswith(".schema.json"):
                assert (file.parent / json.loads(file.read_text())["$schema"]).is_file()


def test_the_schema_of_configs_offers_the_values_that_documents_have(folder: Path) -> None:
    workspace = load(folder)
    values = read_sources(workspace, workspace.collections["kb"]).values()

    assert values == {"category": {"api": 2, "faq": 2}, "rank": {"1": 1}}
    offered = config_schema({field: list(known) for field, known in values.items()})
    assert offered["properties"]["filters"]["properties"]["category"]["items"]["enum"] == ["api", "faq"]


def test_the_schemas_are_valid_json_schema_and_accept_the_example_configs() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for schema in (COLLECTION, CONFIG, EVALS):
        jsonschema.Draft202012Validator.check_schema(schema)
    for config in CONFIGS.values():
        jsonschema.validate(config, CONFIG)


def test_a_hint_lists_what_there_is_when_nothing_is_close() -> None:
    assert did_you_mean("zzz", ["alpha", "beta"]) == "known are alpha, beta"


def test_json_may_have_comments_and_trailing_commas_as_in_tsconfig(folder: Path, write: Write) -> None:
    write(
        "configs/mine.json",
        """{
          // what this tries
          "name": "mine", /* as the file
             is called */
          "note": "see https://example.org, // and so on",
          "retrieval": {"top_k": 3,},
        }""",
    )
    mine = load(folder).configs["mine"]

    assert codes(folder) == []
    assert (mine.retrieval.top_k, mine.note) == (3, "see https://example.org, // and so on")


def test_a_mistake_after_a_comment_is_told_with_its_line(folder: Path, write: Write) -> None:
    write("configs/bad.json", '{ // a\n "name": "bad",\n "note" 3}')
    [found] = check_files(load(folder))

    assert (found.code, found.what) == ("malformed-json", "expecting ':' delimiter at line 3, column 9")


@pytest.mark.parametrize("as_list", [True, False])
def test_an_eval_set_without_name_ids_and_splits_gets_them_and_says_so(
    folder: Path, write: Write, as_list: bool
) -> None:
    kept = ("query", "relevant", "distractors")
    queries = [{key: query[key] for key in kept} for query in GOLDEN["queries"]]
    write("evals/golden.json", queries if as_list else {"queries": queries})
    workspace = load(folder)
    found = workspace.eval_set()

    assert [finding.code for finding in check_files(workspace)] == ["made-up"]
    assert (found.name, [query.id for query in found.queries]) == (
        "golden",
        [f"golden-{n}" for n in range(1, 5)],
    )
    assert [len(found.of(split)) for split in ("tune", "holdout")] == [2, 2]
    assert load(folder).eval_set() == found
