"""The run: every engine at every size, interleaved round by round, and nothing silently missing."""

from __future__ import annotations

import fcntl
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed import cold, kill, machine, metrics, truth
from benchmarks.speed.environments import HERE, ROOT, Spec, UnavailableError, prepare, versions
from benchmarks.speed.plan import CHANGES, FINDS, SEARCHES, SEED, TRUTHS, WARM, WRITES, Plan
from benchmarks.speed.process import EngineError, Process, UnsupportedError, cold_start, import_time
from benchmarks.speed.workload import DIM, VERSION, Workload, save

WORK = HERE / ".work"
Say = Callable[[str], None]
OPS = {"search": SEARCHES, "change": CHANGES, "write": WRITES, "write_find": FINDS}
"""What a worker is asked for, and the kinds of it."""
LONG_LOAD_S = 15.0
"""Loading and indexing that take longer are not repeated."""


def tell(text: str) -> None:
    """Progress goes to stderr."""
    print(text, file=sys.stderr, flush=True)


def workload_files(size: int, plan: Plan, seed: int) -> tuple[Path, dict[str, list[list[str]]]]:
    """The workload's folder and its exact answers, made once and kept."""
    folder = WORK / f"load-v{VERSION}-{seed}-{size}-{plan.total_questions}-{plan.total_writes}"
    answers = folder / f"truth-v{truth.VERSION}.json"
    if not answers.exists():
        workload = Workload(size, seed)
        save(workload, folder, queries=plan.total_questions, writes=plan.total_writes)
        found = truth.exact(workload, workload.queries(plan.total_questions))
        made = answers.with_suffix(".made")
        made.write_text(json.dumps(found.as_dict()))
        made.replace(answers)  # a run that is stopped meanwhile leaves no half of it
    return folder, json.loads(answers.read_text())


