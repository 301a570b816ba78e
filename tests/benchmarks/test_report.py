"""The report says what the results say, losses and gaps included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report.__main__ import _environment, _name, write
from benchmarks.report.benchmarks_page import END, START, put, table
from benchmarks.report.figures import command, exponents, loads, resources, verdicts
from benchmarks.report.goals import count, quality_goals, speed_goals, tally
from benchmarks.report.history import digest, keep, rows
from benchmarks.report.scenarios import chapter, maintenance
from benchmarks.report.tables import absent, by_engine, losses, others, speed
from benchmarks.speed.__main__ import chosen, parser
from benchmarks.speed.environments import BY_NAME
from benchmarks.speed.plan import FULL
from tests.benchmarks.tiny import results


def test_a_faster_peer_is_named_with_the_factor() -> None:
    assert "keyword, 10 texts at 1,000: Floor is 2 times as fast (0.1 against 0.2 ms)." in losses(results())


def test_an_engine_with_wrong_answers_wins_nothing() -> None:
    best = {(v.size, v.op): v.best for v in verdicts(results())}

    assert best[(1000, "keyword")] == "floor"
    assert "0.01 (×0.05) r 0.300 †" in speed(results(), 1000)


def test_every_engine_is_counted_by_itself_and_only_where_it_was_right() -> None:
    made = results()
    made["engines"] = {name: made["engines"][name] for name in ("skep", "floor", "chroma", "mem0")}
    own = made["sizes"]["1000"]["skep"]["ops"]
    own.update({op: {"cpu_p50": 1.0} for op in ("vector", "touch")})
    made["sizes"]["1000"]["floor"]["ops"] = {
        "vector": {"cpu_p50": 4.0},
        "touch": {"cpu_p50": 1.01},
        "keyword": {"cpu_p50": own["keyword"]["cpu_p50"] / 4},
    }
    made["sizes"]["1000"]["chroma"]["ops"] = {"vector": {"cpu_p50": 0.1, "recall": 0.2}}

    lines = {
        line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in by_engine(made).split("\n")
    }

    at_1000 = lines["ahead / level / behind"].index("operations at 1,000")
    assert lines["Floor"][at_1000] == "1 / 1 / 1 (×1)"
    assert lines["Chroma"][at_1000] == "–"
    assert "skep" not in lines
    assert "mem0" not in lines


def test_failures_and_missing_engines_are_listed_with_their_reasons() -> None:
    said = absent(results())

    assert "- mem0: unavailable: no wheel for this system" in said
    assert "- Chroma at 10,000: failed: load: no answer within 5 s" in said


def test_growth_is_the_slope_over_sizes() -> None:
    assert exponents(results())["hybrid"]["floor"] == pytest.approx(1.0)
    assert "chroma" not in exponents(results())["hybrid"]


def test_a_report_is_written_whole_from_a_results_file(tmp_path: Path) -> None:
    source = tmp_path / "speed-quick.json"
    source.write_text(json.dumps(results()))

    text = write(source, tmp_path / "REPORT.md", plots=False).read_text()

    for heading in (
        "Engine by engine",
        "Where others are better",
        "Growth",
        "Safety",
        "What is missing",
        "What favours skep",
    ):
        assert f"### {heading}" in text
    assert "commit `0123456789ab`" in text


def test_plots_are_the_same_for_the_same_results(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    source = tmp_path / "speed-quick.json"
    source.write_text(json.dumps(results()))

    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        write(source, tmp_path / folder / "REPORT.md")

    for name in ("speed-growth.svg", "speed-trade.svg"):
        assert (tmp_path / "a/plots" / name).read_bytes() == (tmp_path / "b/plots" / name).read_bytes()


def test_a_peer_that_needs_less_memory_or_loads_faster_is_named_too() -> None:
    made = results()
    made["sizes"]["10000"]["floor"]["settle"]["rss"] = {"VmRSS": 10.0}

    lost = [(v.op, v.size, v.rival, v.ratio) for v in resources(made) if v.lost]

    assert lost == [("memory after load", 10_000, "floor", 5.0)]
    assert "memory after load at 10,000: Floor needs 10 against 50 MB (×5)." in losses(made)


def test_wall_time_is_counted_apart_from_processor_time() -> None:
    made = results()
    made["sizes"]["1000"]["skep"]["ops"]["hybrid"]["wall_p50"] = 100.0

    assert losses(made).startswith(
        "CPU time: of 6 comparisons skep is ahead in 5, level in 0 and behind in 1."
    )
    assert "Wall time: of 6 comparisons skep is ahead in 4, level in 0 and behind in 2." in losses(made)


def test_a_load_that_was_cut_short_says_so() -> None:
    made = results()
    made["sizes"]["1000"]["chroma"]["load"].update(loaded=600, complete=False)

    assert "200 (stopped at 600)" in others(made, 1000)


def at(size: int, **figures: float) -> dict:
    """Results in which skep was measured at one size."""
    made = results()
    made["sizes"][str(size)] = made["sizes"].pop("10000")
    for name, time in figures.items():
        made["sizes"][str(size)]["skep"]["ops"][name] = made["sizes"]["1000"]["skep"]["ops"]["hybrid"] | {
            "cpu_p50": time
        }
    return made


def test_goals_are_reached_missed_or_not_measured() -> None:
    said = {s.title: s for s in speed_goals(at(100_000, hybrid=0.9, index_hybrid=1.1, write=0.3))}

    assert said["hybrid, 10 memories through `Bank`, 100,000 memories"].reached
    assert said["hybrid, 10 memories through `Bank`, 100,000 memories"].best_other == "20 ms, Floor"
    assert said["hybrid, index alone, 100,000 memories"].reached is False
    assert said["hybrid, index alone, 100,000 memories"].best_other == "20 ms, Floor"  # its whole call
    assert said["single write, synced, 100,000 memories"].reached is False
    assert said["hybrid, index alone, 1,000,000 memories"].now == "not measured"
    assert said["import skep, beyond numpy"].reached
    assert said["acknowledged writes lost to SIGKILL"].reached is None  # two kills decide nothing
    assert count(list(said.values())) == "5 reached, 2 missed, 17 not decided by this run."
    assert tally(list(said.values())) == (
        "searches, index alone: 0 reached, 1 missed, 5 not decided by this run; "
        "searches, ids through `Bank`: 0 reached, 0 missed, 3 not decided by this run; "
        "searches, whole memories through `Bank`: 1 reached, 0 missed, 5 not decided by this run; "
        "all else: 4 reached, 1 missed, 4 not decided by this run."
    )


def test_many_kills_of_a_run_of_their_own_decide_that_goal() -> None:
    killed = {"skep": results()["kills"]["skep"] | {"kills": 200, "acknowledged": 9000}}
    lost = {"skep": killed["skep"] | {"missing": {"stored": 1, "keyword": 0, "vector": 0}}}

    first, second = (speed_goals(results(), killed=each)[-1] for each in (killed, lost))

    assert (first.now, first.reached) == ("0 lost of 9,000 in 200 kills", True)
    assert second.reached is False


def test_a_fast_vector_search_with_poor_answers_misses_its_goal() -> None:
    made = at(100_000, index_vector=0.5)
    made["sizes"]["100000"]["skep"]["ops"]["index_vector"]["recall"] = 0.98

    said = {s.title: s for s in speed_goals(made)}

    assert said["vector, 50 ids, index alone, 100,000 memories"].reached is False


def test_ids_and_whole_memories_are_judged_apart_and_a_run_that_lacks_one_says_so() -> None:
    ids, whole = ("keyword, 50 ids through `Bank`", "keyword, 50 whole memories through `Bank`")
    before, after = (
        {s.title.removesuffix(", 100,000 memories"): s for s in speed_goals(at(100_000, **times))}
        for times in ({"keyword_ids50": 0.8}, {"keyword_ids50": 0.2, "keyword_texts50": 0.8})
    )

    assert (before[ids].now, before[whole].now) == ("0.8 ms", "not measured")
    assert (after[ids].now, after[whole].now) == ("0.2 ms", "0.8 ms")
    assert (after[ids].reached, after[whole].reached) == (True, False)


def test_the_filter_is_judged_by_ids_as_well_and_the_index_beside_the_ids_of_others() -> None:
    made = at(100_000, filtered_1_ids50=0.2, filtered_1=0.5, index_filtered_1=0.1)
    made["sizes"]["100000"]["floor"] = {"ops": {"filtered_1_ids50": {"cpu_p50": 0.6}}}

    said = {s.title.removesuffix(", 100,000 memories"): s for s in speed_goals(made)}

    assert said["vector, filter 1 %, 50 ids through `Bank`"].reached is True
    assert said["vector, filter 1 %, 10 memories through `Bank`"].reached is False
    assert said["vector, filter 1 %, 50 ids, index alone"].best_other.startswith("0.6 ms")


def test_growth_to_a_million_is_judged_when_both_sizes_are_there() -> None:
    made = at(100_000, hybrid=1.0)
    made["sizes"]["1000000"] = {"skep": {"ops": {"hybrid": {"cpu_p50": 8.5}}}}

    said = {s.title: s for s in speed_goals(made)}

    assert said["growth of hybrid from 100,000 to 1,000,000"].now == "×8.5"
    assert said["growth of hybrid from 100,000 to 1,000,000"].reached is False

    apart = {s.title: s for s in speed_goals(at(100_000, hybrid=5.0), large=made)}
    assert apart["growth of hybrid from 100,000 to 1,000,000"].now == "×8.5"
    assert apart["hybrid, 10 memories through `Bank`, 1,000,000 memories"].now == "8.5 ms"


def test_goals_of_quality_stand_beside_the_best_other_ranker() -> None:
    made = {"sets": {"locomo_obs": {"default": {"recall@10": 0.79}, "mem0": {"recall@10": 0.7}}}}
    made["sets"]["factcon_32k"] = {
        "default": {"misled": 0.02},
        "bm25": {"misled": 0.7},
        "mem0": {"misled": 0.6},
    }

    said = {s.title: s for s in quality_goals(made)}

    assert said["locomo_obs, recall@10"].reached is False
    assert said["factcon_32k, distractor first"].reached
    assert said["factcon_32k, distractor first"].best_other == "0.600, mem0"
    assert said["realmem, recall@10"].reached is None


def test_earlier_runs_stand_beside_this_one_with_their_ratio_to_the_floor() -> None:
    before = results() | {"started": "2025-12-31T00:00:00Z"}
    before["sizes"] = {
        "10000": {"skep": {"ops": {"hybrid": {"cpu_p50": 8.0}}}, "floor": before["sizes"]["10000"]["floor"]}
    }

    history = keep(keep(keep([], results()), before), results())
    header, table = rows(history, 10_000)

    assert [each["started"][:4] for each in history] == ["2025", "2026"]
    assert header == ["10,000 memories", "`0123456`, 00:00, a", "`0123456`, 00:00, a"]
    assert ["hybrid (RRF of 50 + 50), 10 texts", "8 (×0.4)", "2 (×0.1)"] in table
    assert json.loads(json.dumps(digest(results()))) == digest(results())


def test_only_a_whole_run_takes_the_place_of_the_committed_report() -> None:
    assert _name(Path("results/speed-full.json")) == "REPORT.md"
    assert _name(Path("results/speed-quick.json")) == "REPORT-quick.md"
    assert _name(Path("elsewhere/mine.json")) == "REPORT-mine.md"


def test_the_load_of_the_machine_stands_with_every_size() -> None:
    assert loads(results(), 1000) == (0.15, 0.2)
    assert loads({"sizes": {"1": {"skep": {"ops": {}}}}}, 1) is None


def test_hive_and_maintenance_have_a_chapter_when_they_were_measured() -> None:
    row = {"agents": 1, "recall_at_10": 0.8, "points_one_author": 0.0, "identical_answers": 1.0}
    parity = {
        "a set": [
            row | {"topology": "single"},
            row | {"topology": "sharded", "agents": 9, "points_one_author": -1.5},
        ]
    }
    made: dict[str, Any] = {
        "planted": [{"edits": 1, "seed": 5, "merged": 0.9, "copies": 10, "wrong": 1, "merges": 9}]
    }

    assert "| a set | sharded, 9 agents | 0.8000 | 0.8000 | -1.50 | 100.0% |" in chapter(parity, None)
    assert (
        "| planted copies merged, 1 edit(s) each, seed 5 | 90.0% of 10 | 1 of 9 merges wrong |"
        in maintenance(made)
    )
    assert chapter(None, None) == maintenance(None) == ""
    assert "Planted: the results do not say at which commit" in maintenance(made)
    made["taken"] = {"planted": {"commit": "0123456789abcdef", "load_before": 0.5}}
    assert "Planted: measured at commit `0123456789ab`, load average 0.5." in maintenance(made)


HERE = Path(__file__).resolve().parents[2]


def test_the_page_of_benchmarks_says_what_the_committed_results_say() -> None:
    text = (HERE / "docs/explanation/benchmarks.md").read_text()
    report = json.loads((HERE / "benchmarks/results/speed-full.json").read_text())

    assert START in text
    assert put(text, report) == text, "run `python -m benchmarks.report`"


def test_the_table_of_speed_marks_the_best_sound_answer() -> None:
    made = at(100_000, hybrid=0.95, write=0.211)
    made["sizes"]["100000"]["chroma"] = {"status": "failed", "reason": "write: it hung", "ops": {}}

    said = table(made)

    assert "| words and vectors, 10 texts | 0.95 (r .99) | – | – | – | – | – |" in said
    assert "| synced write | 0.21 (r .99) | – | failed | – | – | – |" in said
    assert put(f"a {START} old {END} b", made) == f"a {START}\n{said}\n{END} b"
    assert put("no marks", made) == "no marks"


def test_an_operation_after_the_one_an_engine_failed_in_has_failed_too() -> None:
    made = at(100_000, write_find=1.5)
    broken = {"status": "failed", "reason": "write_find_unsynced: no answer within 75 s"}
    made["engines"]["zvec"] = {"title": "zvec", "status": "ok", "versions": {}}
    made["sizes"]["100000"]["zvec"] = {**broken, "ops": {"write": {"cpu_p50": 45.0}}}

    for said in (table(made), speed(made, 100_000)):
        rows_ = {line.split(" | ")[0].removeprefix("| "): line for line in said.split("\n")}
        assert any("find it by" in title and "failed" in line for title, line in rows_.items())
        assert not any("vector, 10 texts" in title and "failed" in line for title, line in rows_.items())


def test_a_report_says_how_its_results_were_taken_and_in_what_that_is_not_the_profile() -> None:
    made = results()
    made["engines"] = dict.fromkeys(BY_NAME, made["engines"]["skep"])
    made["plan"] = json.loads(json.dumps(vars(FULL))) | {"questions": 40, "load_box_s": 100.0}
    made["sizes"]["100000"] = made["sizes"]["1000"]

    assert command(made) == "python -m benchmarks.speed --full --questions 40 --load-box-s 100"
    assert command(made, 1000) == (
        "python -m benchmarks.speed --full --sizes 1000 --questions 40 --load-box-s 100"
    )
    assert "(the profile has 60 for `--questions`, 600 for `--load-box-s`)" in _environment(made)
    made["plan"] = json.loads(json.dumps(vars(FULL)))
    assert "the profile has" not in _environment(made)
    made["engines"] = {name: made["engines"][name] for name in ("skep", "floor")}
    made["workload"]["seed"] = 3
    assert command(made) == "python -m benchmarks.speed --full --engines skep,floor --seed 3"


@pytest.mark.parametrize(
    "words", [("--quick", "--sizes", "1000"), ("--full", "--kills", "0"), ("--million",)]
)
def test_the_command_of_a_report_is_understood_and_gives_the_same_plan(words: tuple[str, ...]) -> None:
    plan = chosen(parser().parse_args(words))
    made = results()
    made["engines"] = dict.fromkeys(BY_NAME, made["engines"]["skep"])
    made["plan"] = json.loads(json.dumps(vars(plan)))
    made["sizes"] = {str(size): made["sizes"]["1000"] for size in plan.sizes}

    assert chosen(parser().parse_args(command(made).split()[3:])) == plan


def test_the_committed_results_make_a_report(tmp_path: Path) -> None:
    here = Path(__file__).parents[2] / "benchmarks"
    written = write(here / "results" / "speed-full.json", tmp_path / "REPORT.md", plots=False, others=here)
    said = written.read_text(encoding="utf-8")

    for heading in ("## Goals", "## Speed", "## Quality", "## Maintenance", "## Hive"):
        assert heading in said
