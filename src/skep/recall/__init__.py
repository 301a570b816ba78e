"""Recall on an open bank: the search, the tool, the passive stream, the context budget."""

from __future__ import annotations
