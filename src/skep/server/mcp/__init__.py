"""The Model Context Protocol, spoken by a small typed loop of our own."""

from __future__ import annotations
