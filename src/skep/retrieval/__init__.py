"""Recall: candidates, signals, fusion, choice and marks, as one pipeline of pure stages."""

from __future__ import annotations
