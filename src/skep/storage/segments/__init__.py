"""The derived index of words and vectors: immutable, memory-mapped segments beside the bank.

Nothing here is the truth: delete the folder and it is built again from the store.
"""

from __future__ import annotations

from skep.storage.segments.index import IndexStats, Neighbours, Pool, SegmentIndex

__all__ = ["IndexStats", "Neighbours", "Pool", "SegmentIndex"]
