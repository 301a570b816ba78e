"""`python -m benchmarks.report`: write `benchmarks/REPORT.md` and its plots from the results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import given
from benchmarks.report import benchmarks_page, goals, scenarios, tables
from benchmarks.report import history as history_
from benchmarks.report.figures import ENOUGH, ENOUGH_WORDS, Report, command, loads, sizes
from benchmarks.speed.plan import changed, profile_of

HERE = Path(__file__).resolve().parent.parent

FAVOURS = """
- The vectors are given, so that no engine pays for embedding. skep's bundled embedder would add little, a remote one a
  lot; neither is in these figures.
- The texts are short (about 20 words), as memories of agents are. Long documents are another workload. Words and
  vectors are made up, and vectors lie in clusters; a real embedder spreads them otherwise.
- One thread asks, one question at a time, as an agent does. Engines with thread pools would gain from many clients at
  once; CPU time counts what all their threads spend, wall time what the caller waits.
- skep searches a compressed index and rescores; its answers are not exact, nor are those of Qdrant, zvec, Chroma and
  (from 100,000 on) LanceDB. The agreement with exact search stands beside the time (r; nothing means above 0.9995).
- Every engine searches as hard as it ships. zvec looks at 300 candidates (`ef`) and finds nearly all. With 100 its
  fifty ids took 0.63 instead of 1.4 ms (r .994) and its hybrid 1.0 instead of 1.8; with 50 its ten texts by vector
  0.44 instead of 1.3 (r .998), which is less than skep needs (by hand, 100,000 memories, 40 questions). How hard
  skep searches was chosen so that r stays above .995, which is a goal.
- skep gives SQLite 16 MB of cache, the floor and sqlite-vec have the 2 MB that SQLite ships with. With 16 MB the
  searches of sqlite-vec took as long (by hand, 100,000 memories).
- Each engine is compared with an exact search that counts words as it does: the length of a text with function words
  (skep, FTS5, zvec) or without (LanceDB, Qdrant); fusion that ranks every candidate by both signals (skep) or by the
  two lists (all others). Rows that tie at the edge count against every engine alike. In the line "question with
  function words" r says how an engine weighs those words (beside FTS5, or beside dropping them), not
  whether it is right.
- FTS5 and zvec are given the function words of a question, which skep, LanceDB and Qdrant drop by themselves. Whoever
  drops them before asking FTS5 gets the line without them.
- No question is asked twice of the same kind, so that skep's cache of answers never helps it. The kinds share their
  questions, so what one kind has read may lie in a cache when the next asks: pages of the system and of SQLite,
  LanceDB's and zvec's own, skep's word forms and the texts that `default` has compared.
- skep keeps what up to 1,024 filters admit, until something is written. The line "filter 1 %, 50 ids" comes before the
  others that ask with the same filters. In its first round most filters are new, in its last most were asked before
  (a hundred projects, forty or sixty questions a round), and the median lies between: a new filter took about 0.02 ms
  more at 100,000 memories (by hand, 200 questions). Qdrant, LanceDB and zvec have indexes on both fields instead;
  sqlite-vec tests every row, unless a field is its partition key (its notes say what that gives and takes).
- The lines "index alone" are skep's alone: no peer is asked for less than its whole call, so they are compared with
  nothing but the goals. Qdrant and zvec answer "50 ids" from the index as well, and so does skep's `Bank.rank`. In
  "50 texts" the peers read fifty texts and skep fifty whole memories. Runs that lack those lines are from before
  `Bank.rank`: skep read fifty whole memories for "50 ids" then.
- `default recall` includes late interaction since `f54a608`. Before that it was done only in banks whose embedder is
  the bundled table, which the given vectors of this workload are not, so that the line left out what such banks pay.
  Most words of the workload are made up, and are cut into pieces at first sight; words of a language seldom are.
- skep and mem0 give memories ids of their own. skep's adapter keeps which row is which in a file, mem0's in memory.
- A touch is what `recall` does for each hit, called by itself (`engine.note_uses`, which `Bank` does not offer alone).
- Batches for bulk loading are 1,000 rows for every engine; LanceDB and Chroma advise larger ones. `optimize` of LanceDB
  and of Qdrant is run after the load and not between single writes.