class SizeRun:
    """All engines at one size."""

    def __init__(self, plan: Plan, size: int, seed: int, specs: list[Spec], say: Say) -> None:
        self.plan, self.size, self.specs, self.say = plan, size, specs, say
        self.seed = seed
        self.folder, self.truth = workload_files(size, plan, seed)
        self.processes: dict[str, Process] = {}
        self.results: dict[str, dict[str, Any]] = {spec.name: {"status": "ok", "ops": {}} for spec in specs}
        self._rounds: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self._loads: dict[str, list[dict[str, Any]]] = {}

    def store(self, name: str) -> Path:
        """Where an engine keeps its data."""
        return WORK / "stores" / f"{name}-{self.size}"

    def fail(self, spec: Spec, where: str, error: EngineError) -> None:
        """Note why an engine goes no further, and let it go."""
        self.results[spec.name].update(status="failed", reason=f"{where}: {error}")
        self.say(f"  {spec.name} failed in {where}: {error}")
        if spec.name in self.processes:
            self.processes.pop(spec.name).kill()

    def load_all(self) -> None:
        """Open, load, settle: engine by engine, and all over again for those that are quickly done."""
        for repeat in range(self.plan.loads):
            for spec in self.specs:
                done = self._loads.get(spec.name, [])
                if repeat and (not done or sum(part["wall_s"] for part in done[0].values()) > LONG_LOAD_S):
                    continue
                if spec.name in self.processes:
                    self.processes.pop(spec.name).finish()
                self._load(spec)
        for name, loads in self._loads.items():
            for part in ("load", "settle"):
                middle = {key: median(each[part][key] for each in loads) for key in ("wall_s", "cpu_s")}
                self.results[name][part] = {**loads[-1][part], **middle, "repeats": len(loads)}

    def _load(self, spec: Spec) -> None:
        store = self.store(spec.name)
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir(parents=True)
        process = Process(spec, DIM, WORK / "logs" / f"{spec.name}-{self.size}.log")
        self.processes[spec.name] = process
        result = self.results[spec.name]
        box = self.plan.load_box_s
        rehearsal = store.with_name(f"{store.name}-rehearsal")
        shutil.rmtree(rehearsal, ignore_errors=True)
        try:
            process.ask("rehearse", timeout_s=120, path=str(rehearsal), folder=str(self.folder))
            shutil.rmtree(rehearsal)
            opened = process.ask("open", timeout_s=120, path=str(store), folder=str(self.folder))
            result.update(opened)
            result["load"] = process.ask("load", timeout_s=3 * box + 60, box_s=box)
            if not result["load"]["complete"]:
                done, wall = result["load"]["loaded"], result["load"]["wall_s"]
                raise EngineError(f"stopped at the time box, {done} of {self.size} rows after {wall:.0f} s")
            result["settle"] = process.ask("settle", timeout_s=3 * box + 60)
        except EngineError as error:
            self.fail(spec, "load", error)
            return
        process.halt()
        self._loads.setdefault(spec.name, []).append({part: result[part] for part in ("load", "settle")})
        cpu = result["load"]["cpu_s"] + result["settle"]["cpu_s"]
        self.say(f"  {spec.name:10} loaded {self.size} in {cpu:.2f} CPU s")

    def _turn(self, spec: Spec, op: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
        """Let one engine do one thing while the others are halted."""
        process = self.processes.get(spec.name)
        if process is None or self.results[spec.name]["ops"].get(op, {}).get("status") == "not offered":
            return None
        name = next(name for name, ops in OPS.items() if op in ops)
        box = self.plan.round_box_s
        process.go()
        try:
            return process.ask(name, timeout_s=2 * box + 45, box_s=box, kind=op, **arguments)
        except UnsupportedError as error:
            self.results[spec.name]["ops"][op] = {"status": "not offered", "reason": str(error)}
        except EngineError as error:
            self.fail(spec, op, error)
        finally:
            process.halt()
        return None

    def rounds_of(self, ops: tuple[str, ...], count: int, start: int, *, warm: bool) -> None:
        """Round by round, kind by kind, engine by engine; the order of engines turns with the round."""
        plan = self.plan
        for round_ in range(-1 if warm else 0, plan.rounds):
            for op in ops:
                turn = round_ % len(self.specs)
                for spec in self.specs[turn:] + self.specs[:turn]:
                    first = plan.warm_from if round_ < 0 else start + round_ * count
                    got = self._turn(spec, op, {"first": first, "count": WARM if round_ < 0 else count})
                    if got is not None and round_ >= 0:
                        got.update(first=first, load=machine.load())
                        self._rounds.setdefault((spec.name, op), []).append(got)

    def measure(self) -> None:
        """Searches first, while every engine holds exactly the workload; then changes, then writes."""
        plan = self.plan
        self.rounds_of(SEARCHES, plan.questions, 0, warm=True)
        self.rounds_of(CHANGES, min(plan.changes, self.size // plan.rounds), 0, warm=False)
        for number, op in enumerate((*WRITES, *FINDS)):
            self.rounds_of((op,), plan.changes, number * plan.rounds * plan.changes, warm=False)
        for spec in self.specs:
            process = self.processes.get(spec.name)
            if process is not None:
                process.go()
                try:
                    self.results[spec.name]["state"] = process.ask("state", timeout_s=60)
                except EngineError as error:
                    self.fail(spec, "state", error)
        for (name, op), rounds in self._rounds.items():
            self.results[name]["ops"][op] = self.summary(op, rounds, self.results[name])

    def summary(self, op: str, rounds: list[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
        """Times of all rounds, and how right the answers were."""
        out: dict[str, Any] = {"status": "ok", **metrics.summarise(rounds)}
        out["load"] = [r["load"] for r in rounds]
        if op in TRUTHS:
            out["exact"] = truth.kind_for(op, about)
            found = [answer for r in rounds for answer in r["answers"]]
            wanted: list[list[str]] = []
            for r in rounds:
                wanted += self.truth[out["exact"]][r["first"] : r["first"] + len(r["answers"])]
            score = metrics.mean_recall(found, wanted, TRUTHS[op][1])
            out["recall"] = None if score is None else round(score, 4)
        if op in FINDS:
            out["found"] = sum(r["found"] for r in rounds) / max(1, sum(len(r["wall_ns"]) for r in rounds))
        return out

    def close_all(self) -> None:
        """End every process."""
        for process in self.processes.values():
            process.finish()

    def drop_all(self) -> None:
        """End every process at once, and leave nothing of them: somebody wants the run to stop."""
        for process in self.processes.values():
            process.kill()
        for spec in self.specs:
            shutil.rmtree(self.store(spec.name), ignore_errors=True)

    def cold_all(self) -> None:
        """Fresh processes, engines taking turns; also of an engine that failed after it had loaded everything."""
        question = cold.written(Workload(self.size, self.seed).queries(1)[0], str(self.folder))
        runs: dict[str, list[dict[str, Any]]] = {}
        for _ in range(self.plan.cold):
            for spec in self.specs:
                entry = self.results[spec.name]
                if "settle" not in entry or entry.get("cold", {}).get("status") == "failed":
                    continue
                try:
                    patience = 120 if entry["status"] == "ok" else 30
                    got = cold_start(spec, DIM, self.store(spec.name), question, timeout_s=patience)
                except EngineError as error:
                    self.results[spec.name]["cold"] = {"status": "failed", "reason": str(error)}
                    continue
                runs.setdefault(spec.name, []).append(got)
        for name, each in runs.items():
            keys = [key for key in each[0] if key.endswith("_s")]
            self.results[name]["cold"] = {
                "status": "ok",
                **{key: round(median(run[key] for run in each), 5) for key in keys},
                "rss": {key: median(run["rss"][key] for run in each) for key in each[0]["rss"]},
            }


def imports(specs: list[Spec], repeats: int) -> dict[str, dict[str, Any]]:
    """Import times, engines taking turns; the first, unmeasured time fills the caches."""
    runs: dict[str, list[dict[str, float]]] = {}
    out: dict[str, dict[str, Any]] = {}
    for repeat in range(repeats + 1):
        for spec in specs:
            try:
                got = import_time(spec)
            except EngineError as error:
                out[spec.name] = {"status": "failed", "reason": str(error)}
                continue
            if repeat:
                runs.setdefault(spec.name, []).append(got)
    for name, each in runs.items():
        out[name] = {"status": "ok", **{key: round(median(r[key] for r in each), 5) for key in each[0]}}
    return out


def run(plan: Plan, specs: list[Spec], *, seed: int = SEED, say: Say = tell) -> dict[str, Any]:
    """The whole measurement, as the value that is written to the results file; one at a time in a checkout."""
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SystemExit("another run is at work here: they would measure each other") from error
        return _run(plan, specs, seed, say)


def _run(plan: Plan, specs: list[Spec], seed: int, say: Say) -> dict[str, Any]:
    started = time.time()
    report: dict[str, Any] = {
        "kind": "speed",
        "schema": 1,
        "profile": plan.profile,
        "plan": dict(vars(plan)),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "environment": {**machine.describe(), **machine.commit(ROOT)},
        "workload": {"seed": seed, "version": VERSION, "dim": DIM},
        "engines": {},
        "sizes": {},
    }
    usable: list[Spec] = []
    for spec in specs:
        entry: dict[str, Any] = {"title": spec.title, "status": "ok"}
        try:
            prepare(spec)
            entry["versions"] = versions(spec)
            usable.append(spec)
        except UnavailableError as error:
            entry.update(status="unavailable", reason=str(error))
            say(f"{spec.name} is not available: {error}")
        report["engines"][spec.name] = entry
    report["imports"] = imports(usable, plan.cold)
    standing = list(usable)
    for size in plan.sizes:
        say(f"{size} rows, load {machine.load()}")
        each = SizeRun(plan, size, seed, standing, say)
        try:
            each.load_all()
            each.measure()
            each.close_all()
            each.cold_all()
        except BaseException:
            each.drop_all()
            raise
        report["sizes"][str(size)] = each.results
        standing = [spec for spec in standing if "settle" in each.results[spec.name]]
        for spec in usable:
            shutil.rmtree(each.store(spec.name), ignore_errors=True)
            if spec not in standing and spec.name not in each.results:
                reason = "left out: it did not finish loading the size before"
                report["sizes"][str(size)][spec.name] = {"status": "skipped", "reason": reason, "ops": {}}
    folder, _ = workload_files(plan.sizes[0], plan, seed)
    report["kills"] = kill.run_all(usable, plan.kills, folder, WORK, say)
    report["environment"]["load_after"] = machine.load()
    report["took_s"] = round(time.time() - started)
    return report
