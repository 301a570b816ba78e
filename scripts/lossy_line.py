"""Heartbeats beside a flood over a line that delays and loses packets: TCP, QUIC, QUIC with a stream per kind.

    python scripts/lossy_line.py --loss 1 --delay 20

Two network namespaces are joined by a line that this script plays itself, packet by packet, through two TUN devices. A
Zenoh router and the sender stand at one end, the receiver at the other. It needs Linux, root, /dev/net/tun, `ip`, and
`pip install 'skep[zenoh]' cryptography`.
"""

from __future__ import annotations

import argparse
import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

SET_TUN = 0x400454CA
TUN_WITHOUT_HEADER = 0x0001 | 0x1000
BEATS = 150
PAUSE = 0.02
COPY = 16_000
PORT = 7447
ROWS = (
    ("TCP", "zenoh", ""),
    ("QUIC, one stream", "zenoh+quic", ""),
    ("QUIC, a stream per kind", "zenoh+quic", "auto"),
)


class Line:
    """A line between two namespaces: a delay each way, a share of packets lost, as much per second as `rate` allows."""

    def __init__(
        self, ends: tuple[str, str], *, delay: float, loss: float, rate: float, seed: int = 7
    ) -> None:
        self.delay, self.loss, self.rate = delay, loss, rate
        self._random = random.Random(seed)
        self._tuns = [self._tun(end, number) for number, end in enumerate(ends)]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def _tun(namespace: str, number: int) -> int:
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        name = f"skepl{number}"
        fcntl.ioctl(tun, SET_TUN, struct.pack("16sH", name.encode(), TUN_WITHOUT_HEADER))
        subprocess.run(["ip", "link", "set", name, "netns", namespace], check=True)
        inside = ["ip", "-n", namespace]
        address = f"10.78.0.{number + 1}/24"
        subprocess.run([*inside, "addr", "add", address, "dev", name], check=True)
        subprocess.run([*inside, "link", "set", name, "up"], check=True)
        subprocess.run([*inside, "link", "set", "lo", "up"], check=True)
        return tun

    def _run(self) -> None:
        due: list[tuple[float, int, int, bytes]] = []
        free = [0.0, 0.0]
        count = 0
        while not self._end.is_set():
            wait = max(0.0, due[0][0] - time.monotonic()) if due else 0.05
            ready, _, _ = select.select(self._tuns, [], [], min(wait, 0.05))
            now = time.monotonic()
            for tun in ready:
                side = self._tuns.index(tun)
                packet = os.read(tun, 65535)
                if self._random.random() < self.loss or free[side] - now > 0.1:  # lost, or the queue is full
                    continue
                free[side] = max(free[side], now) + len(packet) / self.rate
                count += 1
                heapq.heappush(due, (free[side] + self.delay, count, 1 - side, packet))
            while due and due[0][0] <= time.monotonic():
                _, _, side, packet = heapq.heappop(due)
                os.write(self._tuns[side], packet)

    def close(self) -> None:
        """Take the line down."""
        self._end.set()
        self._thread.join(5)
        for tun in self._tuns:
            os.close(tun)


def certificate(folder: Path) -> tuple[str, str]:
    """A certificate for the sender's end, and its key."""
    shown, secret = folder / "cert.pem", folder / "key.pem"
    words = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=skep"
        " -addext subjectAltName=IP:10.78.0.1 -addext basicConstraints=critical,CA:FALSE"
    )
    files = ["-keyout", str(secret), "-out", str(shown)]
    subprocess.run([*words.split(), *files], check=True, capture_output=True)
    return str(shown), str(secret)


def session(settings: dict[str, Any]) -> Any:
    """A Zenoh session with settings."""
    import zenoh

    config = zenoh.Config()
    for name, value in {"scouting/multicast/enabled": False, **settings}.items():
        config.insert_json5(name, json.dumps(value))
    return zenoh.open(config)


