"""Replicas of a bank: what each has seen, what a peer lacks, signed events, files of changes."""
