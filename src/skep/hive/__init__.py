"""Many banks that share: replication, topologies, gossip, trust and control, without a coordinator.

The names below are imported when they are first used, so that a command that needs one of them loads no more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.hive.agent import AgentBank, Promoted
    from skep.hive.asking import Answer
    from skep.hive.bus.local import LocalBus
    from skep.hive.controller import Controller
    from skep.hive.crdt import GSet, LWWRegister, ORSet, PNCounter
    from skep.hive.gossip import Gossip, convergence
    from skep.hive.hive import Hive
    from skep.hive.orchestrator import Orchestrator
    from skep.hive.policy import Decision, HivePolicy, PromotionPolicy
    from skep.hive.replica import Synced, sync
    from skep.hive.signing import Keyring, Signer
    from skep.hive.transfer import apply_changes, export_changes

_HOMES = {
    "AgentBank": "agent",
    "Answer": "asking",
    "Controller": "controller",
    "Decision": "policy",
    "GSet": "crdt",
    "Gossip": "gossip",
    "Hive": "hive",
    "HivePolicy": "policy",
    "Keyring": "signing",
    "LWWRegister": "crdt",
    "LocalBus": "bus.local",
    "ORSet": "crdt",
    "Orchestrator": "orchestrator",
    "PNCounter": "crdt",
    "Promoted": "agent",
    "PromotionPolicy": "policy",
    "Signer": "signing",
    "Synced": "replica",
    "apply_changes": "transfer",
    "convergence": "gossip",
    "export_changes": "transfer",
    "sync": "replica",
}

__all__ = [
    "AgentBank",
    "Answer",
    "Controller",
    "Decision",
    "GSet",
    "Gossip",
    "Hive",
    "HivePolicy",
    "Keyring",
    "LWWRegister",
    "LocalBus",
    "ORSet",
    "Orchestrator",
    "PNCounter",
    "Promoted",
    "PromotionPolicy",
    "Signer",
    "Synced",
    "apply_changes",
    "convergence",
    "export_changes",
    "sync",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
