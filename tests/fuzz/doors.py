"""The doors of skep, each with one generated input at a time: what is wrong comes back in words, nothing hangs.

A door takes a random generator and does one thing with what it makes. It raises `Broken` where the product broke a
promise: an error that is none of skep's own, an answer "internal error", a write by what only reads, or time out of
proportion to the input.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec
from tests.fuzz.inputs import damaged, json_of, text_of, value_of
from tests.fuzz.web import META, Web

from skep.bank.bank import Bank
from skep.cli import app as cli
from skep.errors import SkepError
from skep.events import BODIES, Event
from skep.hive.hive_manifest import parse
from skep.integrations.hooks import prompted
from skep.integrations.importers.registry import SOURCES, import_items, read
from skep.server.mcp.render import PROMPTS, RESOURCES
from skep.server.mcp.session import Server
from skep.server.mcp.start import Banks
from skep.server.mcp.stdio import Connection
from skep.server.mcp.tool_profiles import build_server

SECONDS, PER_CHARACTER = 3.0, 2e-4
"""CPU that one input may take, and what each of its characters adds: a hang takes hundreds of times as much."""
TEXTS = ("Use ruff for linting", "Ana likes tea", "The gateway is called Heimdall", "The relay runs in Oslo")
READING = (
    ["recall"], ["list"], ["show"], ["log"], ["stats"], ["links"], ["conflicts"], ["doctor"], ["redact"], ["status"],
)  # fmt: skip
WRITING = (
    ["add"],
    ["revise"],
    ["retract"],
    ["forget", "--yes"],
    ["link"],
    ["learn"],
    ["mark"],
    ["undo"],
    ["merge"],
)
SUFFIXES = (
    ".md",
    ".json",
    ".jsonl",
    ".csv",
    ".txt",
    ".tsv",
    ".skep",
    ".db",
    ".zip",
    "",
    ".toml",
    ".yaml",
    ".gz",
)


class Broken(AssertionError):
    """A promise that was broken."""


class Doors:
    """Every door over one bank in a folder; `close` when done."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "bank.skep"
        with Bank.open(self.path) as bank:
            self.ids = [one.memory.id for one in bank.remember_many(TEXTS)]
            bank.link(self.ids[0], self.ids[1])
        self.banks = Banks(str(self.path), environ={}, start=folder)
        self.server: Server = build_server("full", self.banks, version="1")
        self.tools = sorted(self.server.registry.tools)
        self.doors: dict[str, Callable[[Random], int]] = {
            "cli": self.cli,
            "mcp": self.mcp,
            "importers": self.importers,
            "manifests": self.manifests,
            "events": self.events,
            "recall": self.recall,
            "hooks": self.hooks,
            "http": self.http,
            "mcp_http": self.mcp_http,
        }
        self._web: Web | None = None

    def close(self) -> None:
        """Close what is open, and look whether the bank is whole."""
        self.banks.close()
        paths = [self.path]
        if self._web is not None:
            self._web.close()
            paths.append(self._web.path)
        for path in paths:
            with Bank.open(path) as bank:
                wrong = [
                    one
                    for one in bank.doctor(deep=True)
                    if one.level == "error" and one.check != "recall config"
                ]
            if wrong:
                raise Broken(f"{path.name} is damaged: {wrong}")

    @property
    def web(self) -> Web:
        """The server, started when it is first asked."""
        if self._web is None:
            self._web = Web(self.folder, TEXTS)
        return self._web

    def run(self, door: str, seed: int) -> None:
        """One input at one door."""
        started = time.process_time()
        try:
            with contextlib.suppress(SkepError):
                size = self.doors[door](Random(seed))
                spent = time.process_time() - started
                if spent > SECONDS + PER_CHARACTER * size:
                    raise Broken(f"{door} {seed}: {spent:.1f} s of CPU for {size:,} characters")
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"{door} {seed}: {type(error).__name__}: {error}") from error

    def stored(self) -> bytes:
        """Every byte of the bank."""
        files = (self.path, self.path.with_name(self.path.name + "-wal"))
        return b"".join(file.read_bytes() for file in files if file.exists())

    def words(self, rng: Random) -> str:
        """A text, or the id of a memory."""
        return rng.choice(self.ids) if rng.random() < 0.3 else text_of(rng)

    def cli(self, rng: Random) -> int:
        """One command with words and options that it may not have."""
        reads = rng.random() < 0.6
        words = list(rng.choice(READING if reads else WRITING))
        for _ in range(rng.randrange(4)):
            option = rng.choice(
                ("--limit", "--json", "--user", "--kind", "--tag", "--as-of", "--explain", "--scope")
            )
            words += [option] if rng.random() < 0.3 else []
            words.append(self.words(rng).replace("\x00", " "))
        words = [word.encode("utf-8", "replace").decode() for word in words]
        # a recall counts uses, and `redact` may set what is taken out
        before = self.stored() if reads and words[0] not in ("recall", "redact") else b""
        out, err, code = io.StringIO(), io.StringIO(), 0
        stdin = io.TextIOWrapper(io.BytesIO(text_of(rng).encode("utf-8", "replace")))
        with (
            mock.patch.object(sys, "argv", ["skep", "--bank", str(self.path), *words]),
            mock.patch.object(sys, "stdin", stdin),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                cli.main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
        if "Traceback" in err.getvalue() or (code and not (err.getvalue() + out.getvalue()).strip()):
            raise Broken(f"{words!r} ended with {code}: {err.getvalue()[-300:]!r}")
        if before and self.stored() != before:
            raise Broken(f"{words!r} wrote, and only reads")
        return sum(map(len, words))

    def frame(self, rng: Random, number: int, *, meta: bool) -> tuple[Any, bytes]:
        """A message of MCP, mostly a whole call with arguments that its tool takes; and its bytes, mostly whole."""
        if rng.random() < 0.1:
            return {}, json_of(rng, value_of(rng))
        method = rng.choice(
            ("tools/call", "tools/call", "tools/call", "tools/list", "prompts/get", "resources/read")
        )
        params: dict[str, Any] = {}
        if method == "tools/call":
            named = rng.choice(self.tools) if rng.random() < 0.95 else text_of(rng, 30)
            schema = self.server.registry.tools[named].schema if named in self.tools else {}
            arguments = self.web.fitting(rng, schema, schema.get("$defs", {}))
            params = {"name": named, "arguments": arguments if rng.random() < 0.9 else value_of(rng)}
        elif method == "prompts/get":
            params = {
                "name": rng.choice((*(one.name for one in PROMPTS), text_of(rng, 30))),
                "arguments": value_of(rng),
            }
        elif method == "resources/read":
            uri = rng.choice(RESOURCES).uri.replace("{id}", self.words(rng))
            params = {"uri": uri if rng.random() < 0.9 else text_of(rng, 60)}
        if meta:
            params["_meta"] = META
        ids: Any = number if rng.random() < 0.8 else value_of(rng, 1)
        method = rng.choice(
            ("tools/call", "tools/call", "tools/list", "prompts/get", "resources/read", "ping")
        )
        asked = {"jsonrpc": "2.0", "id": ids, "method": method, "params": params}
        return asked, json_of(rng, asked, 0.15)

    def mcp(self, rng: Random) -> int:
        """Frames on standard input, some of them whole calls."""
        frames = [
            self.frame(rng, number, meta=rng.random() < 0.9)[1] for number in range(rng.randrange(1, 4))
        ]
        data, out = b"\n".join(frames), io.BytesIO()
        Connection(self.server, io.BytesIO(data), out).run()
        for line in out.getvalue().splitlines():
            answer = json.loads(line)
            if isinstance(answer, dict) and answer.get("error", {}).get("code") == -32603:
                raise Broken(f"{data[:500]!r}: {answer}")
        return len(data)

    def importers(self, rng: Random) -> int:
        """A file of any kind, read by whoever recognises it, or by one that was named."""
        path = self.folder / f"given{rng.choice(SUFFIXES)}"
        kind = rng.randrange(4)
        if kind == 0:
            data = damaged(rng, self.path.read_bytes())
        elif kind == 1:
            data = json_of(rng, value_of(rng, 4))
        elif kind == 2:
            lines = [json.dumps(value_of(rng, 2)) if rng.random() < 0.5 else text_of(rng) for _ in range(5)]
            data = damaged(rng, "\n".join(lines).encode("utf-8", "replace"))
        else:
            data = damaged(rng, text_of(rng, 2000).encode("utf-8", "replace"))
        path.write_bytes(data)
        try:
            _, found = read(path, rng.choice(SOURCES).name if rng.random() < 0.3 else None)
            with Bank.open(":memory:") as bank:
                import_items(bank, found)
        finally:
            path.unlink()
        return len(data)

    def manifests(self, rng: Random) -> int:
        """The manifest of a hive."""
        more = value_of(rng)
        given = {"topology": "flat", "agents": value_of(rng), **(more if isinstance(more, dict) else {})}
        text = (
            json.dumps(given)
            if rng.random() < 0.5
            else f"agents:\n  - name: {text_of(rng)}\n{text_of(rng)}: &a [*a]\n"
        )
        text = damaged(rng, text.encode("utf-8", "replace")).decode("utf-8", "replace")
        parse(text, {"NAME": text_of(rng)})
        return len(text)

    def events(self, rng: Random) -> int:
        """Events of a peer: of every kind, with bodies that fit, nearly fit, and do not."""
        kinds = [*BODIES, text_of(rng, 10)]
        events: list[Event] = []
        for _ in range(rng.randrange(1, 6)):
            kind = rng.choice(kinds)
            body: Any = {"memory": rng.choice((*self.ids, "peer-1", text_of(rng, 20)))}
            body |= {
                "text": text_of(rng),
                "kind": "fact",
                "changes": value_of(rng, 2),
                "key": text_of(rng, 20) or "k",
            }
            body |= {
                "value": value_of(rng),
                "src": "peer-1",
                "dst": self.ids[0],
                "rel": "related",
                "event": "peer-1",
            }
            body |= {
                "memories": ["peer-1"],
                "old": "peer-1",
                "new": "peer-2",
                "loser": "peer-1",
                "winner": "peer-2",
            }
            if rng.random() < 0.3:
                more = value_of(rng, 2)
                body |= more if isinstance(more, dict) else {}
            shape: Any = BODIES.get(kind)
            if shape is not None and rng.random() < 0.8:
                known = {field.encode_name for field in msgspec.structs.fields(shape)}
                body = {name: value for name, value in body.items() if name in known}
            actor = rng.choice(("peer", "peer", "other", self.ids[0].rpartition("-")[0], text_of(rng, 10)))
            number = rng.choice((1, 2, 3, 5, 1 << 52, 1 << 60, -1))
            stamp = rng.choice((0, 1 << 20, 1 << 60, 1 << 62, 1 << 70, -5))
            events.append(Event(actor=actor, counter=number, hlc=stamp, kind=kind, body=body))
        with Bank.open(":memory:") as bank:
            bank.remember_many(TEXTS)
            with contextlib.suppress(SkepError):
                bank.apply(events, partial=rng.random() < 0.5)
            bank.recall("which linter is used?")
            bank.maintain()
            wrong = [
                one for one in bank.doctor(deep=True) if one.level == "error" and one.check != "recall config"
            ]
            if wrong:
                raise Broken(f"{events!r}: {wrong}")
        return sum(len(str(event.body)) for event in events)

    def recall(self, rng: Random) -> int:
        """A question of any kind; reading leaves the bank as it was."""
        query = text_of(rng)
        before = self.stored()
        with Bank.open(self.path, read_only=True) as bank:
            bank.recall(query, explain=rng.random() < 0.3)
            if rng.random() < 0.3:
                bank.find(query)
        if self.stored() != before:
            raise Broken(f"recall of {query[:200]!r} wrote")
        return len(query)

    def http(self, rng: Random) -> int:
        """A request to the HTTP API."""
        return self.web.api(rng)

    def mcp_http(self, rng: Random) -> int:
        """A message to MCP over HTTP."""
        stateless = rng.random() < 0.5
        return self.web.mcp(
            rng, *self.frame(rng, rng.randrange(1 << 30), meta=stateless), stateless=stateless
        )

    def hooks(self, rng: Random) -> int:
        """A prompt of a coding agent."""
        from skep.integrations.hooks import Session

        prompt = text_of(rng, 4000)
        prompted(str(self.path), prompt, Session(client="claude-code", id="s"), {}, time.time())
        return len(prompt)
