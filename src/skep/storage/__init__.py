"""The truth: the log, the tables derived from it, and the index derived from those. SQL lives here alone."""

from __future__ import annotations