- BLAS is held to one thread in every process, which helps the engines that use numpy (skep and the floor). The pool of
  Qdrant Edge is held to one as well, in runs since 16 November, 17:15. Runs before that charge it for threads that look
  for work: at 100,000 memories 0.95 (ten texts by words), 1.35 (by vectors) and 1.52 ms (hybrid), where one thread took
  0.13, 0.43 and 0.60 by hand (40 questions); the tables say what it took in the run itself.
- skep runs with its compiled loops where a compiler is found (`versions` below says so), which `pip install .` does not
  build by itself. Without them its searches of the index take five to seven times as long.
- Qdrant and zvec sync to disk only when asked. For the synced write they are asked after every write, which neither
  advises; without that they are as fast as the lines "unsynced" say. skep offers no single write that is not synced.
- skep holds touches in memory and writes forty in one event; each is charged its share of that. The floor and
  sqlite-vec write each one. In runs since 16 November, 13:45, every engine touches the forty rows of a round five
  times. Before that it did so once, and a single event bore what the searches before had left to write and what a
  process pays that was halted for minutes, while of forty single writes the median leaves out the first.
- skep loads numpy when a search needs it, so its import is short and its first answer pays. In runs since 16 November,
  19:30, every process writes 300 rows and answers in another store before its load is measured, so that modules count
  as its start alone; before that, loading 1,000 memories into skep took 0.11 s, half of it loading numpy (by hand).
- mem0's words need an encoder that it downloads at run time. Without it only its vectors are measured.
- The filter fields are spread evenly and have nothing to do with the topic. A filter that goes with the topic is easier
  for a scan and harder for a graph.
- Files are in the page cache for the first answer of a fresh process. No cache was dropped.
  Such a process counts from its start, with the interpreter; before the engine it loads what reads the question.
"""
AGAINST = """
- Every search but those for ids goes through the public `Bank.recall`, which builds whole memories, flags conflicts and
  counts uses; the peers return an id and a text. The lines "index alone" say what that leaves to the index.
- skep writes an event log beside the row, so that history, undo and replication work; no peer does.
- Qdrant Edge and zvec are native engines that one process owns alone; skep, the floor and sqlite-vec may be opened by
  many processes at once, and ask the file before every answer whether another one wrote.
