"""Conflicts, lineage and links: what memories mean to one another."""

from __future__ import annotations
