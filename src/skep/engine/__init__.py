"""One open bank, put together: the store, its derived index, and the embedder at work on it."""

from skep.engine.core import Engine
from skep.engine.embeddings import Embeddings, Progress

__all__ = ["Embeddings", "Engine", "Progress"]
