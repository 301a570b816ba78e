"""What goes through a server: limits of how often a token may call, counts for `/metrics`, and the audit of denials."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from skep.clock import system_now
from skep.model import Recalled

RATE: Final = 500.0
"""Requests per second of one token, unless it says otherwise; for a moment twice as many."""
GUESSES: Final = 5.0
"""Wrong tokens per second from one address."""
CALLERS: Final = 10_000
"""Callers whose rate is remembered."""
AUDIT_BYTES: Final = 1 << 20
"""Size at which a file of denials is put aside; one older file is kept."""
BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
"""Upper ends of the histogram of seconds."""


class RateLimit:
    """A bucket of calls per caller that fills up again as time goes on."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, caller: str, rate: float) -> float:
        """Seconds until the caller may go on; 0 if it may now, and then the call counts."""
        now = self._clock()
        burst = max(1.0, 2 * rate)
        with self._lock:
            left, then = self._left.pop(caller, (burst, now))
            left = min(burst, left + (now - then) * rate)
            if left >= 1:
                left -= 1
                pause = 0.0
            else:
                pause = (1 - left) / rate
            self._left[caller] = left, now
            while len(self._left) > CALLERS:
                self._left.pop(next(iter(self._left)))
        return pause


class Counts:
    """Counts of a running server, as Prometheus reads them."""

    def __init__(self, started: float) -> None:
        self._lock = threading.Lock()
        self._started = started
        self._answers: Counter[tuple[str, int]] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._within: Counter[tuple[str, float]] = Counter()
        self.denied = 0
        self.streams = 0

    def note(self, what: str, status: int, seconds: float) -> None:
        """Count one answer."""
        with self._lock:
            self._answers[what, status] += 1
            self._seconds[what] += seconds
            for end in BUCKETS:
                if seconds <= end:
                    self._within[what, end] += 1

    def text(self, banks: Iterable[tuple[str, int, int]]) -> str:
        """The page of `/metrics`; of each bank its name, its memories and its last event."""
        with self._lock:
            answers, within, seconds = dict(self._answers), dict(self._within), dict(self._seconds)
        lines = ["# TYPE skep_requests_total counter"]
        lines += [
            f'skep_requests_total{{verb="{what}",status="{status}"}} {count}'
            for (what, status), count in sorted(answers.items())
        ]
        lines.append("# TYPE skep_request_seconds histogram")
        for what in sorted(seconds):
            total = sum(count for (name, _), count in answers.items() if name == what)
            lines += [
                f'skep_request_seconds_bucket{{verb="{what}",le="{end:g}"}} {within.get((what, end), 0)}'
                for end in BUCKETS
            ]
            lines.append(f'skep_request_seconds_bucket{{verb="{what}",le="+Inf"}} {total}')
            lines.append(f'skep_request_seconds_sum{{verb="{what}"}} {seconds[what]:.6f}')
            lines.append(f'skep_request_seconds_count{{verb="{what}"}} {total}')
        lines += ["# TYPE skep_denied_total counter", f"skep_denied_total {self.denied}"]
        lines += ["# TYPE skep_streams gauge", f"skep_streams {self.streams}"]
        lines += ["# TYPE skep_start_time_seconds gauge", f"skep_start_time_seconds {self._started:.3f}"]
        lines += ["# TYPE skep_memories gauge", "# TYPE skep_last_event gauge"]
        for name, memories, last in banks:
            label = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            lines.append(f'skep_memories{{bank="{label}"}} {memories}')
            lines.append(f'skep_last_event{{bank="{label}"}} {last}')
        return "\n".join(lines) + "\n"


class Questions(msgspec.Struct):
    """The recalls of one bank since the server started."""

    asked: int = 0
    likely: int = 0
    """Those with a hit that is likely or strong."""
    silent: int = 0
    """Those without any hit."""
    repeated: int = 0
    """Those whose words were asked before, among the last ten thousand questions."""


class QuestionCounts:
    """Counts recalls per bank. Of a question a hash is kept, in memory alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Questions] = {}
        self._heard: dict[tuple[str, int], None] = {}

    def note(self, bank: str, query: str, found: Recalled) -> None:
        """Count one recall."""
        words = bank, hash(query.casefold())
        with self._lock:
            counts = self._counts.setdefault(bank, Questions())
            counts.asked += 1
            counts.likely += any(hit.level != "weak" for hit in found)
            counts.silent += not found
            counts.repeated += self._heard.pop(words, 0) is None
            self._heard[words] = None
            while len(self._heard) > CALLERS:
                self._heard.pop(next(iter(self._heard)))

    def of(self, bank: str) -> Questions:
        """The counts of a bank."""
        with self._lock:
            return self._counts.get(bank, Questions())


class Audit:
    """A file of JSON lines about calls that were turned away; of a token only its name is written."""

    def __init__(self, path: Path | None, now: Callable[[], float] = system_now) -> None:
        self.path = path
        self._now = now
        self._lock = threading.Lock()

    def deny(self, **about: Any) -> None:
        """Note a denial."""
        if self.path is None:
            return
        line = msgspec.json.encode({"at": round(self._now(), 3), **about}) + b"\n"
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size + len(line) > AUDIT_BYTES:
                os.replace(self.path, self.path.with_suffix(".old.jsonl"))
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(line)

    def newest(self, most: int = 100) -> list[dict[str, Any]]:
        """The newest denials, newest first."""
        if self.path is None or not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines()[-most:]
        return [msgspec.json.decode(line) for line in reversed(lines) if line.strip()]
