"""Texts to vectors: the embedder protocol, one module per provider, and the queue for slow ones.

Importing this package imports neither numpy nor any optional dependency.
"""

from skep.embedding.embedder import Embedder, default_embedder, open_embedder

__all__ = ["Embedder", "default_embedder", "open_embedder"]
