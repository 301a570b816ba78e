"""The rows of section 000 of docs/explanation/seeds.md: many banks that share, as its document words it."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from skep.bank.bank import Bank
from skep.cli.app import app
from skep.clock import Now
from skep.embedding.static_table import HashingEmbedder
from skep.errors import ConfigError, InvalidInputError, NotFoundError
from skep.hive.controller import Controller, open_agent
from skep.hive.gateway import HivePolicy
from skep.hive.gossip import Gossip, choose, convergence
from skep.hive.hive import Hive
from skep.hive.hive_manifest import ManifestError, parse
from skep.hive.orchestrator import Orchestrator
from skep.retrieval.recall_config import PRESETS

DAY = 86_400.0
PORT = "The staging database listens on port 5433."
GROUPS = {"infra": ("ana", "bob"), "people": ("cy", "dora")}
PATIENT: dict[str, Any] = {"deadline": 10.0, "hedge_after": 5.0}
Make = Callable[..., Hive]


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1_760_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(clock: Now) -> Iterator[Make]:
    """Makes hives of a layout, and closes them afterwards."""
    opened: list[Hive] = []

    def hive(kind: str, agents: Any = ("ana", "bob", "cy", "dora"), **options: Any) -> Hive:
        options["policy"] = HivePolicy(**PATIENT, **options.pop("policy", {}))
        options = {"embedder": HashingEmbedder(64), "now": clock, **options}
        opened.append(getattr(Hive, kind)(GROUPS if kind == "federated" else agents, **options))
        return opened[-1]

    yield hive
    for one in opened:
        one.close()


def texts(answer: Any) -> list[str]:
    return [hit.memory.text for hit in answer]


def test_a_single_agent_has_one_bank_and_no_hive_around_it(make: Make) -> None:
    hive = make("single", "ana")
    hive.agent("ana").remember(PORT)

    assert hive.plain
    assert texts(hive.agent("ana").recall("staging database")) == [PORT]


@pytest.mark.parametrize("kind", ["flat", "federated", "sharded"])
def test_what_one_agent_learns_every_other_finds_at_once_whatever_the_layout(make: Make, kind: str) -> None:
    hive = make(kind)
    hive.agent("ana").remember(PORT, confidence=0.8)

    for agent in ("bob", "cy", "dora"):
        assert texts(hive.agent(agent).recall("which port has the staging database")) == [PORT]


def test_what_is_sure_is_copied_to_every_group_and_the_rest_stays_and_is_found(make: Make) -> None:
    hive = make("federated")
    sure = hive.agent("ana").remember(PORT, confidence=0.95).memory
    likely = hive.agent("ana").remember("The north door opens at seven.", confidence=0.6).memory

    holders = {
        memory.id: [name for name, member in hive.members.items() if member.get(memory.id) is not None]
        for memory in (sure, likely)
    }
    assert set(GROUPS) <= set(holders[sure.id])
    assert holders[likely.id] == ["infra"]
    assert hive.agent("cy").recall("when does the north door open")[0].memory.id == likely.id


def test_an_agent_holds_a_bank_and_does_not_know_the_layout(make: Make) -> None:
    def work(bank: Any) -> list[str]:
        bank.remember(PORT, confidence=0.8)
        return texts(bank.recall("staging database", limit=1))

    with Bank.open(":memory:", embedder=HashingEmbedder(64)) as alone:
        assert work(alone) == work(make("flat").agent("ana")) == work(make("sharded").agent("ana")) == [PORT]


def test_a_member_answers_from_its_own_bank_and_asks_nobody(make: Make) -> None:
    hive = make("sharded")
    hive.agent("ana").remember(PORT)
    asked: list[str] = []
    whole = hive.bus.publish
    hive.bus.publish = lambda subject, *args, **named: (
        asked.append(subject),
        whole(subject, *args, **named),
    )[1]  # type: ignore[method-assign]
    hive.agent("bob").recall("staging database")

    assert len(asked) <= len(hive.members)


def test_the_preset_hive_weighs_meaning_confirmations_and_trust_as_the_document_does() -> None:
    assert PRESETS["hive"].weights == {"semantic": 0.5, "confirmations": 0.3, "trust": 0.2}
    assert PRESETS["hive"].matched_terms
    assert PRESETS["rrf"].rrf_k == 60


def test_without_vectors_an_answer_comes_by_words(clock: Now) -> None:
    with Bank.open(":memory:", embedder=HashingEmbedder(64), now=clock) as bank:
        bank.remember(PORT, confidence=0.8)
        (hit,) = bank.recall("staging port", preset="hive", config={"k_vectors": 0})

    assert hit.memory.text == PORT
    assert "lexical" in hit.signals or "matched" in hit.signals


def test_groups_are_ranked_together_by_one_scale_and_a_fact_with_copies_comes_once(make: Make) -> None:
    hive = make("federated")
    hive.agent("ana").remember(PORT, confidence=0.95)
    hive.agent("cy").remember("The staging database is backed up at noon.", confidence=0.6)
    found = texts(hive.agent("dora").recall("staging database"))

    assert len(found) == len(set(found)) == 2


def test_the_same_words_from_another_agent_are_a_confirmation_and_no_second_fact(make: Make) -> None:
    hive = make("flat")
    first = hive.agent("ana").remember(PORT).memory
    again = hive.agent("bob").remember(PORT).memory

    assert again.id == first.id
    assert texts(hive.agent("cy").recall("staging database")) == [PORT]


def test_the_constants_of_the_document_are_the_defaults_of_the_policy() -> None:
    policy = HivePolicy()

    assert (policy.broadcast_at, policy.gossip_at, policy.promote_at) == (0.9, 0.3, 0.3)
    assert (policy.fanout, policy.gossip_top) == (2, 10)
    assert (policy.over_fetch, policy.over_fetch_min, policy.domain_boost) == (10, 200, 3)
    assert (policy.budget(5), policy.budget(50)) == (200, 500)


def test_replicas_agree_whatever_arrives_in_which_order_and_how_often(clock: Now) -> None:
    with (
        Bank.open(":memory:", embedder=HashingEmbedder(64), now=clock) as one,
        Bank.open(":memory:", embedder=HashingEmbedder(64), now=clock) as other,
    ):
        kept, gone = one.remember(PORT).memory, one.remember("The north door opens at seven.").memory
        one.retract(gone.id)
        one.set_setting("trust/eve", 0.5)
        other.set_setting("trust/eve", 0.2)
        mine, theirs = list(one.events()), list(other.events())
        other.apply(reversed(mine))
        other.apply(mine)
        one.apply(theirs)

        for bank in (one, other):
            assert [memory.id for memory in bank.find().memories] == [kept.id]
        assert one.setting("trust/eve") == other.setting("trust/eve")


def test_gossip_picks_two_peers_by_trust_and_ends_when_all_know_all(make: Make) -> None:
    hives = {name: make("flat", name=name) for name in "abc"}
    hives["a"].agent("ana").remember(PORT, confidence=0.9)
    hives["b"].agent("bob").remember("The north door opens at seven.", confidence=0.9)
    before = convergence(hives.values())
    Gossip(hives, rng=random.Random(1)).run(limit=20)

    assert (before, convergence(hives.values())) == (0.0, 1.0)
    assert len(choose(list("bcdef"), 2, lambda _: 1.0, random.Random(1))) == 2
    assert choose(["b", "c"], 2, lambda name: float(name == "b"), random.Random(1)) == ["b"]


def test_a_promotion_is_told_to_peers_at_once_keeps_its_author_and_never_comes_back(make: Make) -> None:
    a, b = make("flat", name="a"), make("flat", name="b")
    a.connect({"b": b})
    b.connect({"a": a})
    stored = a.agent("ana").remember(PORT).memory

    told = b.get(stored.id)
    assert told is not None
    assert told.agent == "ana"
    assert len(list(a.members.registers.bank.events())) == 1


def test_confidence_fades_by_the_hour_when_read_and_is_stored_as_it_was(make: Make, clock: Clock) -> None:
    hive = make("flat", policy={"decay_per_hour": 0.01})
    stored = hive.agent("ana").remember(PORT, confidence=0.8).memory
    clock.now += 90 * 3600  # 0.8 * exp(-0.9) is above 0.3, ten hours later it is below
    for _ in range(3):
        assert texts(hive.agent("bob").recall("staging database")) == [PORT]
    assert hive.agent("bob").get(stored.id).confidence == 0.8
    clock.now += 10 * 3600
    assert 0.8 * math.exp(-1.0) < 0.3
    assert texts(hive.agent("bob").recall("staging database")) == []


def test_gc_takes_what_outlived_its_ttl_and_nothing_where_there_is_none(make: Make, clock: Clock) -> None:
    fleeting, lasting = make("flat", policy={"ttl": DAY}), make("flat")
    gone = fleeting.agent("ana").remember(PORT).memory
    lasting.agent("ana").remember(PORT)
    clock.now += DAY

    assert (list(fleeting.gc()), list(lasting.gc())) == ([gone.id], [])


def test_one_agents_day_runs_through_the_orchestrator(make: Make) -> None:
    hive, peer = make("flat", name="here"), make("flat", name="there")
    peer.agent("cy").remember("The north door opens at seven.")
    ana = Orchestrator(hive, "ana", peers={"there": peer}, rng=random.Random(1))
    stored = ana.store_and_promote(PORT)

    assert stored.decision.verdict == "promoted"
    assert set(texts(ana.query_unified("staging database or north door", limit=5))) == {
        PORT,
        "The north door opens at seven.",
    }
    assert ana.run_gossip_round().convergence == 1.0
    assert ana.drain_events().failed == 0


def test_two_hives_without_a_name_do_not_share_one(make: Make, tmp_path: Path) -> None:
    names = {make("flat").name, make("flat").name, make("flat", store=tmp_path).name}
    again = make("flat", store=tmp_path).name

    assert len(names) == 3
    assert again in names  # the hive of a folder keeps its name
    with pytest.raises(InvalidInputError, match="needs a name"):
        make("sharded", local=["ana"])


def test_keys_of_the_original_manifest_are_refused_by_name_all_at_once() -> None:
    pytest.importorskip("yaml")
    with pytest.raises(ManifestError) as caught:
        parse(
            """
            name: research
            graph_store: {backend: kuzu}
            event_bus: {backend: azure_service_bus}
            consensus: {required: 3}
            agents:
              - {name: ana, domain: infra, trust: 7}
              - {agent_id: bob}
            bus: carrier-pigeon
            """,
            {},
        )
    lines = [finding.line() for finding in caught.value.findings]

    assert any("graph_store" in line and "store: FOLDER" in line for line in lines)
    assert any("event_bus" in line and "bus: nats://HOST:4222" in line for line in lines)
    assert any("consensus" in line and "nobody votes" in line for line in lines)
    assert any("agents[0].domain" in line and "domains: [NAME]" in line for line in lines)
    assert any("agents[0].trust" in line for line in lines)
    assert any("agents[1].agent_id" in line and "write name" in line for line in lines)
    assert any(line.startswith("bus:") for line in lines)


MANIFEST = """{"name": "research", "topology": "flat", "store": "banks",
"agents": [{"name": "ana", "trust": 1.5}, {"name": "eve", "trust": 0.2}]}"""


def test_a_hive_opens_with_the_trust_of_its_manifest(tmp_path: Path) -> None:
    manifest = parse(MANIFEST, {}, name="hive.json")
    with Controller(manifest, folder=tmp_path, embedder=HashingEmbedder(64)).open() as hive:
        assert (hive.trust.of("ana"), hive.trust.of("eve")) == (1.5, 0.2)
        assert hive.agent("eve").remember(PORT).decision.verdict == "quarantined"
        hive.trust.set("eve", 1.0)
    with Controller(manifest, folder=tmp_path, embedder=HashingEmbedder(64)).open() as again:
        assert again.trust.of("eve") == 1.0  # what was said since stays until the next apply


def test_desired_state_is_planned_applied_and_then_there_is_nothing_to_do(tmp_path: Path) -> None:
    made = Controller(parse(MANIFEST, {}, name="hive.json"), folder=tmp_path, embedder=HashingEmbedder(64))

    assert made.plan()
    assert made.apply()
    assert (made.plan(), made.apply()) == ([], [])


def test_the_ranking_of_a_hive_may_count_trust_and_confirmations(make: Make) -> None:
    nightly, kept = (
        "Backups of the billing service run nightly.",
        "Backups of the billing service stay a month.",
    )
    orders: list[list[str]] = []
    for weights in ({}, {"trust": 1.0, "confirmations": 1.0}):
        hive = make("sharded", policy={"weights": weights})
        hive.trust.set("dora", 0.4)
        hive.trust.set("ana", 2.0)
        hive.agent("dora").remember(nightly)
        confirmed = hive.agent("ana").remember(kept).memory
        for agent in ("bob", "cy"):
            hive.agent(agent).confirm(confirmed.id)
        asked = "do backups of the billing service run nightly"
        orders.append(texts(hive.agent("cy").recall(asked, config={"updates": False})))

    assert orders == [[nightly, kept], [kept, nightly]]


def addressed(folder: Path) -> str:
    (folder / "hive.json").write_text(MANIFEST, encoding="utf-8")
    return f"hive://{folder / 'hive.json'}#ana"


def test_an_agent_of_a_hive_is_opened_by_an_address(tmp_path: Path) -> None:
    address = addressed(tmp_path)
    with pytest.raises(NotFoundError, match="ana, eve"):
        open_agent(address.replace("#ana", ""), {})
    bank = open_agent(address, {})
    bank.remember(PORT, agent="a program")
    bank.close()

    bank = open_agent(address, {})
    assert [memory.agent for memory in bank.find().memories] == ["ana"]
    bank.close()


def test_commands_take_the_address_of_an_agent_for_a_bank(tmp_path: Path) -> None:
    address = addressed(tmp_path)

    def run(*words: str, given: str = address) -> Result:
        return CliRunner().invoke(app, ["--bank", given, *words])

    assert run("add", PORT).exit_code == 0
    for words in (("search", "staging database"), ("list",)):
        assert PORT in run(*words, given=address.replace("#ana", "#eve")).stdout
    assert "name the file of its bank" in str(run("export", "-").exception)
    assert "skep hive status" in str(run("sync", "status").exception)
    assert "--hive hive.yaml --name NAME" in run("agent", "ask", "port").stderr
    with pytest.raises(ConfigError, match="open_agent"):
        Bank.open(address)


def test_mcp_serves_a_hive_as_it_serves_a_bank(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "skep", "mcp", "--hive", addressed(tmp_path).removeprefix("hive://")]
    asked = [
        (
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "c", "version": "1"},
            },
        ),
        ("tools/call", {"name": "remember", "arguments": {"text": PORT}}),
        ("tools/call", {"name": "recall", "arguments": {"query": "staging database"}}),
    ]
    frames = [
        {"jsonrpc": "2.0", "id": at, "method": method, "params": given}
        for at, (method, given) in enumerate(asked)
    ]
    frames.insert(1, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    said = subprocess.run(
        command,
        input="".join(json.dumps(frame) + "\n" for frame in frames),
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    (answer,) = (one for one in map(json.loads, said.splitlines()) if one.get("id") == 2)
    assert PORT in answer["result"]["content"][0]["text"]


def test_http_serves_a_hive_as_it_serves_a_bank(tmp_path: Path) -> None:
    from skep.client.verb_table import verbs
    from skep.server.served_banks import ServedBanks, opener
    from skep.server.verb_calls import perform_once

    served = ServedBanks({"team": addressed(tmp_path)}, opener({}))
    bank = served.bank("team")
    verb = verbs()["remember"]
    stored, again = perform_once(bank, verb, {"text": PORT}, key="k", asked=b"1")
    repeated, second = perform_once(bank, verb, {"text": PORT}, key="k", asked=b"1")

    assert (again, second, repeated["memory"].id) == (False, True, stored.memory.id)
    assert texts(bank.recall("staging database")) == [PORT]
    served.close()


def test_a_scheme_that_is_no_hub_is_refused() -> None:
    with pytest.raises(ConfigError, match="no kind of hub that skep knows"):
        Bank.open("kafka://team.servicebus.windows.net/memories")
