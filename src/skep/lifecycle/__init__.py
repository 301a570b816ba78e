"""Confidence, learning, merging, reflection, the judge: how a memory keeps itself clean."""

from __future__ import annotations
