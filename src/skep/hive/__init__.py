"""Many banks that share: replication, topologies, gossip, trust and control, without a coordinator."""
