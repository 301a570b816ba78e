"""Many banks that share: replication, topologies, gossip, trust and control, without a coordinator.

The names below are imported when they are first used, so that a command that needs one of them loads no more.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skep.hive.agent_bank import AgentBank, Promoted
    from skep.hive.bus.in_process import LocalBus
    from skep.hive.controller import Controller
    from skep.hive.gateway import Decision, HivePolicy, PromotionPolicy
    from skep.hive.gossip import Gossip, convergence
    from skep.hive.hive import Hive
    from skep.hive.hive_recall import Answer
    from skep.hive.orchestrator import Orchestrator
    from skep.replication.change_files import apply_changes, export_changes
    from skep.replication.exchange import Synced, sync
    from skep.replication.signatures import Keyring, Signer


_HOMES = {
    "AgentBank": "hive.agent_bank",
    "Answer": "hive.hive_recall",
    "Controller": "hive.controller",
    "Decision": "hive.gateway",
    "Gossip": "hive.gossip",
    "Hive": "hive.hive",
    "HivePolicy": "hive.gateway",
    "Keyring": "replication.signatures",
    "LocalBus": "hive.bus.in_process",
    "Orchestrator": "hive.orchestrator",
    "Promoted": "hive.agent_bank",
    "PromotionPolicy": "hive.gateway",
    "Signer": "replication.signatures",
    "Synced": "replication.exchange",
    "apply_changes": "replication.change_files",
    "convergence": "hive.gossip",
    "export_changes": "replication.change_files",
    "sync": "replication.exchange",
}

__all__ = [
    "AgentBank",
    "Answer",
    "Controller",
    "Decision",
    "Gossip",
    "Hive",
    "HivePolicy",
    "Keyring",
    "LocalBus",
    "Orchestrator",
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
    return getattr(importlib.import_module(f"skep.{_HOMES[name]}"), name)
