"""A small results file, as the harness writes it, for tests of the report."""

from __future__ import annotations

from typing import Any


def op(time: float, recall: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"status": "ok", "n": 10, "rounds": 2, "load": [0.1, 0.2]}
    for clock in ("cpu", "wall"):
        found |= {f"{clock}_p50": time, f"{clock}_p95": 2 * time, f"{clock}_range": [time, time]}
    return found if recall is None else {**found, "recall": recall}


def entry(scale: float, **ops: dict[str, Any]) -> dict[str, Any]:
    rss = {"VmRSS": 50.0 * scale, "RssAnon": 40.0 * scale, "VmHWM": 60.0 * scale}
    return {
        "status": "ok",
        "durability": "survives power loss",
        "notes": ["a note"],
        "load": {"loaded": 1000, "complete": True, "wall_s": scale, "cpu_s": scale, "rss": rss},
        "settle": {"wall_s": scale, "cpu_s": scale, "rss": rss, "disk_mb": 3.0},
        "cold": {"status": "ok", "cpu_s": 0.1 * scale, "wall_s": 0.2 * scale, "rss": rss},
        "ops": ops,
    }


def results() -> dict[str, Any]:
    kill = {"kills": 2, "acknowledged": 9, "status": "ok", "keyword_offered": True, "syncs_per_write": 1.0}
    clean = {"stored": 0, "keyword": 0, "vector": 0}
    return {
        "kind": "speed",
        "schema": 1,
        "profile": "quick",
        "plan": {"rounds": 2, "questions": 5},
        "started": "2026-01-01T00:00:00Z",
        "took_s": 60,
        "environment": {
            "processor": "a processor",
            "cores": 2,
            "memory_gb": 8.0,
            "system": "Linux",
            "python": "3.11",
            "load_before": 0.1,
            "load_after": 0.2,
            "commit": "0123456789abcdef",
            "dirty": False,
        },
        "workload": {"seed": 7, "version": 1, "dim": 256},
        "engines": {
            "skep": {"title": "skep", "status": "ok", "versions": {"skep": "0.1.0"}},
            "floor": {"title": "Floor", "status": "ok", "versions": {}},
            "chroma": {"title": "Chroma", "status": "ok", "versions": {}},
            "mem0": {"title": "mem0", "status": "unavailable", "reason": "no wheel for this system"},
        },
        "sizes": {
            "1000": {
                "skep": entry(1, keyword=op(0.2), hybrid=op(1.0, 0.99), write=op(0.2)),
                "floor": entry(2, keyword=op(0.1), hybrid=op(2.0, 1.0), write=op(0.4)),
                "chroma": entry(3, keyword=op(0.01, 0.3), hybrid=op(9.0, 0.95), write=op(4.0)),
            },
            "10000": {
                "skep": entry(1, keyword=op(0.4), hybrid=op(2.0, 0.99), write=op(0.2)),
                "floor": entry(2, keyword=op(1.0), hybrid=op(20.0, 1.0), write=op(0.4)),
                "chroma": {"status": "failed", "reason": "load: no answer within 5 s", "ops": {}},
            },
        },
        "imports": {"skep": {"status": "ok", "cpu_s": 0.02, "wall_s": 0.03, "bare_cpu_s": 0.01}},
        "kills": {"skep": {**kill, "missing": clean}, "floor": {**kill, "missing": clean}},
    }