def send(endpoint: str, shown: str, secret: str) -> None:
    """The end that sends: it listens as a router, floods copies and beats in between."""
    import zenoh

    from skep.hive.bus.zenoh_bus import stream_of

    tls = {"transport/link/tls/listen_certificate": shown, "transport/link/tls/listen_private_key": secret}
    there = session(
        {"mode": "router", "listen/endpoints": [endpoint], **(tls if endpoint.startswith("quic") else {})}
    )
    print("ready", flush=True)
    sys.stdin.readline()
    put = lambda subject, data: there.put(  # noqa: E731
        subject.replace(".", "/"),
        data,
        congestion_control=zenoh.CongestionControl.BLOCK,
        priority=getattr(zenoh.Priority, stream_of(subject)),
    )
    flooding = threading.Event()

    def flood() -> None:
        while not flooding.is_set():
            put("hive.team.to.ana", bytes(COPY))

    threading.Thread(target=flood, daemon=True).start()
    time.sleep(1.0)
    for number in range(BEATS):
        put("skep.present", struct.pack("<dI", time.monotonic(), number))
        time.sleep(PAUSE)
    flooding.set()
    sys.stdin.readline()
    there.close()


def receive(endpoint: str, shown: str) -> None:
    """The end that receives: how late each heartbeat was."""
    late: dict[int, float] = {}
    copies = [0]

    def heard(sample: Any) -> None:
        sent, number = struct.unpack("<dI", sample.payload.to_bytes())
        late[number] = time.monotonic() - sent

    def copied(_sample: Any) -> None:
        copies[0] += 1

    settings = {"mode": "client", "connect/endpoints": [endpoint], "connect/timeout_ms": 20000}
    here = session({**settings, "transport/link/tls/root_ca_certificate": shown})
    subscribers = [here.declare_subscriber("skep/present", heard), here.declare_subscriber("hive/**", copied)]
    time.sleep(1.0)
    print("ready", flush=True)
    until = time.monotonic() + BEATS * PAUSE + 30
    while len(late) < BEATS and time.monotonic() < until:
        time.sleep(0.05)
    found = sorted(late.values())
    print(json.dumps({"beats": len(found), "late": found, "copies": copies[0]}), flush=True)
    del subscribers
    here.close()


def measured(row: tuple[str, str, str], line: argparse.Namespace, folder: Path) -> str:
    """One row of the table."""
    title, scheme, streams = row
    ends = ("skep-line-a", "skep-line-b")
    for end in ends:
        subprocess.run(["ip", "netns", "add", end], check=True)
    playing = None
    try:
        delay, loss = line.delay / 1000, line.loss / 100
        playing = Line(ends, delay=delay, loss=loss, rate=line.rate * 125_000)
        shown, secret = certificate(folder)
        protocol = "quic" if scheme.endswith("quic") else "tcp"
        endpoint = f"{protocol}/10.78.0.1:{PORT}" + (f"?multistream={streams}" if streams else "")
        run = lambda end, *words: subprocess.Popen(  # noqa: E731
            ["ip", "netns", "exec", end, sys.executable, __file__, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        sender = run(ends[0], "--send", endpoint, shown, secret)
        sender.stdout.readline()
        receiver = run(ends[1], "--receive", endpoint, shown)
        receiver.stdout.readline()
        sender.stdin.write("go\n")
        sender.stdin.flush()
        told = json.loads(receiver.stdout.readline())
        sender.kill()
        receiver.kill()
        late = told["late"]
        at = lambda share: f"{1000 * late[min(len(late) - 1, int(share * len(late)))]:.0f}"  # noqa: E731
        return (
            f"| {title} | {at(0.5)} | {at(0.9)} | {at(0.99)} | {BEATS - told['beats']} | {told['copies']} |"
        )
    finally:
        if playing:
            playing.close()
        for end in ends:
            subprocess.run(["ip", "netns", "del", end], check=False)


def main() -> None:
    """Measure, or be one of the two ends."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--loss", type=float, default=1.0, help="per cent of packets, each way")
    asked.add_argument("--delay", type=float, default=20.0, help="milliseconds, each way")
    asked.add_argument("--rate", type=float, default=20.0, help="megabits per second")
    asked.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    asked.add_argument("--receive", nargs=2, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.send:
        send(*given.send)
        return
    if given.receive:
        receive(*given.receive)
        return
    print(f"{given.loss} % of packets lost, {given.delay} ms each way, {given.rate} Mbit/s")
    print(
        "| line | heartbeat, ms p50 | p90 | p99 | missing | copies of 16 kB |\n|---|---:|---:|---:|---:|---:|"
    )
    with tempfile.TemporaryDirectory() as folder:
        for row in ROWS:
            print(measured(row, given, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
