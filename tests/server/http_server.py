"""A real server for tests: uvicorn on a free port in a thread, over real banks."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from pathlib import Path
from typing import Any

import uvicorn

from skep import Bank, Client
from skep.client.verb_table import RIGHTS
from skep.server.http_api import Access, Api, create_server
from skep.server.mcp.http import MAX_CONNECTIONS, ImpatientProtocol
from skep.server.serve_process import listener
from skep.server.served_banks import ServedBanks
from skep.server.tokens import TokenFile
from skep.server.traffic import Audit


class Running:
    """A server over some banks, from `with` to its end."""

    def __init__(self, folder: Path, names: tuple[str, ...] = ("team",), **access: Any) -> None:
        self.folder = folder
        self.tokens = TokenFile(folder / "tokens.json")
        self.banks = ServedBanks({name: str(folder / f"{name}.skep") for name in names}, Bank.open)
        self.audit = Audit(folder / "denials.jsonl")
        self._access = Access(tokens=self.tokens, **access)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.api: Api
        self.owner, _ = self.tokens.add("owner", rights=tuple(RIGHTS), person=True, rate=1e6)

    def __enter__(self) -> Running:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.api.closing.set)
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()
        self.banks.close()

    def _run(self) -> None:
        async def run() -> None:
            self.loop = asyncio.get_running_loop()
            self.api = create_server(self.banks, self._access, self.audit, version="test")
            self._server = uvicorn.Server(
                uvicorn.Config(
                    self.api.app(),
                    port=0,
                    log_level="error",
                    http=ImpatientProtocol,
                    ws="none",
                    lifespan="off",
                    limit_concurrency=MAX_CONNECTIONS,
                    timeout_graceful_shutdown=5,
                )
            )
            socket = listener("127.0.0.1", 0)
            self.port = socket.getsockname()[1]
            serving = asyncio.create_task(self._server.serve(sockets=[socket]))
            while not self._server.started:
                await asyncio.sleep(0.01)
            self._ready.set()
            await serving
            await asyncio.to_thread(self.api.close)

        asyncio.run(run())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: str | None = None, bank: str | None = None) -> Client:
        return Client(self.url, token=token or self.owner, bank=bank or next(iter(self.banks.places)))

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        raw: bytes | None = None,
        **headers: str,
    ) -> tuple[int, dict[str, str], Any]:
        """One request as it is; the status, the headers and the body, decoded where it is JSON."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {"content-type": "application/json"} if body is not None or raw is not None else {}
        if token is not None:
            given["authorization"] = f"Bearer {token or self.owner}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        try:
            line.request(method, path, data, given)
            answer = line.getresponse()
            found = answer.read()
        finally:
            line.close()
        told = {name.lower(): value for name, value in answer.getheaders()}
        plain = told.get("content-type") == "application/json" and "content-encoding" not in told
        decoded = json.loads(found) if plain and found else found
        return answer.status, told, decoded

    def verb(self, name: str, token: str = "", bank: str = "", **arguments: Any) -> tuple[int, Any]:
        """Call a verb with plain JSON; the status and the answer."""
        bank = bank or next(iter(self.banks.places))
        status, _, found = self.ask("POST", f"/v1/banks/{bank}/{name}", arguments, token=token)
        return status, found
