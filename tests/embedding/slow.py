"""An embedder that is not instant, as a model or a service is."""

from __future__ import annotations

from skep.embedding.static_table import HashingEmbedder


class NotInstant(HashingEmbedder):
    """Hashes words like its base, and says that it takes its time."""

    @property
    def instant(self) -> bool:
        return False

    @property
    def fingerprint(self) -> str:
        return f"slow-{self.dim}"
