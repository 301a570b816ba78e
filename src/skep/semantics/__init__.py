"""Conflicts, lineage and links: what memories mean to one another."""