- The floor is written for this workload and holds every vector in memory.
- LanceDB has no write that is synced (the table of safety counts none); its single write stands among the synced ones.
"""
OF_SPEED = ("speed", "profile", "plan", "environment", "engines", "sizes")
"""What results of speed hold, by which they are told from others."""
LARGE = "two-engines-million.json"
"""A run at 100,000 and a million, of skep and the floor alone: all engines would take half a day."""
KILLED = "kills.json"
"""What `python -m benchmarks.speed.kill` wrote: skep killed as often as the goal says."""
GOAL_HEADER = ["goal", "at most / at least", "now", "reached", "best other engine, whole call"]


def _environment(report: Report) -> str:
    e, plan = report["environment"], report["plan"]
    changed = " with uncommitted changes" if e.get("dirty") else ""
    return (
        f"Profile `{report['profile']}`, {report['started']}, commit `{e['commit'][:12]}`{changed}. {e['processor']}, "
        f"{e['cores']} cores, {e['memory_gb']} GB, {e['system']}, Python {e['python']}. Load average "
        f"{e['load_before']} before and {e.get('load_after')} after; the harness itself is one of the load. "
        f"{plan['rounds']} rounds of {plan['questions']} questions per kind; medians over the rounds. "
        f"Taken by `{command(report)}`{_less(report)}. "
        f"Seed {report['workload']['seed']}, {report['workload']['dim']} dimensions. The run took "
        f"{report['took_s'] / 60:.0f} minutes."
    )


def _less(report: Report) -> str:
    """In what a run differs from its profile, so that nobody takes one for the other."""
    own, others = vars(profile_of(report["plan"])), changed(report["plan"])
    if not others:
        return ""
    usual = (f"{own[name.removeprefix('--').replace('-', '_')]:g} for `{name}`" for name in others)
    return f" (the profile has {', '.join(usual)})"


def _engines(report: Report) -> str:
    rows: list[list[str]] = []
    for name, entry in report["engines"].items():
        found: list[dict[str, Any]] = [report["sizes"][str(s)].get(name, {}) for s in sizes(report)]
        said = next((f for f in found if f.get("durability")), dict[str, Any]())
        versions = ", ".join(f"{key} {value}" for key, value in entry.get("versions", {}).items())
        rows.append([entry["title"], versions, said.get("durability", "–"), " ".join(said.get("notes", ()))])
    return tables.markdown(["engine", "versions", "durability of an acknowledged write", "notes"], rows)


def _goals(
    report: Report, quality: dict[str, Any] | None, large: Report | None, killed: dict[str, Any] | None
) -> str:
    speed = goals.speed_goals(report, large, killed)
    parts = [
        goals.SOURCE,
        "Speed and safety, CPU time per call (p50) unless said otherwise. By the work they are judged by: "
        + goals.tally(speed),
        tables.markdown(GOAL_HEADER, goals.rows(speed)),
    ]
    if large is not None and goals.MILLION not in sizes(report):
        parts.append(
            f"The lines at a million are of a run with fewer engines ({large['started']}, commit "
            f"`{large['environment']['commit'][:12]}`, load average {large['environment']['load_before']} before and "
            f"{large['environment'].get('load_after')} after): `results/{LARGE}`."
        )
    if killed is not None:
        parts.append(
            f"Kills by `python -m benchmarks.speed.kill` ({killed['started']}, commit "
            f"`{killed['environment']['commit'][:12]}`): `results/{KILLED}`."
        )
    if quality is not None:
        found = goals.quality_goals(quality)
        header = [*GOAL_HEADER[:-1], "best other ranker"]
        parts += [
            f"Quality of the preset `default`, no LLM: {goals.count(found)}",
            tables.markdown(header, goals.rows(found)),
        ]
    return "\n\n".join(parts)


def _mended(history: list[history_.Digest], size: int) -> str:
    header, rows = history_.rows(history, size)
    if len(header) < 3 or not rows:
        return ""
    return (
        "### Before and after\n\n"
        "Where a peer won, skep was profiled and mended. Its figures in this run and in earlier ones, with "
        "whose processor the machine has; in brackets the ratio to the floor of the same run, which takes much of the "
        "machine and of its mood out. "
        "CPU ms unless said otherwise.\n\n" + tables.markdown(header, rows)
    )


def _size(report: Report, size: int) -> list[str]:
    load = loads(report, size)
    during = (
        "" if load is None else f" Load average during the rounds: {load[0]} (median), {load[1]} (highest)."
    )
    return [
        f"### {size:,} memories",
        f"`{command(report, size)}` reruns this table.{during}",
        tables.speed(report, size),
        tables.others(report, size),
        f"<details><summary>Wall time at {size:,}</summary>\n\n{tables.walls(report, size)}\n\n</details>",
    ]


def text(
    report: Report,
    plots: list[str],
    *,
    quality: dict[str, Any] | None = None,
    large: Report | None = None,
    killed: dict[str, Any] | None = None,
    history: list[history_.Digest] | None = None,
) -> str:
    """The chapters on speed."""
    known = sizes(report)
    parts = [
        "# Benchmarks",
        "Generated by `python -m benchmarks.report` from `benchmarks/results`. Do not edit by hand.",
        "## Goals",
        _goals(report, quality, large, killed),
        "## Speed",
        "`make bench` reruns a short version, `make bench-full` the whole. All engines ran in the same run, taking "
        "turns; those not at work were halted. Compare the ratios, not the milliseconds: ×2 means twice the CPU time "
        f"of skep. † marks answers too far from exact search (below {ENOUGH}, where words are ranked {ENOUGH_WORDS}); "
        "they win nothing.",
        _environment(report),
        "### Engine by engine",
        "Operations in which skep is ahead of each engine, level with it (within 5 %) and behind it, by CPU time; and "
        "the same of what it needs for loading, starting, memory and disk. In brackets how many times as much the "
        "other engine needs, as the geometric mean over all of them. Only what both did, and did right.",
        tables.by_engine(report),
        "### Where others are better",
        "Beside the best other engine in each line, whichever that is.",
        tables.losses(report),
        _mended(history or [], known[-1]),
    ]
    for size in reversed(known):
        parts += _size(report, size)
    parts += ["### Growth", tables.grow(report)]
    parts += [f"![{Path(plot).stem}]({plot})" for plot in plots]
    parts += [
        "### Import",
        tables.imports(report),
        "### Safety",
        "Each engine writes single rows, is killed with SIGKILL at a random moment, opened again, and asked for every "
        "row it had acknowledged. Syncs are calls of fsync and its kin per single write.",
        tables.safety(report),
        "### The engines",
        _engines(report),
        "### What is missing",
        tables.absent(report),
        "### What favours skep",
        FAVOURS.strip(),
        "### What speaks against it",
        AGAINST.strip(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def newest(folder: Path) -> Path:
    """The fullest results there are."""
    for name in ("speed-million.json", "speed-full.json", "speed-quick.json"):
        if (folder / name).exists():
            return folder / name
    raise SystemExit("there are no results; run `make bench` first")


def _read(path: Path) -> Any:
    return given.results(path, "a benchmark") if path.exists() else None


def write(results: Path, out: Path, *, plots: bool = True, others: Path | None = None) -> Path:
    """Write the report of one results file to `out`, and the plots beside it.

    Args:
        results: What `benchmarks.speed` wrote.
        out: The report.
        plots: Draw them; needs matplotlib.
        others: The folder with the results of quality, maintenance and hive and with the history; `out`'s by default.
    """
    report: Report = given.results(results, *OF_SPEED)
    others = others or out.parent
    drawn: list[str] = []
    if plots:
        from benchmarks.report.plots import growth_plot, trade_plot

        stem = "speed" if report["profile"] != "part" and out.name == "REPORT.md" else out.stem
        for draw, name in ((growth_plot, f"{stem}-growth.svg"), (trade_plot, f"{stem}-trade.svg")):
            drawn.append(str(draw(report, out.parent / "plots" / name).relative_to(out.parent)))
    body = text(
        report,
        drawn,
        quality=_read(others / "quality" / "results" / "quality.json"),
        large=_read(others / "results" / LARGE),
        killed=_read(others / "results" / KILLED),
        history=history_.keep(_read(others / "results" / "history.json") or [], report),
    )
    quality = others / "quality" / "results" / "summary.md"
    if quality.exists():
        body += "\n" + quality.read_text()
    body += scenarios.chapter(_read(others / "hive" / "parity.json"), _read(others / "hive" / "cost.json"))
    body += scenarios.maintenance(_read(others / "maintenance" / "results.json"))
    out.write_text(body)
    return out


def main() -> None:
    """Parse and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--results", type=Path, help="a results file; the fullest one by default")
    parser.add_argument(
        "--out",
        type=given.to_write,
        help="the report; benchmarks/REPORT.md, or REPORT-PROFILE.md for given results",
    )
    parser.add_argument(
        "--no-plots", action="store_true", help="leave the plots out (matplotlib is not needed)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="also add the run to results/history.json, for before and after"
    )
    options = parser.parse_args()
    results: Path = options.results or newest(HERE / "results")
    if not results.exists():
        raise SystemExit(f"there is no {results}; run `make bench` first")
    taken: Report = given.results(results, *OF_SPEED)
    out: Path = options.out or given.place(HERE / _name(results))
    if options.keep:
        kept = HERE / "results" / "history.json"
        known = history_.keep(_read(kept) or [], taken)
        kept.write_text(json.dumps(known, separators=(",", ":")).replace('{"started"', '\n{"started"') + "\n")
    print(write(results, out, plots=not options.no_plots, others=HERE))
    if out == HERE / "REPORT.md":
        benchmarks_page.renew(HERE.parent / "docs" / "explanation" / "benchmarks.md", taken)


def _name(results: Path) -> str:
    """The committed report is that of the full run; every other run gets a page of its own."""
    profile = results.stem.removeprefix("speed-")
    return "REPORT.md" if profile in ("full", "million") else f"REPORT-{profile}.md"


if __name__ == "__main__":
    main()
