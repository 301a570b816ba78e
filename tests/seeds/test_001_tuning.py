"""The rows of section 001 of docs/explanation/seeds.md: tuning search with files, as its document words it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.cli.tune import group
from skep.retrieval.selection import cliff_told, dynamic_k
from skep.tuning.metrics import Labels, ndcg, nudcg, udcg

SCHEMA = """{
"name": "knowledge-base",
"fields": {
"title": { "type": "text" },
"category": { "type": "keyword", "filterable": true },
"content": { "type": "text" }
},
"chunking": {
"strategy": "by_heading",
"max_tokens": 512,
"heading_level": 2
}
}"""
CONFIG = """{
"name": "v1-naive",
"collection": "knowledge-base",
"retrieval": {
"method": "hybrid", // keyword | vector | hybrid
"top_k": 10,
"rrf_k": 60 // RRF constant (see Primitive 6)
},
"dynamic_k": {
"enabled": false,
"gap_threshold_factor": 3.0, // cliff detection sensitivity
"min_results": 1,
"max_results": 10
},
"filters": {}, // category pre-filtering
"distraction_detection": {
"enabled": false,
"disagreement_threshold": 0.5
}
}"""
DOCUMENTS = {
    "api-docs/auth.md": "# API authentication\n## Tokens\nEvery API request carries an API token as a bearer token.",
    "api-docs/limits.md": "# Rate limits\n## Requests\nThe API answers 429 above 600 requests in a minute.",
    "tutorials/first-call.md": "# Your first call\n## A token\nCreate an API token in the settings and send it.",
    "faqs/password.md": "# Authentication FAQ\n## Reset\nReset your password by the link on the sign-in page.",
    "changelogs/v2.md": "# Version 2\n## Tokens\nTokens of version 1 stop working in March.",
}
GOLDEN = """[
{"query": "how do I authenticate API requests", "relevant": ["api-docs/auth.md"], "distractors": ["faqs/password.md"]},
{"query": "how many requests a minute", "relevant": ["api-docs/limits.md"], "distractors": ["faqs/password.md"]},
{"query": "create an API token", "relevant": ["tutorials/first-call.md"], "distractors": ["changelogs/v2.md"]},
{"query": "authentication of a request", "relevant": ["api-docs/auth.md"], "distractors": ["faqs/password.md"]},
]"""
Tune = Callable[..., Any]


def run(folder: Path, line: str) -> Result:
    words = shlex.split(line)
    return CliRunner().invoke(group, [words[0], "-w", str(folder), *words[1:]])


def done(folder: Path, line: str) -> Any:
    """The JSON answer of a command that must succeed."""
    result = run(folder, f"{line} --json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A workspace with the document's own files, and nothing else."""
    put(tmp_path, {f"documents/{path}": text for path, text in DOCUMENTS.items()})
    put(
        tmp_path,
        {
            "collections/knowledge-base.json": SCHEMA.replace(
                '"filterable": true', '"filterable": true, "from_folder": true'
            ),
            "configs/v1-naive.json": CONFIG,
            "evals/golden.json": GOLDEN,
        },
    )
    return tmp_path


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example that ships with skep, indexed."""
    folder = tmp_path_factory.mktemp("example") / "work"
    assert CliRunner().invoke(group, ["init", str(folder), "--example"]).exit_code == 0
    done(folder, "index")
    return folder


def test_the_files_of_the_document_are_read_as_written_and_deployed_through_the_gate(written: Path) -> None:
    assert [report["documents"] for report in done(written, "index")] == [5]
    found = done(written, "validate")["findings"]
    assert {finding["code"] for finding in found} <= {"made-up", "k-above-collection"}
    filtered = CONFIG.replace("v1-naive", "v2-filtered").replace(
        '"filters": {}', '"filters": {"category": ["api-docs", "tutorials"]}'
    )
    put(written, {"configs/v2-filtered.json": filtered})

    assert done(written, "deploy v1-naive --latency-ms 60000")["number"] == 1
    compared = done(written, "compare v1-naive v2-filtered")
    assert [change["key"] for change in compared["changes"]] == ["filters.category"]
    assert compared["after"]["overall"]["distractors"] < compared["before"]["overall"]["distractors"]
    assert done(written, "deploy v2-filtered --latency-ms 60000")["number"] == 2
    assert done(written, "history")["active"] == 2


def test_ids_and_a_holdout_are_made_up_and_said(written: Path) -> None:
    done(written, "index")
    text = run(written, "evaluate v1-naive").stdout

    assert "made up for it: ids golden-1 to golden-4; a holdout of 2 queries" in text
    assert len(done(written, "evaluate v1-naive --split holdout")["scores"]) == 2


def test_the_schema_tells_which_values_can_be_filtered(written: Path) -> None:
    values = done(written, "fields")["knowledge-base"]

    assert values == {"category": {"api-docs": 2, "changelogs": 1, "faqs": 1, "tutorials": 1}}


def test_where_no_document_states_a_category_the_finding_says_how_it_comes_from_the_folder(
    written: Path,
) -> None:
    put(written, {"collections/knowledge-base.json": SCHEMA})
    put(
        written,
        {"configs/v1-naive.json": CONFIG.replace('"filters": {}', '"filters": {"category": ["faqs"]}')},
    )
    result = run(written, "validate")

    assert result.exit_code == 1
    assert "set fields.category.from_folder to true in collections/knowledge-base.json" in result.stdout


def test_a_filter_keeps_categories_out_before_anything_is_ranked(example: Path) -> None:
    whole, narrowed = (done(example, f"query 'sign in' --config {name}") for name in ("naive", "filtered"))

    assert any(hit["document"].startswith("faqs/") for hit in whole["results"])
    assert not any(hit["document"].startswith("faqs/") for hit in narrowed["results"])
    assert whole["stages"][0] != narrowed["stages"][0]  # fewer candidates, not fewer results alone


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (('"top_k": 10', '"top_k": "ten"'), "wrong-type"),
        (('"min_results": 1', '"min_results": 99'), "min-above-max"),
        (('"filters": {}', '"filters": {"category": ["blogs"]}'), "filter-value-unknown"),
        (('"method": "hybrid"', '"method": "hybird"'), "not-a-choice"),
    ],
)
def test_syntax_and_meaning_are_checked_with_a_way_to_mend_each(
    written: Path, change: tuple[str, str], code: str
) -> None:
    put(written, {"configs/v1-naive.json": CONFIG.replace(*change)})
    result = run(written, "validate v1-naive --json")
    errors = [one for one in json.loads(result.stdout)["findings"] if one["severity"] == "error"]

    assert (result.exit_code, [one["code"] for one in errors]) == (1, [code])
    assert all(one["fix"] for one in errors)


def test_behaviour_is_checked_on_the_holdout_and_a_worse_config_is_refused(example: Path) -> None:
    put(
        example,
        {"configs/faqs.json": '{"name": "faqs", "extends": "naive", "filters": {"category": ["faqs"]}}'},
    )
    if done(example, "history")["active"] is None:
        done(example, "deploy naive --latency-ms 60000")
    refused = run(example, "deploy faqs --latency-ms 60000 --json")

    assert refused.exit_code == 1
    assert "nudcg-lower" in {one["code"] for one in json.loads(refused.stdout)["findings"]}
    assert run(example, "validate faqs --behaviour").exit_code == 1
    assert run(example, "deploy faqs --force --latency-ms 60000").exit_code == 1  # force needs a reason
    (example / "configs/faqs.json").unlink()


def test_every_command_of_the_document_is_there() -> None:
    assert {"validate", "index", "query", "evaluate", "compare", "deploy"} <= set(group.commands)


def test_dynamic_k_stops_where_the_table_of_the_document_stops() -> None:
    scores = [0.0328, 0.0318, 0.0307, 0.0295, 0.0281, 0.0266, 0.0198]

    assert dynamic_k(scores, factor=3.0) == dynamic_k(scores) == 6
    assert "5.5 times" in cliff_told(scores, 6)


def test_dynamic_k_finds_cliffs_in_lists_that_were_fused_by_rank(example: Path) -> None:
    put(example, {"configs/cut.json": '{"name": "cut", "extends": "naive", "dynamic_k": {"enabled": true}}'})
    naive, cut = (done(example, f"evaluate {name}") for name in ("naive", "cut"))
    shorter = sum(
        one["returned"] < two["returned"] for one, two in zip(cut["scores"], naive["scores"], strict=True)
    )
    (example / "configs/cut.json").unlink()

    assert shorter > 0.8 * len(naive["scores"])
    assert cut["overall"]["precision"] > 2 * naive["overall"]["precision"]
    assert cut["overall"]["nudcg"] > naive["overall"]["nudcg"]


def test_ranks_are_fused_and_one_method_alone_uses_its_own_ranks(written: Path) -> None:
    done(written, "index")
    hit = done(written, "query 'authentication of a request' --config v1-naive")["results"][0]
    assert hit["score"] == pytest.approx(sum(1 / (60 + rank) for rank in hit["ranks"].values()))
    for method, signal in (("keyword", "lexical"), ("vector", "semantic")):
        put(
            written,
            {"configs/alone.json": CONFIG.replace("v1-naive", "alone").replace('"hybrid"', f'"{method}"')},
        )
        first = done(written, "query 'authentication of a request' --config alone")["results"][0]
        assert list(first["ranks"]) == [signal]
        assert first["score"] == pytest.approx(1 / 61)


def test_the_flag_marks_distractors_far_more_often_than_what_answers_and_removes_nothing(
    example: Path,
) -> None:
    found = '{"name": "flags", "extends": "naive", "distraction_detection": {"enabled": true}}'
    put(example, {"configs/flags.json": found})
    flags, naive = (done(example, f"evaluate {name} --split all") for name in ("flags", "naive"))
    text = run(example, "evaluate flags --split all").stdout
    (example / "configs/flags.json").unlink()
    overall = flags["overall"]

    assert [one["returned"] for one in flags["scores"]] == [one["returned"] for one in naive["scores"]]
    assert overall["flagged_distractors"] >= 5 * overall["flagged_relevant"]
    assert overall["flagged_distractors"] >= 0.25 * overall["distractors"]
    assert "distractors (recall 0." in text
    assert "relevant (precision 0." in text


def test_a_distractor_costs_as_in_the_worked_example() -> None:
    labels = Labels(relevant={"r1": 1, "r2": 1, "r3": 1}, distractors=frozenset({"d"}))

    assert udcg(["r1", "d", "r2", "i", "r3"], labels) == pytest.approx(1.256, abs=1e-3)
    assert nudcg(["r1", "d", "r2", "i", "r3"], labels) == pytest.approx(0.589, abs=1e-3)
    assert nudcg(["r1", "r2", "i", "r3"], labels) == pytest.approx(
        0.967, abs=1e-3
    )  # the document says about 0.85
    assert ndcg(["r1", "d", "r2"], labels) == ndcg(["r1", "i", "r2"], labels)


def test_several_chunks_of_a_document_count_once(example: Path) -> None:
    scores = done(example, "evaluate naive")["scores"]

    assert any(score["returned"] < 10 for score in scores)  # ten chunks, fewer documents


def test_everything_lies_in_one_file_with_its_versions_and_results(written: Path) -> None:
    done(written, "index")
    done(written, "evaluate v1-naive")
    done(written, "deploy v1-naive --latency-ms 60000 --reason start")

    assert [result["config"] for result in done(written, "results")] == ["v1-naive", "v1-naive"]
    assert [version["reason"] for version in done(written, "history")["versions"]] == ["start"]
    assert json.loads((written / "configs/active.json").read_text())["name"] == "v1-naive"
    assert {path.name for path in written.glob("bank*")} <= {
        "bank.skep",
        "bank.skep.index",
        "bank.skep-wal",
        "bank.skep-shm",
    }


class ScriptedAgent:
    """An agent without a model: it reads what a command says to try next, writes that as a config, and goes on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[tuple[str, list[str]]] = []

    def work(self, start: str) -> None:
        """Measure, write, check, compare and deploy until there is nothing more to try."""
        name = start
        done(self.folder, f"deploy {name} --reason 'to start with' --latency-ms 60000")
        for number in range(1, 6):
            advice = done(self.folder, f"evaluate {name}")["advice"][0]
            if not advice["change"]:
                return
            new = f"step-{number}"
            put(
                self.folder,
                {f"configs/{new}.json": json.dumps({"name": new, "extends": name, **advice["change"]})},
            )
            assert run(self.folder, f"validate {new}").exit_code == 0
            assert "better" in done(self.folder, f"compare {name} {new}")["verdict"]
            done(self.folder, f"deploy {new} --reason {shlex.quote(advice['why'])} --latency-ms 60000")
            self.steps.append((new, list(advice["change"])))
            name = new


def test_an_agent_that_follows_the_commands_filters_then_cuts_and_every_step_passes_the_gate(
    tmp_path: Path,
) -> None:
    CliRunner().invoke(group, ["init", str(tmp_path / "work"), "--example"])
    done(tmp_path / "work", "index")
    agent = ScriptedAgent(tmp_path / "work")
    agent.work("naive")
    results = [version["results"] for version in done(tmp_path / "work", "history")["versions"]]

    assert agent.steps == [("step-1", ["filters"]), ("step-2", ["dynamic_k"])]
    assert results[0]["nudcg"] < results[1]["nudcg"] < results[2]["nudcg"]
    assert results[2]["nudcg"] > 2 * results[0]["nudcg"]
    assert [result["distractors"] for result in results][-1] <= 1
