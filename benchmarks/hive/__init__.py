"""Measurements of the hive: parity with one bank, cost of a scatter, cost of a sync."""
